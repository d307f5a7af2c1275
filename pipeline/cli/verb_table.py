"""Every verb of the command line; without an import that takes time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Verb(NamedTuple):
    """A row of the help; `module`, `pipeline.steps.STEPS` or `pipeline.cli.verbs.FUNCTIONS` has what carries it out."""

    help: str
    on_study: bool = False
    """Whether it takes a study folder, and reads the question from the study.yaml in it, also where a name is given."""
    module: str = ""
    """The module of `pipeline.cli` with `carry_out` of a verb that has keys of its own, and HELP, what the words in
    braces of help/VERB.txt stand for: a schema for its keys, or names.

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

EXIT_CODES = """0 done; 1 a run failed, recommend finds nothing that meets the goal, or an error of the program (--debug
shows where); 2 bad configuration; 3 input missing or disk full; 75 stopped or waiting: remove the file STOP of the
study if there is one, and give the command again"""
"""README has the same words."""


def help_page(name: str) -> str:
    """The page of help of a verb, or of `cptlaw` itself, with words in braces."""
    return (Path(__file__).parent / "help" / f"{name}.txt").read_text()
