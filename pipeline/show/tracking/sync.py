"""cptlaw track sync: complete wandb's copy of a study from its files, and upload it where a key is known."""

import functools
import os
import subprocess
import sys
from dataclasses import replace

from rich.console import Console

from pipeline.plan.runs import by_domain
from pipeline.question.schema import Question
from pipeline.show.tracking.answer import track
from pipeline.show.tracking.mirror import environment, reason, warn
from pipeline.show.tracking.runs import CopiedAttempt, WandbCopy, attempt_identity, local_folders, marker, mode_of
from pipeline.study.folder import refuse_read_only, study_of
from training.attempt import attempts, is_live
from training.run import Exit


def sync(question: Question, console: Console) -> Exit:
    """Copy to wandb, offline, what it lacks of a study, and upload what is not uploaded yet; CRASH where that fails.

    Safe to repeat: complete copies stay. Without the study's folder wandb/ everything is copied again. Uploads
    wherever a key is known and WANDB_MODE allows it, whatever tracking.mode the runs were recorded with.
    """
    study = study_of(question)
    refuse_read_only(study)  # wandb tries each run for seconds.
    os.environ.update(environment(study))
    tracking, plan = question.tracking, study.read_plan()
    copy, made, failed = WandbCopy(study, tracking, "offline"), 0, 0
    with console.status(f"reading {len(plan)} runs") as shown:
        for number, run in enumerate(plan, start=1):
            ended = [
                CopiedAttempt(run.name, run.role, run.model, record["attempt"])
                for record in attempts(study.runs / run.name)
                if not marker(study, attempt_identity(study, run.name, record)).exists()
                and not is_live(study.runs / run.name, record, question.launcher.stale_after)
            ]
            completed, given_up = copy.sync(ended, over=True)
            made, failed = made + completed, failed + given_up
            shown.update(f"{number} of {len(plan)} runs read, {made} attempts copied")
        try:
            answered = [track(study_of(single), tracking, "offline") for single in by_domain(question)]
        except Exception as error:
            answered, failed = [], failed + 1
            warn(f"{study.folder}: {reason(error)}")
    answer = " and the answer" if any(answered) else ""
    line = functools.partial(console.print, soft_wrap=True)
    line(f"{made} attempts{answer} copied from the study's files: {study.folder / 'wandb'}")
    unsent = [path for path in local_folders(study) if not list(path.glob("*.wandb.synced"))]
    # Runs are recorded offline by tracking.mode=offline, which the study keeps; to send them is what sync is for.
    mode = mode_of(replace(tracking, mode="auto")) if unsent else ""
    if unsent and mode != "online":
        line(f"{len(unsent)} wandb runs are not uploaded: wandb login, then cptlaw track sync {study.word}")
    elif unsent:
        line(f"uploading {len(unsent)} runs to wandb")
        command = [sys.executable, "-m", "wandb", "sync", "--no-include-online", *map(str, unsent)]
        failed += subprocess.run(command, check=False).returncode != 0
    return Exit.CRASH if failed else Exit.DONE
