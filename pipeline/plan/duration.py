"""How long a plan takes here: its runs at measured speeds, their starts, compiling, and waiting for parents."""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipeline.plan.cost import run_seconds
from pipeline.plan.machine import workers
from pipeline.study.artifacts import Machine, Speed
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from training.corpora.documents import json_hash
from training.devices.group import SHARDED
from training.parameters import COMPILE_SECONDS, compiling_pays

COMPILED_GAIN = 1.4
"""Speed of compiled code over that of plain code on a CPU: 1.3 to 2 was measured below two million parameters."""
WIDE, WIDE_GAIN = 256, 1.15
"""Hidden size above which products of matrices take nearly all the time, and the gain there: 1.06 to 1.27."""
LARGE_VOCABULARY, LARGE_VOCABULARY_GAIN = 30_000, 1.7
"""Tokens of a vocabulary whose logits take much of the time, and the gain there: 1.38 (fp32) to 2.03."""
START_SECONDS = 5.0
"""Time of a worker until it trains."""
ENGINES_SECONDS = 8.0
"""Time to measure the engines of a shape that are not compiled."""

Speeds = Callable[[PlannedRun], Speed | None]


def speed_of(context: Context, runs: Sequence[PlannedRun], engines: bool = True) -> Speeds:
    """Tokens a second of one worker in a run of a plan, as far as this machine has measured it.

    Of the engine that was chosen for its shape, where that was measured; else, and without `engines`, of the plain one
    that prepare measured, times what compiling should gain where the plan is long enough for it.
    """
    machine, compiled = context.machine, shapes_to_compile(context, runs)
    chosen = chosen_engines(context.study) if engines else {}

    def speed(run: PlannedRun) -> Speed | None:
        shape = run_shape(run)
        if known := chosen.get((shape, run.spec.precision)):
            return known.speed
        plain = _plain(machine, run)
        if plain is None or shape not in compiled:
            return plain
        gain = _compiled_gain(run.spec.model)
        return Speed(round(plain.training * gain), round(plain.evaluation * gain))

    return speed


def wall_seconds(context: Context, runs: Sequence[PlannedRun]) -> float | None:
    """Seconds until the workers of this machine have trained all runs; None where a speed is not known.

    Each worker takes the first run of the plan whose parent is done; the first run of a shape measures engines and
    compiles, unless prepare has.
    """
    if not runs:
        return 0.0
    question, speed, chosen = context.question, speed_of(context, runs), chosen_engines(context.study)
    compiled = shapes_to_compile(context, runs)
    took = [engine.seconds for engine in chosen.values() if engine.compiled]
    with_compiling = fmean(took) if took else ENGINES_SECONDS + COMPILE_SECONDS
    seconds, begun = [], set(shape for shape, _ in chosen)
    for run in runs:
        takes, shape = run_seconds(run.spec, speed(run)), run_shape(run)
        if takes is None:
            return None
        if shape not in begun and question.engine == "auto":
            takes += with_compiling if shape in compiled else ENGINES_SECONDS
        begun.add(shape)
        seconds.append(takes)
    return START_SECONDS + _makespan(runs, seconds, workers(question))


def _makespan(runs: Sequence[PlannedRun], seconds: Sequence[float], count: int) -> float:
    """Time at which the last run ends, in seconds, if `count` workers each take the first one that can start."""
    planned, behind = {run.spec.hash for run in runs}, defaultdict[str, list[int]](list)
    for number, run in enumerate(runs):
        behind[run.after if run.after in planned else ""].append(number)
    ready, training, now = behind[""], list[tuple[float, int]](), 0.0
    heapq.heapify(ready)
    while ready or training:
        while ready and len(training) < count:
            number = heapq.heappop(ready)
            heapq.heappush(training, (now + seconds[number], number))
        now, number = heapq.heappop(training)
        for released in behind[runs[number].spec.hash]:
            heapq.heappush(ready, released)
    return now


def shapes_to_compile(context: Context, runs: Sequence[PlannedRun]) -> Collection[str]:
    """Hashes of the shapes for which a compiled engine is tried, as `training.engine.choose_engine` does."""
    machine, question = context.machine, context.question
    plain_only = question.engine != "auto" or question.parallel.kind in SHARDED
    if machine is None or plain_only or not shutil.which(os.environ.get("CXX", "g++")):
        return ()
    tokens, plain = Counter[str](), dict[str, int]()
    for run in runs:
        if known := _plain(machine, run):
            tokens[run_shape(run)] += run.spec.tokens
            plain[run_shape(run)] = known.training
    return {shape for shape, count in tokens.items() if compiling_pays(count, plain[shape])}


def _plain(machine: Machine | None, run: PlannedRun) -> Speed | None:
    """What prepare measured of a run's model, if in the run's precision."""
    return machine.speeds.get(run.model) if machine and machine.precision == run.spec.precision else None


def _compiled_gain(model: Mapping[str, Any]) -> float:
    if model.get("vocab_size", 0) >= LARGE_VOCABULARY:
        return LARGE_VOCABULARY_GAIN
    return COMPILED_GAIN if model.get("hidden_size", 0) <= WIDE else WIDE_GAIN


@dataclass(frozen=True)
class ChosenEngine:
    """The engine that was chosen for a shape on this machine."""

    speed: Speed
    compiled: bool
    """Whether compiled code was measured, chosen or not."""
    seconds: float
    """What measuring took, compiling included."""


def chosen_engines(study: Study) -> dict[tuple[str, str], ChosenEngine]:
    """Hash of the shape, and precision -> what was chosen."""
    chosen = {}
    for path in study.engines.glob("**/*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            record = json.loads(path.read_text())
            speed = Speed(record["measured"][record["engine"]], record["evaluation"])
            compiled = any(name.endswith("-compiled") for name in record["measured"])
            chosen[record["shape"], record["precision"]] = ChosenEngine(speed, compiled, record["seconds"])
    return chosen


def run_shape(run: PlannedRun) -> str:
    """Hash of the shape of a run's model, as in the records of engines."""
    return json_hash(run.spec.model, digest_size=8)
