"""Runs as arrays: which run goes into which array, and what each array waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pipeline.study.folder import PlannedRun

Task = tuple[str, int]
"""Number of an array and index in it."""
Send = Callable[[str, dict[str, int], str], str]
"""(kind, hash of a run -> index, dependency) -> number of the job."""


def submit_runs(
    plan: Sequence[PlannedRun], states: dict[str, str], where: dict[str, Task], largest: int, send: Send
) -> list[PlannedRun]:
    """Submit the open runs in arrays, parents first.

    Args:
        plan: the runs.
        states: hash -> done, failed or open.
        where: hash -> task, of the runs that are queued or run; what is submitted is added.
        largest: most tasks of an array.
        send: submits an array.

    Returns:
        The runs that cannot be trained, since they or what they continue have failed.
    """
    barred: dict[str, PlannedRun] = {}
    for stage in _stages(plan):
        free: list[str] = []
        behind: dict[str, Task] = {}
        for run in stage:
            name, parent = run.spec.hash, run.after
            if states[name] == "done" or name in where:
                continue
            if states[name] == "failed" or parent in barred:
                barred[name] = run
            elif parent is None or states.get(parent, "done") == "done":
                free.append(name)
            else:
                behind[name] = where[parent]
        for tasks, after in [*(_chunks(free, "", largest)), *_behind(behind, largest)]:
            number = send("train", tasks, after)
            where.update({name: (number, index) for name, index in tasks.items()})
    return list(barred.values())


def dependency(tasks: Iterable[Task], others: Iterable[str] = ()) -> str:
    """All arrays of these tasks done, and other jobs ended in whatever way, as sbatch takes it.

    >>> dependency([("7", 0), ("7", 1), ("8", 0)])
    'afterok:7:8'
    """
    parts = [("afterok", dict.fromkeys(job for job, _ in tasks)), ("afterany", list(others))]
    return ",".join(":".join([kind, *numbers]) for kind, numbers in parts if numbers)


def ranges(indices: Iterable[int]) -> str:
    """Indices as sbatch takes them, the shortest way.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and parts[-1][-1] == index - 1:
            parts[-1][1:] = [index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)


def _stages(plan: Sequence[PlannedRun]) -> Iterator[list[PlannedRun]]:
    """Runs by the number of the plan's runs that they come after."""
    by_hash = {run.spec.hash: run for run in plan}
    depths: dict[str, int] = {}
    for run in plan:
        line = [run]
        while (parent := by_hash.get(line[-1].after or "")) and line[-1].spec.hash not in depths:
            line.append(parent)
        for member in reversed(line):
            depths.setdefault(member.spec.hash, depths.get(member.after or "", -1) + 1)
    for depth in range(max(depths.values(), default=-1) + 1):
        yield [run for run in plan if depths[run.spec.hash] == depth]


def _behind(runs: dict[str, Task], largest: int) -> Iterator[tuple[dict[str, int], str]]:
    """(tasks, dependency) of runs that wait for a task each: by what is fewer, parents or children of one parent."""
    children: dict[Task, list[str]] = {}
    for run, task in runs.items():
        children.setdefault(task, []).append(run)
    abreast: dict[tuple[str, int], dict[str, int]] = {}
    for (job, index), members in children.items():
        for number, run in enumerate(members):
            abreast.setdefault((job, number), {})[run] = index
    if len(children) <= len(abreast):
        for (job, index), members in children.items():
            yield from _chunks(members, f"afterok:{job}_{index}", largest)
    else:
        # Each task behind the one of the same index.
        for (job, _), tasks in abreast.items():
            yield tasks, f"aftercorr:{job}"


def _chunks(runs: Sequence[str], after: str, largest: int) -> Iterator[tuple[dict[str, int], str]]:
    for start in range(0, len(runs), largest):
        yield {run: index for index, run in enumerate(runs[start : start + largest])}, after
