"""Runs as job arrays: which run goes into which array, and which array waits for which."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from pipeline.study.folder import PlannedRun

Task = tuple[str, int]
"""Job number of an array and index in it."""
Send = Callable[[str, dict[str, int], str], str]
"""(kind, hash of a run -> index, dependency) -> job number."""


def submit_runs(
    plan: Sequence[PlannedRun], states: dict[str, str], tasks: dict[str, Task], size_limit: int, send: Send,
    runs_per_task: int = 1,
) -> list[PlannedRun]:  # fmt: skip
    """Submit the open runs in arrays, parents first.

    `states` are by hash done, failed or open. `tasks` are those of queued and running runs; the submitted are added.
    `size_limit` is the largest number of tasks of an array, each of which trains `runs_per_task` runs side by side.
    Returns the runs that cannot be trained because they, or a run that they start from, have failed.
    """
    blocked: dict[str, PlannedRun] = {}
    left = {run.spec.hash: run for run in plan}
    # In stages, each of runs that start from no run of the later ones.
    while stage := [run for run in left.values() if run.after not in left]:
        free: list[str] = []
        children: dict[str, Task] = {}
        for run in stage:
            name, parent = run.spec.hash, run.after
            del left[name]
            if states[name] == "done" or name in tasks:
                continue
            if states[name] == "failed" or parent in blocked:
                blocked[name] = run
            elif parent is None or states.get(parent, "done") == "done":
                free.append(name)
            else:
                children[name] = tasks[parent]
        arrays = [*_chunks(free, "", size_limit, runs_per_task), *_behind(children, size_limit, runs_per_task)]
        for indices, after in arrays:
            number = send("train", indices, after)
            tasks.update({name: (number, index) for name, index in indices.items()})
    return list(blocked.values())


def dependency(tasks: Iterable[Task], others: Iterable[str] = ()) -> str:
    """The dependency of a job that needs these tasks' arrays to succeed and other jobs to end, in sbatch's syntax.

    >>> dependency([("7", 0), ("7", 1), ("8", 0)])
    'afterok:7:8'
    """
    parts = [("afterok", dict.fromkeys(job for job, _ in tasks)), ("afterany", list(others))]
    return ",".join(":".join([kind, *numbers]) for kind, numbers in parts if numbers)


def ranges(indices: Iterable[int]) -> str:
    """Array indices in sbatch's syntax.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    parts: list[list[int]] = []
    for index in sorted({*indices}):
        if parts and parts[-1][-1] == index - 1:
            parts[-1][1:] = [index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)


def _behind(parents: dict[str, Task], size_limit: int, runs_per_task: int) -> Iterator[tuple[dict[str, int], str]]:
    """(indices, dependency) of arrays of runs that wait for a task each (`parents`), in the fewer arrays of two ways:
    one for each parent, or one for the n-th children of all parents.
    """
    children: dict[Task, list[str]] = {}
    for run, task in parents.items():
        children.setdefault(task, []).append(run)
    siblings: dict[tuple[str, int], dict[str, int]] = {}
    for (job, index), members in children.items():
        for number, run in enumerate(members):
            siblings.setdefault((job, number // runs_per_task), {})[run] = index
    if len(children) <= len(siblings):
        for (job, index), members in children.items():
            yield from _chunks(members, f"afterok:{job}_{index}", size_limit, runs_per_task)
    else:
        # Each task waits for the task of the same index.
        for (job, _), indices in siblings.items():
            yield indices, f"aftercorr:{job}"


def _chunks(
    runs: Sequence[str], after: str, size_limit: int, runs_per_task: int
) -> Iterator[tuple[dict[str, int], str]]:
    size = size_limit * runs_per_task
    for start in range(0, len(runs), size):
        yield {run: number // runs_per_task for number, run in enumerate(runs[start : start + size])}, after
