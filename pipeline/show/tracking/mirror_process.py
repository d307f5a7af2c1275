"""The process that uses wandb for others: python -m pipeline.show.tracking.mirror_process TASK STUDY TRACKING [OF].

follow: copy the attempts that are named on stdin, until it closes. answer: fits and report, OF a folder of answers.
job: OF a sweep.
"""

import json
import queue
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import wandb

from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.mirror import reason, warn
from pipeline.show.tracking.runs import CopiedAttempt, WandbCopy, mode_of, settings
from pipeline.study.folder import Study
from training.run import Exit

OBJECTIVE = "objective"
"""Minimised by the sweeps of conf/wandb_sweeps: mean domain loss at the end of the CPT runs of a job."""


def main() -> None:
    """Entry; an error is one line on stderr."""
    # The training process ends this one by closing its stdin, so that the last rows are copied.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    task, folder, given, *of = sys.argv[1:]
    study, tracking = Study(Path(folder)), TrackingConfig(**json.loads(given))
    try:
        if task == "follow":
            _follow(study, tracking)
        elif task == "answer":
            from pipeline.show.tracking.answer import track

            track(replace(study, answers=of[0]), tracking)
        else:
            _track_job(study, tracking, *json.loads(of[0]))
    except Exception as error:
        warn(f"{reason(error)}; copy the rest with cptlaw track sync {study.word}")
        sys.exit(1)


def _follow(study: Study, tracking: TrackingConfig) -> None:
    copy = WandbCopy(study, tracking, mode_of(tracking))
    begun: queue.Queue[CopiedAttempt | None] = queue.Queue()
    threading.Thread(target=_listen, args=(begun,), daemon=True).start()
    current: list[CopiedAttempt] = []
    while True:
        try:
            started = begun.get(timeout=tracking.every)
        except queue.Empty:
            copy.sync(current, over=False)
            continue
        # The training process has ended the attempt before, or is gone.
        copy.sync(current, over=True)
        if started is None:
            return
        current = [started]


def _listen(begun: queue.Queue[CopiedAttempt | None]) -> None:
    for line in sys.stdin:
        begun.put(CopiedAttempt(**json.loads(line)))
    begun.put(None)


def _track_job(study: Study, tracking: TrackingConfig, runs: list[str], code: int, objective: float | None) -> None:
    """Log the objective into the agent's run, whose id is in the environment; a stopped job is marked as preempted."""
    group = study.folder.resolve().name
    run = wandb.init(dir=str(study.folder), group=group, job_type="sweep", settings=settings(tracking))
    run.config.update({"study": group, "runs": runs})
    if objective is not None:
        run.log({OBJECTIVE: objective})
    if code == Exit.RUN_ME_AGAIN:
        run.mark_preempting()
    run.finish(exit_code=code)


if __name__ == "__main__":
    main()
