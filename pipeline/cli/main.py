"""The command line: a verb and Hydra overrides; a mistake of the user is one line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from training.stop import ignore_signals, interrupt_on_signals, leave_on_signals


class Verb(NamedTuple):
    """A row of the help; `pipeline.steps.STEPS` or `pipeline.cli.verbs.FUNCTIONS` has what carries it out."""

    help: str
    on_study: bool = False
    """Whether it takes a study folder, and reads the question from the study.yaml in it, also where a name is given."""
    module: str = ""
    """Of a verb with keys of its own: the module of `pipeline.cli` with its HELP and `carry_out(words, console)`."""
    or_study: bool = False
    """Whether it takes a study folder in place of a question."""


VERBS = {
    "quickstart": Verb("all steps from prepare to report, on this machine"),
    "model": Verb("fetch and convert a base model; say what it is: smollm2-135m or a PATH", module="base_model"),
    "advise": Verb("all steps for a base model and your corpora: which domain ratio and peak", module="advise"),
    "prepare": Verb("tokenise the corpora, train the tokenizer, measure the precision", or_study=True),
    "prepare validation": Verb("choose validation documents; validation.models=[A,B] corpora.validation=FOLDER"),
    "plan": Verb("print runs, tokens, FLOPs, time and disk; trains nothing"),
    "train": Verb("train the planned runs; run=HASH trains one, -m sweeps", or_study=True),
    "continue": Verb("take the steps that are left; jobs behind the runs on a cluster do it", True),
    "status": Verb("progress of each run, and why its job waits", True),
    "cancel": Verb("cancel the study's jobs on the cluster; running ones save first", True),
    "collect": Verb("join all validation losses into points.parquet", True),
    "import": Verb(
        "losses of runs made elsewhere become a study: trainer_state.json, wandb, CSV", module="import_runs"
    ),
    "laws": Verb("the laws that can be fitted; laws NAME: equation, parameters, columns, source", module="laws"),
    "fit": Verb("fit the laws, with intervals; points=FILE fits any table of losses", True),
    "recommend": Verb("answer the goal: domain ratio, interval, predicted losses", True),
    "confirm": Verb("train runs that the fit has not seen, and compare them with the prediction", True),
    "refine": Verb("choose and train one more round of runs, and answer again", True),
    "report": Verb("write report.html", True),
    "export": Verb("the recommended run for another trainer: format=trl, megatron, ...", True, "export"),
    "tables": Verb("the papers' tables beside ours; tables.papers=FOLDER, tables.run=true trains studies", True),
    "track sync": Verb("bring wandb's copy of a study up to date, and upload it where an API key is known", True),
    "evaluate": Verb("down-stream tasks of kept checkpoints by lm-eval; evaluate.tasks=[hellaswag]", True),
}
"""Every verb, in the order of use. A new verb is a row here and one of `FUNCTIONS` in `pipeline.cli.verbs`."""
_HYDRA_FLAGS = (
    *("-m", "--multirun", "-c", "--cfg", "-i", "--info", "--hydra-help", "-sc", "--shell-completion", "--resolve"),
)
_KEEPING = ("fit", "recommend", "confirm")
"""Verbs whose overrides of laws, goal, bootstrap, confirmation and design are kept in the study."""
_OF_A_STUDY = ("experiment", "name", "points", "tables.points", "corpora")
"""Keys that name the study of `cptlaw tables`."""

_STOPPED = 75
"""Exit code of a command that a signal stopped; `training.run.Exit`, which this module does not load."""

HELP = """cptlaw: find the data mixture and learning-rate schedule for continual pre-training, from a few small runs.

It trains small models, fits a scaling law with intervals, recommends a mixture, and confirms it with held-out runs.

usage: cptlaw VERB [STUDY_FOLDER] [key=value ...] [--debug]

{verbs}

