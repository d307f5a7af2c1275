"""What recommendation.json and confirmation.json hold for goal=weights."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.study.artifacts import Artifact
from pipeline.study.quantities import Number, Ratio, Steps


@dataclass(frozen=True)
class WeightsQuestion:
    """The question about weights."""

    kind: Literal["weights"]
    phase: str
    average: str


@dataclass(frozen=True)
class WeightsTarget:
    """The run that the weights are for."""

    model: str
    steps: Steps
    tokens: int


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of (k + a)^-b + c: the average loss at k times a domain's tokens, over that of the base run."""

    a: Number
    b: Number
    c: Number


@dataclass(frozen=True)
class DesignFit:
    """A one-at-a-time design at one scale, with the curves that DDO fits to it."""

    steps: Steps
    tokens: Number
    base: dict[str, Ratio]
    factors: list[Number]
    """Multiples of a domain's base tokens that were run."""
    points: dict[str, list[list[Number]]]
    """Domain -> seed -> average loss at each factor."""
    base_value: Number
    predicted: Number
    """At the optimum."""
    coefficients: dict[str, Coefficients]
    weights: dict[str, Ratio]
    """Domain -> weight at the optimum."""
    flat: list[str]
    """Domains whose tokens do not lower the average loss."""


@dataclass(frozen=True)
class PathPoint:
    """Weights on AutoScale's path at a number of tokens."""

    tokens: Number
    weights: dict[str, Ratio]
    """Within the tokens that each domain has."""
    free: dict[str, Ratio]
    """Without that limit."""


@dataclass(frozen=True)
class ProxyPath:
    """Weights of a DoReMi proxy after some of its steps: each a list over `steps`, for every domain."""

    steps: list[int]
    weights: dict[str, list[Number]]
    mean: dict[str, list[Number]]
    """Mean of the weights over the steps so far."""
    excess: dict[str, list[Number | None]]
    """Excess loss over the reference, nats per token; null: the domain was not read yet."""


@dataclass(frozen=True)
class ProxyRound:
    """A round of DoReMi."""

    reference: dict[str, Ratio]
    """Domain -> weight of the reference run."""
    weights: dict[str, Ratio]
    """Domain -> weight that the round found."""
    paths: list[ProxyPath]


@dataclass(frozen=True)
class Details:
    """How a method arrived at its weights."""

    designs: list[DesignFit] = field(default_factory=list)
    path: list[PathPoint] = field(default_factory=list)
    rounds: list[ProxyRound] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    """Other numbers of the method, plain JSON for people: nothing here reads them."""


@dataclass(frozen=True)
class Proposal:
    """Weights that a method proposes for the target, and the runs that it took to find them."""

    method: str
    """Name in METHODS, of a variant of one (autoscale-offsets), or of the given weights."""
    weights: dict[str, Ratio]
    """Domain -> ratio of the training tokens, sum 1."""
    low: dict[str, Ratio] = field(default_factory=dict)
    """Domain -> lower end of the 90% interval; empty where the method has none."""
    high: dict[str, Ratio] = field(default_factory=dict)
    predicted: dict[str, Number] = field(default_factory=dict)
    """"mean" or a domain -> loss at the target that the method predicts of its weights, nats per token; empty: none."""
    runs: tuple[str, ...] = ()
    tokens: int = 0
    """Tokens that these runs trained on."""
    lines: tuple[str, ...] = ()
    """Binding constraints, flat domains, how far it extrapolates; one line each."""
    details: Details = field(default_factory=Details)


@dataclass(frozen=True)
class WeightsRecommendation(Artifact, name="recommendation.json", verb="recommend"):
    """The proposals of all methods, and the one that is recommended."""

    goal: WeightsQuestion
    target: WeightsTarget
    method: str
    mixture: dict[str, Ratio]
    low: dict[str, Ratio]
    high: dict[str, Ratio]
    predicted: dict[str, Number]
    warnings: list[str]
    proposals: list[Proposal]
    """One or two a method, in the question's order."""


@dataclass(frozen=True)
class SpeedUp:
    """How much sooner a method's runs reach the last value of the reference's."""

    reached: int = 0
    """Seeds that reach it."""
    speed_up: Number | None = None
    """Steps of the target over the steps at which it is reached; None: not by every seed."""
    speed_up_low: Number | None = None
    speed_up_high: Number | None = None
    """90% interval; None: one seed."""
    tokens_saved: Number | None = None
    """Tokens of the target beyond that step."""


@dataclass(frozen=True)
class MethodResult:
    """What the confirmation runs of a proposal measured at the target."""

    method: str
    recommended: bool
    weights: dict[str, Ratio]
    runs: list[str]
    values: list[Number]
    """Average over the domains, one a seed, of loss or of perplexity."""
    value: Number
    loss: Number
    """Mean loss over the domains, nats per token."""
    losses: dict[str, Number]
    perplexity: Number
    worst: str
    worst_perplexity: Number
    difference: Number | None
    """Value less the reference's, paired by seed; None: it is the reference."""
    low: Number | None
    high: Number | None
    """90% interval of the difference; None: one seed."""
    above_best: Number
    """Relative distance to the lowest value of all methods."""
    general_change: Number | None
    """Relative increase of the general loss over a continual phase; None: from scratch."""
    speed: SpeedUp
    search_tokens: int
    """Tokens of the runs that the method read."""
    predicted: Number | None = None
    """Loss that the method predicted of its weights; None: it predicts none."""


@dataclass(frozen=True)
class WeightsConfirmation(Artifact, name="confirmation.json", verb="confirm"):
    """All proposals trained at the target, side by side."""

    level: Number
    reference: str
    average: str
    domain_values: dict[str, Ratio]
    target: WeightsTarget
    seeds: int
    methods: list[MethodResult]
    points: int | None = None
    """Number of points of all runs of the plan when they were compared; None: not known."""

    def __post_init__(self) -> None:
        if self.reference not in {row.method for row in self.methods}:
            raise ValueError(f"reference={self.reference!r} is none of the methods")

    @property
    def ranked(self) -> list[MethodResult]:
        """The methods, lowest value first."""
        return sorted(self.methods, key=lambda row: row.value)

    @property
    def recommended(self) -> MethodResult | None:
        """The recommended method."""
        return next((row for row in self.methods if row.recommended), None)
