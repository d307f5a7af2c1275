"""Training speed of this machine: measured once for a study and stored in its machine.json."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable

from pipeline.plan.runs import shape_of
from pipeline.question.schema import Question
from pipeline.study.artifacts import Machine, Speed
from pipeline.study.context import Context
from pipeline.study.folder import StudyError


def workers(question: Question) -> int:
    """Number of runs that train in parallel: as configured, else as many as there are GPUs or cores for."""
    processes, threads = question.parallel.processes, question.launcher.threads
    possible = len(gpus()) // processes if gpus() else len(os.sched_getaffinity(0)) // (threads * processes)
    return question.launcher.workers or max(1, possible)


@functools.cache
def gpus() -> list[str]:
    """The GPUs in CUDA_VISIBLE_DEVICES, or all of this machine; does not load torch."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in visible.split(",") if name.strip()]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number in range(listed.count("GPU "))]


def measure_machine(context: Context, log: Callable[[str], object]) -> str:
    """Measure each model's speed once, and return the faster precision, fp32 or bf16, for the whole study.

    Of a configured precision only that one is measured, and nothing where runs are trained on other machines. A
    processor that would emulate the products of bf16 gets fp32, and bf16 is not measured. What was measured to choose a
    precision stays.
    """
    question, study = context.question, context.study
    machine, configured = None, question.precision != "auto"
    try:
        machine = context.machine
    except StudyError:
        Machine.path(study).unlink()  # Damaged: it sends everyone else here.
    if machine and (machine.chose_precision or question.precision == machine.precision):
        return question.precision if configured else machine.precision
    if configured and question.launcher.elsewhere:
        return question.precision
    from training.engine import PRECISIONS, device_name, fast_precisions, forget, measured_speeds

    target = question.model
    shapes = {name: shape_of(context, model) for name, model in context.models.items()}
    parallel, launcher = question.parallel, question.launcher
    batch = parallel.micro_batch(question.continual.global_batch, launcher.micro_batch)
    settings = {"batch": batch, "sequence_length": question.sequence_length, "objective": question.objective.kind}
    precisions = [question.precision] if configured else fast_precisions()
    together = workers(question) * parallel.processes
    log(f"measuring the speed of {len(shapes)} models, in {together} processes at once, 20 s at most")
    speeds = measured_speeds(shapes, together, launcher.threads, target=target.name, precisions=precisions, **settings)
    forget()
    of_target = {precision: of_shape[target.name]["training"] for precision, of_shape in speeds.items()}
    measured = {precision: round(speed) for precision, speed in of_target.items()}
    listed = ", ".join(f"{name} {value:,} tokens/s" for name, value in measured.items())
    if not configured:
        measured = dict.fromkeys(PRECISIONS, 0) | measured
    precision = max(of_target, key=of_target.__getitem__)
    of_worker = {
        name: Speed(**{kind: max(round(each * parallel.processes), 1) for kind, each in speed.items()})
        for name, speed in speeds[precision].items()
    }
    machine = Machine(precision, of_worker, measured, device_name())
    machine.write(study)
    log(f"precision: {precision} ({listed} on {launcher.threads} thread, {target.name}, not compiled)")
    return machine.precision
