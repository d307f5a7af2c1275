"""A map over processes, for work that is long enough.

Not joblib: docs/negative-results.md has the measurement.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
WORTH_FORKING = 1.0
"""Seconds of remaining work above which processes are started."""
AT_ONCE = 0.2
"""Seconds of work in one chunk."""
_WORK: list[Callable] = []


def over_cores(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None = None,
    each: Callable[[Result], object] = lambda result: None,
) -> list[Result]:
    """`[work(item) for item in items]`, in forked processes once the first items show that it is worth it.

    `workers`: processes; None: one a core. The results do not depend on it. `each` is called here with each result, in
    their order, as soon as it and those before it are there. A process with threads is not
    forked, since a lock that one of them holds would never be released: there the work is done in turn.
    """
    items = list(items)
    workers = workers or _cores()
    results: list[Result] = []
    start = time.perf_counter()
    while len(results) < len(items):
        results.append(work(items[len(results)]))
        each(results[-1])
        left = len(items) - len(results)
        seconds = (time.perf_counter() - start) / len(results)
        alone = threading.active_count() == 1 and not multiprocessing.current_process().daemon
        if left > 1 and seconds * left > WORTH_FORKING and workers > 1 and alone and sys.platform == "linux":
            # Long items one by one, so that no process is left with several when the others are done.
            together = max(1, min(left // (4 * workers), int(AT_ONCE / max(seconds, 1e-9))))
            try:
                with contextlib.closing(_in_forks(work, items[-left:], min(workers, left), together)) as forked:
                    for result in forked:
                        results.append(result)
                        each(result)
            except BrokenProcessPool:
                # One of them was killed, as when memory runs out: this process goes on alone.
                workers = 1
    return results


def _in_forks(
    work: Callable[[Item], Result], items: list[Item], workers: int, together: int
) -> Generator[Result, None, None]:
    # Not multiprocessing.Pool, which waits forever for a process that was killed.
    others = {*multiprocessing.active_children()}
    _WORK.append(work)
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin, (os.getpid(),))
    try:
        yield from pool.map(_forked, items, chunksize=together)
    finally:
        # What they did is here, or not wanted. Asked to end they might wait forever: for a lock that one of them held
        # when it was killed.
        for process in {*multiprocessing.active_children()} - others:
            process.kill()
        pool.shutdown()
        _WORK.pop()


def _begin(parent: int) -> None:
    # A terminal sends Ctrl-C to all processes: an inherited handler would print a traceback for each.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    # Each fork holds the pipe of the others open, so that none sees when the parent was killed.
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _forked(item):
    # Inherited by fork, not pickled: the work closes over arrays and laws.
    return _WORK[-1](item)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
