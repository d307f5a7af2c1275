"""Training speed of this machine: measured once for a study and stored in its machine.json."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from statistics import mean

import psutil

from pipeline.plan.memory import fitted_run
from pipeline.plan.processes import gpus, workers
from pipeline.plan.runs import shape_of
from pipeline.study.artifacts import Machine
from pipeline.study.context import Context
from pipeline.study.folder import StudyError
from training.devices.memory import plain_engine
from training.spec import Initial, RunSpec
from training.stop import spawned_processes, started_quietly

SECONDS = 20.0
"""What measuring a machine takes, about, beside building the models."""
BUSY, _LOOK_SECONDS = 50.0, 0.3
"""Percent of the cores that others use from which a line warns."""


def _known(context: Context) -> Machine:
    """What was measured for the study, of a precision that is chosen or as configured now; else nothing."""
    configured = context.question.precision
    nothing = Machine(configured, {}, {"fp32": 0, "bf16": 0} if configured == "auto" else {}, "")
    try:
        machine = context.machine or nothing
    except StudyError:
        Machine.path(context.study).unlink()  # Damaged: it sends everyone else here.
        return nothing
    return machine if machine.chose_precision or machine.precision == configured else nothing


def measured_machine(context: Context, log: Callable[[str], object]) -> Machine | None:
    """Measure each model's speed, and with it the precision of the whole study; None: there is nothing to measure.

    With precision=auto it is bf16 where the processor has instructions for its products, unless fp32 is measured to be
    faster. Of a configured precision only that one is measured, and nothing on GPUs or where runs are trained on other
    machines or are rehearsed. What was measured to choose a precision stays; models that are new are measured in it.
    """
    question, launcher, known = context.question, context.question.launcher, _known(context)
    names = [name for name in context.models if question.remeasure or name not in known.speeds]
    # This machine's speed says nothing of that of nodes, and its GPUs compile.
    if question.rehearsal or not (context.chooses_precision() if launcher.elsewhere or gpus() else names):
        return None
    if not gpus():
        log(f"measuring the speed of {', '.join(names)}, about {SECONDS:.0f} s")
    from training.devices.processor import device_name, fast_precisions  # they load torch

    precisions = fast_precisions() if known.precision == "auto" else [known.precision]
    if gpus():
        log(f"precision: {precisions[-1]}, by what {device_name()} has instructions for")
        return Machine(precisions[-1], {}, known.measured, device_name())
    target, together = question.model.name, workers(question) * question.parallel.processes
    if (busy := psutil.cpu_percent(_LOOK_SECONDS)) > BUSY:
        low = "so speeds are measured too low, and times and costs too high; remeasure=true measures them again"
        if precisions[1:] and not question.dry_run:
            low += "; the precision, on which losses depend, is chosen by these speeds and stays: precision=fp32 or "
            low += "precision=bf16 sets it yourself"
        log(f"other processes use {busy:.0f}% of the cores, {low}")
    limit = SECONDS / (len(precisions) + len(names) - 1)
    with spawned_processes(together) as pool:
        speed = cache(partial(_process_speed, context, pool, together, limit))
        of_target = {} if known.speeds else {each: speed(target, each) for each in precisions}
        sound = bool(of_target) and all(of_target.values())
        precision = max(of_target, key=of_target.__getitem__) if sound else precisions[-1]
        speeds = {name: round(speed(name, precision) * question.parallel.processes) or None for name in names}
    measured = known.measured | {name: round(value) for name, value in of_target.items()}
    if of_target:
        listed = ", ".join(f"{each} {f'{of:,.0f} tokens/s' if of else '?'}" for each, of in of_target.items())
        why = "" if sound else f"; ?: memory, or the {limit:.0f} s of a measurement, did not suffice"
        threads = f"{launcher.threads} thread{'s' * (launcher.threads > 1)}"
        log(f"precision: {precision} ({listed} on {threads}, {target}, not compiled{why})")
    return Machine(precision, {**known.speeds, **speeds}, measured, device_name())


def _process_speed(
    context: Context, pool: ProcessPoolExecutor, together: int, limit: float, name: str, precision: str
) -> float:
    """Tokens a second of one process while so many measure at once, as training does; 0: it is not known."""
    from training.timing import measured_speed  # it loads torch

    question, batch = context.question, context.question.target.global_batch
    spec = RunSpec(
        "continual", shape_of(context, context.models[name]), Initial(), {}, {}, question.sequence_length, batch,
        steps=1, schedule=(), optimizer=question.optimizer, precision=precision, objective=question.objective,
    )  # fmt: skip
    if not (fit := fitted_run(question, spec)).fits:
        return 0.0
    engine, threads = plain_engine(spec, fit.micro_batch, gpu=False), question.launcher.threads
    try:
        with started_quietly():
            measured = pool.map(partial(measured_speed, spec, engine, fit.micro_batch, threads), [limit] * together)
        speeds = [*measured]
    except BrokenProcessPool:  # One was killed, as when memory runs out.
        return 0.0
    return mean(speeds) if all(speeds) else 0.0
