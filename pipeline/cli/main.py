"""The command line: a verb and Hydra overrides; a user's mistake is one line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from training.stop import SIGNALS

WORDS = {
    "quickstart": "the whole road at once, prepare to report, on this machine",
    "prepare": "tokenise the corpora, train the tokenizer, measure the precision",
    "prepare validation": "choose validation documents; validation.models=[A,B] corpora.validation=FOLDER",
    "plan": "print runs, tokens, FLOPs, time and disk before anything is spent",
    "train": "train what is planned; run=HASH trains one, -m sweeps",
    "status": "how far each run is, and why its job waits",
    "cancel": "cancel the study's jobs on the cluster; what runs saves first",
    "collect": "join all validation losses into points.parquet",
    "fit": "fit the laws, with intervals; points=FILE fits any table of losses",
    "recommend": "answer the goal: share, interval, losses",
    "confirm": "train runs that the fit has not seen, and compare",
    "report": "write report.html",
    "tables": "the papers' tables beside ours; tables.papers=FOLDER, tables.run=true trains what they need",
    "track sync": "bring wandb's copy of a study up to its files, and upload it where a key is known",
    "evaluate": "down-stream tasks of kept checkpoints by lm-eval; evaluate.tasks=[hellaswag]",
}
"""Verb -> what it does, in the order in which they are used."""
ON_A_STUDY = (
    *("status", "cancel", "collect", "fit", "recommend", "confirm", "report", "tables"),
    *("track sync", "evaluate"),
)
"""Verbs that read the question from the study's own study.yaml."""
_HYDRA_FLAGS = (
    "-m",
    "--multirun",
    "-c",
    "--cfg",
    "-i",
    "--info",
    "--hydra-help",
    "-sc",
    "--shell-completion",
    "--resolve",
)

HELP = """cptlaw: how should a language model be continued on a new domain?

A few small real runs, a fitted law with error bars, and confirmation runs that prove the prediction.

usage: cptlaw VERB [STUDY_FOLDER] [key=value ...] [--debug]

{verbs}

examples:
  cptlaw quickstart                              the embedded question, 12 minutes on two cores
  cptlaw plan experiment=quickstart 'mixture.domain_ratio=[0.1,0.5,0.9]'
  cptlaw plan experiment=own corpora.sources.general.path=prose/ corpora.sources.domain.path=law.jsonl.gz
  cptlaw report studies/quickstart               on a study that exists, here or from elsewhere
  cptlaw tables tables.run=true                  every study that the papers' tables need, and the tables
  cptlaw fit points=runs.csv 'law=[dcpt,chinchilla]' columns='{{N: params_b, D: tokens_b, loss: val_loss}}'

cptlaw VERB --help lists every key. Keys follow Hydra: group=file of conf/, key=value, 'key=[a,b]'.
exit codes: 0 done, 1 crash or a failed run, 2 bad configuration, 3 input missing, 75 saved, run me again
"""


