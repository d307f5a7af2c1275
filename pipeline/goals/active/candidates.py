"""The runs that a design can choose among, their costs, and their points as the laws read them."""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from fitting import LAWS, Law
from fitting.laws import with_unknown
from fitting.uncertainty.horizon import BEYOND
from pipeline.goals.active.history import APART, ChosenRun
from pipeline.plan.cost import device_hours, run_flops
from pipeline.plan.runs import branch_run, continual_run, grid_runs, pretraining_runs, starting_order
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import (
    candidate_peaks,
    candidate_steps,
    is_active,
    most_tokens,
    peak_of,
    rest_of_schedule,
    steps_of_parts,
    with_peak,
)
from pipeline.question.messages import ConfigError
from pipeline.question.presets import ladder_names
from pipeline.question.schema import LawConfig, Question
from pipeline.question.schema.training import BranchConfig, ScheduleConfig
from pipeline.study.collect import with_specs
from pipeline.study.context import Context
from pipeline.study.fitted_points import open_columns, selected
from pipeline.study.folder import PlannedRun
from pipeline.study.target import ends_of_pretraining
from training.evaluation_steps import evaluation_steps

UNKNOWN_LOSS = 3.0
"""Loss before CPT, nats per token, as long as no model is measured."""

NEARER = 0.02
"""By how much a run's ratio must be nearer to an answer beyond all runs than theirs to be worth training."""

AS_GOOD = 0.95
"""Part of the chosen run's narrowing from which the run nearest to the answer is not worth a remark; a choice."""

Before = Mapping[str, Mapping[str, float]]
"""Model -> corpus -> loss before CPT, nats per token."""


@dataclass(frozen=True)
class CandidateRun:
    """A run that can be chosen; `chain` are the runs that it continues, and the run."""

    model: str
    domain_ratio: float
    steps: int
    seed: int
    peak: float | None
    continues: list[int]
    chain: list[PlannedRun] = dataclasses.field(default_factory=list)

    @property
    def run(self) -> PlannedRun:
        """The run itself."""
        return self.chain[-1]


def chain_of(context: Context, chosen: CandidateRun | ChosenRun, role: str = "fit") -> list[PlannedRun]:
    """The runs that a run continues, the first one first, and the run itself. Raises ValueError: it continues none."""
    question = with_peak(context.question, chosen.peak)
    lengths = [*chosen.continues, chosen.steps]
    model = context.models[chosen.model]
    first = continual_run(context, model, chosen.domain_ratio, lengths[0], chosen.seed, role, peak=chosen.peak)
    runs, behind = [first], 0
    for shorter, steps in itertools.pairwise(lengths):
        rest = rest_of_schedule(question.target_phase, shorter, steps)
        if rest is None:
            raise ValueError(f"target.schedule: a run of {steps} steps does not continue one of {shorter}")
        at, chain = rest
        branch = BranchConfig(at - behind, steps - at, ScheduleConfig(chain))
        runs.append(branch_run(runs[-1], question.target_phase, branch, question.evaluation_budget))
        behind = at
    return runs


def candidate_runs(context: Context, chosen: Sequence[ChosenRun] = ()) -> list[CandidateRun]:
    """The runs that can be chosen: each model, length, peak and ratio of `design` that the text is enough for.

    With `design.extend` a run continues the longest shorter one of its kind among those `chosen` before. Raises
    ConfigError, a line for each, if the text is enough for none.
    """
    question = context.question
    names = ladder_names(question)
    if question.design.target_size and question.model.name not in names:
        names.append(question.model.name)
    peaks = candidate_peaks(question)
    # Where there is one peak, that of the question, a choice does not name it.
    peaks = [None] if peaks == [peak_of(question, 1.0)] else peaks
    lengths, ratios = candidate_steps(question), dict.fromkeys(question.design.ratios)
    candidates = []
    for model, steps, peak, ratio in itertools.product(names, lengths, peaks, ratios):
        own = CandidateRun(model, ratio, steps, question.seed, peak, [])
        own = dataclasses.replace(own, continues=_continued(question, own, chosen))
        candidates.append(dataclasses.replace(own, chain=chain_of(context, own)))
    enough = [one for one in candidates if not any(supply_problems(one.chain, context))]
    if not enough:
        # What is wrong with their pre-training is said at once; the text for large.first is enough to begin.
        parents = [run for name, run in context.once(pretraining_runs).items() if name in names]
        needed, lacks = first_runs(context, candidates)
        needed = candidates if lacks or not needed else needed
        raise ConfigError(list(supply_problems([*parents, *(one.run for one in needed)], context)))
    return enough