examples:
  cptlaw quickstart                              the built-in example, 5 to 15 minutes on two cores
  cptlaw plan experiment=quickstart 'mixture.domain_ratio=[0.1,0.5,0.9]'
  cptlaw plan experiment=own corpora.sources.general.path=prose/ corpora.sources.domain.path=law.jsonl.gz
  cptlaw advise smollm2-135m corpora.sources.domain.path=law.jsonl.gz corpora.sources.general.path=prose/
  cptlaw report studies/quickstart               the report of an existing study
  cptlaw export studies/quickstart format=trl    the recommended run as the configuration of another trainer
  cptlaw tables tables.run=true                  train every study that the papers' tables need, then make the tables
  cptlaw fit points=runs.csv 'law=[dcpt,chinchilla]' columns='{{N: params_b, D: tokens_b, loss: val_loss}}'

cptlaw plan --help lists every key, cptlaw VERB --help what VERB takes. Overrides follow Hydra: group=file of conf/,
key=value, 'key=[a,b]'.
exit codes: 0 done, 1 crash, a failed run, or nothing meets the goal, 2 bad configuration, 3 input missing or disk full,
75 stopped or waiting, no error: remove the file STOP of the study if there is one, and give the command again
"""


def main() -> None:
    """Entry of the command line."""
    # Read when numpy is loaded. A fit uses all cores by processes: threads of theirs would wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_on_signals("stopped before anything was written")
    # Imported objects stay alive: collecting garbage among them took a third of the time of `cptlaw plan`.
    gc.set_threshold(100_000, 20, 20)
    try:
        # Then as Ctrl-C: runs save their state, and the exit code is 75.
        code = run(sys.argv[1:], loaded=interrupt_on_signals)
    except KeyboardInterrupt:  # a second signal
        code = _STOPPED
    ignore_signals()
    sys.exit(code)


def run(arguments: Sequence[str], loaded: Callable[[], object] = lambda: None) -> int:
    """Carry out a command line; returns the exit code. `loaded` is called before anything is written."""
    words = [word for word in arguments if word != "--debug"]
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, VERBS))
        print(HELP.format(verbs="\n".join(f"  {name:{width}}  {verb.help}" for name, verb in VERBS.items())), end="")
        return 0 if words else 2
    if " ".join(words[:2]) in VERBS:
        words[:2] = [" ".join(words[:2])]
    verb, rest = words[0], words[1:]
    if verb in ("--version", "-V"):
        from importlib.metadata import version

        print(f"cptlaw {version('cptlaw')}")
        return 0
    if verb not in VERBS:
        import difflib

        near = difflib.get_close_matches(verb, VERBS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"{verb}: not a verb; allowed: {', '.join(VERBS)}{hint}", file=sys.stderr)
        return 2
    if any(word in ("-h", "--help") for word in rest):
        if VERBS[verb].module:
            print(
                f"cptlaw {verb}: {VERBS[verb].help}\n{import_module(f'pipeline.cli.{VERBS[verb].module}').HELP}", end=""
            )
        else:
            _print_keys(verb)
        return 0
    return _carry_out(verb, rest, "--debug" in arguments, loaded)


def _carry_out(verb: str, rest: list[str], debug: bool, loaded: Callable[[], object]) -> int:
    from rich.console import Console

    from pipeline.cli import verbs
    from pipeline.launch.exit_codes import exit_code_of
    from pipeline.study.folder import keep_overrides
    from training.run import Exit

    console = Console()
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        if verb == "train" and any(word.split("=")[0] in _HYDRA_FLAGS for word in rest):
            loaded()
            return _hydra_app(rest)
        if verb == "fit" and any(word.startswith("points=") for word in rest):
            from pipeline.cli.fit_table import fit_table

            loaded()
            return int(fit_table(rest, console))
        if verb == "tables" and not any("=" not in word or word.split("=")[0] in _OF_A_STUDY for word in rest):
            from pipeline.cli.table_studies import make_all_tables

            loaded()
            return int(make_all_tables(rest, console, verbs.carry_out))
        if VERBS[verb].module:
            module = import_module(f"pipeline.cli.{VERBS[verb].module}")
            loaded()
            return int(module.carry_out(rest, console))
        question = _question(verb, rest)
        loaded()
        code = verbs.carry_out(verb, question, console)
        # Not before: a command that was refused leaves the question as it was.
        if verb in _KEEPING and (kept := keep_overrides(Path(question.studies) / question.name, rest)):
            console.print(f"kept in study.yaml: {' '.join(kept)}", highlight=False, markup=False, soft_wrap=True)
        return int(code)
    except (Exception, KeyboardInterrupt) as error:
        known = exit_code_of(error)
        if debug and known is None:
            raise
        code, line = known or (Exit.CRASH, f"{type(error).__name__}: {error} (--debug shows where)")
    if debug:
        import traceback

        traceback.print_exc()
    errors.print(line)
    return code


def _question(verb: str, rest: list[str]):
    from pipeline.goals.registry import question_of_study, read_question
    from pipeline.question.loading import selects_file
    from pipeline.question.messages import ConfigError

    on_study = VERBS[verb].on_study
    if verb == "tables":
        rest = [_kept(word) for word in rest]
    folders = [word for word in rest if "=" not in word and not word.startswith(("-", "~", "+"))]
    overrides = [word for word in rest if word not in folders]
    problems = [f"{word}: no such option" for word in overrides if word.startswith("-")]
    if not problems and len(folders) > (on_study or VERBS[verb].or_study):
        problems = [f"{folders[-1]}: not key=value"]
    if problems:
        raise ConfigError([f"{problem}; see cptlaw {verb} --help" for problem in problems])
    if folders:
        folder = Path(folders[0])
        # status and cancel skip the checks, which load scipy for half a second: study.yaml was checked before.
        return question_of_study(folder, overrides, again=bool(overrides) or verb not in ("status", "cancel"))
    if verb == "quickstart" and not any(word.startswith("experiment=") for word in overrides):
        overrides = ["experiment=quickstart", *overrides]
    question = read_question(overrides)
    folder = Path(question.studies) / question.name
    # Overrides that select whole groups ask a new question; single keys, laws and goals change the study's question.
    changes = ("experiment=", "law=", "goal=")
    new = any(selects_file(word) and not word.startswith(changes) for word in overrides)
    if on_study and (folder / "study.yaml").exists() and not new:
        return question_of_study(folder, overrides)
    return question


def _kept(word: str) -> str:
    """points=FILE as the folder of the study that it belongs to, or as tables.points=FILE."""
    file = Path(word.removeprefix("points="))
    if not word.startswith("points="):
        return word
    return str(file.parent) if (file.parent / "study.yaml").exists() else f"tables.points={file}"


def _hydra_app(rest: list[str]) -> int:
    import hydra

    from pipeline.cli.sweep import job
    from pipeline.question.loading import adding, store_laws

    store_laws()
    sys.argv = ["cptlaw train", *adding(rest)]
    hydra.main(config_path="pkg://conf", config_name="config", version_base="1.3")(job)()
    return 0


def _print_keys(verb: str) -> None:
    from rich.console import Console

    from conf import CONF, options
    from pipeline.question.messages import describe_keys, key_table
    from pipeline.question.presets import laws

    console = Console()
    console.print(f"cptlaw {verb}: {VERBS[verb].help}", highlight=False)
    place = "[STUDY_FOLDER] " if VERBS[verb].on_study or VERBS[verb].or_study else ""
    console.print(f"usage: cptlaw {verb} {place}[key=value ...]\n", highlight=False, markup=False)
    if verb == "fit":
        from pipeline.cli.fit_table import print_help

        print_help(console)
        console.print("A study:", highlight=False)
    folders = [path.name for path in CONF.iterdir() if path.name != "wandb_sweeps" and list(path.glob("*.yaml"))]
    groups = {**{folder: options(folder) for folder in folders}, "law": list(laws())}
    console.print("groups (group=word):", highlight=False)
    for group, words in sorted(groups.items()):
        console.print(f"  {group}: {', '.join(words)}", highlight=False, markup=False)
    console.print(key_table(describe_keys(), "what it is"), highlight=False, markup=False)
    console.print("files: " + str(CONF), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