def main() -> None:
    """Entry of the command line."""
    for number in SIGNALS:
        # As Ctrl-C: what trains saves, and the exit code says that the same command goes on.
        signal.signal(number, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; returns the exit code."""
    words = [word for word in arguments if word != "--debug"]
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, WORDS))
        print(HELP.format(verbs="\n".join(f"  {verb:{width}}  {what}" for verb, what in WORDS.items())), end="")
        return 0 if words else 2
    if " ".join(words[:2]) in WORDS:
        words[:2] = [" ".join(words[:2])]
    verb, rest = words[0], words[1:]
    if verb in ("--version", "-V"):
        from importlib.metadata import version

        print(f"cptlaw {version('cptlaw')}")
        return 0
    if verb not in WORDS:
        import difflib

        near = difflib.get_close_matches(verb, WORDS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"{verb}: not a verb{hint} allowed: {', '.join(WORDS)}", file=sys.stderr)
        return 2
    if any(word in ("-h", "--help") for word in rest):
        _print_keys(verb)
        return 0
    return _carry_out(verb, rest, debug="--debug" in arguments)


def _carry_out(verb: str, rest: list[str], debug: bool) -> int:
    from rich.console import Console

    from pipeline.cli import verbs
    from pipeline.question.messages import ConfigError
    from pipeline.study.folder import StudyError
    from training.corpora.documents import CorpusError
    from training.spec import SpecError

    console = Console()
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        if verb == "train" and any(word.split("=")[0] in _HYDRA_FLAGS for word in rest):
            return _hydra_app(rest)
        if verb == "fit" and any(word.startswith("points=") for word in rest):
            from pipeline.cli.fit_table import fit_table

            return int(fit_table(rest, console))
        if verb == "tables" and not any(_names_a_study(word) for word in rest):
            from pipeline.cli.table_studies import make_all_tables

            return int(make_all_tables(rest, console, verbs.carry_out))
        question = _question(verb, rest)
        return int(verbs.carry_out(verb, question, console))
    except (ConfigError, *_of_fitting()) as error:
        code, lines = 2, str(error)
    except (CorpusError, StudyError, SpecError) as error:
        code, lines = 3, str(error)
    except KeyboardInterrupt:
        code, lines = 75, "stopped; the same command goes on from what is done"
    except Exception as error:
        from pipeline.launch.worker import DISK_ERRORS, disk_message

        if debug:
            raise
        code, lines = 1, f"{type(error).__name__}: {error} (--debug shows where)"
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            code, lines = 3, disk_message(error, "disk")
    if debug:
        import traceback

        traceback.print_exc()
    errors.print(lines)
    return code


def _of_fitting() -> list[type[Exception]]:
    """What `fitting` raises for a table that cannot be fitted; nothing where nobody loaded it, and scipy with it."""
    fitting = sys.modules.get("fitting")
    return [fitting.PointsError] if fitting else []


def _question(verb: str, rest: list[str]):
    from conf import CONF
    from pipeline.question.loading import question_of_study, read_question
    from pipeline.question.messages import ConfigError

    if verb == "tables":
        rest = [_kept(word) for word in rest]
    folders = [word for word in rest if "=" not in word and not word.startswith(("-", "~", "+"))]
    overrides = [word for word in rest if word not in folders]
    if unknown := [word for word in overrides if word.startswith("-")]:
        raise ConfigError([f"{word}: no such option; see cptlaw {verb} --help" for word in unknown])
    if len(folders) > 1 or (folders and verb not in ON_A_STUDY):
        raise ConfigError([f"{folders[-1]}: not key=value; see cptlaw {verb} --help"])
    if folders:
        folder = Path(folders[0])
        # To look and to cancel, half a second with scipy need not be spent on what was checked before.
        return question_of_study(folder, overrides, again=bool(overrides) or verb not in ("status", "cancel"))
    if verb == "quickstart" and not any(word.startswith("experiment=") for word in overrides):
        overrides = ["experiment=quickstart", *overrides]
    question = read_question(overrides)
    folder = Path(question.studies) / question.name
    # Words that choose whole groups are the question anew; single keys and laws are changes to the study's own.
    groups = [word for word in overrides if (CONF / word.split("=")[0].split("@")[0]).is_dir()]
    if verb in ON_A_STUDY and (folder / "study.yaml").exists() and not set(groups) - _of_a_study(groups):
        return question_of_study(folder, overrides)
    return question


def _names_a_study(word: str) -> bool:
    return "=" not in word or word.split("=")[0] in ("experiment", "name", "points", "tables.points", "corpora")


def _kept(word: str) -> str:
    """points=FILE as the folder of the study that it is part of, or as the key that stands for it."""
    file = Path(word.removeprefix("points="))
    if not word.startswith("points="):
        return word
    return str(file.parent) if (file.parent / "study.yaml").exists() else f"tables.points={file}"


def _of_a_study(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith(("experiment=", "law=", "goal="))}


def _hydra_app(rest: list[str]) -> int:
    import hydra

    from pipeline.cli.sweep import job
    from pipeline.question.loading import adding

    sys.argv = ["cptlaw train", *adding(rest)]
    hydra.main(config_path="pkg://conf", config_name="config", version_base="1.3")(job)()
    return 0


def _print_keys(verb: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from conf import CONF
    from pipeline.question.messages import describe_keys

    console = Console()
    console.print(f"cptlaw {verb}: {WORDS[verb]}", highlight=False)
    place = "[STUDY_FOLDER] " if verb in ON_A_STUDY else ""
    console.print(f"usage: cptlaw {verb} {place}[key=value ...]\n", highlight=False, markup=False)
    if verb == "fit":
        from pipeline.cli.fit_table import print_help

        print_help(console)
        console.print("A study:", highlight=False)
    groups = sorted(path for path in CONF.iterdir() if path.name != "wandb_sweeps" and list(path.glob("*.yaml")))
    console.print("groups (group=file):", highlight=False)
    for path in groups:
        files = ", ".join(sorted(file.stem for file in path.glob("*.yaml")))
        console.print(f"  {path.name}: {files}", highlight=False, markup=False)
    table = Table("key", "default", "what it is", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for key, default, note in describe_keys():
        table.add_row(key, default, note)
    console.print(table, highlight=False, markup=False)
    console.print("files: " + str(CONF), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
