"""Several laws answer together: the mean of their log losses, weighted by how well each predicted held-out points.

The weights are inverse variances: 1 / (mean square of the held-out log errors + WEIGHT_FLOOR^2). On 19 series the
mean misses less than the law with the smallest held-out error (docs/negative-results.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, log

import numpy as np
import pandas as pd

from fitting.fitted import Fit, interval_of
from fitting.laws import LAWS
from fitting.points import PointsError
from fitting.schedule import ANNEALING
from fitting.uncertainty.horizon import NEAREST, POWER, Reach, half_width, kind_of
from fitting.uncertainty.misfit import log_errors as errors_of
from fitting.uncertainty.spread import Spread, widened

AVERAGE = "average"
"""What stands for the weighted mean where the name of a law is asked."""
LEAST_LOSS = 0.01
"""Nats a token: far from few points a law may predict less than nothing, which has no logarithm."""
WEIGHT_FLOOR = 0.012
"""Log error by which two laws may differ on a new run whatever their held-out errors, so that none counts alone."""
FADE = 1.5
"""Horizon over which a law begins or ceases to count, so that no prediction jumps (docs/performance.md)."""
GROWTH = 0.01
"""Log error over (log h)^POWER that a law makes at h times the fitted tokens, beside what it erred on held-out points:
what those say of which law errs less is about 1.5 times as far as was fitted (docs/performance.md)."""
SLOWER = {"transfer-read": 0.0025, "transfer-open-read": 0.005}
"""Law -> the same, of one that errs less far ahead in kept long runs."""
APART = 1.3
"""Half-width of a 90% interval that the laws' disagreement makes, over the standard deviation of their log losses."""


def law_weights(
    errors: Mapping[str, np.ndarray], parts: Mapping[str, float] | None = None, horizon: float = 1.0
) -> dict[str, float]:
    """Law -> weight, summing to 1, by the log errors (k,) of its predictions of held-out points.

    `parts`: law -> the part of its weight that counts, of `counted_at`; None: all of each. `horizon`: times the fitted
    tokens, by which errors grow.

    >>> weights = law_weights({"one": np.array([0.01, -0.01]), "other": np.array([0.02, 0.02])})
    >>> {law: round(weight, 2) for law, weight in weights.items()}
    {'one': 0.69, 'other': 0.31}
    """
    counted, ahead = dict.fromkeys(errors, 1.0) if parts is None else parts, log(max(horizon, 1.0)) ** POWER
    least = {law: WEIGHT_FLOOR**2 + (SLOWER.get(law, GROWTH) * ahead) ** 2 for law in counted}
    precision = {law: part / (float(np.mean(np.square(errors[law]))) + least[law]) for law, part in counted.items()}
    total = sum(precision.values())
    return {law: value / total for law, value in precision.items()}


def errors_in_common(errors: np.ndarray, weights: np.ndarray) -> float:
    """Part of the squared errors (n, laws) of laws with weights (laws,) that they have in common; 1: they err as one.

    It is the mean square of the average's errors over the weighted mean of theirs (Krogh & Vedelsby 1995).

    >>> [errors_in_common(np.array([pair]), np.array([0.5, 0.5])) for pair in ((0.2, 0.2), (0.2, 0.0), (0.2, -0.2))]
    [1.0, 0.5, 0.0]
    """
    squares = float(np.mean(np.square(errors), axis=0) @ weights)
    return float(np.mean(np.square(errors @ weights))) / squares if squares else 0.0


def counted_at(laws: Iterable[str], horizon: float) -> dict[str, float]:
    """Law -> the part of its weight, above 0, that counts in an average at `horizon` times the fitted tokens.

    It begins at `Law.nearest` and is all of it from `FADE` times as far, falls from 1 / `FADE` of `Law.furthest` and
    ends there. Where that is beyond all laws, or before all, those that come nearest to it count; a law that is not in
    `LAWS` has no limit.

    >>> counted_at(["dcpt", "transfer-anchored", "transfer-replay"], 4)
    {'dcpt': 1.0, 'transfer-replay': 1.0}
    >>> counted_at(["dcpt", "transfer-anchored"], 20)
    {'dcpt': 1.0}
    >>> [counted_at(["transfer-open-saturating", "transfer-open"], horizon) for horizon in (3, 4.5)]
    [{'transfer-open-saturating': 1.0}, {'transfer-open-saturating': 1.0, 'transfer-open': 1.0}]
    """
    limits = {law: (LAWS[law].nearest, LAWS[law].furthest) if law in LAWS else (0.0, inf) for law in laws}
    nearest, furthest = min((near for near, _ in limits.values()), default=0.0), max(far for _, far in limits.values())
    ahead, behind = max(horizon, FADE * nearest), min(horizon, furthest / FADE)
    parts = {
        law: (log_part(ahead / near) if near else 1.0) * (log_part(far / behind) if far < inf else 1.0)
        for law, (near, far) in limits.items()
    }
    return {law: part for law, part in parts.items() if part > 0} or dict.fromkeys(limits, 1.0)


