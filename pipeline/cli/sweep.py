"""A job of a sweep by Hydra or wandb: add its runs to the plan of the study, and train them in its folders.

A wandb agent starts it as a program: python pipeline/cli/sweep.py key=value ...
"""

import itertools
import os
import signal
import sys
from importlib import metadata
from statistics import fmean
from types import FrameType
from typing import NoReturn

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from pipeline.cli.hydra_options import run_hydra
from pipeline.goals.planning import planned_now
from pipeline.goals.registry import checked, goal_of, read_question
from pipeline.launch.exit_codes import JobError, exit_code_of
from pipeline.launch.local import last_log_line, train_locally
from pipeline.plan.write import write_plan
from pipeline.question.design import is_active
from pipeline.question.loading import hydra_words
from pipeline.question.messages import ConfigError, one_line
from pipeline.question.schema import Question
from pipeline.show.console import LineConsole
from pipeline.show.tracking.mirror import track_job
from pipeline.study.context import context_of
from pipeline.study.folder import study_of
from pipeline.study.status import statuses
from training.durable import read_text, wait_for_lock
from training.run import Exit
from training.stop import SIGNALS

PLUGINS = {"hydra-submitit-launcher": "hydra/launcher=submitit", "hydra-optuna-sweeper": "hydra/sweeper=optuna"}
"""Package of the extra `sweeps` -> how the words that need it begin."""
CHECKED = 100
"""Jobs of a sweep whose questions are checked before the first one begins, .02 s each."""


def run_sweep(words: list[str]) -> Exit:
    """Compose and run the jobs of `cptlaw train -m`."""
    for word, package in itertools.product(words, PLUGINS):
        if word.startswith(PLUGINS[package]):
            try:
                metadata.distribution(package)
            except metadata.PackageNotFoundError:
                raise ConfigError([f"{word}: needs {package}: pip install -e '.[sweeps]'"]) from None
    flags = [word for word in words if word.startswith("-") or "=" not in word]
    overrides, lines = hydra_words([word for word in words if word not in flags], sweeps=True)
    # Hydra ends at the first mistake, with lines of its own and the exit code of a failed run.
    try:
        jobs = [] if lines else _jobs(overrides)
    except HydraException as error:
        jobs, lines = [], [one_line(error)]
    for words_of_job in jobs:
        try:
            read_question(words_of_job)
        except ConfigError as error:
            lines += str(error).splitlines()
    if lines:
        raise ConfigError(list(dict.fromkeys(lines)))
    run_hydra([*flags, *overrides], "cptlaw train", job)
    print("next: cptlaw collect STUDY_FOLDER")
    return Exit.DONE


def _jobs(overrides: list[str]) -> list[list[str]]:
    """The overrides of the first jobs of a sweep; without those that a sweeper of another kind chooses."""
    own = [one for one in OverridesParser.create().parse_overrides(overrides) if not one.is_hydra_override()]
    if any(word.startswith("hydra/sweeper") for word in overrides):
        own = [one for one in own if not one.is_sweep_override()]
    return BasicSweeper.split_arguments(own, None)[0][:CHECKED]


def job(composed: DictConfig) -> float | None:
    """Carry out a job; Hydra's task function, which gives sweepers the objective. JobError: a run failed."""
    try:
        return carry_out(checked(composed))
    except JobError:
        raise
    except Exception as error:
        _exit(error)


def carry_out(question: Question) -> float | None:
    """Add the runs of a question to the plan of its study, and train those that no other job has trained.

    Returns:
        The objective: mean validation loss on the domain corpus at the end of the job's continual runs, nats per token;
        None without such runs.

    Raises:
        JobError: a run failed. SystemExit: it was stopped (75) or lacks input (3).
    """
    study = study_of(question)
    if question.launcher.elsewhere:
        raise ConfigError([f"launcher: {question.launcher.kind!r} in a sweep; allowed: local, and hydra/launcher=..."])
    if goal_of(question).is_staged(question):
        key = "design" if is_active(question) else "goal"
        value = f"{key}.kind: {getattr(question, key).kind!r} in a sweep"
        raise ConfigError([f"{value}; allowed: goal=trade-off mixture=ratios, whose runs need no earlier results"])
    study.folder.mkdir(parents=True, exist_ok=True)
    with (study.folder / "plan.lock").open("a") as lock:
        # Jobs of a sweep change the plan one after another.
        wait_for_lock(lock, print)
        context = context_of(question)
        runs = planned_now(context, keep=True)
        own = {run.spec.hash for run in planned_now(context)}
        runs_of_job = [run for run in runs if run.spec.hash in own and (run.role != "confirm" or run.variant)]
        write_plan(context, runs)
    names = [run.name for run in runs_of_job]
    code = train_locally(study, question, LineConsole(), names)
    ended = [run for run in runs_of_job if run.role == "fit" and code == Exit.DONE]
    of_domain = (row.losses.get(question.corpora.domain) for row in statuses(study, ended, 0.0))
    losses = [loss for loss in of_domain if loss is not None]
    objective = fmean(losses) if losses else None
    if os.environ.get("WANDB_SWEEP_ID"):
        track_job(study, question, names, code, objective)
    if code == Exit.CRASH:
        failed = next((run.name for run in runs_of_job if study.state(run) == "failed"), "")
        path = study.runs / failed / "FAILED"
        raise JobError(f"{failed}: {read_text(path).strip() if path.exists() else last_log_line(study)}")
    if code:
        sys.exit(code)
    return objective


def _stop(number: int, frame: FrameType | None) -> None:
    # Only once: an agent may repeat a signal that the scheduler has sent to every process.
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Entry of the program, with the overrides of `cptlaw train`. On a stop signal the runs save their state."""
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        carry_out(read_question(sys.argv[1:]))
    except (Exception, KeyboardInterrupt) as error:
        _exit(error)


def _exit(error: BaseException) -> NoReturn:
    if (known := exit_code_of(error)) is None:
        raise error
    print(known[1], file=sys.stderr)
    sys.exit(known[0])


if __name__ == "__main__":
    main()
