"""Slurm: submit arrays of runs, read their state, cancel them."""

from pipeline.launch.slurm.preparation import prepare
from pipeline.launch.slurm.status import with_job_states
from pipeline.launch.slurm.submit import cancel, show, submit

__all__ = ["cancel", "prepare", "show", "submit", "with_job_states"]
