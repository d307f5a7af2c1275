"""A job of a wandb sweep: the run that its agent opened on the server, told how the job ended."""

from __future__ import annotations

import wandb

from pipeline.question.schema import TrackingConfig
from pipeline.study.folder import Study
from pipeline.tracking.runs import settings
from training.run import Exit

OBJECTIVE = "objective"
"""What the sweeps of conf/wandb_sweeps minimise: mean loss on the domain at the end of the job's continual runs."""


def track(study: Study, tracking: TrackingConfig, runs: list[str], exit_code: int, objective: float | None) -> None:
    """Log the objective into the agent's run, whose id the environment holds; project and so on are the sweep's.

    A job that was stopped is marked as preempted: the sweep gives it to the next agent that asks.

    Raises:
        Exception: wandb cannot be told.
    """
    group = study.folder.resolve().name
    run = wandb.init(dir=str(study.folder), group=group, job_type="sweep", settings=settings(tracking))
    run.config.update({"study": group, "runs": runs})
    if objective is not None:
        run.log({OBJECTIVE: objective})
    if exit_code == Exit.RUN_ME_AGAIN:
        run.mark_preempting()
    run.finish(exit_code=exit_code)
