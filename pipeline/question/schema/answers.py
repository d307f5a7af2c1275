"""Sections of a question about its answer: laws, goal, confirmation, mixture weights, tables."""

from dataclasses import dataclass, field
from typing import Annotated

from omegaconf import MISSING

from training.keys import (
    Allowed,
    OpenRatio,
    PositiveRatio,
    Ratio,
    RatioBelowOne,
    Repeats,
    Step,
    Steps,
    between,
    one_of,
    up_to,
)

AROUND = Allowed("differences of the domain ratio, between -1 and 1", above=-1, below=1)
TOKENS = up_to(1e18, "tokens")
TOLERANCE = Allowed("above -1, below 1: 0.02 is 2%, -0.02 a loss that falls by 2%", above=-1, below=1)
PARTS = Allowed("parts of the run's steps, between 0 and 1, like [0.5, 0.8]", above=0, below=1)
LENGTHS = Allowed("parts of target.steps, above 0, up to 1, like [0.25,0.5,1]", above=0, at_most=1)
FACTORS = Allowed("multiples of target.peak_learning_rate, .01 to 100, like [0.5,1,2]", at_least=0.01, at_most=100)
COMPUTE_RATIO = Allowed("above 0, up to 1, or null: goal.tolerance decides", above=0, at_most=1)


@dataclass
class LawConfig:
    from_step: Step = 0
    """First step whose points are fitted; a quarter of the longest run where that is earlier."""
    min_ratio: Ratio = 0.0
    """Smallest ratio of the validation corpus in the mixture whose runs are fitted."""


@dataclass(frozen=True)
class GoalKind:
    """What follows from `goal.kind` before any goal is loaded."""

    folder: str = ""
    """Folder of its recommendation, confirmation and report, where a study may have the answers of several goals."""
    many_domains: bool = False
    """Whether one answer weighs all corpora; otherwise an answer is a ratio of one domain beside general text."""
    design_question: str = ""
    """Name of its question in `fitting.design`; empty: its runs cannot be chosen round by round."""


GOAL_KINDS = {
    "trade-off": GoalKind(design_question="trade_off"),
    "limited-data": GoalKind("limited-data", design_question="limited_data"),
    "compute": GoalKind("compute"),
    "weights": GoalKind(many_domains=True),
    # Its runs are those that tell the largest ratio within the tolerance: both need the curves of both losses.
    "balance": GoalKind("balance", design_question="trade_off"),
}
"""Allowed values of goal.kind; `pipeline.goals.registry.GOALS` implements each."""


@dataclass
class GoalConfig:
    kind: str = "trade-off"
    """trade-off: the largest domain ratio within a tolerated increase of the general loss; limited-data: the domain
    ratio with the smallest domain loss when the domain has few tokens, each read once; compute: the model, of ladder
    and `model`, with the smallest domain loss for a compute budget; weights: mixture weights of many domains with the
    smallest average loss, see docs/many-domains.md; balance: the domain ratio with the least weighted sum of both
    losses. For the others see docs/guide.md."""
    tolerance: Annotated[float, TOLERANCE] = 0.03
    """Tolerated relative increase of the general loss over the loss before CPT, 0.03 is 3%."""
    change_at: list[Annotated[float, PARTS]] = field(default_factory=list)
    """Times to try for trade-off, each by itself, for one change of the mixture, as parts of the run's steps, like
    [0.5, 0.8]; needs the law transfer-two-mixtures, see docs/training.md."""
    domain_tokens: Annotated[float, TOKENS] | None = None
    """Tokens of the domain for limited-data; at domain ratio r the run has domain_tokens / r tokens."""
    most_tokens: Annotated[float, TOKENS] | None = None
    """Upper limit of the run's tokens for limited-data; null: 20 times domain_tokens."""
    weight: Ratio = 0.5
    """Weight of the general loss for balance, 0 to 1; the domain loss has the rest."""
    find: list[Annotated[str, one_of("steps", "loss_potential")]] = field(default_factory=list)
    """What balance finds beside the domain ratio, alone or together: steps, up to target.steps; loss_potential, the
    last rate of pre-training over its peak. loss_potential needs law=[dynamics-replay]."""
    flops: Annotated[float, up_to(1e30)] | None = None
    """Budget of the continual phase for compute, FLOPs, 6 N D with N non-embedding parameters, like 5e19."""
    domain_ratio: Annotated[float, COMPUTE_RATIO] | None = None
    """Domain ratio for compute; null: for each model the largest within the tolerance."""


