"""The mixture of least predicted loss over several corpora."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fitting.answers.answer import Answer, Estimate, Status, beyond, estimate, implied, unknown_interval
from fitting.fitted import Fit
from fitting.laws.data_mixing import PREFIX
from fitting.mixtures.optimum import MixtureOptimum, mixture_optimum
from fitting.points import PointsError

AVERAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"loss": lambda losses: losses, "perplexity": np.exp}
"""Kind of mean -> what is averaged over corpora, from losses."""


class Longer(NamedTuple):
    """A law of the ratio of one corpus that predicts how its loss changes with the length of the run.

    `fit`: reads r and the columns (D, s1, s2 …) of `before` and `after`, the ends of the shorter and the longer run.
    """

    fit: Fit
    before: Mapping[str, float]
    after: Mapping[str, float]

    def factor(self, r: np.ndarray, draw: np.ndarray | None = None) -> np.ndarray:
        """Loss of the longer run over that of the shorter (n,) at ratios r (n,), by a bootstrap draw if given."""
        values = self.fit.params.values() if draw is None else draw
        params = dict(zip(self.fit.params, values, strict=True))
        short, long = (
            self.fit.equation.loss({"r": r, **{name: np.full(len(r), v) for name, v in at.items()}}, params)
            for at in (self.before, self.after)
        )
        return long / short


def best_mixture(
    fits: Mapping[str, Fit],
    value: Mapping[str, float] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    high: Mapping[str, float] | None = None,
    at: Mapping[str, Mapping[str, float]] | None = None,
    longer: Mapping[str, Longer] | None = None,
    average: str = "loss",
) -> Answer:
    """The mixture of least weighted mean loss, with a fit for each corpus.

    Parameters: `fits`, corpus -> fit of a law that reads the weights of all corpora (data-mixing), or of one that reads
    r, the ratio of its corpus (dcpt, transfer-anchored); one for every corpus of the mixture. `value`, corpus -> its
    weight in the mean, 0 or more; None for 1 each. `limits`, corpus -> largest loss that it may come to, nats per
    token. `high`, corpus -> largest weight. `at`, corpus -> further columns that its law reads at the end of the run
    (N, D, s1 …). `longer`, corpus -> how its loss changes from the length of the runs that `fits` saw to that of the
    run that is asked about, for laws that know no length. `average`: "loss", or "perplexity" for the mean of exp(loss).
    Intervals of the weights are over the bootstrap draws of the fits, paired where fits had the same runs and seed.

    `values`: corpus -> weight, and "mean" -> the weighted mean. `predicted`: corpus -> loss. `status`: the limits and
    the largest weights that hold the answer; "infeasible" where no mixture keeps the limits, and the weights are then
    those that exceed them least. `warnings`: where fits were asked beyond their runs.

    Raises PointsError for missing columns, and weights and limits of corpora that have no fit.

    Source: Ye et al. 2024 (Data Mixing Laws), arXiv:2403.16952, for data-mixing; the limits, and laws of the ratio of
    one corpus in a mixture of many, are ours.
    """
    names = tuple(fits)
    worth = _weights(names, value, average)
    laws = {name: fit.equation for name, fit in fits.items()}
    ends = {name: dict((at or {}).get(name, {})) for name in names}
    known = {f"{PREFIX}{name}" for name in names} | {"r"}
    for name, law in laws.items():
        lacks = [column for column in law.columns if column not in known | {*ends[name]}]
        if lacks:
            raise PointsError(f"the law {law.name} of {name} reads {', '.join(lacks)}: give them in at")
    caps = dict(limits or {})
    if strange := [name for name in (*caps, *(high or {})) if name not in fits]:
        raise PointsError(f"{', '.join(strange)}: no fit of that name; there are {', '.join(names)}")
    top = [float((high or {}).get(name, 1.0)) for name in names]
    stretched = dict(longer or {})

    def solved(params: Mapping[str, Mapping[str, float]], start=None, draw: int | None = None) -> MixtureOptimum:
        def of(name: str, weights: np.ndarray) -> np.ndarray:
            own = weights[:, names.index(name)]
            x = {f"{PREFIX}{each}": weights[:, j] for j, each in enumerate(names)} | {"r": own}
            x |= {column: np.full(len(weights), value) for column, value in ends[name].items()}
            loss = laws[name].loss(x, params[name])
            if name not in stretched:
                return loss
            return loss * stretched[name].factor(own, None if draw is None else stretched[name].fit.draws[draw])

        def mean(weights: np.ndarray) -> np.ndarray:
            return sum(
                (weight * AVERAGES[average](of(name, weights)) for name, weight in worth.items() if weight),
                start=np.zeros(len(weights)),
            )

        def over(weights: np.ndarray) -> np.ndarray:
            return np.max([of(name, weights) / cap - 1 for name, cap in caps.items()], axis=0)

        return mixture_optimum(mean, np.ones(len(names)), high=top, limit=over if caps else None, start=start)

    optimum = solved({name: fit.params for name, fit in fits.items()})
    every = (*fits.values(), *(one.fit for one in stretched.values()))
    count = min(len(fit.draws) for fit in every)
    drawn = [
        solved({n: dict(zip(fit.params, fit.draws[i], strict=True)) for n, fit in fits.items()}, optimum.weights, i)
        for i in range(count)
    ]
    drawn_weights = np.array([one.weights for one in drawn]).reshape(count, len(names))
    values = {name: estimate(float(optimum.weights[j]), drawn_weights[:, j]) for j, name in enumerate(names)}
    values["mean"] = estimate(optimum.loss, np.array([one.loss for one in drawn]))

    predicted, warnings = _predictions(fits, optimum.weights, ends, stretched)
    warnings += unknown_interval("weights", next(fit for fit in every if len(fit.draws) == count))
    if failed := sum(one.status.code == "infeasible" for one in drawn):
        warnings.append(f"{failed / count:.0%} of the bootstrap fits find no mixture within the limits")
    return Answer(values, predicted, _status(optimum, names, caps, top, predicted), warnings)


def _predictions(
    fits: Mapping[str, Fit], weights: np.ndarray, ends: Mapping, longer: Mapping[str, Longer]
) -> tuple[dict[str, Estimate], list[str]]:
    """Corpus -> its loss at the weights (m,), and a warning a line of what lies beyond the fitted points."""
    predicted: dict[str, Estimate] = {}
    corpora_of: dict[str, list[str]] = {}
    for j, (name, fit) in enumerate(fits.items()):
        columns = {f"{PREFIX}{n}": float(w) for n, w in zip(fits, weights)} | {"r": float(weights[j])}
        frame = pd.DataFrame([columns | ends[name]])
        predicted[name] = implied(fit, frame)
        if name in longer:
            predicted[name] = _stretched(predicted[name], fit, frame, longer[name])
        for line in (*beyond("", fit, frame), *_unseen(fit, frame)):
            corpora_of.setdefault(line.removeprefix(": "), []).append(name)
    return predicted, [f"{', '.join(corpora)}: {line}" for line, corpora in corpora_of.items()]


def _stretched(short: Estimate, fit: Fit, frame: pd.DataFrame, longer: Longer) -> Estimate:
    """The loss at the frame's row after the longer run, by paired draws of both fits."""
    r = frame["r"].to_numpy()
    count = min(len(fit.draws), len(longer.fit.draws))
    loss = short.value * float(longer.factor(r)[0])
    if not count:
        return Estimate(loss, float("nan"), float("nan"))
    factors = np.array([longer.factor(r, draw) for draw in longer.fit.draws[:count]])
    (low,), (high,) = fit.measured_interval(fit.predict_draws(frame)[:count] * factors)
    return Estimate(loss, float(low), float(high))


