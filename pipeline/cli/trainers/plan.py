"""The recommended run of a study as plain numbers, which every format writes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.plan.prepare import sources_of
from pipeline.plan.runs import data_folder
from pipeline.question.design import with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, Study, StudyError
from training.corpora.documents import CorpusError
from training.corpora.generated import samples_folder
from training.corpora.manifest import Manifest
from training.corpora.source import Source
from training.schedule import Piece, learning_rates, piece_lengths
from training.spec import Optimizer

FILTERS = ("min_characters", "max_characters", "where", "max_bytes", "group")
Config = tuple[str, list[str]]
"""The text of a configuration, and what it cannot express, a line each."""


@dataclass(frozen=True)
class TrainerCorpus:
    """A corpus of the mixture."""

    name: str
    source: Source
    """Where its text comes from."""
    weight: float
    """Ratio of the training tokens, above 0."""
    documents: float | None
    """Ratio of the training documents at that weight; None: the corpora are not prepared."""
    available: int | None
    """Tokens to train on; None: the corpora are not prepared."""

    @property
    def place(self) -> str:
        """The file, folder or hub name, or a name to be replaced."""
        if self.source.kind == "generated" and self.source.generated.model:
            with contextlib.suppress(CorpusError):
                return str(samples_folder(self.source) / "*.jsonl")
        return self.source.path or self.source.name or f"TEXT-OF-{self.name}.jsonl"


@dataclass(frozen=True)
class TrainerSchedule:
    """Warm-up from 0, then the peak, then one decay at the end."""

    warmup: int
    """Steps of the warm-up, linear."""
    decay: str
    """none, or the shape of a `training.schedule.Piece`."""
    decay_steps: int
    """Steps of the decay."""
    final: float
    """Learning rate of the last step, over the peak."""
    power: float
    """Exponent of a polynomial decay."""
    start: float
    """Learning rate before the warm-up, over the peak."""

    def stable(self, steps: int) -> int:
        """Steps at the peak, of a run of so many."""
        return steps - self.warmup - self.decay_steps


@dataclass(frozen=True)
class TrainingPlan:
    """What is to be trained."""

    study: str
    """Name of the study."""
    model: str
    """Hugging Face directory or hub name of the weights, or MODEL."""
    corpora: tuple[TrainerCorpus, ...]
    steps: int
    global_batch: int
    """Sequences per step."""
    micro_batch: int
    """Sequences per forward pass of a device."""
    devices: int
    sequence_length: int
    """Predictions per sequence, tokens."""
    peak: float
    """Largest learning rate."""
    schedule: TrainerSchedule
    optimizer: Optimizer
    precision: str
    """fp32 or bf16."""
    seed: int
    facts: tuple[str, ...]
    """What the study says of this run, a line each."""

    @property
    def accumulation(self) -> int:
        """Forward passes of a device per step."""
        return self.global_batch // (self.micro_batch * self.devices)

    @property
    def tokens(self) -> int:
        """Tokens that the run trains on."""
        return self.steps * self.global_batch * self.sequence_length


def training_plan(question: Question, study: Study, devices: int, micro_batch: int) -> TrainingPlan:
    """The run that recommendation.json of a study asks for.

    Raises:
        StudyError: no recommendation, or one without a mixture.
        ConfigError: a schedule of other pieces than warm-up, constant and one decay; a batch that does not divide.
    """
    answer = Recommendation.read(study)
    phase = with_peak(question, answer.peak_learning_rate).continual
    if answer.mixture is None:
        raise StudyError(f"{study.folder}: no mixture meets the goal ({answer.binding}); nothing to export")
    if question.model.path == IMPORTED and phase.global_batch == 1:
        line = f"sequence_length: not known of the imported runs, whose steps have {question.sequence_length:,} tokens"
        raise ConfigError(
            [f"{line}; give it and the sequences of a step: sequence_length=... continual.global_batch=..."]
        )
    if phase.global_batch % (devices * micro_batch):
        each = f"micro_batch={micro_batch} on devices={devices}"
        raise ConfigError([f"{each}: do not divide continual.global_batch={phase.global_batch}; give numbers that do"])
    before = 0.0
    if not question.model.path:
        before = float(learning_rates(pieces(question.pretrain), question.pretrain.steps)[-1])
    manifest = None
    with contextlib.suppress(CorpusError):
        manifest = Manifest.open(data_folder(question))
    return TrainingPlan(
        study=study.folder.name,
        model=_weights(question, study),
        corpora=_corpora(question, answer.mixture, manifest),
        steps=answer.target.steps,
        global_batch=phase.global_batch,
        micro_batch=micro_batch,
        devices=devices,
        sequence_length=phase.sequence_length or question.sequence_length,
        peak=phase.peak_learning_rate,
        schedule=schedule_of(pieces(phase), answer.target.steps, phase.peak_learning_rate, before),
        optimizer=question.optimizer,
        precision=Context(question, study).known_precision or "fp32",
        seed=question.seed,
        facts=tuple(_facts(answer, study)),
    )


def schedule_of(chain: Sequence[Piece], steps: int, peak: float, before: float) -> TrainerSchedule:
    """The warm-up, stable phase and decay that a chain of pieces with absolute learning rates is.

    Raises:
        ConfigError: the chain has other pieces.

    >>> schedule_of([Piece("linear", end=1e-3, share=0.1), Piece("cosine", end=1e-4)], 100, 1e-3, 0.0)
    TrainerSchedule(warmup=10, decay='cosine', decay_steps=90, final=0.1, power=1.0, start=0.0)
    """
    parts = [(piece, length) for piece, length in zip(chain, piece_lengths(chain, steps)) if length]
    warmup, start, rate = 0, 0.0, before
    if parts and parts[0][0].shape == "linear" and parts[0][0].end == peak:
        (first, warmup), *parts = parts
        start, rate = (before if first.start is None else first.start) / peak, peak
    if parts and parts[0][0].shape == "constant":
        rate = rate if parts[0][0].start is None else parts[0][0].start
        parts = parts[1:]
    if not parts:
        decay, decay_steps, final, power = "none", 0, 1.0, 1.0
    else:
        (last, decay_steps), *parts = parts
        rate = rate if last.start is None else last.start
        decay, final, power = last.shape, float(f"{(last.end or 0.0) / peak:.12g}"), last.power
    if parts or rate != peak or final > 1:
        allowed = "a warm-up to the peak, a constant piece and one decay, each at most once and in this order"
        raise ConfigError([f"continual.schedule: {' '.join(piece.shape for piece in chain)}; allowed here: {allowed}"])
    return TrainerSchedule(warmup, decay, decay_steps, final, power, start)


def _weights(question: Question, study: Study) -> str:
    if question.model.path:
        return question.model.path
    for run in study.read_plan():
        if run.spec.phase == "pretrain" and run.model == question.model.name and not run.parent:
            return str((study.runs / run.name / "checkpoints" / f"step-{run.spec.steps}").resolve())
    return "MODEL"


def _corpora(question: Question, mixture: dict[str, float], manifest: Manifest | None) -> tuple[TrainerCorpus, ...]:
    try:
        sources = sources_of(question, with_validation=False)
    except CorpusError:
        # The text need not be on this machine.
        sources = question.corpora.sources
    weights = {name: weight for name, weight in mixture.items() if weight > 0}
    known = {name: manifest.corpora[name] for name in weights if manifest and name in manifest.corpora}
    documents: dict[str, float] = {}
    if len(known) == len(weights) and all(sum(corpus.documents.values()) for corpus in known.values()):
        for name, corpus in known.items():
            documents[name] = weights[name] * sum(corpus.documents.values()) / sum(corpus.tokens.values())
    total = sum(documents.values())
    return tuple(
        TrainerCorpus(
            name,
            sources[name],
            weight,
            documents[name] / total if documents else None,
            known[name].tokens["train"] if name in known else None,
        )
        for name, weight in weights.items()
    )


def _facts(answer: Recommendation, study: Study) -> list[str]:
    lines = [
        f"{corpus}: loss {loss.loss:.4f} predicted, 90% prediction interval {loss.low:.4f} to {loss.high:.4f}"
        for corpus, loss in answer.predicted.items()
    ]
    if Path(Confirmation.path(study)).exists():
        lines.append(f"confirmation: {Confirmation.read(study).outcome.sentence}")
    return [*lines, *(f"warning: {line}" for line in answer.warnings)]


def missing_data(plan: TrainingPlan) -> list[str]:
    """What no format can express about the text of a plan, a line each."""
    lines = []
    if plan.model == IMPORTED:
        lines.append(f"the paths: of the model, and of each corpus, yours in place of {IMPORTED!r}")
        lines.append("optimizer and precision of the imported runs: those written are cptlaw's defaults")
    for corpus in plan.corpora:
        if corpus.source.kind == "installed-python":
            lines.append(f"{corpus.name}: text of the installed Python, which is no file; write it to {corpus.place}")
        if corpus.source.kind == "generated":
            limit = corpus.source.generated.max_repetition
            lines.append(
                f"{corpus.name}: text that the model wrote; join its files, without rows of repetition above {limit}"
            )
        if used := [name for name in FILTERS if getattr(corpus.source, name)]:
            lines.append(f"{corpus.name}: the filters {', '.join(used)} are cptlaw's; filter the text before")
        if corpus.available is not None and corpus.weight * plan.tokens > corpus.available:
            times = corpus.weight * plan.tokens / max(corpus.available, 1)
            lines.append(f"{corpus.name}: the run reads its {corpus.available:,} tokens {times:.1f} times")
    return lines
