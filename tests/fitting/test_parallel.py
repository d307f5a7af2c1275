"""A parallel map gives the results of a serial one."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import fitting
from fitting import parallel
from fitting.parallel import over_cores
from tests.fitting.synthetic import TRUE, measured, small_plan


def test_forked_work_gives_the_same_in_the_same_order_with_no_handler_of_the_program():
    # In a process of its own: other tests leave threads behind, and a process with threads is not forked.
    program = """
import os, signal
from fitting import parallel
signal.signal(signal.SIGTERM, signal.default_int_handler)
parallel.WORTH_FORKING, offset, told = 0.0, 3, []
work = lambda item: (item + offset, os.getpid(), signal.getsignal(signal.SIGTERM))
found = parallel.over_cores(work, range(20), workers=2, each=told.append)
assert told == found
assert [value for value, *_ in found] == list(range(3, 23)), found
assert len({pid for _, pid, _ in found}) > 1, "nothing was forked, so that this test shows nothing"
assert found[-1][2] == signal.SIG_DFL, found
"""
    subprocess.run([sys.executable, "-c", program], check=True)


KILLED = """
import os, signal, sys, time
from pathlib import Path
from fitting import parallel
parallel.WORTH_FORKING, parent, folder = 0.0, os.getpid(), Path(sys.argv[1])

def work(item):
    if os.getpid() != parent:
        (folder / str(os.getpid())).touch()
        time.sleep(0.02)
        if item == int(sys.argv[2]):
            os.kill(os.getpid() if sys.argv[3] == "fork" else parent, signal.SIGKILL)
            time.sleep(0.1)
    return 2 * item

assert parallel.over_cores(work, range(40), workers=2) == [2 * item for item in range(40)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 38])
def test_work_goes_on_when_a_fork_is_killed(at, tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(at), "fork"], check=True, timeout=60)
    assert len(list(tmp_path.iterdir())) == 2


STOPPED = """
import multiprocessing, os, signal
from fitting import parallel
parallel.WORTH_FORKING = 0.0

def stop(result):
    if result == 39:
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGSTOP)

assert parallel.over_cores(int, range(40), workers=2, each=stop) == [*range(40)]
assert not multiprocessing.active_children()
"""


def test_forks_that_do_not_answer_once_all_is_done_are_not_waited_for():
    # As those that wait for a lock which one that was killed held.
    subprocess.run([sys.executable, "-c", STOPPED], check=True, timeout=20)


@pytest.mark.slow
def test_no_fork_outlives_its_parent(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "5", "parent"], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    forks = [int(path.name) for path in tmp_path.iterdir()]
    assert len(forks) == 2
    deadline = time.monotonic() + 10
    while left := [pid for pid in forks if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_short_work_and_one_worker_stay_in_this_process():
    assert set(over_cores(lambda _: os.getpid(), range(50), workers=2)) == {os.getpid()}
    assert set(over_cores(lambda _: time.sleep(0.02) or os.getpid(), range(60), workers=1)) == {os.getpid()}
    assert over_cores(str, []) == []


def test_a_process_with_threads_is_not_forked(monkeypatch):
    monkeypatch.setattr(parallel, "WORTH_FORKING", 0.0)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert set(over_cores(lambda _: os.getpid(), range(4), workers=2)) == {os.getpid()}
    finally:
        stop.set()
        thread.join()


def test_an_error_in_a_forked_process_is_not_lost(monkeypatch):
    monkeypatch.setattr(parallel, "WORTH_FORKING", 0.0)
    with pytest.raises(fitting.PointsError, match="item 7"):
        over_cores(fail_at_seven, range(10), workers=2)


def fail_at_seven(item: int) -> int:
    if item == 7:
        raise fitting.PointsError("item 7")
    return item


def test_a_fit_does_not_depend_on_its_workers(monkeypatch):
    points = measured(small_plan("chinchilla"), "chinchilla", TRUE["chinchilla"], noise=0.002, run_noise=0.002)
    alone = fitting.fit(points, "chinchilla", bootstrap=12, workers=1)
    monkeypatch.setattr(parallel, "WORTH_FORKING", 0.0)
    assert fitting.fit(points, "chinchilla", bootstrap=12, workers=2).to_json() == alone.to_json()