@dataclass
class DesignConfig:
    kind: Annotated[str, one_of("auto", "grid", "active")] = "auto"
    """grid: the runs of ladder and mixture.domain_ratio; active: runs chosen round by round, each for what it is
    expected to teach about the answer for its cost, see docs/guide.md; auto: active where
    mixture.domain_ratio is empty and the goal allows it."""
    tolerance: OpenRatio = 0.05
    """Half-width of the 90% interval of the domain ratio at which an active design chooses no further runs."""
    budget: Annotated[float, up_to(1e30, "in design.budget_unit: FLOPs like 1e18")] | None = None
    """Upper limit of the cost of all runs that an active design chooses and of the pre-training of their models but the
    target, in `budget_unit`; null: the cost of the grid, or of a large run large.budget. Confirmation runs come on
    top."""
    budget_unit: Annotated[str, one_of("auto", "FLOPs", "tokens", "device-hours")] = "auto"
    """Unit of the cost of runs, by which they are chosen too: FLOPs, tokens (trained on), or device-hours (of start,
    training and evaluation, at the speeds that prepare measured); auto: device-hours where prepare has measured the
    speed of every model and no budget is given, else FLOPs."""
    batch: Repeats | None = None
    """Runs chosen at once; null: as in the round before, or at first one a worker; where runs are queued elsewhere 8,
    on Slurm launcher.slurm.limit if there is one."""
    ratios: list[Ratio] = field(default_factory=lambda: [number / 10 for number in range(11)])
    """Domain ratios that runs may be chosen at, 0 to 1."""
    lengths: list[Annotated[float, LENGTHS]] = field(default_factory=lambda: [0.25, 0.5, 1.0])
    """Lengths that runs may be chosen of, as parts of target.steps, above 0, up to 1; of a large run large.lengths."""
    peaks: list[Annotated[float, FACTORS]] = field(default_factory=lambda: [1.0])
    """Peak learning rates that runs may be chosen with, as multiples of target.peak_learning_rate, .01 to 100. Of
    several that the longest runs have, the answer has the one with the smallest predicted domain loss."""
    extend: bool = True
    """Whether a longer run continues a shorter one that was chosen before, of the same model, ratio and peak, from
    where the rate of that one began to fall, and so costs the rest only. It needs a schedule with a constant rate
    before its last piece, as wsd; states of the shorter runs are kept for it."""
    target_size: bool = True
    """Whether runs of `model`, the target model, may be chosen beside those of the ladder."""


@dataclass
class ConfirmConfig:
    neighbour: RatioBelowOne = 0.15
    """Distance between the domain ratios of the first and second confirmation run; 0: no second run."""
    around: list[Annotated[float, AROUND]] = field(default_factory=list)
    """Distances from the recommended domain ratio at which confirmation runs are added, like [-0.3,-0.1,0.1]; ratios
    outside 0 to 1 are left out, and of limited-data those of runs longer than goal.most_tokens. Empty: neighbour. Of
    compute every model is run in any case."""
    seeds: Repeats = 1
    """Seeds of every confirmation run, paired between the ratios; two or more give intervals."""


@dataclass
class FirstRunConfig:
    domain_ratio: Ratio = MISSING
    """One of design.ratios."""
    length: Annotated[float, LENGTHS] = MISSING
    """As a part of target.steps."""


@dataclass
class LargeConfig:
    tokens: Annotated[float, TOKENS] = 1e8
    """Tokens from which a run that is asked about is large: the keys of this section plan what the advice costs."""
    budget: Annotated[float, up_to(100, "parts of the cost of the run that is asked about, 0.1 is 10%")] = 0.1
    """Upper limit of the cost of all chosen runs, as a part of that of the large run; design.budget takes its place."""
    lengths: list[Annotated[float, LENGTHS]] = field(default_factory=lambda: [0.0125, 0.025, 0.05])
    """Lengths that runs may be chosen of, as parts of target.steps, above 0, up to 1."""
    first: list[FirstRunConfig] = field(default_factory=list)
    """Runs of the target model to begin with, where text and budget suffice for all of them; empty: the design chooses
    the first ones too."""
    confirm: bool = False
    """Whether runs as long as the large one confirm the answer unasked; false: cptlaw follow reads the log of the run
    itself, and only the command cptlaw confirm trains others."""


