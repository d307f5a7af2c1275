"""What the JSON files of a study hold: a class a file, with one reader and one writer for all."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pipeline.question.messages import MissingError
from pipeline.question.schema import GoalConfig, TargetConfig
from pipeline.study.folder import Study, StudyError
from pipeline.study.quantities import LearningRate, Mixture, Number, Positive, Ratio, Steps
from training.durable import FileError, read_record, write_whole


@dataclass(frozen=True)
class Artifact:
    """A JSON file of a study, and the verb that writes it; fields are its keys, whose types are checked on reading.

    `per_goal`: whether each goal and domain of a study has one of its own.
    """

    NAME: ClassVar[str]
    VERB: ClassVar[str]
    PER_GOAL: ClassVar[bool]
    SCHEMA: ClassVar[int] = 1

    def __init_subclass__(cls, name: str, verb: str, per_goal: bool = False) -> None:
        cls.NAME, cls.VERB, cls.PER_GOAL = name, verb, per_goal

    @classmethod
    def path(cls, study: Study) -> Path:
        """Where the file of a study is."""
        return study.folder / (study.answer(cls.NAME) if cls.PER_GOAL else cls.NAME)

    @classmethod
    def read(cls, study: Study) -> Self:
        """Read the file of a study. Raises StudyError: missing, damaged or of another schema, with the verb to run."""
        path = cls.path(study)
        try:
            return read_record(path, cls, cls.SCHEMA)
        except FileNotFoundError:
            raise MissingError(path, cls.VERB, study.folder) from None
        except FileError as error:
            raise StudyError(f"{error}; run cptlaw {cls.VERB} {study.word} again") from None

    def write(self, study: Study) -> Path:
        """Write the file whole, and return where it is."""
        path = self.path(study)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema": self.SCHEMA, **dataclasses.asdict(self)}
        write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
        return path


A = TypeVar("A", bound=Artifact)


def read_if_there(kind: type[A], study: Study) -> A | None:
    """An artifact of a study, None where it is not there yet; StudyError where it is damaged or of another schema."""
    return kind.read(study) if kind.path(study).exists() else None


@dataclass(frozen=True)
class PlannedCorpus:
    """A corpus of a plan."""

    fingerprint: str
    """Changes with any token, the tokenizer or the split."""
    revision: str | None
    """Commit on the Hugging Face hub; None: not from there."""
    tokens: dict[str, int]
    """train, validation -> tokens."""


@dataclass(frozen=True)
class Corpora(Artifact, name="corpora.json", verb="plan"):
    """The corpora of a plan, kept since a study may be read where its corpora are not."""

    tokens_per_byte: dict[str, Number]
    """Corpus -> tokens of its validation text over bytes."""
    corpora: dict[str, PlannedCorpus] = field(default_factory=dict)


@dataclass(frozen=True)
class Export(Artifact, name="export.json", verb="export", per_goal=True):
    """The file that was last written of the recommended run."""

    output: str
    """Absolute path."""
    command: str
    """What trains by it."""
    answer: str
    """Digest of the recommendation."""


@dataclass(frozen=True)
class Machine(Artifact, name="machine.json", verb="prepare"):
    """The training speed of a machine, measured once for a study."""

    SCHEMA: ClassVar[int] = 2

    precision: str
    """fp32 or bf16: the configured one, or the faster one."""
    speeds: Mapping[str, int | None]
    """Model -> training tokens a second of a worker while all train, at that precision, not compiled; None: measured,
    and not known."""
    measured: dict[str, int]
    """Precision -> training tokens per second of the target model in one process; 0: not measured, not supported."""
    device: str

    @property
    def chose_precision(self) -> bool:
        """Whether its precision was chosen, rather than configured when it was measured."""
        return len(self.measured) > 1


@dataclass(frozen=True)
class Fact:
    """A number beside an answer, and its 90% interval; None: infinite, as a turning length that is never reached."""

    value: Number | None
    low: Number | None
    high: Number | None


@dataclass(frozen=True)
class Interval(Fact):
    """An estimate and its 90% interval, whose ends may not be known."""

    value: Number


@dataclass(frozen=True)
class PredictedLoss:
    """A predicted loss and its 90% prediction interval, nats per token."""

    loss: Number
    low: Number
    high: Number


@dataclass(frozen=True)
class RecommendedRun:
    """The run that a recommendation is for."""

    model: str
    N: Positive
    """Its non-embedding parameters, billions."""
    D: Positive
    """Tokens of the continual phase, billions."""
    steps: Steps


@dataclass(frozen=True)
class ModelCandidate(RecommendedRun):
    """A model that goal=compute chooses among, with the prediction of its domain loss."""

    domain_ratio: Ratio
    predicted: Number
    low: Number
    high: Number
    tested: bool = True
    """Whether errors of predictions were measured so far from the fitted runs; the loss is not shown where not."""


@dataclass(frozen=True)
class RecommendedChange:
    """The best change of the mixture at one of goal.change_at, by the law transfer-two-mixtures."""

    at: Ratio
    """Part of the run's steps before it."""
    before: Ratio
    after: Ratio
    """Domain ratios before and after it; equal where no change is better than one mixture."""
    predicted: dict[str, Number]
    """Corpus -> loss at the end of the run."""
    difference: Number
    """Domain loss less that of one mixture by the same law, nats per token; 0 or less."""
    better: bool
    """Whether it is lower by more than what such differences are missed by."""


