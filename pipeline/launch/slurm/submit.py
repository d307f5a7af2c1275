"""launcher=slurm: the runs as arrays that wait for each other, and behind them the jobs that end the study.

    pretrain -> continual -> branches -> decide (collect, fit, recommend) -> confirmation -> prove (compare, report)

Plain sbatch, not submitit: people read and submit these scripts by hand, and a task waits for the one run that it
continues, which submitit's arrays cannot say. Nothing of the user's stays alive. What is done, runs or is queued is not
submitted again, so the same command goes on after anything that went wrong.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.launch.slurm.arrays import Task, dependency, ranges, submit_runs
from pipeline.launch.slurm.client import MARK, Queue, Scheduler, SchedulerError
from pipeline.launch.slurm.jobs import Job, adopted, read_jobs, seen_tasks, submitting, write_jobs
from pipeline.launch.slurm.script import driver_script, train_script
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study
from training.durable import write_whole
from training.run import Exit

DRIVERS = {"recommend": ("collect", "fit", "recommend", "confirm", "report"), "confirm": ("confirm", "report")}
"""Kind of a job -> the verbs that it carries out."""


def submit(
    study: Study,
    question: Question,
    plan: Sequence[PlannedRun],
    last: str,
    console: Console,
    scheduler: Scheduler | None = None,
) -> Exit:
    """Submit what is open in a plan and, behind it, the job that goes on with the study.

    Args:
        last: decide or prove.
        scheduler: for tests; else this machine's.

    Returns:
        DONE when all that could be is done or queued; CRASH when a run has failed: what needs it is not submitted.

    Raises:
        SchedulerError: no answer, or sbatch refused; what it took before stays recorded.
    """
    scheduler = scheduler or Scheduler(question.launcher.slurm.patience)
    with submitting(study, console.print):
        queue = scheduler.queue()
        known = read_jobs(study)
        jobs = adopted(known, queue)
        if jobs != known:
            write_jobs(study, jobs)
        first = len(jobs)
        try:
            failed = _submit_all(study, question, plan, last, jobs, queue, scheduler)
        except SchedulerError as error:
            taken = [job.number for job in jobs[first:] if job.number]
            before = f"; submitted before that: {', '.join(taken)}" if taken else ""
            raise SchedulerError(f"{error}{before}; the same command submits what is missing") from None
        _tell(study, plan, jobs, first, failed, queue, console)
    return Exit.CRASH if failed else Exit.DONE


def show(study: Study, question: Question, plan: Sequence[PlannedRun], last: str, console: Console) -> Exit:
    """Print the scripts and commands that `submit` would use; writes and submits nothing."""
    scheduler = Scheduler(question.launcher.slurm.patience)
    try:
        queue, largest = scheduler.queue(), scheduler.largest_array
    except SchedulerError as error:
        console.print(f"note: {error}; shown as if nothing were queued", highlight=False, markup=False)
        queue, largest = {}, 1001
    shown: set[str] = set()
    count = 0

    def send(kind: str, tasks: dict[str, int], after: str) -> str:
        nonlocal count
        count += 1
        job = Job(f"EXAMPLE{count}", kind, f"JOB{count}", after, tasks)
        path, words = _command(study, question, job)
        if kind not in shown:
            shown.add(kind)
            console.rule(f"{path}", align="left")
            console.print(_script(study, question, job), highlight=False, markup=False, soft_wrap=True)
        command = shlex.join(["sbatch", "--parsable", *words, str(path)])
        console.print(f"$ {command}   # {_what(job)}", highlight=False, markup=False, soft_wrap=True)
        return job.number or ""

    jobs = adopted(read_jobs(study), queue)
    states = {run.spec.hash: study.state(run) for run in plan}
    where = alive_runs(jobs, queue)
    submit_runs(plan, states, where, largest, send)
    if count or not (_alive_drivers(jobs, queue, last) or (not where and _is_over(study, plan))):
        send(last, {}, dependency(where.values()))
    if last == "recommend":
        told = "the job that decides will submit the confirmation runs and, behind them, one that compares and reports"
        console.print(told, soft_wrap=True)
    return Exit.DONE


def cancel(study: Study, question: Question, console: Console) -> Exit:
    """Cancel all jobs of a study that run or wait."""
    scheduler = Scheduler(question.launcher.slurm.patience)
    queue = scheduler.queue()
    jobs = [job for job in adopted(read_jobs(study), queue) if _is_alive(job, queue)]
    scheduler.cancel([job.number or "" for job in jobs])
    for job in jobs:
        console.print(f"cancelled job {job.number}: {_what(job)}", highlight=False)
    console.print("what ran saves first; cptlaw train goes on from there" if jobs else "no job runs or waits")
    return Exit.DONE


def alive_runs(jobs: Iterable[Job], queue: Queue) -> dict[str, Task]:
    """Hash -> task, of all runs that are queued or run."""
    return {run: (job.number or "", index) for job, run, index, seen in seen_tasks(jobs, queue) if seen and seen.alive}


def _submit_all(
    study: Study,
    question: Question,
    plan: Sequence[PlannedRun],
    last: str,
    jobs: list[Job],
    queue: Queue,
    scheduler: Scheduler,
) -> list[PlannedRun]:
    """Submits and adds to `jobs`; returns the runs that cannot be."""

    def send(kind: str, tasks: dict[str, int], after: str) -> str:
        job = Job(secrets.token_hex(6), kind, None, after, tasks)
        path, words = _command(study, question, job)
        path.parent.mkdir(exist_ok=True)
        (study.folder / "logs").mkdir(exist_ok=True)
        write_whole(path, _script(study, question, job))
        write_whole(path.with_suffix(".tasks"), "".join(f"{index} {run}\n" for run, index in tasks.items()))
        # Written before: whoever is killed between sbatch's answer and our note finds the job by its token.
        jobs.append(job)
        write_jobs(study, jobs)
        jobs[-1] = dataclasses.replace(job, number=scheduler.submit(words, path))
        write_jobs(study, jobs)
        return jobs[-1].number or ""

    where = alive_runs(jobs, queue)
    states = {run.spec.hash: study.state(run) for run in plan}
    before = len(jobs)
    if any(states[run.spec.hash] == "open" and run.spec.hash not in where for run in plan):
        barred = submit_runs(plan, states, where, scheduler.largest_array, send)
    else:
        barred = [run for run in plan if states[run.spec.hash] == "failed"]
    drivers = _alive_drivers(jobs, queue, last)
    if barred or (drivers and len(jobs) == before) or (not where and _is_over(study, plan)):
        return barred
    # One that waits for less than is trained now would answer too early.
    waiting = [job for job in drivers if queue[job.token][0].state == "PENDING"]
    scheduler.cancel([job.number or "" for job in waiting])
    send(last, {}, dependency(where.values(), [job.number or "" for job in drivers if job not in waiting]))
    return []


def _command(study: Study, question: Question, job: Job) -> tuple[Path, list[str]]:
    """The script's path and the words for sbatch that are not in the script, since they are this one submission's."""
    folder = study.folder.resolve()
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", folder.name)
    log = folder / "logs" / ("slurm-%A_%a.out" if job.tasks else "slurm-%j.out")
    words = [
        f"--job-name={name}-{job.kind}",
        f"--comment={MARK}{job.token}",
        f"--chdir={Path.cwd()}",
        f"--output={str(log.parent).replace('%', '%%')}/{log.name}",
    ]
    if job.tasks:
        limit = question.launcher.slurm.limit
        words.append(f"--array={ranges(job.tasks.values())}" + (f"%{limit}" if limit else ""))
    if job.after:
        words += [f"--dependency={job.after}", "--kill-on-invalid-dep=yes"]
    return folder / "jobs" / f"{job.token}.sbatch", words


def _script(study: Study, question: Question, job: Job) -> str:
    if job.kind == "train":
        return train_script(study.folder, question, job.token)
    return driver_script(study.folder, question, DRIVERS[job.kind])


def _is_alive(job: Job, queue: Queue) -> bool:
    return any(seen.alive for seen in queue.get(job.token, {}).values())


def _alive_drivers(jobs: Iterable[Job], queue: Queue, last: str) -> list[Job]:
    # The job that decides submits the one that proves: then it must not see itself.
    kinds = DRIVERS if last == "recommend" else ("confirm",)
    return [job for job in jobs if job.kind in kinds and _is_alive(job, queue)]


def _is_over(study: Study, plan: Sequence[PlannedRun]) -> bool:
    """Whether the last confirmation is of these runs."""
    proof = study.folder / study.answer("confirmation.json")
    ends = [study.runs / run.name / "DONE" for run in plan]
    return proof.exists() and all(end.stat().st_mtime <= proof.stat().st_mtime for end in ends)


def _what(job: Job) -> str:
    what = f"{len(job.tasks)} runs" if job.kind == "train" else f"{job.kind}: {', '.join(DRIVERS[job.kind])}"
    return what + (f", after {job.after}" if job.after else "")


def _tell(
    study: Study,
    plan: Sequence[PlannedRun],
    jobs: list[Job],
    first: int,
    failed: list[PlannedRun],
    queue: Queue,
    console: Console,
) -> None:
    table = Table("job", "what", "after", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for job in jobs[first:]:
        what = f"{len(job.tasks)} runs" if job.kind == "train" else ", ".join(DRIVERS[job.kind])
        table.add_row(job.number, what, job.after)
    if jobs[first:]:
        console.print(table, highlight=False)
        console.print(
            "watch them: cptlaw status; end them: cptlaw cancel; their scripts: " + str(study.folder / "jobs")
        )
    elif queued := [job for job in jobs if _is_alive(job, queue)]:
        numbers = ", ".join(job.number or "" for job in queued)
        console.print(f"nothing to submit: {numbers} run or wait; cptlaw status says why", highlight=False)
    elif not failed:
        console.print(f"all {len(plan)} runs of the plan are done and confirmed; cptlaw report", highlight=False)
    for run in failed[:10]:
        path = study.runs / run.name / "FAILED"
        why = path.read_text().strip() if path.exists() else "what it continues has failed"
        line = f"failed {run.name}: {why}; cptlaw train retry_failed=true tries again"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if failed[10:]:
        console.print(f"and {len(failed) - 10:,} more; see cptlaw status", highlight=False)
