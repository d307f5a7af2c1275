"""Which jobs of a study were submitted: written before sbatch is asked and after it answered, one writer at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pipeline.launch.slurm.client import Queue, SchedulerError, Seen
from pipeline.study.folder import Study, StudyError
from training.attempt import claim
from training.durable import read_lines_whole, write_whole

SCHEMA = 1


@dataclass(frozen=True)
class Job:
    """A line of jobs.jsonl: an array of runs, or a job that goes on with the study when they are done."""

    token: str
    """Its own word, in the job's comment and in the names of its files in jobs/."""
    kind: str
    """train; decide (collect, fit, recommend, submit the confirmation); prove (compare, report)."""
    number: str | None = None
    """What sbatch answered; None: it was asked and we never heard."""
    after: str = ""
    """Its dependency."""
    tasks: dict[str, int] = field(default_factory=dict)
    """Of train: hash of a run -> its index in the array."""

    def log(self, index: int) -> str:
        """File of what it prints, in the study's folder."""
        return f"logs/slurm-{self.number}_{index}.out" if self.kind == "train" else f"logs/slurm-{self.number}.out"


def read_jobs(study: Study) -> list[Job]:
    """The jobs that were submitted, oldest first; none for a study that never was.

    Raises:
        StudyError: a damaged line.
    """
    path = study.folder / "jobs.jsonl"
    try:
        lines = read_lines_whole(path)
        wanted = {name.name for name in dataclasses.fields(Job)}
        return [Job(**{name: line[name] for name in wanted}) for line in lines if line["schema"] == SCHEMA]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path}: {error!r}; delete it when squeue shows no job of this study") from None


def write_jobs(study: Study, jobs: Iterable[Job]) -> None:
    """Replace jobs.jsonl."""
    lines = [json.dumps({"schema": SCHEMA, **dataclasses.asdict(job)}) for job in jobs]
    write_whole(study.folder / "jobs.jsonl", "".join(f"{line}\n" for line in lines))


def adopted(jobs: Iterable[Job], queue: Queue) -> list[Job]:
    """The jobs with the numbers that we never heard, where the queue knows them."""
    found = []
    for job in jobs:
        seen = next(iter(queue.get(job.token, {}).values()), None)
        found.append(dataclasses.replace(job, number=seen.job) if seen and job.number is None else job)
    return found


def seen_tasks(jobs: Iterable[Job], queue: Queue) -> Iterator[tuple[Job, str, int, Seen | None]]:
    """(job, hash of the run, index, what the queue says), the newest job of a run last."""
    for job in jobs:
        tasks = queue.get(job.token, {})
        for run, index in job.tasks.items():
            yield job, run, index, tasks.get(index)


@contextlib.contextmanager
def submitting(study: Study, log: Callable[[str], object], longest: float = 600.0) -> Iterator[None]:
    """The right to submit jobs of a study, which one process has at a time; waits for another to end.

    Raises:
        SchedulerError: another process had it all the while.
    """
    deadline, told = time.monotonic() + longest, False
    folder = study.folder / "jobs" / "submission"
    while (attempt := claim(folder)) is None:
        if not told:
            log("another process submits jobs of this study; waiting for it")
            told = True
        if time.monotonic() > deadline:
            raise SchedulerError(f"{folder}: another process has been submitting for {longest:g} s; see attempts/")
        time.sleep(0.2)
    code = 1
    try:
        yield
        code = 0
    finally:
        attempt.end(code)
