"""How long a plan takes: its runs at the speeds that runs have had, or that prepare measured, and waits for parents."""

import contextlib
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence

from pipeline.plan.cost import run_flops, run_seconds
from pipeline.plan.processes import workers
from pipeline.study.artifacts import Speed
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from training.corpora.documents import json_hash
from training.durable import read_lines_whole
from training.parameters import model_size

START_SECONDS = 5.0
"""Time of a worker until it trains."""
_RUNS_READ = 8
"""Finished runs of a shape whose speed is read."""


def speed_of(context: Context, runs: Sequence[PlannedRun]) -> Callable[[PlannedRun], Speed | None]:
    """Tokens a second of one worker in a run of a plan; None where it is not known.

    That of finished runs of its shape and precision, else what prepare measured of its model, without compiling.
    """
    machine, finished = context.machine, _finished_speeds(context.study, runs)

    def speed(run: PlannedRun) -> Speed | None:
        measured = machine.speeds.get(run.model) if machine and machine.precision == run.spec.precision else None
        return finished.get(_shape(run), measured)

    return speed


def wall_seconds(context: Context, runs: Sequence[PlannedRun]) -> float | None:
    """Seconds until the workers of this machine have trained all runs; None where a speed is not known."""
    speed = speed_of(context, runs)
    seconds = [took for run in runs if (took := run_seconds(run.spec, speed(run))) is not None]
    if len(seconds) < len(runs):
        return None
    return START_SECONDS + _makespan(runs, seconds, workers(context.question)) if runs else 0.0


def _makespan(runs: Sequence[PlannedRun], seconds: Sequence[float], count: int) -> float:
    """Time at which the last run ends, in seconds, if `count` workers each take the first one that can start."""
    planned, behind = {run.spec.hash for run in runs}, defaultdict[str, list[int]](list)
    for number, run in enumerate(runs):
        behind[run.after if run.after in planned else ""].append(number)
    startable, training, now = behind[""], list[tuple[float, int]](), 0.0
    while startable or training:
        while startable and len(training) < count:
            number = heapq.heappop(startable)
            heapq.heappush(training, (now + seconds[number], number))
        now, number = heapq.heappop(training)
        for released in behind[runs[number].spec.hash]:
            heapq.heappush(startable, released)
    return now


def _finished_speeds(study: Study, runs: Sequence[PlannedRun]) -> dict[tuple[str, str], Speed]:
    """Shape of finished runs -> their speed, with all that a run does between its steps."""
    metrics: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for run in reversed(runs):
        known = metrics[_shape(run)]
        if len(known) < _RUNS_READ and study.state(run) == "done":
            # Forward passes count as a third of a step.
            tokens = run_flops(run.spec) / model_size(run.spec.model, run.spec.sequence_length).flops_per_token
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                lines = read_lines_whole(study.runs / run.name / "metrics.jsonl")
                known.append((tokens, sum(line["seconds"] for line in lines)))
    speeds = {}
    for shape, known in metrics.items():
        tokens, seconds = map(sum, zip(*known)) if known else (0.0, 1.0)
        if (training := round(tokens / seconds)) > 0:
            speeds[shape] = Speed(training, 3 * training)
    return speeds


def _shape(run: PlannedRun) -> tuple[str, str]:
    return json_hash(run.spec.model), run.spec.precision
