"""Compare all proposals for mixture weights, by runs at the target that share their seeds."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from fitting.answers.measured_optimum import mean_of_seeds
from pipeline.goals.weights.artifacts import MethodResult, SpeedUp, WeightsConfirmation, WeightsRecommendation
from pipeline.goals.weights.mixtures import Search
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun
from pipeline.study.status import ended_points

LEVEL = 0.9


def compare(
    context: Context, recommendation: WeightsRecommendation, runs: Sequence[Sequence[PlannedRun]]
) -> WeightsConfirmation:
    """Compare the confirmation runs (proposal, seed) of all proposals, which are done, and write confirmation.json.

    Differences and speed-ups are to the reference, uniform where it is among the methods, and paired by seed: runs of
    one seed have the same initial weights and order of text. Intervals are Student's t.
    """
    proposals, search = recommendation.proposals, context.once(Search)
    values = [[search.average(search.losses(run)) for run in seeds] for seeds in runs]
    names = [proposal.method for proposal in proposals]
    base = names.index("uniform") if "uniform" in names else len(names) - 1
    best = min(float(np.mean(seeds)) for seeds in values)
    rows = []
    for at, proposal in enumerate(proposals):
        ends = [search.losses(run) for run in runs[at]]
        losses = {domain: float(np.mean([end[domain] for end in ends])) for domain in search.domains}
        loss = sum(value * losses[domain] for domain, value in search.values.items())
        worst = max(losses, key=lambda domain: losses[domain])
        difference, low, high = (None,) * 3 if at == base else _interval(np.subtract(values[at], values[base]))
        rows.append(
            MethodResult(
                method=proposal.method,
                recommended=proposal.method == recommendation.method,
                weights=proposal.weights,
                runs=[run.name for run in runs[at]],
                values=values[at],
                value=float(np.mean(values[at])),
                loss=loss,
                losses=losses,
                perplexity=math.exp(loss),
                worst=worst,
                worst_perplexity=math.exp(losses[worst]),
                difference=difference,
                low=low,
                high=high,
                above_best=float(np.mean(values[at])) / best - 1,
                general_change=_general_change(search, runs[at], losses),
                speed=SpeedUp() if at == base else _speed(search, runs[at], values[base]),
                search_tokens=proposal.tokens,
                predicted=proposal.predicted.get("mean"),
            )
        )
    confirmation = WeightsConfirmation(
        level=LEVEL,
        reference=names[base],
        average=search.settings.average,
        domain_values=search.values,
        target=recommendation.target,
        seeds=search.settings.confirm_seeds,
        methods=rows,
        points=sum(ended_points(context.study, context.plan).values()),
    )
    confirmation.write(context.study)
    return confirmation


def _general_change(search: Search, runs: Sequence[PlannedRun], losses: dict[str, float]) -> float | None:
    """Relative increase of the general loss over a continual phase, mean over the seeds; None from scratch."""
    if search.settings.phase == "pretrain":
        return None
    general = search.question.corpora.general
    return losses[general] / float(np.mean([search.losses(run, 0)[general] for run in runs])) - 1


def _speed(search: Search, runs: Sequence[PlannedRun], reference: Sequence[float]) -> SpeedUp:
    """Steps of the target over the step at which these runs reach the last value of the reference."""
    curves = [search.curve(run) for run in runs]
    steps = [
        _reached({step: search.average(losses) for step, losses in curve.items()}, goal)
        for curve, goal in zip(curves, reference)
    ]
    reached = [step for step in steps if step is not None]
    if len(reached) < len(steps):
        return SpeedUp(len(reached))
    target = search.settings.target
    speed, low, high = (None if end is None else math.exp(end) for end in _interval(np.log(target / np.array(reached))))
    assert speed is not None
    return SpeedUp(len(reached), speed, low, high, search.target_tokens * (1 - 1 / speed))


def _reached(curve: dict[int, float], goal: float) -> float | None:
    """The step at which a curve first reaches a value, linearly interpolated; None: it does not."""
    steps = sorted(curve)
    for before, after in itertools.pairwise(steps):
        if curve[after] <= goal:
            fall = curve[before] - curve[after]
            part = min(1.0, max(0.0, (curve[before] - goal) / fall)) if fall > 0 else 1.0
            return max(1e-9, before + part * (after - before))
    return None


def _interval(values: np.ndarray) -> tuple[float, float | None, float | None]:
    """Mean and Student's t interval; a single value has none."""
    mean, low, high = mean_of_seeds(values)
    return (mean, low, high) if len(values) > 1 else (mean, None, None)
