"""The recommended run of a study as plain numbers, which every format writes."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.done import confirm_remedy
from pipeline.goals.ratio.answering_laws import ratio_of_run
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.registry import goal_of
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.plan.prepared_corpora import sources_of
from pipeline.plan.runs import data_folder
from pipeline.question.design import with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import pieces
from pipeline.question.schema import PhaseConfig, Question
from pipeline.show.conclusion import Conclusion, conclusion_of
from pipeline.show.weights_tables import better_reference, difference, reference_warning
from pipeline.study.artifacts import Outcome, Recommendation, read_if_there
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, Study
from pipeline.study.number_format import percent
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest, PreparedCorpus
from training.corpora.source import Source
from training.schedule import Piece, learning_rates, piece_lengths
from training.spec import Optimizer


class Remark(str):
    """A fact that is printed as well as written."""


@dataclass(frozen=True)
class TrainerCorpus:
    """A corpus of the mixture; None where the corpora are not prepared."""

    name: str
    source: Source
    weight: float
    """Ratio of the training tokens, above 0."""
    documents: int | None
    """Documents to train on."""
    available: int | None
    """Tokens to train on."""
    dropped: int = 0
    """Documents of its files that prepare left out."""
    validates: int = 0
    """Documents of its files that the study set apart to validate."""
    like: int = 0
    """Documents of its files that prepare dropped since they are like its validation set."""
    ending: str = ""
    """Ending of all files, where the path is a folder of them."""

    @property
    def per_token(self) -> float:
        """Documents per token; 0: not known."""
        return (self.documents or 0) / (self.available or 1)

    def times_begun(self, tokens: int) -> int:
        """How often a run of so many tokens begins to read it; 1 where its length is not known."""
        return max(math.ceil(self.weight * tokens / (self.available or math.inf)), 1)

    @property
    def text(self) -> str:
        """A file, a glob or a hub name."""
        return f"{self.source.path}/**/*{self.ending}" if self.ending else self.source.path or self.source.name


@dataclass(frozen=True)
class TrainerSchedule:
    """Linear warm-up, then the peak, then one decay at the end. Learning rates are over the peak, lengths in steps."""

    warmup: int
    decay: str
    """none, or the shape of a `training.schedule.Piece`."""
    decay_steps: int
    final: float
    """Learning rate of the last step."""
    power: float
    """Exponent of a polynomial decay."""
    start: float
    """Learning rate before the warm-up."""


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
    domain_ratio: float | None = None
    """Ratio of the domain corpus where it is not the recommended one."""
    unknown: str = ""
    """Why the answer is not known yet, and what would tell; empty: it is known."""
    data_folder: str = ""
    """Folder of files beside the configuration; '': there is none."""

    @property
    def accumulation(self) -> int:
        """Forward passes of a device per step."""
        return self.global_batch // (self.micro_batch * self.devices)

    @property
    def tokens(self) -> int:
        """Tokens that the run trains on."""
        return self.steps * self.global_batch * self.sequence_length

    @property
    def positive_seed(self) -> int:
        """The seed for Megatron-LM and NeMo, which refuse 0."""
        return self.seed + 1

    @property
    def stable(self) -> int:
        """Steps at the peak."""
        return self.steps - self.schedule.warmup - self.schedule.decay_steps


def training_plan(
    question: Question, study: Study, devices: int, micro_batch: int, domain_ratio: float | None = None
) -> TrainingPlan:
    """The run that a study's answer asks for, or the same at another domain ratio, 0 to 1.

    Raises:
        StudyError: no recommendation, or one without a mixture.
        ConfigError: a schedule of other pieces than warm-up, constant and one decay; a batch that does not divide.
    """
    context, goal = Context(question, study), goal_of(question)
    many = question.goal_kind.many_domains
    from_scratch = many and question.weights.phase == "pretrain"
    if many:
        answer = WeightsRecommendation.read(study)
        phase: PhaseConfig = getattr(question, question.weights.phase)
    else:
        answer = goal.answer(context) if isinstance(goal, LawGoal) else Recommendation.read(study)
        phase = with_peak(question, answer.peak_learning_rate).target_phase
    assert answer.mixture is not None
    if question.model.path == IMPORTED and phase.global_batch == 1:
        line = f"sequence_length: not known of the imported runs, whose steps have {question.sequence_length:,} tokens"
        remedy = "give it and the sequences of a step: sequence_length=... target.global_batch=..."
        raise ConfigError([f"{line}; {remedy}"])
    if phase.global_batch % (devices * micro_batch):
        key = f"{'pretrain' if from_scratch else 'target'}.global_batch={phase.global_batch}"
        each = f"micro_batch={micro_batch} on devices={devices}"
        raise ConfigError([f"{each}: do not divide {key}; give numbers that do"])
    mixture, unknown, before = answer.mixture, "", 0.0
    if isinstance(answer, WeightsRecommendation):
        mixture, facts = _of_weights(answer, context)
    else:
        known = conclusion_of(context)
        facts = _facts(answer, context, known)
        if domain_ratio is not None:
            mixture, facts = _given_mixture(context, domain_ratio, known)
        elif not known.is_known:
            written = f"{percent(mixture[question.corpora.domain])} {question.corpora.domain}"
            other = "domain_ratio=RATIO writes another"
            unknown = " ".join([*known.lines, f"The file has the predicted ratio all the same, {written}; {other}."])
        elif (domain_ratio := known.domain_ratio) is not None:
            mixture, _ = _given_mixture(context, domain_ratio, known)
    if not (question.model.path or from_scratch):
        before = float(learning_rates(pieces(question.pretrain), question.pretrain.steps)[-1])
    return TrainingPlan(
        study=study.folder.name,
        model="MODEL" if from_scratch else _weights(question, study),
        corpora=tuple(_corpora(question, mixture)),
        steps=answer.target.steps,
        global_batch=phase.global_batch,
        micro_batch=micro_batch,
        devices=devices,
        sequence_length=phase.sequence_length or question.sequence_length,
        peak=phase.peak_learning_rate,
        schedule=schedule_of(pieces(phase), answer.target.steps, phase.peak_learning_rate, before),
        optimizer=question.optimizer,
        # precision=auto is that of the machine on which the runs were trained, which may be a CPU.
        precision="bf16" if question.precision == "auto" else question.precision,
        seed=question.seed,
        facts=tuple(facts),
        domain_ratio=domain_ratio,
        unknown=unknown,
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
        raise ConfigError([f"target.schedule: {' '.join(piece.shape for piece in chain)}; allowed here: {allowed}"])
    return TrainerSchedule(warmup, decay, decay_steps, final, power, start)


def _weights(question: Question, study: Study) -> str:
    if path := question.model.path:
        return str(Path(path).resolve()) if Path(path).is_dir() else path
    for run in study.read_plan():
        if run.spec.phase == "pretrain" and run.model == question.model.name and not run.parent:
            return str((study.runs / run.name / "checkpoints" / f"step-{run.spec.steps}").resolve())
    return "MODEL"


def _corpora(question: Question, mixture: dict[str, float]) -> Iterator[TrainerCorpus]:
    prepared: dict[str, PreparedCorpus] = {}
    with contextlib.suppress(CorpusError):
        prepared = Manifest.open(data_folder(question)).corpora
    # The text need not be on this machine.
    sources = question.corpora.sources
    with contextlib.suppress(CorpusError):
        sources = sources_of(question, with_validation=False)
    weights = {name: weight for name, weight in mixture.items() if weight > 0}
    for name, weight in weights.items():
        if name not in prepared:
            yield TrainerCorpus(name, sources[name], weight, None, None)
            continue
        made = prepared[name]
        # Documents that are like validation text stay in the counts of the others.
        like = sum(count for rule, count in made.dropped.items() if rule.startswith("validation."))
        dropped = sum(made.dropped.values()) - like
        apart = question.corpora.validation or question.corpora.sources[name].validation
        validates = 0 if apart else made.documents["validation"]
        train = made.documents["train"], made.tokens["train"]
        yield TrainerCorpus(name, sources[name], weight, *train, dropped, validates, like)


def _facts(answer: Recommendation, context: Context, known: Conclusion) -> list[str]:
    made = context.confirmation
    confirms = made is not None and made.is_of(answer, context.question.corpora.domain)
    rows = made.confirmations if made and confirms else []
    measured = {row.corpus: f"{row.measured:.4f} measured, " for row in rows if row.run == rows[0].run}
    lines = [
        f"{corpus}: loss {measured.get(corpus, '')}{loss.loss:.4f} predicted, 90% prediction interval "
        f"{loss.low:.4f} to {loss.high:.4f}"
        for corpus, loss in answer.predicted.items()
    ]
    if made and confirms:
        lines.append(f"confirmation: {known.verdict}; {known.inside}. {made.outcome.sentence}")
        lines += _keeps(made.outcome, answer, context.question.corpora.domain, known)
    elif made:
        earlier = made.is_of_earlier_fit(answer, context.question.corpora.domain)
        of = "an earlier fit" if earlier else "another answer"
        lines.append(Remark(f"confirmation: of {of}; {confirm_remedy(context, again=True)}"))
    return [*known.lines, *lines, *_precision(context), *(f"warning: {line}" for line in answer.warnings)]


def _of_weights(answer: WeightsRecommendation, context: Context) -> tuple[dict[str, float], list[str]]:
    """The weights to train with, the reference's where they measured better, and facts of them."""
    mixture, facts = answer.mixture, [f"weights by {answer.method}, for a run of {answer.target.model}"]
    if context.question.weights.phase == "pretrain":
        facts.append(f"from scratch: MODEL stands for {answer.target.model} without weights")
    made = read_if_there(WeightsConfirmation, context.study)
    if made and (row := made.recommended) and row.weights == mixture:
        beside = f", {difference(row)} beside {made.reference}" if row.difference is not None else ""
        facts.append(f"confirmation: mean loss {row.loss:.4f}{beside}, {made.seeds} seeds")
        if better := better_reference(made):
            mixture = better.weights
            facts.append(f"{reference_warning(made)}: they are written")
    return mixture, [*facts, *_precision(context), *answer.warnings]


