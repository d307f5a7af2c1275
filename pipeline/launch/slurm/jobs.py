"""The jobs of a study: jobs.jsonl, and how jobs are submitted, each recorded before and after the call of sbatch."""

import contextlib
import dataclasses
import functools
import json
import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from pipeline.launch.slurm.arrays import Task, ranges
from pipeline.launch.slurm.client import MARK, JobState, Queue, SchedulerError, scheduler_of
from pipeline.question.schema.execution import MEMORY_OPTION, SlurmConfig
from pipeline.study.context import Context
from pipeline.study.folder import Study, StudyError
from training.attempt import claim
from training.durable import read_lines_whole, write_whole

SCHEMA = 2
PATIENCE = 600.0
"""Longest wait for another process that submits, seconds."""
LISTED_BY = {
    "qos": "sacctmgr show associations user=$USER format=account,partition,qos%50",
    "account": "sacctmgr show associations user=$USER format=account,partition",
    "partition": "sinfo",
    "mem": "sinfo --format='%P %m'",
    "time": "sinfo --format='%P %l'",
}
"""Option that Slurm checks against names and limits of the cluster -> command that lists what is allowed."""


@dataclass(frozen=True)
class Job:
    """A line of jobs.jsonl: an array of runs, or the job that continues the study after them."""

    token: str
    """Random name of the job, in its comment and in the names of its files in jobs/."""
    kind: str
    """train (runs), continue (the steps behind them), or of cptlaw prepare: tokenise (shards) and merge."""
    number: str | None = None
    """Job number from sbatch; None: sbatch was called and its answer is unknown."""
    after: str = ""
    """Its dependency in sbatch's syntax; empty: none."""
    tasks: dict[str, int] = field(default_factory=dict)
    """Hash of a run, or for kind tokenise a name -> index in the array."""

    @property
    def work(self) -> str:
        """What it does, in a word or two."""
        return f"{len(self.tasks)} runs" if self.kind == "train" else self.kind

    def log(self, index: int) -> str:
        """Log file, relative to the study's folder."""
        return f"logs/slurm-{self.number}_{index}.out" if self.tasks else f"logs/slurm-{self.number}.out"


def read_jobs(study: Study) -> list[Job]:
    """The submitted jobs, oldest first; an empty list before the first. StudyError: a damaged line."""
    path = study.folder / "jobs.jsonl"
    try:
        lines = read_lines_whole(path)
        if foreign := [line["schema"] for line in lines if line["schema"] != SCHEMA]:
            raise ValueError(f"schema {foreign[0]!r}; allowed: {SCHEMA}")
        return [Job(**{name: value for name, value in line.items() if name != "schema"}) for line in lines]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path}: {error!r}; delete the file once squeue shows no job of this study") from None


def write_jobs(study: Study, jobs: Iterable[Job]) -> None:
    """Replace jobs.jsonl."""
    lines = [json.dumps({"schema": SCHEMA, **dataclasses.asdict(job)}) for job in jobs]
    write_whole(study.folder / "jobs.jsonl", "".join(f"{line}\n" for line in lines))


def with_known_numbers(jobs: Iterable[Job], queue: Queue) -> list[Job]:
    """The jobs, with job numbers that sbatch did not return filled in from the queue."""
    numbers = {token: next(iter(tasks.values())).job for token, tasks in queue.items()}
    return [dataclasses.replace(job, number=job.number or numbers.get(job.token)) for job in jobs]


def task_states(jobs: Iterable[Job], queue: Queue) -> Iterator[tuple[Job, str, int, JobState | None]]:
    """(job, hash of the run, index, state or None if not in the queue), the newest job of a run last."""
    for job in jobs:
        for run, index in job.tasks.items():
            yield job, run, index, queue.get(job.token, {}).get(index)


@contextlib.contextmanager
def submitting(study: Study, log: Callable[[str], object]) -> Iterator[None]:
    """A lock on the submission of a study's jobs. Raises SchedulerError: another process held it for PATIENCE."""
    deadline, folder = time.monotonic() + PATIENCE, study.folder / "jobs" / "submission"
    if (attempt := claim(folder)) is None:
        log("another process is submitting jobs of this study; waiting for it")
    while attempt is None:
        if time.monotonic() > deadline:
            raise SchedulerError(f"{folder}: another process has been submitting for {PATIENCE:g} s; see attempts/")
        time.sleep(0.2)
        attempt = claim(folder)
    code = 1
    try:
        yield
        code = 0
    finally:
        attempt.end(code)