@dataclass(frozen=True)
class LawAnswer:
    """What one law alone recommends for both corpora."""

    domain_ratio: Ratio | None
    """None: it gives no answer."""
    low: Ratio | None
    high: Ratio | None
    """90% interval of the domain ratio."""
    binding: str
    """The constraint that binds, or why there is no answer."""
    model: str | None


@dataclass(frozen=True)
class HeldOutError:
    """Errors of a law on the held-out points of a corpus."""

    corpus: str
    split: str
    law: str
    mean_error: Number
    max_error: Number
    points: int


MISSED_RUN = "near the answer"
"""What a warning says of a run of the fit like the recommended one, at the next ratio, whose loss the laws miss."""


@dataclass(frozen=True)
class Recommendation(Artifact, name="recommendation.json", verb="recommend", per_goal=True):
    """The answer to a goal, as recommendation.json holds it."""

    goal: GoalConfig
    law: dict[str, str]
    """Corpus -> law that the answer uses for it, or "average"."""
    weights: dict[str, dict[str, Ratio]]
    """Corpus -> law -> weight in the average at `mixture`; empty where one law answers alone."""
    target: RecommendedRun
    loss_before: dict[str, Positive]
    """Corpus -> loss before CPT, nats per token."""
    mixture: Mixture | None
    """None: no mixture meets the goal."""
    low: Ratio | None
    high: Ratio | None
    """90% interval of the domain ratio; the ratio itself where the question gives it."""
    predicted: dict[str, PredictedLoss]
    """Corpus -> loss at the end of that run."""
    binding: str
    identified: bool
    """Whether the points identify the optimum: False where the interval covers the whole range."""
    optimum: dict[str, Interval]
    """goal=compute: N and D, billions, of the best size whether or not there is a model of it."""
    candidates: list[ModelCandidate]
    warnings: list[str]
    held_out: list[HeldOutError]
    answers: dict[str, LawAnswer]
    """Law -> what it recommends alone."""
    peak_learning_rate: LearningRate | None = None
    """That of the run it is for; None: that of the question."""
    fit_points: dict[str, dict[str, int]] = field(default_factory=dict)
    """Corpus -> law -> number of points that it was fitted to."""
    changes: list[RecommendedChange] = field(default_factory=list)
    """One for each of goal.change_at."""
    gain: Number | None = None
    """Domain loss at the smallest fitted domain ratio less that at the answer, nats per token; None: not known."""
    gain_from: Ratio | None = None
    """That smallest ratio; None: not known."""
    facts: dict[str, Fact] = field(default_factory=dict)
    """goal=balance: turning_length, in steps, critical_loss_potential or critical_ratio, and best_steps and
    best_loss_potential of goal.find."""
    points: str = ""
    """`points_digest` of the points behind it; empty: not recorded."""
    fits: str = ""
    """`fits_digest` of the fits behind it; empty: not recorded."""
    asked: TargetConfig | None = None
    """target. of the question that it answers; None: not recorded."""

    def is_of(self, corpora: Sequence[str]) -> bool:
        """Whether it has the losses of these corpora, of which the last is the domain."""
        losses = [self.loss_before, *([] if self.mixture is None else [self.predicted])]
        return all({*corpora} <= {*each} for each in losses) and (self.mixture is None or corpora[-1] in self.mixture)

    @property
    def missed(self) -> str:
        """The first warning that the laws miss a run of the fit beside this one; empty: they do not."""
        return next((line for line in self.warnings if MISSED_RUN in line), "")

    @property
    def identity(self) -> str:
        """A hash of what confirmation runs are compared with."""
        decisive = {name: value for name, value in dataclasses.asdict(self).items() if name in _DECISIVE}
        return hashlib.blake2b(json.dumps(decisive, sort_keys=True).encode(), digest_size=8).hexdigest()


