"""Training speed of model shapes while as many processes train as a study has workers.

`python -m training.speed` reads the arguments of `plain_speeds` as JSON and prints its result as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from training.engine import LONGEST_EAGER, tokens_per_second


def speeds_beside_others(
    shapes: Mapping[str, Mapping[str, Any]], processes: int, threads: int, **settings: Any
) -> dict[str, float]:
    """Name of a shape -> training tokens a second of one of `processes` that train at once on this machine.

    They share its caches and its memory, so that each is slower than one alone. On GPUs each has its own: one process
    is measured. `settings`: precision, batch, sequence_length and objective of `plain_speeds`.
    """
    request = {"shapes": {name: dict(shape) for name, shape in shapes.items()}, "threads": threads, **settings}
    if processes == 1 or torch.cuda.is_available():
        return plain_speeds(**request)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    started = [subprocess.Popen([sys.executable, "-m", "training.speed"], **pipes) for _ in range(processes)]
    for process in started:
        assert process.stdin
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        process.stdin = None
    measured = [json.loads(process.communicate()[0] or "null") for process in started]
    if not all(measured):
        # Memory was too short for all of them, as it may be for the runs.
        return plain_speeds(**request)
    return {name: sum(one[name] for one in measured) / processes for name in shapes}


def plain_speeds(
    shapes: Mapping[str, Mapping[str, Any]],
    threads: int,
    precision: str,
    batch: int,
    sequence_length: int,
    objective: str = "causal",
) -> dict[str, float]:
    """Name of a shape -> training tokens a second on these threads, without compiling."""
    engine = "eager" if sequence_length <= LONGEST_EAGER else "sdpa"
    return {
        name: tokens_per_second(shape, engine, precision, batch, sequence_length, threads, objective)
        for name, shape in shapes.items()
    }


if __name__ == "__main__":
    print(json.dumps(plain_speeds(**json.load(sys.stdin))))