def least_cost(context: Context) -> float:
    """Cost of the cheapest candidate, with the pre-training of its model."""
    begun = pretrained(context, ())
    return min(cost_of(context, one.run, begun) for one in candidate_runs(context))


def first_runs(context: Context, candidates: Sequence[CandidateRun]) -> tuple[list[CandidateRun], str]:
    """The candidates that `large.first` names, at the peak of the target, and why it has others; '': it has none."""
    question, peak = context.question, peak_of(context.question, 1.0)
    design, first = question.design, question.large.first if question.is_large() else []
    steps = steps_of_parts(question, [one.length for one in first])
    wanted = {(one.domain_ratio, length) for one, length in zip(first, steps)}
    of_target = [one for one in candidates if one.model == question.model.name and one.peak in (None, peak)]
    found = [one for one in of_target if (one.domain_ratio, one.steps) in wanted]
    for ratio, length in sorted(wanted - {(one.domain_ratio, one.steps) for one in found}):
        reasons = {
            f"design.ratios={design.ratios} lacks {ratio}": ratio not in design.ratios,
            "design.target_size=false": not design.target_size and question.model.name not in ladder_names(question),
            f"design.peaks={design.peaks} lacks 1": peak not in candidate_peaks(question),
        }
        why = next((reason for reason, holds in reasons.items() if holds), "the text is not enough for it")
        return found, f"no run of {length:,} steps at domain ratio {ratio:g} can be chosen: {why}"
    return found, ""


def run_beyond(
    context: Context, candidates: Sequence[CandidateRun], chosen: Sequence[ChosenRun], answer: float
) -> CandidateRun | None:
    """The longest candidate that is nearest to an answer above or below the domain ratios of all chosen runs.

    What they leave open of such an answer is how far the laws hold there, which no run between them tells. None: the
    answer lies between them, or no candidate is nearer to it.
    """
    ratios = [one.domain_ratio for one in chosen]
    far = min(abs(ratio - answer) for ratio in ratios)
    if min(ratios) <= answer <= max(ratios):
        return None
    nearer = [one for one in candidates if abs(one.domain_ratio - answer) < far - NEARER]
    target = context.question.model.name
    return min(nearer, key=lambda one: (abs(one.domain_ratio - answer), one.model != target, -one.steps), default=None)


def is_near(run: CandidateRun, others: Sequence[ChosenRun]) -> bool:
    """Whether one of the others has nearly its domain ratio: laws are wrong elsewhere, which the posterior leaves out.

    Runs at .2 and .3 were the most telling by the laws, and missed losses at other ratios by 20 to 30%
    (docs/results/long-runs-other-domains).
    """
    return any(abs(run.domain_ratio - one.domain_ratio) < APART - 1e-9 for one in others)


def beside_nearest(
    answer: float | None, chosen: Hashable, gains: Mapping[Hashable, float], ratios: Mapping[Hashable, float]
) -> str:
    """How much less the best candidate at the ratio nearest to the answer narrows it than the chosen one, in words.

    Empty: that is at the same ratio or nearly as good, or there is no answer yet, or the chosen one takes nothing.

    >>> beside_nearest(0.96, "b", {"a": 1.0, "b": 2.0}, {"a": 0.9, "b": 0.0})
    'one at 0.9, nearest to the answer, would narrow it 50% as much for its cost'
    """
    if answer is None or not gains[chosen]:
        return ""
    nearest = min((ratios[one] for one in gains), key=lambda ratio: abs(ratio - answer))
    best = max(gain for one, gain in gains.items() if ratios[one] == nearest)
    part = round(best / gains[chosen], 2)
    if ratios[chosen] == nearest or part >= AS_GOOD:
        return ""
    return f"one at {nearest:g}, nearest to the answer, would narrow it {part:.0%} as much for its cost"