def log_part(times: float) -> float:
    """How far `times` is from 1 to `FADE`, on logarithms, 0 to 1; rounded, so that a limit is met from both sides.

    >>> [log_part(times) for times in (0.9, 1 + 1e-9, 1.25, 1.5, 9.0)]
    [0.0, 0.0, 0.55034, 1.0, 1.0]
    """
    return round(min(max(log(times) / log(FADE), 0.0), 1.0), 6)


@dataclass(frozen=True, eq=False)
class LawAverage:
    """Fits of several laws to one corpus as one: it predicts exp(sum_k w_k log L_k).

    `fits`: law -> fit; `weights`: law -> weight, summing to 1. It stands for a `Fit` in the answers, with frames that
    hold the `columns`: those of `ANNEALING`, which depend on lambda, once for each law, as <law>.<column>.
    """

    fits: Mapping[str, Fit]
    weights: Mapping[str, float]
    law: str = AVERAGE
    warnings: tuple[str, ...] = ()
    growth: tuple[float, ...] | None = None
    """How errors of the average grow with the horizon, a number a rolling origin; None: not known."""
    held_out: Mapping[str, float] = field(default_factory=dict)
    """Kind of extrapolation -> root mean square of its log errors on what a back test held out."""
    in_common: Mapping[str, float] = field(default_factory=dict)
    """The same kinds -> `errors_in_common` of its laws there."""

    def __post_init__(self):
        if {*self.fits} != {*self.weights} or not np.isclose(sum(self.weights.values()), 1.0):
            raise PointsError(f"weights {dict(self.weights)}: give one a law of {', '.join(self.fits)}, with sum 1")

    @property
    def columns(self) -> list[str]:
        """The columns that a frame must have."""
        names = (own_column(law, name) for law, fit in self.fits.items() for name in fit.columns)
        return list(dict.fromkeys(names))

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Column -> (smallest, largest) among the points of any law; without `ANNEALING`."""
        every = [(name, ends) for fit in self.fits.values() for name, ends in fit.ranges.items()]
        ends = {name: [pair for one, pair in every if one == name] for name, _ in every if name not in ANNEALING}
        return {name: (min(low for low, _ in pairs), max(high for _, high in pairs)) for name, pairs in ends.items()}

    @property
    def reach(self) -> Reach:
        """How far each size was fitted in tokens, by the law that was fitted least far."""
        return min((fit.reach for fit in self.fits.values()), key=lambda one: max((D for _, D in one), default=0.0))

    @property
    def metrics(self) -> dict[str, float]:
        """log_rmse: root of the weighted mean square of the log residuals."""
        squares = sum(self.weights[law] * fit.metrics["log_rmse"] ** 2 for law, fit in self.fits.items())
        return {"log_rmse": float(np.sqrt(squares))}

    @property
    def n_runs(self) -> int:
        """Runs that the law with fewest was fitted to."""
        return min(fit.n_runs for fit in self.fits.values())

    @property
    def spread(self) -> Spread:
        """What is known of the errors of its predictions, beside the laws' disagreement."""
        known = self.ranges, self.reach, self.metrics["log_rmse"], self.n_runs, self.held_out
        law = "average" if self.growth is None else "curve"
        if len(self.fits) == 1:
            law = kind_of(*self.fits)
        unseen = max(fit.unseen for fit in self.fits.values())
        return Spread(*known, self.growth or (), law, unseen, self.in_common)

    @property
    def params(self) -> dict[str, float]:
        """None of its own: those of each law are in `fits`."""
        return {}

    @property
    def param_draws(self) -> list[dict[str, float]]:
        """As many empty ones as there are draws."""
        return [{} for _ in self.draws]

    @cached_property
    def draws(self) -> np.ndarray:
        """(draws, 0): as many as the law with fewest has; what they predict is in `predict_draws`."""
        return np.zeros((min(len(fit.draws) for fit in self.fits.values()), 0))

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Loss (n,), in nats per token. Raises PointsError for missing or impossible columns."""
        return np.exp(np.sum(self.weights_at(frame) * self._logs(frame), axis=0))

    def predict_draws(self, frame: pd.DataFrame) -> np.ndarray:
        """Loss (draws, n): of each law as many of its refits as its weight says."""
        ends = np.round(np.cumsum(self.weights_at(frame), axis=0) * len(self.draws))
        numbers, start = np.arange(len(self.draws))[:, None], np.zeros(len(frame))
        losses = np.zeros((len(self.draws), len(frame)))
        for (law, fit), end in zip(self.fits.items(), ends, strict=True):
            if (chosen := (numbers >= start) & (numbers < end)).any():
                losses = np.where(chosen, fit.predict_draws(own_frame(law, frame))[: len(losses)], losses)
            start = end
        return losses

    def errors_at(self, frame: pd.DataFrame) -> np.ndarray | None:
        """Log errors (k, n) as `Fit.errors_at`, wider also where the laws disagree."""
        if (errors := self.spread.log_errors(frame)) is None:
            return None
        logs, weights = self._logs(frame), self.weights_at(frame)
        apart = APART * np.sqrt(np.sum(weights * (logs - np.sum(weights * logs, axis=0)) ** 2, axis=0))
        return widened(errors, np.hypot(apart, self.spread.below(frame)))

    def predict_interval(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (n,), as `Fit.predict_interval`.

        Raises PointsError where neither `held_out` nor `growth` is known.
        """
        spread, predicted = self.spread, self.predict(frame)
        if (errors := self.errors_at(frame)) is not None:
            return interval_of(predicted, errors)
        if self.growth is None:
            raise PointsError("the interval of an average needs held_out: the errors of held-out predictions")
        nearest = half_width(np.full(len(frame), NEAREST), spread.growth, spread.residual, spread.law)
        return interval_of(predicted, errors_of(1.0)[:, None] * np.maximum(nearest, spread.beyond(frame)))

    def weights_at(self, frame: pd.DataFrame) -> np.ndarray:
        """Weight (laws, n) of each law at each row: ever less below its smallest fitted ratio.

        At the smallest ratio of all, and below, the laws that were fitted there answer alone. Only those laws are known
        there: dcpt, which reads no ratio below .1, missed a run without general text by 18% where others did by .1%.
        """
        weights = np.repeat(np.array([self.weights[law] for law in self.fits])[:, None], len(frame), axis=1)
        counts = [(fit, self.weights[law] > 0 and "r" in fit.ranges) for law, fit in self.fits.items()]
        smallest = np.array([fit.ranges["r"][0] if known else np.inf for fit, known in counts])
        if "r" in frame and np.isfinite(least := smallest.min()):
            apart = np.where((smallest > least) & np.isfinite(smallest), smallest - least, 0.0)[:, None]
            into = frame["r"].to_numpy(float) - least
            weights *= np.clip(np.divide(into, apart, out=np.ones_like(weights), where=apart > 0), 0.0, 1.0)
        return weights / weights.sum(axis=0)

    def _logs(self, frame: pd.DataFrame) -> np.ndarray:
        losses = [fit.predict(own_frame(law, frame)) for law, fit in self.fits.items()]
        return np.log(np.maximum(losses, LEAST_LOSS))


def own_column(law: str, name: str) -> str:
    """The name of a law's column in a frame for several laws.

    >>> own_column("transfer-anchored", "s2"), own_column("transfer-anchored", "s1")
    ('transfer-anchored.s2', 's1')
    """
    return f"{law}.{name}" if name in ANNEALING else name


def own_frame(law: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with that law's own columns of `ANNEALING`, where it has them."""
    own = {name: frame[own_column(law, name)] for name in ANNEALING if own_column(law, name) in frame.columns}
    return frame.assign(**own) if own else frame
