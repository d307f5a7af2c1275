"""Work spread over the cores, where that pays."""

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
"""Seconds of work left from which on more processes pay for their start."""
AT_ONCE = 0.2
"""Seconds of work that a process takes at once."""
_WORK: list[Callable] = []


def over_cores(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None = None,
    each: Callable[[Result], object] = lambda result: None,
) -> list[Result]:
    """`[work(item) for item in items]`, by forked processes once the first items show that it pays.

    `workers`: processes; None: one a core. The results do not depend on it. `each` is called here with each result, in
    their order, as soon as it and those before it are there. A process that runs threads of its own is
    not forked, as a lock that one of them holds would stay shut: there the work is done in turn.
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
                with multiprocessing.get_context("fork").Pool(min(workers, left), _end_when_told) as pool:
                    # Long items one by one, so that no process is left with several when the others are done.
                    together = max(1, min(left // (4 * workers), int(AT_ONCE / max(seconds, 1e-9))))
                    for result in pool.imap(_forked, items[-left:], chunksize=together):
                        results.append(result)
                        each(result)
            finally:
                _WORK.pop()
    return results


def _end_when_told() -> None:
    # The pool ends its processes by a TERM; a handler of the program around would make a traceback of it, and so would
    # a Ctrl-C, which a terminal sends to all processes at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _forked(item):
    # Inherited, not sent: the work closes over arrays and laws that need not be copied.
    return _WORK[-1](item)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _may_fork() -> bool:
    return (
        sys.platform == "linux" and threading.active_count() == 1 and multiprocessing.current_process().daemon is False
    )
