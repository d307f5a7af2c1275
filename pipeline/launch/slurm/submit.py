"""launcher=slurm: submit the runs as dependent job arrays, and behind them the jobs that close the study.

    pretrain -> continual -> branches -> recommend (collect, fit, recommend) -> confirmation runs -> confirm (report)

Where runs are chosen round by round, the recommend job submits the next round and another recommend job behind it,
until choosing stops; only then it confirms. Where results decide on further runs without an answer in between, as in
the search for mixture weights, a stage job stands in its place until no run is left to plan.

Plain sbatch, not submitit: users read these scripts and submit them by hand, and a task can wait for the single run
that it starts from. No process of the user stays alive. Runs that are done, running or queued are not submitted again,
so the same command continues after any failure.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.goals.registry import goal_of
from pipeline.launch.slurm.arrays import Send, Task, dependency, ranges, submit_runs
from pipeline.launch.slurm.client import MARK, Queue, Scheduler, SchedulerError
from pipeline.launch.slurm.jobs import Job, read_jobs, submitting, task_states, with_known_numbers, write_jobs
from pipeline.launch.slurm.refusal import explain_refusal
from pipeline.launch.slurm.script import driver_script, train_script
from pipeline.question.design import is_active
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.point_counts import is_confirmed
from pipeline.study.status import print_failed
from training.durable import write_whole
from training.run import Exit

CLOSING_VERBS = {
    "stage": ("train",),
    "recommend": ("collect", "fit", "recommend", "confirm", "report"),
    "confirm": ("confirm", "report"),
}
"""Kind of a job behind the runs -> the verbs that it runs."""


def submit(study: Study, question: Question, plan: Sequence[PlannedRun], last: str, console: Console) -> Exit:
    """Submit the open runs of a plan and, behind them, the job that continues the study.

    Args:
        last: its kind, recommend or confirm; a stage job comes before a recommend job, where the goal has stages.

    Returns:
        DONE when every run is done or queued; CRASH when one has failed: the runs that need it are not submitted.

    Raises:
        SchedulerError: a Slurm command failed; the jobs submitted before it stay recorded.
    """
    scheduler, last = Scheduler(question.launcher.slurm.patience), _closing_kind(study, question, plan, last)
    with submitting(study, console.print):
        queue, known = scheduler.queue(), read_jobs(study)
        jobs = with_known_numbers(known, queue)
        if jobs != known:
            write_jobs(study, jobs)
        first = len(jobs)

        def send(kind: str, tasks: dict[str, int], after: str) -> str:
            job = Job(secrets.token_hex(6), kind, None, after, tasks)
            send_job(study, question, job, _script(study, question, job), jobs, scheduler)
            return jobs[-1].number or ""

        try:
            failed = _send_all(study, plan, last, jobs, queue, lambda: scheduler.largest_array, send, scheduler.cancel)
        except SchedulerError as error:
            numbers = [job.number for job in jobs[first:] if job.number]
            before = f"; submitted before that: {', '.join(numbers)}" if numbers else ""
            raise SchedulerError(f"{error}{before}; the same command submits what is missing") from None
        _print_jobs(jobs[first:], study, question, console)
        if not jobs[first:] and not failed:
            numbers = ", ".join(job.number or "" for job in jobs if is_alive(job, queue))
            line = f"nothing to submit: jobs {numbers} run or wait; cptlaw status shows why"
            done = f"all {len(plan)} runs of the plan are done and confirmed; cptlaw report shows the result"
            console.print(line if numbers else done, highlight=False)
        print_failed(study, failed, console)
    return Exit.CRASH if failed else Exit.DONE


def send_job(study: Study, question: Question, job: Job, script: str, jobs: list[Job], scheduler: Scheduler) -> None:
    """Write the script of a job and submit it; `jobs` are those of the study, to which it is added."""
    path, options = job_command(study, question, job)
    path.parent.mkdir(exist_ok=True)
    (study.folder / "logs").mkdir(exist_ok=True)
    write_whole(path, script)
    write_whole(path.with_suffix(".tasks"), "".join(f"{index} {run}\n" for run, index in job.tasks.items()))
    # Recorded before the call: after a kill in between, the job is found by its token.
    jobs.append(job)
    write_jobs(study, jobs)
    try:
        jobs[-1] = dataclasses.replace(job, number=scheduler.submit(options, path))
    except SchedulerError as error:
        further = "extra" if job.kind == "train" else "driver"
        raise SchedulerError(explain_refusal(str(error), question.launcher.slurm, further)) from None
    write_jobs(study, jobs)


def show(study: Study, question: Question, plan: Sequence[PlannedRun], last: str, console: Console) -> Exit:
    """Print the scripts and commands of `submit`; writes and submits nothing."""
    scheduler, last = Scheduler(question.launcher.slurm.patience), _closing_kind(study, question, plan, last)
    line = functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)
    try:
        queue, size_limit = scheduler.queue(), scheduler.largest_array
    except SchedulerError as error:
        line(f"note: {error}; shown as if no job were queued")
        queue, size_limit = {}, 1001
    shown: list[str] = []

    def send(kind: str, tasks: dict[str, int], after: str) -> str:
        job = Job(f"EXAMPLE{len(shown) + 1}", kind, f"JOB{len(shown) + 1}", after, tasks)
        path, options = job_command(study, question, job)
        if kind not in shown:
            console.rule(f"{path}", align="left")
            line(_script(study, question, job))
        shown.append(kind)
        line(f"$ {shlex.join(['sbatch', '--parsable', *options, str(path)])}   # {_what(question, job)}")
        return job.number or ""

    def cancel(numbers: Sequence[str]) -> None:
        if numbers:
            line(f"$ scancel {' '.join(numbers)}   # it waits for fewer runs")

    jobs = with_known_numbers(read_jobs(study), queue)
    _send_all(study, plan, last, jobs, queue, lambda: size_limit, send, cancel)
    if last == "recommend" and is_active(question):
        line("the recommend job chooses and submits the next round, until the answer is sharp enough")
    if last == "stage":
        line("the stage job plans and submits the runs of the next stage; after the last stage, the recommend job")
    else:
        line("the recommend job submits the confirmation runs and, behind them, the confirm job")
    return Exit.DONE


def cancel(study: Study, question: Question, console: Console) -> Exit:
    """Cancel all running and waiting jobs of a study."""
    scheduler = Scheduler(question.launcher.slurm.patience)
    queue = scheduler.queue()
    jobs = [job for job in with_known_numbers(read_jobs(study), queue) if is_alive(job, queue)]
    scheduler.cancel([job.number or "" for job in jobs])
    for job in jobs:
        console.print(f"cancelled job {job.number}: {_what(question, job)}", highlight=False)
    console.print("running jobs save their state first; cptlaw train continues" if jobs else "no job runs or waits")
    return Exit.DONE


def alive_runs(jobs: Iterable[Job], queue: Queue) -> dict[str, Task]:
    """Hash -> task, of all queued and running runs."""
    return {
        run: (job.number or "", index) for job, run, index, state in task_states(jobs, queue) if state and state.alive
    }


def _send_all(
    study: Study,
    plan: Sequence[PlannedRun],
    last: str,
    jobs: Sequence[Job],
    queue: Queue,
    size_limit: Callable[[], int],
    send: Send,
    cancel: Callable[[Sequence[str]], None],
) -> list[PlannedRun]:
    """Send the open runs and the job behind them; returns the runs that cannot be sent."""
    tasks = alive_runs(jobs, queue)
    states = {run.spec.hash: study.state(run) for run in plan}
    is_open = any(states[run.spec.hash] == "open" and run.spec.hash not in tasks for run in plan)
    known = len(tasks)
    if is_open:
        blocked = submit_runs(plan, states, tasks, size_limit(), send)
    else:
        blocked = [run for run in plan if states[run.spec.hash] == "failed"]
    closing = _alive_closing_jobs(jobs, queue, last)
    if blocked or (closing and len(tasks) == known) or (not tasks and is_confirmed(study, plan)):
        return blocked
    # A waiting job depends on fewer runs than are queued now, and would start too early.
    outdated = [job for job in closing if queue[job.token][0].state == "PENDING"]
    cancel([job.number or "" for job in outdated])
    send(last, {}, dependency(tasks.values(), [job.number or "" for job in closing if job not in outdated]))
    return []


def job_command(study: Study, question: Question, job: Job) -> tuple[Path, list[str]]:
    """The script's path, and the options of sbatch that belong to this submission and not to the script."""
    folder = study.folder.resolve()
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", folder.name)
    log = folder / "logs" / ("slurm-%A_%a.out" if job.tasks else "slurm-%j.out")
    options = [
        f"--job-name={name}-{job.kind}",
        f"--comment={MARK}{job.token}",
        f"--chdir={Path.cwd()}",
        f"--output={str(log.parent).replace('%', '%%')}/{log.name}",
    ]
    if job.tasks:
        limit = question.launcher.slurm.limit
        options.append(f"--array={ranges(job.tasks.values())}" + (f"%{limit}" if limit else ""))
    if job.after:
        options += [f"--dependency={job.after}", "--kill-on-invalid-dep=yes"]
    return folder / "jobs" / f"{job.token}.sbatch", options


