"""Every verb of the command line, and the text of `cptlaw --help`; without an import that takes time."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A row of the help; `module`, `pipeline.steps.STEPS` or `pipeline.cli.verbs.FUNCTIONS` has what carries it out."""

    help: str
    on_study: bool = False
    """Whether it takes a study folder, and reads the question from the study.yaml in it, also where a name is given."""
    module: str = ""
    """The module of `pipeline.cli` with HELP and `carry_out` of a verb that has keys of its own.

    It gets the words, a console and, with --json, a function for what is printed; an error that it raises for a mistake
    of the user is shown as it is, a line each."""
    or_study: bool = False
    """Whether it takes a study folder in place of a question."""
    options: tuple[str, ...] = ()
    """Options without a value that it takes."""


JSON = ("--json",)
VERBS = {
    "quickstart": Verb("all steps from prepare to report, on this machine"),
    "model": Verb(
        "fetch and convert a base model; say what it is: smollm2-135m, gemma3-270m or a PATH", module="base_model"
    ),
    "advise": Verb("all steps for a base model and your corpora: which domain ratio and peak", module="advise"),
    "prepare": Verb("tokenise the corpora, train the tokenizer, measure the precision", or_study=True),
    "prepare validation": Verb("choose validation documents; validation.models=[A,B] corpora.validation=FOLDER"),
    "plan": Verb("print runs, tokens, FLOPs, time and disk; trains nothing", or_study=True, options=JSON),
    "train": Verb("train the planned runs; run=HASH trains one, -m sweeps", or_study=True),
    "continue": Verb("take the steps that are left; jobs behind the runs on a cluster do it", True),
    "status": Verb("progress of each run, and why its job waits", True, options=JSON),
    "cancel": Verb("cancel the study's jobs on the cluster; running ones save first", True),
    "collect": Verb("join all validation losses into points.parquet", True),
    "import": Verb(
        "losses of runs made elsewhere become a study: trainer_state.json, wandb, CSV", module="import_runs"
    ),
    "laws": Verb("the laws that can be fitted; laws NAME: equation, parameters, columns, source", module="laws"),
    "fit": Verb("fit the laws, with intervals; points=FILE fits any table of losses", True, options=JSON),
    "recommend": Verb("answer the goal: domain ratio, interval, predicted losses", True, options=JSON),
    "predict": Verb(
        "losses of a run of any length, peak and mixture by the fits; domain_ratio=0.3", module="predict", options=JSON
    ),
    "confirm": Verb("train runs that the fit has not seen, and compare them with the prediction", True, options=JSON),
    "follow": Verb(
        "the log of the real run as it grows, beside its prediction: where it leaves it, its end anew, what to change",
        module="follow",
        options=("--json", "--watch"),
    ),
    "refine": Verb("choose and train one more round of runs, and answer again", True),
    "report": Verb("write report.html; --open shows it in a browser", True, options=("--open",)),
    "export": Verb("the recommended run for another trainer: format=trl, megatron, ...", True, "export"),
    "tables": Verb("the papers' tables beside ours; tables.papers=FOLDER, tables.run=true trains studies", True),
    "track sync": Verb("bring wandb's copy of a study up to date, and upload it where an API key is known", True),
    "evaluate": Verb("down-stream tasks of kept checkpoints by lm-eval; evaluate.tasks=[hellaswag]", True),
}
"""Every verb, in the order of use. A new verb is a row here and one of `FUNCTIONS` in `pipeline.cli.verbs`."""

EXPORT = ("format=trl", "output=trl.yaml", "without_validation=true")
"""What `next:` gives to export."""
HYDRA_OPTIONS = {
    **{"-c": "--cfg", "-i": "--info", "-p": "--package", "-r": "--run", "-m": "--multirun"},
    **{"-cp": "--config-path", "-cn": "--config-name", "-cd": "--config-dir", "-sc": "--shell-completion"},
    **{name: name for name in ("--cfg", "--info", "--package", "--resolve", "--run", "--multirun", "--hydra-help")},
    **{name: name for name in ("--config-path", "--config-name", "--config-dir", "--experimental-rerun")},
    "--shell-completion": "--shell-completion",
}
"""Option of Hydra, short or long -> its long name."""

HELP = """cptlaw: find the data mixture and the loss of continual pre-training from a few small runs.

It trains small or short runs, fits scaling laws with intervals, recommends a mixture, and confirms it with runs that no
fit has seen; of a large run it reads the log. Schedule and length are yours to give.

usage: cptlaw VERB [STUDY_FOLDER] [key=value ...] [--debug]

{verbs}

examples:
  cptlaw quickstart                              the built-in example, 4 to 15 minutes on two cores
  cptlaw plan experiment=quickstart 'mixture.domain_ratio=[0.1,0.5,0.9]'
  cptlaw plan experiment=own corpora.sources.general.path=prose/ corpora.sources.domain.path=law.jsonl.gz
  cptlaw advise smollm2-135m corpora.sources.domain.path=law.jsonl.gz corpora.sources.general.path=prose/
  cptlaw report studies/quickstart               the report of an existing study
  cptlaw export studies/quickstart format=trl    the recommended run as the configuration of another trainer
  cptlaw tables tables.run=true                  train every study that the papers' tables need, then make the tables
  cptlaw fit points=runs.csv 'law=[dcpt,chinchilla]' columns='{{N: params_b, D: tokens_b, loss: val_loss}}'

cptlaw VERB --help lists the keys that people set first, --help all every key, --help goal those of a section. Overrides
follow Hydra: group=word of conf/, key=value, 'key=[a,b]'; so do --cfg job, which prints the question, and --info.
status, plan, fit, recommend, predict, confirm and follow take --json. eval "$(cptlaw -sc install=bash)": Tab completes.
exit codes: {codes}
"""

EXIT_CODES = """0 done; 1 a run failed, recommend finds nothing that meets the goal, or an error of the program (--debug
shows where); 2 bad configuration; 3 input missing or disk full; 75 stopped or waiting: remove the file STOP of the
study if there is one, and give the command again"""
"""README has the same words."""
