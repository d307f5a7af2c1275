"""The scheduler's view of a study's runs: why a run waits, and how its job ended."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from pipeline.launch.slurm.client import JobState, SchedulerError, scheduler_of
from pipeline.launch.slurm.jobs import Job, read_jobs, task_states, with_known_numbers
from pipeline.launch.slurm.submit import PREPARING
from pipeline.study.context import Context
from pipeline.study.status import MOST, RunStatus

REASONS = {
    "None": "the scheduler has not considered it yet",
    "Priority": "jobs of higher priority go first",
    "Resources": "no free nodes yet",
    "Dependency": "for the run that it starts from, or the jobs before it",
    "DependencyNeverSatisfied": "for ever: the job that it depends on has failed",
    "JobArrayTaskLimit": "launcher.slurm.limit tasks are running",
    "BeginTime": "it was requeued and starts again within minutes",
    "ReqNodeNotAvail": "its nodes are down or reserved",
    "PartitionTimeLimit": "launcher.slurm.time is more than the partition allows",
    "PartitionNodeLimit": "launcher.slurm.nodes is more than the partition allows",
    "PartitionDown": "the partition is down",
    "BadConstraints": "no node meets the constraints of launcher.slurm",
    "JobHeldUser": "held; scontrol release {job}",
    "JobHeldAdmin": "held by an administrator",
    "launch failed requeued held": "its node could not start it; scontrol release {job}",
}
"""Slurm's reason for waiting -> its meaning."""


def with_job_states(context: Context, rows: list[RunStatus]) -> tuple[list[RunStatus], list[str]]:
    """The rows with the states of their jobs, and lines about the other jobs of the study.

    Rows of runs that are done or failed stay as they are. When the scheduler does not answer, all rows do, and one line
    reports it.
    """
    if not (jobs := read_jobs(context.study)):
        return rows, []
    scheduler = context.once(scheduler_of)
    try:
        queue = scheduler.queue()
    except SchedulerError as error:
        return rows, [f"{error}: the states of the jobs are unknown; the table shows the runs' folders"]
    jobs = with_known_numbers(jobs, queue)
    newest: dict[str, tuple[Job, int, JobState | None]] = {}
    for job, run, index, state in task_states(jobs, queue):
        if state or run not in newest or not newest[run][2]:
            newest[run] = (job, index, state)
    waiting = {row.run.spec.hash for row in rows if row.state in ("waiting", "interrupted")}
    gone = [job.number for run, (job, _, state) in newest.items() if run in waiting and not state]
    closing = [job for job in jobs if job.kind == "continue"][-1:]
    # With a plan the corpora are prepared.
    preparing = [] if rows else [job for job in jobs if job.kind in PREPARING][-len(PREPARING) :]
    gone += [job.number for job in (*closing, *preparing) if job.token not in queue]
    ended = scheduler.ended(sorted({number for number in gone if number}))

    def state_of(job: Job, index: int = 0) -> JobState | None:
        return queue.get(job.token, {}).get(index) or ended.get((job.number or "", index))

    lines, detailed = [], []
    for row in rows:
        if row.run.spec.hash in waiting and row.run.spec.hash in newest:
            job, index, _ = newest[row.run.spec.hash]
            line = _line(job, index, state_of(job, index))
            row = dataclasses.replace(row, detail=f"{row.detail}  {line}".strip())
        detailed.append(row)
    if len(rows) > MOST:
        states = [state for run, (_, _, state) in newest.items() if run in waiting]
        reasons = Counter(state.reason if state and state.alive else "job gone" for state in states)
        counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        lines = [f"waiting: {counts}"] if counts else []
    for job in closing:
        if (state := state_of(job)) is None or state.state != "COMPLETED":
            lines.append(f"{job.kind}: {_line(job, 0, state)}")
    for job in preparing:
        lines.append(_preparation_line(job, [state_of(job, index) for index in job.tasks.values() or (0,)]))
    return detailed, lines


def _preparation_line(job: Job, states: Sequence[JobState | None]) -> str:
    counts = Counter(_word(state) for state in states)
    many = [f"{count:,} {word}" for word, count in counts.items()] if job.tasks else [*counts]
    line = f"prepare, {job.kind}: job {job.number}: {', '.join(many)}"
    if all(state is not None and (state.alive or state.state == "COMPLETED") for state in states):
        return line
    return f"{line}; {job.log(min(job.tasks.values(), default=0))}; cptlaw prepare submits what is missing"


def _word(state: JobState | None) -> str:
    if state is None:
        return "not in the queue any more"
    return f"{state.state} ({state.reason})" if state.state == "PENDING" else state.state


def _line(job: Job, index: int, state: JobState | None) -> str:
    name = f"job {job.number}_{index}" if job.kind == "train" else f"job {job.number}"
    if job.number is None:
        return "submitted, but sbatch refused it or did not answer; cptlaw train submits it again"
    if state is None:
        return f"{name} is gone; {job.log(index)}; cptlaw train submits it again"
    if not state.alive and state.state != "PENDING":
        reason = "" if state.reason in ("None", state.state) else f" ({state.reason})"
        return f"{name} ended: {state.state}{reason}; {job.log(index)}; cptlaw train submits it again"
    if state.state in ("RUNNING", "CONFIGURING"):
        return f"{name} starts"
    if state.state != "PENDING":
        return f"{name}: {state.state}"
    meaning = REASONS.get(state.reason, REASONS.get(state.reason.split(",")[0], ""))
    if not meaning and state.reason.startswith(("Assoc", "QOS", "Max")):
        meaning = "a limit of your account or its quality of service"
    return f"{name} waits: {state.reason}" + (f" ({meaning.format(job=job.number)})" if meaning else "")
