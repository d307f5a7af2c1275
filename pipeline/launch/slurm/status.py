"""What Slurm says of a study's runs, beside what their folders say: why one waits, and how its job ended."""

from __future__ import annotations

import dataclasses
from collections import Counter

from pipeline.launch.slurm.client import Scheduler, SchedulerError, Seen
from pipeline.launch.slurm.jobs import Job, adopted, read_jobs, seen_tasks
from pipeline.launch.slurm.submit import DRIVERS
from pipeline.study.folder import Study
from pipeline.study.status import MOST, RunStatus

REASONS = {
    "None": "the scheduler has not looked at it yet",
    "Priority": "others go first",
    "Resources": "no free nodes yet",
    "Dependency": "for the run that it continues",
    "DependencyNeverSatisfied": "for ever: what it waits for has failed",
    "JobArrayTaskLimit": "as many run as launcher.slurm.limit allows",
    "BeginTime": "was put back, and starts again within minutes",
    "ReqNodeNotAvail": "its nodes are down or reserved",
    "PartitionTimeLimit": "launcher.slurm.time is more than the partition allows",
    "PartitionNodeLimit": "launcher.slurm.nodes is more than the partition allows",
    "PartitionDown": "the partition is down",
    "BadConstraints": "no node is as launcher.slurm asks",
    "JobHeldUser": "held; scontrol release {job}",
    "JobHeldAdmin": "held by an administrator",
    "launch failed requeued held": "its node could not start it; scontrol release {job}",
}
"""Slurm's reason for waiting -> what it means."""


def with_job_states(rows: list[RunStatus], study: Study, scheduler: Scheduler) -> tuple[list[RunStatus], list[str]]:
    """The rows with what the scheduler says of their jobs, and lines on the jobs that are no runs.

    Runs that are done or failed have said all themselves. When the scheduler gives no answer, one line says so and the
    rows are as they were.
    """
    if not (jobs := read_jobs(study)):
        return rows, []
    try:
        queue = scheduler.queue()
    except SchedulerError as error:
        return rows, [f"{error}: what the jobs wait for is not known; the table is from the runs' folders"]
    jobs = adopted(jobs, queue)
    newest: dict[str, tuple[Job, int, Seen | None]] = {}
    for job, run, index, seen in seen_tasks(jobs, queue):
        if seen or run not in newest or not newest[run][2]:
            newest[run] = (job, index, seen)
    still = {row.run.spec.hash for row in rows if row.state in ("waiting", "interrupted")}
    forgotten = {run: (job, index) for run, (job, index, seen) in newest.items() if run in still and not seen}
    last = [job for job in jobs if job.kind in DRIVERS][-1:]
    ask = {job.number for job, _ in forgotten.values()} | {job.number for job in last if job.token not in queue}
    ended = scheduler.ended(sorted(number for number in ask if number))

    def told(row: RunStatus) -> RunStatus:
        job, index, seen = newest.get(row.run.spec.hash, (None, 0, None))
        if job is None or row.run.spec.hash not in still:
            return row
        line = _line(job, index, seen or ended.get((job.number or "", index)))
        return dataclasses.replace(row, detail=f"{row.detail}  {line}".strip())

    rows = [told(row) for row in rows]
    lines = []
    if len(rows) > MOST:
        waiting = [(job, seen) for run, (job, _, seen) in newest.items() if run in still]
        why = Counter(seen.reason if seen and seen.alive else "job gone" for _, seen in waiting)
        lines = [f"waiting: {', '.join(f'{count:,} {reason}' for reason, count in why.most_common())}"] if why else []
    for job in last:
        seen = queue.get(job.token, {}).get(0) or ended.get((job.number or "", 0))
        if seen is None or seen.state != "COMPLETED":
            lines.append(f"{job.kind} ({', '.join(DRIVERS[job.kind])}): {_line(job, 0, seen)}")
    return rows, lines


def _line(job: Job, index: int, seen: Seen | None) -> str:
    name = f"job {job.number}_{index}" if job.kind == "train" else f"job {job.number}"
    if job.number is None:
        return "submitted, but sbatch never answered; cptlaw train submits it again"
    if seen is None:
        return f"{name} is gone; {job.log(index)}; cptlaw train submits it again"
    if not seen.alive and seen.state != "PENDING":
        reason = "" if seen.reason in ("None", seen.state) else f" ({seen.reason})"
        return f"{name} ended: {seen.state}{reason}; {job.log(index)}; cptlaw train submits it again"
    if seen.state in ("RUNNING", "CONFIGURING"):
        return f"{name} starts"
    if seen.state != "PENDING":
        return f"{name}: {seen.state}"
    meaning = REASONS.get(seen.reason, REASONS.get(seen.reason.split(",")[0], ""))
    if not meaning and seen.reason.startswith(("Assoc", "QOS", "Max")):
        meaning = "a limit of your account or its quality of service"
    return f"{name} waits: {seen.reason}" + (f" ({meaning.format(job=job.number)})" if meaning else "")