@dataclass
class DoReMiConfig:
    step_size: Annotated[float, up_to(1000)] = 1.0
    """eta: each step multiplies a domain's weight by exp(eta times its excess loss, nats per token); 1 in Xie et al.
    2023."""
    smoothing: RatioBelowOne = 1e-3
    """c: ratio of uniform weights in the weights of every step; 0.001 in Xie et al. 2023."""


@dataclass
class WeightsConfig:
    methods: list[str] = field(default_factory=lambda: ["autoscale", "uniform"])
    """Methods to find mixture weights: uniform, given, ddo, autoscale, doremi, regmix, data-mixing, continual. The
    answer is that of autoscale if it is listed, else that of the first."""
    phase: Annotated[str, one_of("pretrain", "continual")] = "pretrain"
    """pretrain: weights of a training from scratch; continual: of the phase after a pre-training on general."""
    base: dict[str, PositiveRatio] = field(default_factory=dict)
    """Domain -> weight of the base run, sum 1; empty: uniform weights."""
    given: dict[str, dict[str, Ratio]] = field(default_factory=dict)
    """Weights that method given compares, like published ones: name -> (domain -> weight, sum 1)."""
    factors: list[str] = field(default_factory=lambda: ["1/3", "1", "3"])
    """Factors of ddo for the tokens of one domain in the runs around the base run: three or more, one of them 1.
    Fractions as text."""
    scales: list[Steps] = field(default_factory=lambda: [150, 300])
    """Steps of the base run: autoscale runs at the first and the last, the other methods at the first."""
    target: Steps = 1200
    """Steps of the runs that the weights are for, and that confirm compares."""
    rounds: Repeats = 1
    """How often the optimum of ddo, autoscale or doremi becomes the base of the next runs; 1: never."""
    seeds: Repeats = 1
    """Seeds of every search run; intervals of ddo and autoscale need two or more."""
    confirm_seeds: Repeats = 3
    """Seeds of every confirmation run, paired between the methods."""
    passes: Annotated[float, up_to(1000, "1 is each token once")] = 1.0
    """Upper limit of how often the tokens of a domain are read in a run at the target; it bounds the weights."""
    mixtures: Annotated[int, between(1, 10_000)] = 20
    """Random mixtures around the base weights that regmix, data-mixing and continual run."""
    concentration: list[Annotated[float, up_to(1_000_000)]] = field(default_factory=lambda: [0.1, 5.0])
    """Smallest and largest Dirichlet concentration of the random mixtures. Far below the number of domains most of a
    mixture is one domain, far above it all mixtures are near the base weights. RegMix's: [0.1, 5]."""
    value: dict[str, Annotated[float, between(0, 1_000_000)]] = field(default_factory=dict)
    """Domain -> weight of its loss in the average that is minimised, 0 for those left out; empty: 1 for all, or of
    continual for all but general, whose loss may increase by goal.tolerance."""
    doremi: DoReMiConfig = field(default_factory=DoReMiConfig)
    """How the weights of doremi's proxy change."""
    average: Annotated[str, one_of("loss", "perplexity")] = "loss"
    """What is averaged over domains and minimised: loss (nats per token), or perplexity."""


@dataclass
class TablesConfig:
    papers: str | None = None
    """Folder with the papers' numbers, dcpt_table01_effectiveness.csv and so on; null: the environment's
    CPTLAW_PAPER_TABLES, and without it only our numbers are shown."""
    names: list[str] = field(default_factory=list)
    """Which tables, like dcpt-1; empty: all."""
    from_step: Step = 1
    """First step whose points are fitted; the paper begins with its first evaluation, a 200th of a run."""
    min_ratio: Ratio = 0.0
    """Smallest ratio of the validation corpus in the mixture whose runs are fitted."""
    run: bool = False
    """Whether to prepare, plan and train a missing or unfinished study first; false: print its cost, and make the
    tables from the points that exist."""
    points: str | None = None
    """Collected points to read instead of the study's points.parquet; points=FILE for short."""
