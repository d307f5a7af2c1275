"""Training speed of this machine: measured once for a study and stored in its machine.json."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.plan.runs import shape_of
from pipeline.question.presets import models
from pipeline.question.schema import Question
from pipeline.study.artifacts import Machine
from pipeline.study.folder import Study, StudyError
from training.corpora.manifest import Manifest


def required_precision(question: Question, study: Study) -> str:
    """The study's precision.

    Raises:
        StudyError: precision=auto, and prepare has not measured it.
    """
    if (precision := known_precision(question, study)) is None:
        raise StudyError(f"{study.folder}/machine.json: missing, and precision=auto; run cptlaw prepare first")
    return precision


def read_machine(study: Study) -> Machine | None:
    """What prepare measured for this study; None before that."""
    return Machine.read(study) if Machine.path(study).exists() else None


def decide_precision(question: Question, study: Study, manifest: Manifest, log: Callable[[str], object]) -> str:
    """fp32 or bf16 for the whole study: the configured one, or the faster one on this machine, measured once."""
    if (known := known_precision(question, study)) is not None:
        return known
    from training.engine import faster_precision

    _, target = models(question)
    batch = question.parallel.micro_batch(question.continual.global_batch, question.launcher.micro_batch)
    shape = shape_of(question, target, manifest)
    machine = Machine(**faster_precision(shape, batch, question.sequence_length, question.objective.kind))
    machine.write(study)
    speeds = ", ".join(f"{name} {value:,} tokens/s" for name, value in machine.measured.items())
    log(f"precision: {machine.precision} ({speeds} on one thread, {target.name}, not compiled)")
    return machine.precision


def known_precision(question: Question, study: Study) -> str | None:
    """The study's precision, configured or measured; None while it is neither."""
    if question.precision != "auto":
        return question.precision
    machine = read_machine(study)
    return machine.precision if machine else None
