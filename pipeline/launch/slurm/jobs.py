"""jobs.jsonl: the jobs of a study, written before and after each call of sbatch by one process at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pipeline.launch.slurm.client import JobState, Queue, SchedulerError
from pipeline.study.folder import Study, StudyError
from training.attempt import claim
from training.durable import read_lines_whole, write_whole

SCHEMA = 2


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
    """Of kind train: hash of a run -> index in the array; of kind tokenise: a name for each index."""

    @property
    def work(self) -> str:
        """What it does, in a word or two."""
        return f"{len(self.tasks)} runs" if self.kind == "train" else self.kind

    def log(self, index: int) -> str:
        """Log file, relative to the study's folder."""
        return f"logs/slurm-{self.number}_{index}.out" if self.tasks else f"logs/slurm-{self.number}.out"


def read_jobs(study: Study) -> list[Job]:
    """The submitted jobs, oldest first; an empty list before the first.

    Raises:
        StudyError: a damaged line.
    """
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
    completed = []
    for job in jobs:
        state = next(iter(queue.get(job.token, {}).values()), None)
        completed.append(dataclasses.replace(job, number=state.job) if state and job.number is None else job)
    return completed


def task_states(jobs: Iterable[Job], queue: Queue) -> Iterator[tuple[Job, str, int, JobState | None]]:
    """(job, hash of the run, index, state or None if not in the queue), the newest job of a run last."""
    for job in jobs:
        tasks = queue.get(job.token, {})
        for run, index in job.tasks.items():
            yield job, run, index, tasks.get(index)


@contextlib.contextmanager
def submitting(study: Study, log: Callable[[str], object], timeout: float = 600.0) -> Iterator[None]:
    """A lock on the submission of a study's jobs; waits for another process that holds it.

    Raises:
        SchedulerError: another process held it until the time-out.
    """
    deadline, logged = time.monotonic() + timeout, False
    folder = study.folder / "jobs" / "submission"
    while (attempt := claim(folder)) is None:
        if not logged:
            log("another process is submitting jobs of this study; waiting for it")
            logged = True
        if time.monotonic() > deadline:
            raise SchedulerError(f"{folder}: another process has been submitting for {timeout:g} s; see attempts/")
        time.sleep(0.2)
    code = 1
    try:
        yield
        code = 0
    finally:
        attempt.end(code)