def _continued(question: Question, own: CandidateRun, chosen: Sequence[ChosenRun]) -> list[int]:
    """Steps of the runs that a candidate continues, the first one first; none where it begins anew.

    A run that was chosen continues what it did then, whatever was chosen after it.
    """
    if not question.design.extend:
        return []
    kind = own.model, own.domain_ratio, own.seed, own.peak
    alike = {one.steps: one for one in chosen if (one.model, one.domain_ratio, one.seed, one.peak) == kind}
    if own.steps in alike:
        return alike[own.steps].continues
    phase = question.target_phase
    shorter = [steps for steps in alike if steps < own.steps and rest_of_schedule(phase, steps, own.steps)]
    return [*alike[max(shorter)].continues, max(shorter)] if shorter else []


def deciding_laws(question: Question) -> tuple[str, list[Law], LawConfig]:
    """The corpus whose loss decides the answer, the laws that the question asks of it, and the points all are for."""
    limited = question.goal_kind.design_question == "limited_data"
    corpus = question.corpora.domain if limited else question.corpora.general
    # The length of a run follows from the ratio there, which only a law that reads D can weigh.
    laws = [name for name in question.law if not limited or "D" in LAWS[name].columns]
    # Candidates have no points of pre-training.
    laws = [name for name in laws if "s2_pretrain" not in LAWS[name].columns]
    ahead = question.target.steps / max(candidate_steps(question))
    laws = [name for name in laws if LAWS[name].nearest * BEYOND < ahead] or laws
    sections = [question.law[name] for name in laws]
    read = [functools.reduce(with_unknown, open_columns(question, name), LAWS[name]) for name in laws]
    return corpus, read, LawConfig(max(one.from_step for one in sections), max(one.min_ratio for one in sections))


def candidate_points(
    context: Context,
    candidates: Sequence[CandidateRun],
    before: Before,
    corpus: str,
    section: LawConfig,
    pretrained: Collection[str],
) -> pd.DataFrame:
    """The points of planned runs on a corpus that laws would be fitted to, as `fitting.design` takes candidates.

    A row a point, with the columns that follow from specs and the `cost` of its run, as `cost_of` gives it.
    """
    table = planned_points(context, [one.chain for one in candidates], before, corpus).assign(role="fit")
    rows = selected(table, corpus, section)
    cost = {one.run.name: cost_of(context, one.run, pretrained) for one in candidates}
    return rows.assign(cost=rows["run"].map(cost)).reset_index(drop=True)


def target_row(context: Context, before: Before, corpus: str) -> pd.DataFrame:
    """What laws of a corpus read at the end of the target, the ratio apart, and what the goal asks, in one row."""
    question, goal = context.question, context.question.goal
    target = continual_run(context, question.model, 0.5, question.target.steps, question.seed, "fit")
    end = planned_points(context, [[target]], before, corpus).iloc[[-1]].drop(columns=["r", "loss"])
    general = _loss_before(before, question.model.name, question.corpora.general)
    tokens = (goal.domain_tokens or float("nan")) / 1e9
    asked = {"tolerance": goal.tolerance, "general_before": general, "domain_tokens": tokens}
    asked["most_tokens"] = most_tokens(question) / 1e9
    return end.assign(**asked).reset_index(drop=True)


def planned_points(
    context: Context, chains: Sequence[Sequence[PlannedRun]], before: Before, corpus: str
) -> pd.DataFrame:
    """The points that the last run of each chain will have on a corpus, with NaN for losses after step 0."""
    rows = []
    for trunk, *_, run in ([chain[0], *chain] for chain in chains):
        first = _loss_before(before, run.model, corpus)
        if trunk is not run:
            rows.append((trunk.name, 0, 0, corpus, first))
        for step in evaluation_steps(run.spec.evaluation, run.spec.steps):
            tokens = step * run.spec.tokens_per_step
            rows.append((run.name, step, tokens, corpus, float("nan") if step or trunk is not run else first))
    points = pd.DataFrame(rows, columns=["run", "step", "tokens", "corpus", "loss"]).drop_duplicates(["run", "step"])
    plan = {run.name: run for chain in chains for run in chain}
    table = with_specs(
        points, [*context.once(pretraining_runs).values(), *plan.values()], context.question.corpora.general
    )
    return table[table["run"].isin([chain[-1].name for chain in chains])]


def _loss_before(before: Before, model: str, corpus: str) -> float:
    """The loss before CPT; of a model that is not trained yet, the mean of the others."""
    known = [losses[corpus] for name, losses in before.items() if corpus in losses and name == model]
    known = known or [losses[corpus] for losses in before.values() if corpus in losses]
    return fmean(known) if known else UNKNOWN_LOSS


