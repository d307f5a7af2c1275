"""The processes that train one run together: started here, or by srun on one or several nodes."""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from subprocess import DEVNULL, Popen
from types import FrameType

from training.run import Exit
from training.spec import SpecError
from training.stop import SIGNALS, answer_signal

_GOOD = (Exit.DONE, Exit.RUN_ME_AGAIN)


def rank_environment(kind: str, processes: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of torchrun to add for one of several tasks that srun started; none where RANK is set already.

    The batch script sets MASTER_ADDR and MASTER_PORT. With kind single each task trains a run by itself, and gets one
    of the GPUs it sees.

    >>> rank_environment("ddp", 2, {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"})
    {'RANK': '1', 'WORLD_SIZE': '2', 'LOCAL_RANK': '0'}

    Raises SpecError: srun started another number of tasks than `processes` that train a run together.
    """
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if tasks == 1 or "RANK" in environment:
        return {}
    local = environment["SLURM_LOCALID"]
    gpus = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if kind == "single":
        return {"CUDA_VISIBLE_DEVICES": gpus[int(local) % len(gpus)]} if gpus else {}
    if tasks != processes:
        raise SpecError(f"parallel.processes: {processes}, but srun started {tasks}; allowed: --ntasks={processes}")
    # A task that sees one GPU only knows it as number 0.
    local = "0" if len(gpus) == 1 else local
    return {"RANK": environment["SLURM_PROCID"], "WORLD_SIZE": str(tasks), "LOCAL_RANK": local}


def run_ranks(command: list[str], count: int, threads: int, grace: float = 10.0) -> Exit:
    """Run a command in `count` processes of one process group and wait for all of them.

    Unlike torchrun it keeps exit codes and user signals: a stop signal goes to every process, and the failure of one
    ends the others after `grace` seconds. The exit code is that of the process that failed first, UNEXPECTED if a
    signal killed it; RUN_ME_AGAIN when asked to stop; else the largest of all.
    """
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": str(threads)}
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}
    processes: list[Popen[bytes]] = []
    stopping = False

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        answer_signal()
        for process in processes:
            process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        for rank in range(count):
            environment = os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(Popen(command, stdin=DEVNULL, env=environment))
        failed = _wait(processes, grace)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    codes = [process.returncode for process in processes]
    if stopping and (failed is None or -signal.SIGTERM in codes):
        return Exit.RUN_ME_AGAIN
    if failed is None:
        return Exit(max(codes))
    print(f"one of {count} processes exited with {failed}; the others are stopped", file=sys.stderr, flush=True)
    return Exit(failed) if failed in tuple(Exit) else Exit.UNEXPECTED


def _wait(processes: list[Popen[bytes]], grace: float) -> int | None:
    """Exit code of the first process that failed, or None; the others then have `grace` seconds."""
    failed, deadline = None, float("inf")
    while True:
        codes = [process.poll() for process in processes]
        if failed is None and (failures := [code for code in codes if code not in (None, *_GOOD)]):
            failed, deadline = failures[0], time.monotonic() + grace
        if None not in codes or time.monotonic() >= deadline:
            return failed
        time.sleep(0.05)