def _keeps(outcome: Outcome, answer: Recommendation, domain: str, known: Conclusion) -> Iterator[str]:
    """Which ratio is written where the predicted one missed the tolerance, and the key that writes the other."""
    increase, crossing = outcome.loss_increase, outcome.crossing
    if known.domain_ratio is not None:
        predicted = (answer.mixture or {})[domain]
        written = f"written is {percent(known.domain_ratio)} {domain}; these losses are those of {percent(predicted)}"
        yield Remark(f"{written}; domain_ratio={predicted:g} writes the predicted ratio")
    elif increase and crossing and outcome.tolerance is not None and increase.value > outcome.tolerance:
        written = f"written is the predicted ratio, {percent((answer.mixture or {})[domain])} {domain}"
        other = f"domain_ratio={ratio_of_run(crossing.value):g}"
        why = f"though it exceeded the tolerance; {other} writes the ratio at which, on a line between runs, it is met"
        yield Remark(f"{written}, {why}")


def _given_mixture(context: Context, ratio: float, known: Conclusion) -> tuple[dict[str, float], list[str]]:
    """Mixture and facts of a run at a domain ratio that is not the study's answer."""
    general, domain = context.corpora
    given = f"{percent(ratio)} {domain} by domain_ratio={ratio}, not by the study, whose answer is: {known.headline}"
    losses = f"cptlaw predict {context.study.word} domain_ratio={ratio} has its predicted losses"
    return {general: round(1 - ratio, 12), domain: ratio}, [given, losses, *_precision(context)]


