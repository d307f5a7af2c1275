"""A map over processes, for work that is long enough.

Not joblib: docs/negative-results.md has the measurement.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
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
        if left > 1 and seconds * left > WORTH_FORKING and workers > 1 and _may_fork():
            _WORK.append(work)
            try:
                with multiprocessing.get_context("fork").Pool(min(workers, left), _default_signals) as pool:
                    # Long items one by one, so that no process is left with several when the others are done.
                    together = max(1, min(left // (4 * workers), int(AT_ONCE / max(seconds, 1e-9))))
                    for result in pool.imap(_forked, items[-left:], chunksize=together):
                        results.append(result)
                        each(result)
            finally:
                _WORK.pop()
    return results


def _default_signals() -> None:
    # The pool ends its processes by SIGTERM, and a terminal sends Ctrl-C to all processes: an inherited handler would
    # print a traceback for each.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _forked(item):
    # Inherited by fork, not pickled: the work closes over arrays and laws.
    return _WORK[-1](item)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _may_fork() -> bool:
    return (
        sys.platform == "linux" and threading.active_count() == 1 and multiprocessing.current_process().daemon is False
    )