def _weights(names: Sequence[str], value: Mapping[str, float] | None, average: str) -> dict[str, float]:
    """Weights of the mean, sum 1."""
    if average not in AVERAGES:
        raise PointsError(f"average = {average!r} is unknown: there are {' and '.join(AVERAGES)}")
    value = dict.fromkeys(names, 1.0) if value is None else dict(value)
    total = sum(value.values())
    if set(value) - set(names) or not total > 0 or min(value.values()) < 0:
        raise PointsError(f"value must weigh corpora among {', '.join(names)}, each 0 or more and one above 0")
    return {name: weight / total for name, weight in value.items()}


def _unseen(fit: Fit, there: pd.DataFrame) -> list[str]:
    lines = []
    for column in fit.equation.columns:
        if column.startswith(PREFIX):
            (low, high), weight = fit.ranges[column], float(there[column].iloc[0])
            if not low - 1e-6 <= weight <= high + 1e-6:
                seen = f"those that were run ({low:.3f} to {high:.3f})"
                lines.append(f"a weight of {weight:.3f} of {column.removeprefix(PREFIX)} is beyond {seen}")
    return lines


def _status(optimum: MixtureOptimum, names, caps, top, predicted: Mapping[str, Estimate]) -> Status:
    if optimum.status.code == "infeasible":
        worst = max(caps, key=lambda name: predicted[name].value / caps[name])
        message = (
            f"infeasible: no mixture keeps {worst} at {caps[worst]:.4f} or below; the least is "
            f"{predicted[worst].value:.4f}, {optimum.excess:.1%} above"
        )
        return Status("infeasible", message)
    limits = [f"{n} reaches its limit, {cap:.4f}" for n, cap in caps.items() if predicted[n].value > cap * (1 - 1e-4)]
    bounds = [f"{n} is held at its largest weight, {top[j]:.3f}" for j, n in enumerate(names) if optimum.at_high[j]]
    bounds += [f"{n} is left out" for j, n in enumerate(names) if optimum.at_low[j]]
    if limits or bounds:
        return Status("limited" if limits else "at bound", "; ".join(limits + bounds))
    return Status("inside", "nothing: the best lies inside all limits")
