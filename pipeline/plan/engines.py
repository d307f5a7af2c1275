"""The engine of the shape that trains longest, measured before its first run, so that `plan` knows its speed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from pipeline.plan.cost import run_seconds
from pipeline.plan.duration import chosen_engines, run_shape, shapes_to_compile, speed_of
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun
from training.run import choose_run_engine
from training.spec import Execution


def measure_engine(context: Context, runs: Sequence[PlannedRun], log: Callable[[str], object]) -> None:
    """Choose the engine of a shape as its first run would, which then finds the choice; once for a study.

    Of the shapes for which compiling pays it is the one that trains longest; the first runs of the others measure them,
    side by side.

    Args:
        runs: those that the workers of this machine will train.
    """
    question, study = context.question, context.study
    compiled, speed = shapes_to_compile(context, runs), speed_of(context, runs)
    seconds = defaultdict[str, float](float)
    for run in runs:
        if run_shape(run) in compiled:
            seconds[run.model] += run_seconds(run.spec, speed(run)) or 0.0
    if not seconds:
        return
    longest = max(seconds, key=seconds.__getitem__)
    of_model = [run for run in runs if run.model == longest]
    if (run_shape(of_model[0]), of_model[0].spec.precision) in chosen_engines(study):
        return
    log(f"measuring the engines of {longest}: compiling takes up to a minute, which its first run then need not spend")
    from training.engine import forget  # late, as it loads torch

    launcher = question.launcher
    execution = Execution(micro_batch=launcher.micro_batch, threads=launcher.threads, parallel=question.parallel)
    tokens = sum(run.spec.tokens for run in of_model)
    record = choose_run_engine(of_model[0].spec, execution, study.engines, tokens_ahead=tokens)
    forget()
    speeds = ", ".join(f"{name} {measured:,} tokens/s" for name, measured in record["measured"].items())
    log(f"engine: {record['engine']} ({speeds})")
