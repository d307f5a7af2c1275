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
from training.spec import Initial, RunSpec

SECONDS = 20.0
"""What measuring a machine takes, about, beside building the models."""


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


def measure_machine(context: Context, log: Callable[[str], object]) -> None:
    """Measure each model's speed once, and write it with the precision of the whole study.

    With precision=auto it is bf16 where the processor has instructions for its products, unless fp32 is measured to be
    faster. Of a configured precision only that one is measured, and nothing where runs are trained on other machines.
    What was measured to choose a precision stays.
    """
    question, study = context.question, context.study
    machine, configured = None, question.precision != "auto"
    try:
        machine = context.machine
    except StudyError:
        Machine.path(study).unlink()  # Damaged: it sends everyone else here.
    known = machine and (machine.chose_precision or question.precision == machine.precision)
    if known or (configured and question.launcher.elsewhere):
        return
    from training.engines import device_name, fast_precisions, measured_speed, plain_engine  # they load torch

    target, threads, parallel = question.model.name, question.launcher.threads, question.parallel
    precisions = [question.precision] if configured else fast_precisions()
    log(f"measuring the speed of {len(context.models)} models, about {SECONDS:.0f} s")

    def speed(name: str, precision: str) -> float:
        shape, batch = shape_of(context, context.models[name]), question.target.global_batch
        spec = RunSpec(
            "continual", shape, Initial(), {}, {}, question.sequence_length, batch, steps=1, schedule=(),
            optimizer=question.optimizer, precision=precision, objective=question.objective,
        )  # fmt: skip
        batch = parallel.micro_batch(batch, question.launcher.micro_batch)
        limit = SECONDS / (len(precisions) + len(context.models) - 1)
        return measured_speed(spec, plain_engine(spec, batch), batch, threads, limit) or 0.0

    of_target = {precision: speed(target, precision) for precision in precisions}
    measured = {precision: round(of_precision) for precision, of_precision in of_target.items()}
    precision = max(measured, key=measured.__getitem__) if all(measured.values()) else precisions[-1]
    of_process = {name: of_target[precision] if name == target else speed(name, precision) for name in context.models}
    of_worker = {name: round(each * parallel.processes) for name, each in of_process.items() if each}
    # A forward pass has a third of a step's FLOPs.
    speeds = {name: Speed(training, 3 * training) for name, training in of_worker.items()}
    unmeasured = {} if configured else dict.fromkeys(("fp32", "bf16"), 0)
    Machine(precision, speeds, unmeasured | measured, device_name()).write(study)
    listed = ", ".join(f"{name} {value:,} tokens/s" if value else f"{name} ?" for name, value in measured.items())
    log(f"precision: {precision} ({listed} on {threads} thread, {target}, not compiled)")