_DECISIVE = ("goal", "law", "weights", "target", "mixture", "low", "high", "predicted", "peak_learning_rate")


@dataclass(frozen=True)
class MeasuredPlace:
    """Confirmation runs that differ in their seed alone, and the prediction of a law, on one corpus."""

    model: str
    N: Positive
    """Non-embedding parameters, billions."""
    steps: Steps
    domain_ratio: Ratio
    measured: Positive
    """Mean over the seeds."""
    sd: Number | None
    """Standard deviation over the seeds; None: one seed."""
    predicted: Number
    low: Number
    high: Number
    """90% prediction interval."""


@dataclass(frozen=True)
class ConfirmationRow(MeasuredPlace):
    """What the runs at a place measured on a corpus, beside the prediction of a law."""

    run: str
    D: Positive
    """Tokens, billions."""
    corpus: str
    law: str
    recommended: bool
    before: Positive
    """Loss before CPT, nats per token."""
    seeds: list[Number]
    perplexity: Number
    bits_per_byte: Number | None
    relative_error: Number
    """predicted / measured - 1."""
    inside: bool
    weight: Ratio | None = None
    """Of its law in the average there; None: the average itself, a law that answers alone, or not written."""


@dataclass(frozen=True)
class Outcome:
    """Whether confirmation runs confirm the predicted optimum."""

    goal: str
    corpus: str
    seeds: int
    """Runs at each place."""
    at: int
    """The recommended place among `places`."""
    places: list[MeasuredPlace]
    """In the order of their domain ratio, or of their size for goal=compute."""
    verdict: str
    """One of the constants of `pipeline.goals.ratio.outcomes`."""
    sentence: str
    tolerance: Number | None = None
    loss_increase: Interval | None = None
    """Relative loss increase at the recommended place; None: another goal."""
    crossing: Interval | None = None
    """Domain ratio at which the measured loss increase is the tolerance; None: nowhere, or another goal."""
    difference: Interval | None = None
    """Loss at the recommended place minus the lowest of the others, nats per token; None: the trade-off."""
    other: int | None = None
    """The lowest of the others among `places`; None: not among them, or the trade-off."""
    other_ratio: Ratio | None = None
    """Domain ratio of the lowest of the others where another run of the study, like these, is that."""
    among_best: list[bool] | None = None
    """Place -> whether the optimum may be there."""
    sd: Number | None = None
    """Standard deviation of a run over seeds, pooled over the places."""

    def __post_init__(self) -> None:
        if not 0 <= self.at < len(self.places):
            raise ValueError(f"at={self.at} is none of the {len(self.places)} places")


@dataclass(frozen=True)
class Confirmation(Artifact, name="confirmation.json", verb="confirm", per_goal=True):
    """Predictions beside what confirmation runs measured, a row a place, corpus and law."""

    level: Number
    confirmations: list[ConfirmationRow]
    outcome: Outcome
    points: int | None = None
    """Number of points of all runs of the plan when they were compared; None: not known."""
    answer: str = ""
    """`Recommendation.identity` of what was confirmed; empty: not recorded."""
    losses: dict[str, dict[str, Number]] = field(default_factory=dict)
    """Run -> corpus -> its last loss when it was compared; empty: not recorded."""

    def is_of(self, answer: Recommendation, domain: str) -> bool:
        """Whether it compares this answer, and not an earlier one or that to another question."""
        outcome, place, mixture = self.outcome, self.outcome.places[self.outcome.at], answer.mixture or {}
        ends = {row.corpus for row in self.confirmations if row.recommended and row.run == self.confirmations[0].run}
        # A run that was trained elsewhere may be at another ratio.
        if abs(place.domain_ratio - mixture.get(domain, -1.0)) >= 5e-4 or not {*mixture} <= ends:
            return False
        if self.answer:
            return self.answer == answer.identity
        kind, tolerance, target = answer.goal.kind, answer.goal.tolerance, answer.target
        same = outcome.goal == kind and outcome.tolerance in (None, tolerance) and place.model == target.model
        # The ratio is rounded down before the steps are worked out.
        return same and abs(place.steps - target.steps) <= 1 + 0.01 * target.steps

    def is_of_earlier_fit(self, answer: Recommendation, domain: str) -> bool:
        """Whether it compares the same run as this answer, with the losses that an earlier fit predicted for it."""
        return not self.is_of(answer, domain) and dataclasses.replace(self, answer="").is_of(answer, domain)