def _precision(context: Context) -> Iterator[str]:
    if context.question.precision == "auto" and context.known_precision == "fp32":
        yield "precision: bf16, as on a GPU; the runs were trained in fp32 here (precision=fp32 writes that)"


def never_expressed(plan: TrainingPlan) -> list[str]:
    """What no format can express, a line each."""
    lines, start = [], plan.schedule.start
    if plan.schedule.warmup and start:
        lines.append(f"the warm-up starts at {start:.3g} of the peak, the tool's at 0")
    if plan.model == IMPORTED:
        lines.append(f"the paths: give yours in place of {IMPORTED!r}, the model, and of the name of each corpus")
        lines.append("optimizer and precision of the imported runs: those written are cptlaw's defaults")
    for corpus in plan.corpora:
        if corpus.available is not None and corpus.weight * plan.tokens > corpus.available:
            times = corpus.weight * plan.tokens / max(corpus.available, 1)
            lines.append(f"{corpus.name}: the run reads its {corpus.available:,} tokens {times:.1f} times")
    if apart := [f"{corpus.validates:,} of {corpus.name}" for corpus in plan.corpora if corpus.validates]:
        lines.append(
            f"the text holds the documents that the study validates on, {' and '.join(apart)}: a run that trains on "
            "them is no test of the prediction; without_validation=true with output=FILE leaves out those of local "
            "text (docs/corpora.md)"
        )
    return lines