def _script(study: Study, question: Question, job: Job) -> str:
    if job.kind == "train":
        return train_script(study.folder, question, job.token)
    return driver_script(study.folder, question, _closing_verbs(question, job))


def _closing_verbs(question: Question, job: Job) -> list[str]:
    """The verbs of a job behind the runs; where runs are chosen round by round, `train` submits the next round."""
    rounds = ["train"] if is_active(question) and job.kind == "recommend" else []
    return [*rounds, *CLOSING_VERBS[job.kind]]


def is_alive(job: Job, queue: Queue) -> bool:
    """Whether any task of a job waits or runs."""
    return any(state.alive for state in queue.get(job.token, {}).values())


def _closing_kind(study: Study, question: Question, plan: Sequence[PlannedRun], last: str) -> str:
    """The kind of the job behind the runs: `last`, or a stage job where open runs decide on runs not planned yet."""
    staged = goal_of(question).is_staged(question) and not is_active(question)
    return "stage" if staged and last == "recommend" and any(study.state(run) == "open" for run in plan) else last


def _alive_closing_jobs(jobs: Iterable[Job], queue: Queue, last: str) -> list[Job]:
    # The recommend job submits the confirm job, and a stage job the recommend job: neither must count itself then.
    kinds = ("confirm",) if last == "confirm" else CLOSING_VERBS
    own = os.environ.get("SLURM_JOB_ID")
    return [
        job
        for job in jobs
        if job.kind in kinds and is_alive(job, queue) and not (job.kind == "stage" and job.number == own)
    ]


def _what(question: Question, job: Job) -> str:
    if job.kind == "train":
        work = f"{len(job.tasks)} runs"
    elif job.kind in CLOSING_VERBS:
        work = f"{job.kind}: {', '.join(_closing_verbs(question, job))}"
    else:
        work = f"prepare: {job.kind}"
    return work + (f", after {job.after}" if job.after else "")


def _print_jobs(jobs: list[Job], study: Study, question: Question, console: Console) -> None:
    if not jobs:
        return
    table = Table("job", "work", "after", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for job in jobs:
        work = f"{len(job.tasks)} runs" if job.kind == "train" else ", ".join(_closing_verbs(question, job))
        table.add_row(job.number, work, job.after)
    console.print(table, highlight=False)
    console.print(f"cptlaw status shows them, cptlaw cancel stops them; their scripts: {study.folder / 'jobs'}")
