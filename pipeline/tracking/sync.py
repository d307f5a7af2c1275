"""cptlaw track sync: wandb's copy of a study made whole again from the study's files, and sent where a key is known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from pipeline.question.schema import Question, TrackingConfig
from pipeline.study.folder import PlannedRun, Study
from pipeline.tracking.mirror import environment, warn
from training.attempt import attempts, is_live
from training.run import Exit


def sync(study: Study, question: Question, console: Console) -> Exit:
    """Make what wandb lacks of a study, offline, and upload all that is not uploaded yet.

    Safe to repeat: what is whole stays. Without the folder wandb/ of the study all is made anew.

    Returns:
        DONE; CRASH when a run could not be made or sent.

    Raises:
        StudyError: no plan.
    """
    os.environ.update(environment(study))
    from pipeline.tracking import answer as tracking_answer
    from pipeline.tracking import runs as tracking_runs

    tracking = question.tracking
    plan = study.read_plan()
    made = failed = 0
    with console.status(f"reading {len(plan)} runs") as shown:
        for number, run in enumerate(plan, start=1):
            try:
                made += _rebuild(study, tracking, run)
            except Exception as error:
                failed += 1
                warn(f"{run.name}: {_plain(error)}")
            shown.update(f"{number} of {len(plan)} runs read, {made} made for wandb")
        try:
            answered = tracking_answer.track(study, tracking, "offline")
        except Exception as error:
            answered, failed = False, failed + 1
            warn(f"{study.folder}: {_plain(error)}")
    console.print(
        f"{made} attempts{' and the answer' if answered else ''} made from the study's files: {study.folder / 'wandb'}",
        highlight=False,
        soft_wrap=True,
    )
    unsent = [path for path in tracking_runs.local_folders(study) if not list(path.glob("*.wandb.synced"))]
    if not unsent:
        return Exit.CRASH if failed else Exit.DONE
    if tracking_runs.mode_of(tracking) != "online":
        console.print(
            f"{len(unsent)} wandb runs wait there: wandb login, then cptlaw track sync {study.folder} sends them",
            highlight=False,
            soft_wrap=True,
        )
        return Exit.CRASH if failed else Exit.DONE
    return Exit.CRASH if upload(unsent, console) or failed else Exit.DONE


def upload(folders: list[Path], console: Console) -> int:
    """Send offline runs with wandb's own `wandb sync`; returns its exit code."""
    console.print(f"sending {len(folders)} runs to wandb", highlight=False)
    command = [sys.executable, "-m", "wandb", "sync", "--no-include-online", *map(str, folders)]
    return subprocess.run(command, check=False).returncode


def _rebuild(study: Study, tracking: TrackingConfig, run: PlannedRun) -> int:
    """Make the attempts of a run that are over and not whole in wandb's folder; returns how many."""
    from pipeline.tracking.rows import rows_by_attempt
    from pipeline.tracking.runs import (
        JOB_TYPES,
        attempt_config,
        attempt_identity,
        forget,
        last_words,
        marker,
        open_run,
    )

    folder = study.runs / run.name
    records = attempts(folder)
    lacking = [record for record in records if not marker(study, attempt_identity(study, run.name, record)).exists()]
    lacking = [record for record in lacking if not is_live(folder, record)]
    if not lacking:
        return 0
    rows = rows_by_attempt(folder, records)
    for record in lacking:
        identity = attempt_identity(study, run.name, record)
        forget(study, identity)
        tracked = open_run(
            study,
            tracking,
            "offline",
            identity=identity,
            name=f"{run.name} {record['attempt']}",
            job_type=JOB_TYPES[run.role],
            tags=[run.spec.phase, run.model],
            config=attempt_config(study, run.name, run.role, run.spec.to_dict(), record),
        )
        tracked.log(rows[record["attempt"]])
        tracked.end(*last_words(study, run.name, record))
    return len(lacking)


def _plain(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
