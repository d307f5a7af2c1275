"""Training speed of this machine: measured once for a study and stored in its machine.json."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from statistics import mean

import psutil

from pipeline.plan.processes import gpus, process_memory, workers
from pipeline.plan.runs import shape_of
from pipeline.question.messages import ConfigError
from pipeline.study.artifacts import Machine, Speed
from pipeline.study.context import Context
from pipeline.study.folder import StudyError
from training.devices.memory import fitted, plain_engine
from training.parameters import model_size
from training.spec import Initial, RunSpec
from training.stop import spawned_processes, started_quietly

SECONDS = 20.0
"""What measuring a machine takes, about, beside building the models."""
BUSY, _LOOK_SECONDS = 50.0, 0.3
"""Percent of the cores that others use from which a line warns."""
_BYTES_A_PARAMETER = 16
"""Weight, gradient and both moments in fp32."""


def needs_measurement(context: Context) -> bool:
    """Whether there is anything to measure; ConfigError: a precision is to be chosen, and on a node, not here."""
    question, launcher = context.question, context.question.launcher
    known, configured = _known(context), question.precision != "auto"
    if known and (launcher.elsewhere or gpus() or not _unmeasured_models(context, known)):
        return False
    # Where GPUs are asked for runs are in bf16, and this machine's speed says nothing of theirs. GPUs here compile.
    if question.rehearsal or (launcher.elsewhere and launcher.slurm.has_gpus):
        return False
    if configured and (launcher.elsewhere or gpus()):
        return False
    if launcher.elsewhere and "SLURMD_NODENAME" not in os.environ:
        what = f"auto with launcher={launcher.kind} and without launcher.slurm.gpus is chosen on a node, not here"
        allowed = "fp32, bf16 if the nodes' processors have instructions for it, or auto in a job: srun cptlaw prepare"
        raise ConfigError([f"precision: {what}; allowed: {allowed}"])
    return True


def _known(context: Context) -> Machine | None:
    """What was measured for the study, of a precision that is chosen or as configured now."""
    try:
        machine = context.machine
    except StudyError:
        Machine.path(context.study).unlink()  # Damaged: it sends everyone else here.
        return None
    return machine if machine and (machine.chose_precision or context.question.precision == machine.precision) else None


def _unmeasured_models(context: Context, known: Machine | None) -> list[str]:
    tried = {*known.tried, *known.speeds} if known and not context.question.remeasure else set()
    return [name for name in context.models if name not in tried]


def measure_machine(context: Context, log: Callable[[str], object]) -> None:
    """Measure each model's speed once, and write it with the precision of the whole study.

    With precision=auto it is bf16 where the processor has instructions for its products, unless fp32 is measured to be
    faster. Of a configured precision only that one is measured, and nothing on GPUs or where runs are trained on other
    machines or are rehearsed. What was measured to choose a precision stays; models that are new are measured in it.
    """
    if not needs_measurement(context):
        return
    from training.engines import device_name, fast_precisions  # they load torch

    question, known, target = context.question, _known(context), context.question.model.name
    configured = question.precision != "auto"
    precisions = [question.precision] if configured else fast_precisions()
    measured: dict[str, int] = {} if configured else {"fp32": 0, "bf16": 0}
    names, speeds, tried = _unmeasured_models(context, known), {}, []
    if known:
        precisions, measured, speeds, tried = [known.precision], known.measured, known.speeds, known.tried
    if gpus():
        Machine(precisions[-1], {}, measured, device_name()).write(context.study)
        log(f"precision: {precisions[-1]}, by what {device_name()} has instructions for")
        return
    parallel, threads = question.parallel, question.launcher.threads
    together = workers(question) * parallel.processes
    side_by_side = f", in {together} processes at once" if together > 1 else ""
    models = f"{len(names)} models" if len(names) > 1 else names[0]
    log(f"measuring the speed of {models}, about {SECONDS:.0f} s{side_by_side}")
    if (busy := psutil.cpu_percent(_LOOK_SECONDS)) > BUSY:
        low = "speeds are measured too low, and times and costs too high; remeasure=true measures them again"
        log(f"this machine is busy, {busy:.0f}% of its cores: {low}")
    limit = SECONDS / (len(precisions) + len(names) - 1)
    with spawned_processes(together) as pool:
        speed = partial(_process_speed, context, limit=limit, pool=pool, together=together)
        of_target = {each: speed(target, each) for each in precisions} if target in names else {}
        sound = bool(of_target) and all(of_target.values())
        precision = max(of_target, key=of_target.__getitem__) if sound else precisions[-1]
        of_model = {name: of_target[precision] if name == target else speed(name, precision) for name in names}
    # A forward pass has a third of a step's FLOPs.
    of_worker = {name: round(each * parallel.processes) for name, each in of_model.items() if each}
    speeds = speeds | {name: Speed(training, 3 * training) for name, training in of_worker.items()}
    new = {} if known else {name: round(of_precision) for name, of_precision in of_target.items()}
    Machine(precision, speeds, measured | new, device_name(), [*tried, *names]).write(context.study)
    if new:
        listed = ", ".join(f"{name} {value:,} tokens/s" if value else f"{name} ?" for name, value in new.items())
        why = "" if all(new.values()) else f"; ?: memory, or the {limit:.0f} s of a measurement, did not suffice"
        log(f"precision: {precision} ({listed} on {threads} thread{'s' * (threads > 1)}, {target}, not compiled{why})")


def _process_speed(
    context: Context, name: str, precision: str, limit: float, pool: ProcessPoolExecutor, together: int
) -> float:
    """Tokens a second of one process while so many measure at once, as training does; 0: it is not known."""
    from training.timing import measured_speed  # it loads torch

    question = context.question
    spec = RunSpec(
        "continual", shape_of(context, context.models[name]), Initial(), {}, {}, question.sequence_length,
        question.target.global_batch, steps=1, schedule=(), optimizer=question.optimizer, precision=precision,
        objective=question.objective,
    )  # fmt: skip
    given, memory = question.launcher.micro_batch, process_memory(question)
    batch = fitted(spec, question.parallel, given, question.engine, memory, gpu=False).micro_batch
    arguments = (spec, plain_engine(spec, batch, gpu=False), batch, question.launcher.threads, limit)
    bytes_of_one = _BYTES_A_PARAMETER * model_size(spec.model, spec.sequence_length).total
    possible = min(together, psutil.virtual_memory().available // bytes_of_one)
    if possible <= 1:
        return measured_speed(*arguments) or 0.0 if possible else 0.0
    try:
        with started_quietly():
            futures = [pool.submit(measured_speed, *arguments) for _ in range(possible)]
        speeds = [future.result() or 0.0 for future in futures]
    except BrokenProcessPool:  # One was killed, as when memory runs out.
        return 0.0
    return mean(speeds) if all(speeds) else 0.0