def losses_before(points: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Model -> corpus -> loss before CPT, of the models that it is collected of."""
    points = points[points["variant"] == ""] if "variant" in points else points
    ends = ends_of_pretraining(points)
    starts = points[(points["phase"] == "continual") & (points["step"] == 0)]
    losses: dict[str, dict[str, float]] = {}
    for model, corpus, loss in pd.concat([starts, ends])[["model", "corpus", "loss"]].itertuples(index=False):
        losses.setdefault(model, {})[corpus] = float(loss)
    return losses


def planned_again(context: Context, chosen: ChosenRun, confirmed: bool) -> PlannedRun | None:
    """A run that was chosen, or `confirmed` an answer, planned for the fit; None: it is none of the question now."""
    if chosen.model not in context.models:
        return None
    try:
        run = chain_of(context, chosen, "confirm" if confirmed else "fit")[-1]
    except ValueError:
        return None
    return dataclasses.replace(run, role="fit") if run.name == chosen.run else None


def budget(context: Context) -> float:
    """The limit of the sum of costs: `design.budget`, or of a large run `large.budget`, or the cost of the grid.

    The target's pre-training counts in none.
    """
    question = context.question
    if question.design.budget is not None:
        return question.design.budget
    if question.is_large():
        return question.large.budget * own_cost(context, asked_run(context))
    mixture = question.mixture
    ratios = dataclasses.replace(mixture, domain_ratio=mixture.domain_ratio or question.design.ratios)
    grid = grid_runs(context.asking(dataclasses.replace(question, mixture=ratios)))
    # Of this question, in which target.steps sets the length of all runs but pre-training.
    if problems := list(supply_problems(grid, context)):
        raise ConfigError(problems)
    grid = starting_order(grid)
    target = context.once(pretraining_runs).get(question.model.name)
    return sum(own_cost(context, run) for run in grid if target is None or run.spec.hash != target.spec.hash)


def asked_run(context: Context) -> PlannedRun:
    """The run that is asked about, at whatever domain ratio."""
    question = context.question
    return continual_run(
        context, context.models[question.model.name], 0.5, question.target.steps, question.seed, "confirm"
    )


def unit(context: Context) -> str:
    """The unit of costs: `design.budget_unit`, or what auto stands for."""
    design = context.question.design
    if design.budget_unit != "auto":
        return design.budget_unit
    return "device-hours" if design.budget is None and _is_measured(context) else "FLOPs"


def given_budget(context: Context) -> str:
    """The limit of the sum of costs with its unit, as a line that refuses it begins."""
    by_auto = " (by design.budget_unit=auto; or give device-hours or tokens)"
    given = f"design.budget: {context.once(budget):g} {context.once(unit)}"
    return given + by_auto * (context.question.design.budget_unit == "auto")


def own_cost(context: Context, run: PlannedRun) -> float:
    """Cost of the steps of a run alone, in `unit`. Raises ConfigError: device-hours, and a speed is not measured."""
    match context.once(unit):
        case "tokens":
            return float(run.spec.tokens)
        case "device-hours":
            if context.machine is None or not _is_measured(context):
                problem = "'device-hours' needs the speed of every model, and prepare has measured none; use "
                raise ConfigError(
                    [f"design.budget_unit: {problem}precision=auto and prepare again, or FLOPs, or tokens"]
                )
            # Not that of finished runs: a cost is the same whatever has been trained.
            return device_hours(run.spec, context.machine.speeds[run.model] or 0.0, context.question.parallel.processes)
        case _:
            return run_flops(run.spec)


def pretrained(context: Context, models: Collection[str]) -> set[str]:
    """Models whose pre-training the study has: the target, those of a grid, and those of runs that were chosen."""
    question = context.question
    return {question.model.name, *(ladder_names(question) if not is_active(question) else ()), *models}


def cost_of(context: Context, run: PlannedRun, pretrained: Collection[str]) -> float:
    """Cost of a continual run, with the pre-training of its model where that is not one of `pretrained`."""
    parent = None if run.model in pretrained else context.once(pretraining_runs).get(run.model)
    return own_cost(context, run) + (own_cost(context, parent) if parent else 0.0)


def _is_measured(context: Context) -> bool:
    """Whether `prepare` has measured the speed of every model."""
    return context.machine is not None and all(map(context.machine.speeds.get, context.models))
