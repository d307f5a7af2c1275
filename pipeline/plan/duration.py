"""How long a plan takes: its runs at the speeds that runs have had, or that prepare measured, and waits for parents."""

import contextlib
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence

from pipeline.plan.cost import START_SECONDS, assumed_seconds, run_seconds, step_tokens
from pipeline.plan.memory import Shape, shape_key
from pipeline.plan.processes import runs_on_device, workers
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from training.durable import read_lines_whole

_RUNS_READ = 8
"""Finished runs of a shape whose speed is read."""
Speed = Callable[[PlannedRun], float | None]


def speed_of(context: Context, runs: Sequence[PlannedRun]) -> Speed:
    """Training tokens a second of one worker in a run of a plan; None where it is not known.

    That of finished runs of its shape and precision, else what prepare measured of its model, without compiling.
    """
    machine, finished = context.machine, _finished_speeds(context.study, runs)

    def speed(run: PlannedRun) -> float | None:
        measured = machine.speeds.get(run.model) if machine and machine.precision == run.spec.precision else None
        return finished.get(shape_key(run), measured)

    return speed


def whose_speed(context: Context, runs: Sequence[PlannedRun]) -> str:
    """Whose speed `speed_of` is, in words that follow "the speed"."""
    finished, measured = _finished_speeds(context.study, runs), bool(context.machine and context.machine.speeds)
    if measured and not finished:
        return "that prepare measured"
    others = measured and any(shape_key(run) not in finished for run in runs)
    return "of runs that are done" + " or, of other shapes, that prepare measured" * others


def wall_seconds(context: Context, runs: Sequence[PlannedRun], speed: Speed | None = None) -> float | None:
    """Seconds until the workers of this machine have trained all runs; None where a speed is not known.

    Each worker takes the run that has waited longest for one, once its parent has ended. `speed`: by default that of
    these runs.
    """
    speed, planned = speed or speed_of(context, runs), {run.spec.hash for run in runs}
    behind = defaultdict[str, list[tuple[int, float]]](list)
    for number, run in enumerate(runs):
        if (seconds := run_seconds(run.spec, speed(run))) is None:
            return None
        behind[run.after if run.after in planned else ""].append((number, seconds))
    free = [START_SECONDS] * workers(context.question)
    startable = [(START_SECONDS, *run) for run in behind[""]]
    while startable:
        since, number, seconds = heapq.heappop(startable)
        end = max(since, free[0]) + seconds
        heapq.heapreplace(free, end)
        for run in behind[runs[number].spec.hash]:
            heapq.heappush(startable, (end, *run))
    return max(free) if runs else 0.0


def held_seconds(context: Context, runs: Sequence[PlannedRun]) -> float | None:
    """GPU-seconds that the jobs of Slurm hold to train all runs; None: a time, or the GPUs of a job, are not known.

    A job trains runs of one generation side by side, and holds all of its GPUs until the longest has ended.
    """
    question, speed = context.question, speed_of(context, runs)
    gpus, together = question.launcher.slurm.gpu_count * question.launcher.slurm.nodes, question.launcher.runs_per_job
    times = [run_seconds(run.spec, speed(run)) for run in runs]
    if None in times and (assumed := assumed_seconds(runs, question)):
        gpus_a_run = question.parallel.processes / runs_on_device(question)
        times = [alone / gpus_a_run if known is None else known for known, alone in zip(times, assumed)]
    if question.launcher.kind != "slurm" or not gpus or None in times:
        return None
    depths, generations = dict[str | None, int](), defaultdict[int, list[float]](list)
    for run, seconds in zip(runs, times):
        depths[run.spec.hash] = depths.get(run.after, -1) + 1
        generations[depths[run.spec.hash]].append(seconds or 0.0)
    starts = [(own, first) for own in generations.values() for first in range(0, len(own), together)]
    return gpus * sum(START_SECONDS + max(own[first : first + together]) for own, first in starts)


def _finished_speeds(study: Study, runs: Sequence[PlannedRun]) -> dict[Shape, float]:
    """Shape of finished runs -> their speed, with all that a run does between its steps."""
    tokens, seconds = defaultdict[Shape, list[float]](list), defaultdict[Shape, float](float)
    for run in reversed(runs):
        shape = shape_key(run)
        if len(tokens[shape]) < _RUNS_READ and study.state(run) == "done":
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                lines = read_lines_whole(study.runs / run.name / "metrics.jsonl")
                seconds[shape] += sum(line["seconds"] for line in lines)
                tokens[shape].append(step_tokens(run.spec))
    return {shape: sum(tokens[shape]) / took for shape, took in seconds.items() if took}