class Submission:
    """The jobs of a study, those in the queue among them, and the way to submit more."""

    def __init__(self, context: Context, script_of: Callable[[Job], str]) -> None:
        """Read the jobs; `script_of` gives the batch script of a job. SchedulerError: a Slurm command failed."""
        self._context, self._script_of = context, script_of
        self._scheduler = context.once(scheduler_of)
        self._queue = self._read_queue()
        self.jobs = with_known_numbers(read_jobs(context.study), self._queue)
        """Those known before, then those submitted here."""
        self._known = len(self.jobs)

    @property
    def new(self) -> list[Job]:
        """The jobs submitted here."""
        return self.jobs[self._known :]

    @property
    def alive(self) -> list[Job]:
        """The jobs that wait or run, apart from those submitted here."""
        return [job for job in self.jobs if any(state.alive for state in self._queue.get(job.token, {}).values())]

    @property
    def alive_runs(self) -> dict[str, Task]:
        """Hash -> task, of all queued and running runs, apart from those submitted here."""
        states = task_states(self.jobs, self._queue)
        return {run: (job.number or "", index) for job, run, index, state in states if state and state.alive}

    @property
    def largest_array(self) -> int:
        """Largest number of tasks of an array."""
        return self._scheduler.largest_array

    def is_pending(self, job: Job) -> bool:
        """Whether a job of one task has not started."""
        return self._queue[job.token][0].state == "PENDING"

    def send(self, kind: str, tasks: dict[str, int], after: str) -> str:
        """Submit a job; returns its number. SchedulerError: sbatch refused it or did not answer."""
        study, job = self._context.study, Job(secrets.token_hex(6), kind, None, after, tasks)
        path, options = self._command(job)
        path.parent.mkdir(exist_ok=True)
        (study.folder / "logs").mkdir(exist_ok=True)
        write_whole(path, self._script_of(job))
        write_whole(path.with_suffix(".tasks"), "".join(f"{index} {run}\n" for run, index in tasks.items()))
        # Recorded before the call: after a kill in between, the job is found by its token.
        self.jobs.append(job)
        write_jobs(study, self.jobs)
        try:
            self.jobs[-1] = dataclasses.replace(job, number=self._scheduler.submit(options, path))
        except SchedulerError as error:
            further = "extra" if kind == "train" else "driver"
            raise SchedulerError(explain_refusal(str(error), self._context.question.launcher.slurm, further)) from None
        write_jobs(study, self.jobs)
        return self.jobs[-1].number or ""

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Cancel jobs; those that have ended are ignored."""
        self._scheduler.cancel([job.number or "" for job in jobs])

    def _read_queue(self) -> Queue:
        return self._scheduler.queue()

    def _command(self, job: Job) -> tuple[Path, list[str]]:
        """The script's path, and the options of sbatch that belong to this submission and not to the script."""
        folder = self._context.study.folder.resolve()
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", folder.name)
        log = folder / "logs" / ("slurm-%A_%a.out" if job.tasks else "slurm-%j.out")
        options = [
            f"--job-name={name}-{job.kind}",
            f"--comment={MARK}{job.token}",
            f"--chdir={Path.cwd()}",
            f"--output={str(log.parent).replace('%', '%%')}/{log.name}",
        ]
        if job.tasks:
            limit = self._context.question.launcher.slurm.limit
            options.append(f"--array={ranges(job.tasks.values())}" + (f"%{limit}" if limit else ""))
        if job.after:
            options += [f"--dependency={job.after}", "--kill-on-invalid-dep=yes"]
        return folder / "jobs" / f"{job.token}.sbatch", options


class DryRun(Submission):
    """Prints scripts and commands, without an answer of the scheduler as if no job were queued; submits nothing."""

    def __init__(self, context: Context, script_of: Callable[[Job], str], console: Console) -> None:
        self._print = functools.partial(console.print, soft_wrap=True)
        self._rule = functools.partial(console.rule, align="left")
        self._limit = 1001
        super().__init__(context, script_of)

    @property
    def largest_array(self) -> int:
        return self._limit

    def send(self, kind: str, tasks: dict[str, int], after: str) -> str:
        """Print its command, and the script of the first of its kind; returns a name in place of a number."""
        number = len(self.new) + 1
        job = Job(f"EXAMPLE{number}", kind, f"JOB{number}", after, tasks)
        path, options = self._command(job)
        like = next((one.token for one in self.new if one.kind == kind), "")
        if not like:
            self._rule(str(path))
            self._print(self._script_of(job))
        self.jobs.append(job)
        work = f"{job.work}, by a script like {like}.sbatch" if like else job.work
        self._print(f"$ {shlex.join(['sbatch', '--parsable', *options, str(path)])}   # {work}")
        return f"JOB{number}"

    def cancel(self, jobs: Sequence[Job]) -> None:
        if jobs:
            self._print(f"$ scancel {' '.join(job.number or '' for job in jobs)}   # it waits for fewer runs")

    def _read_queue(self) -> Queue:
        try:
            queue, self._limit = self._scheduler.queue(), self._scheduler.largest_array
        except SchedulerError as error:
            self._print(f"note: {error}; shown as if no job were queued")
            return {}
        return queue


def explain_refusal(message: str, slurm: SlurmConfig, further: str) -> str:
    """A message of sbatch, with the refused key, its value and where allowed ones are listed; else as it is.

    `further` is the key of launcher.slurm whose options follow the named ones in this job, extra or driver.

    >>> explain_refusal("Requested time limit is invalid", SlurmConfig(driver=["--time=9"]), "driver")[33:69]
    "launcher.slurm.driver=['--time=9']; "
    >>> explain_refusal("Memory specification is invalid", SlurmConfig(extra=["--mem-per-cpu=9T"]), "extra")[33:76]
    "launcher.slurm.extra=['--mem-per-cpu=9T']; "
    """
    limits = {"mem": "memory specification", "time": "time limit is invalid"}
    for name, command in LISTED_BY.items():
        if limits.get(name, f"invalid {name} ") in message.lower():
            value = getattr(slurm, name)
            given = [f"launcher.slurm.{name}=" + ("null" if value is None else value)]
            pattern = MEMORY_OPTION if name == "mem" else f"--{name}="
            options = [option for option in getattr(slurm, further) if re.match(pattern, option)]
            # Of the same option sbatch takes the last.
            given += [f"launcher.slurm.{further}=['{option}']" for option in options]
            return f"{message}: {given[-1]}; {command} lists what is allowed"
    return message
