"""Training speed of this machine: measured once for a study and stored in its machine.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from pipeline.plan.runs import shape_of
from pipeline.question.presets import models
from pipeline.question.schema import Question
from pipeline.study.folder import Study, StudyError
from training.corpora.manifest import Manifest


@dataclass(frozen=True)
class Machine:
    """Content of machine.json."""

    precision: str
    """fp32 or bf16: the faster one."""
    flops_per_second: float
    """Of one worker, at that precision."""
    measured: dict[str, int]
    """Precision -> training tokens a second on one thread."""
    device: str
    """Name of the GPU or processor."""


def required_precision(question: Question, study: Study) -> str:
    """The study's precision.

    Raises:
        StudyError: precision=auto, and prepare has not measured it.
    """
    if (precision := known_precision(question, study)) is None:
        raise StudyError(f"{study.folder}/machine.json: missing, and precision=auto; run cptlaw prepare first")
    return precision


def read_machine(study: Study) -> Machine | None:
    """What prepare measured for this study; None before that.

    Raises:
        StudyError: machine.json is damaged.
    """
    if not (study.folder / "machine.json").exists():
        return None
    content = study.read_json("machine.json", "prepare")
    try:
        del content["schema"]
        return Machine(**content)
    except TypeError as error:
        raise StudyError(f"{study.folder / 'machine.json'}: {error}; delete it and run cptlaw prepare again") from None


def decide_precision(question: Question, study: Study, manifest: Manifest, log: Callable[[str], object]) -> str:
    """fp32 or bf16 for the whole study: the configured one, or the faster one on this machine, measured once."""
    if (known := known_precision(question, study)) is not None:
        return known
    from training.engine import faster_precision

    _, target = models(question)
    batch = question.parallel.micro_batch(question.continual.global_batch, question.launcher.micro_batch)
    shape = shape_of(question, target, manifest)
    machine = Machine(**faster_precision(shape, batch, question.sequence_length, question.objective.kind))
    study.write_json("machine.json", asdict(machine))
    speeds = ", ".join(f"{name} {value:,} tokens/s" for name, value in machine.measured.items())
    log(f"precision: {machine.precision} ({speeds} on one thread, {target.name}, not compiled)")
    return machine.precision


def known_precision(question: Question, study: Study) -> str | None:
    """The study's precision, configured or measured; None while it is neither."""
    if question.precision != "auto":
        return question.precision
    machine = read_machine(study)
    return machine.precision if machine else None
