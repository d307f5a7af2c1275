"""The processes of one run: started together on this machine and ended together, or by srun on several."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from types import FrameType

from training.run import Exit
from training.spec import SpecError
from training.stop import SIGNALS


def place_in_step(kind: str, processes: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What torchrun would have put into the environment of one task of several that srun started.

    MASTER_ADDR and MASTER_PORT are the batch script's to say. Tasks that train a run each (kind single) share out the
    GPUs that they see instead.

    >>> place_in_step("ddp", 2, {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"})
    {'RANK': '1', 'WORLD_SIZE': '2', 'LOCAL_RANK': '0'}

    Args:
        kind: of parallel.
        processes: that train a run together.
        environment: of this process.

    Returns:
        Additions to the environment; none outside of srun, in a step of one task, or where RANK says it already.

    Raises:
        SpecError: srun started another number of tasks.
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
    # A task that was given a GPU of its own knows it as number 0.
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": str(tasks),
        "LOCAL_RANK": "0" if len(gpus) == 1 else local,
    }


def run_ranks(command: list[str], count: int, threads: int, grace: float = 10.0) -> Exit:
    """Run a command in `count` processes that find each other as under torchrun, and wait for all of them.

    torchrun itself would swallow the exit codes and the user signals. A signal that asks to stop is handed on; when one
    process dies, the others are ended too.

    Args:
        command: program and arguments.
        count: processes.
        threads: CPU threads of each.
        grace: seconds that the others have to end by themselves once one has failed.

    Returns:
        Exit code of the one that failed first, UNEXPECTED for one that a signal killed; RUN_ME_AGAIN when asked to
        stop; else the largest of all.
    """
    place = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": str(threads)}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    processes: list[subprocess.Popen[bytes]] = []
    asked = False

    def hand_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        for process in processes:
            process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, hand_on) for number in SIGNALS}
    try:
        for rank in range(count):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=os.environ | place | own))
        failed = _wait(processes, grace)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    codes = [process.returncode for process in processes]
    if asked and (failed is None or -signal.SIGTERM in codes):
        return Exit.RUN_ME_AGAIN
    if failed is None:
        return Exit(max(codes))
    print(f"a process of {count} ended with {failed}; all are ended", file=sys.stderr, flush=True)
    return Exit(failed) if failed in tuple(Exit) else Exit.UNEXPECTED


def _wait(processes: list[subprocess.Popen[bytes]], grace: float) -> int | None:
    """Until all have ended; the exit code of the first that failed, whose others have `grace` seconds left."""
    failed, deadline = None, float("inf")
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
        bad = [code for process in processes if (code := process.poll()) not in (None, Exit.DONE, Exit.RUN_ME_AGAIN)]
        if bad and failed is None:
            failed, deadline = bad[0], time.monotonic() + grace
    if failed is None:
        failed = next((p.returncode for p in processes if p.returncode not in (Exit.DONE, Exit.RUN_ME_AGAIN)), None)
    return failed


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
