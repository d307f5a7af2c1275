"""The largest domain ratio within a tolerance on the general loss (usage 1 of the D-CPT paper)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import root_scalar

from fitting.answers.answer import beyond, question
from fitting.fitted import Fit
from fitting.law_average import LawAverage
from fitting.points import PointsError

GRID = np.linspace(0.0, 1.0, 1001)


@dataclass(frozen=True)
class TradeOff:
    """The answer of `trade_off`.

    `domain_ratio`: that of the mixture, None when no ratio keeps the general loss within
    tolerance; `low`, `high`: its interval. `predicted`: "general" and "domain" -> (loss, low, high) in nats
    per token at that ratio. `binding`: the constraint that holds. `warnings`: where the laws extrapolate.
    """

    domain_ratio: float | None
    low: float | None
    high: float | None
    predicted: dict[str, tuple[float, float, float]]
    binding: str
    warnings: list[str]


def trade_off(
    general: Fit | LawAverage,
    domain: Fit | LawAverage,
    N: float,
    D: float,
    tolerance: float,
    general_before: float,
    *,
    general_at: Mapping[str, float] | None = None,
    domain_at: Mapping[str, float] | None = None,
    level: float = 0.9,
    general_spread: np.ndarray | None = None,
    domain_spread: np.ndarray | None = None,
) -> TradeOff:
    """The largest domain ratio r_d at which the general loss stays within tolerance of what it was.

    Solves max r_d in [0, 1] subject to (L_g(N, D, 1 - r_d) - general_before) / general_before <= tolerance;
    the domain loss falls with r_d, so this is also where it is least.

    Parameters: `general`, `domain`, fits of the two validation corpora, or averages of laws; `N` billions of
    parameters, `D` billions of tokens of the run to be made; `tolerance`, relative (0.03 is 3%); `general_before`,
    general loss before the run in nats per token. `general_at`, `domain_at`: further columns that a law reads at the
    end of the run (s1, s2, s1_pretrain, loss_before, rho); the general loss_before is `general_before` unless
    said otherwise. `level`: of all intervals; that of the ratio is over the errors of `general_spread`, which a study
    gives, and without it over the draws of the general fit; errors of the domain fit do not enter. `general_spread`,
    `domain_spread`: log errors of predictions, as in `Fit.predict_interval`.

    Raises PointsError for missing columns, and for impossible values.

    Source: Que et al. 2024, sec. 4.3, usage 1.
    """
    if not general_before > 0:
        raise PointsError(f"general_before = {general_before:g} must be above 0: the general loss before the run")
    if not np.isfinite(tolerance):
        raise PointsError("tolerance must be a finite relative change of the general loss: 0.03 is 3%")
    general_at = {"loss_before": general_before, **(general_at or {})}
    domain_at = dict(domain_at or {})
    cap = general_before * (1 + tolerance)

    def general_frame(r_d) -> pd.DataFrame:
        return _frame(general, N, D, 1 - np.atleast_1d(r_d), general_at, "general")

    def domain_frame(r_d) -> pd.DataFrame:
        return _frame(domain, N, D, np.atleast_1d(r_d), domain_at, "domain")

    curve = general.predict(general_frame(GRID))
    inside = np.flatnonzero(curve <= cap)
    if not len(inside):
        domain.predict(domain_frame(0.0))
        binding = f"infeasible even at r_d=0: general loss would reach {_percent(curve[0], general_before)}"
        warnings = beyond("general", general, general_frame(0.0))
        return TradeOff(None, None, None, {}, binding, warnings)

    last = inside[-1]
    if last == len(GRID) - 1:
        r_d, binding = 1.0, "nothing: all-domain is within tolerance"
    else:
        bracket = (GRID[last], GRID[last + 1])
        r_d = float(root_scalar(lambda r: general.predict(general_frame(r))[0] - cap, bracket=bracket).root)
        binding = f"general loss reaches {_percent(cap, general_before)}"

    ratios, infeasible = _drawn(general, general_frame(GRID), curve, np.array([cap]), general_spread)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])

    at = {"general": general_frame(r_d), "domain": domain_frame(r_d)}
    fits = {"general": (general, general_spread), "domain": (domain, domain_spread)}
    predicted, warnings = {}, []
    for name, (fit, spread) in fits.items():
        bottom, top = fit.predict_interval(at[name], level, spread)
        predicted[name] = (float(fit.predict(at[name])[0]), float(bottom[0]), float(top[0]))
        warnings += beyond(name, fit, at[name])
    if infeasible.any():
        warnings.append(f"general: with a probability of {infeasible.mean():.0%} no ratio is feasible, not even r_d=0")
    return TradeOff(r_d, min(float(low), r_d), max(float(high), r_d), predicted, binding, warnings)


@dataclass(frozen=True)
class TradeOffs:
    """The answers of `trade_offs`, one a tolerance.

    `domain_ratio`, `low`, `high`: arrays (n,), NaN where no ratio keeps the general loss within the tolerance.
    `predicted`: "general" and "domain" -> array (3, n + m) of loss, low and high in nats per token, first at those
    ratios, then at the m ratios asked for.
    """

    domain_ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    predicted: dict[str, np.ndarray]


def trade_offs(
    general: Fit | LawAverage,
    domain: Fit | LawAverage,
    N: float,
    D: float,
    tolerances: np.ndarray,
    general_before: float,
    ratios: np.ndarray,
    *,
    general_at: Mapping[str, float],
    domain_at: Mapping[str, float],
    general_spread: np.ndarray | None = None,
    domain_spread: np.ndarray | None = None,
) -> TradeOffs:
    """`trade_off` at many tolerances (n,) at once, and the losses at further domain ratios (m,).

    The other parameters are those of `trade_off`, with 90% intervals. Raises PointsError for columns that a law reads
    and nobody gave.
    """

    def at(fit: Fit | LawAverage, name: str, r_d: np.ndarray) -> pd.DataFrame:
        r, columns = (1 - r_d, general_at) if name == "general" else (r_d, domain_at)
        return _frame(fit, N, D, r, columns, name)

    caps = general_before * (1 + np.asarray(tolerances, float))
    grid = at(general, "general", GRID)
    curve = general.predict(grid)
    (r_d,), (infeasible,) = _crossings(curve[None], caps[None])
    cell = np.clip(np.searchsorted(GRID, r_d, "right") - 1, 0, len(GRID) - 2)
    slope = (curve[cell + 1] - curve[cell]) / (GRID[cell + 1] - GRID[cell])
    for _ in range(3):  # Newton steps with the slope of the grid cell
        step = (caps - general.predict(at(general, "general", r_d))) / np.where(slope > 0, slope, np.inf)
        r_d = np.clip(r_d + step, GRID[cell], GRID[cell + 1])
    drawn, _ = _drawn(general, grid, curve, caps, general_spread)
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    where = np.concatenate([r_d, ratios])
    predicted = {}
    for name, fit, spread in (("general", general, general_spread), ("domain", domain, domain_spread)):
        frame = at(fit, name, where)
        predicted[name] = np.array([fit.predict(frame), *fit.predict_interval(frame, 0.9, spread)])
        predicted[name][:, : len(r_d)][:, infeasible] = np.nan
    known = np.where(infeasible, np.nan, [r_d, np.minimum(low, r_d), np.maximum(high, r_d)])
    return TradeOffs(known[0], known[1], known[2], predicted)


def _drawn(
    general: Fit | LawAverage, grid: pd.DataFrame, curve: np.ndarray, caps: np.ndarray, spread: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Ratios (draws, n) at which the general loss reaches each cap (n,), and where there is none.

    `curve`: the general loss predicted on the grid. A draw is a bootstrap refit, or an error of the prediction where
    `spread` has them.
    """
    if spread is None:
        return _crossings(general.predict_draws(grid), np.tile(caps, (len(general.draws), 1)))
    curves = curve * np.exp(general.log_errors(grid, spread))
    return _crossings(curves, np.tile(caps, (len(curves), 1)))


def _frame(
    fit: Fit | LawAverage, N: float, D: float, r: np.ndarray, at: Mapping[str, float], name: str
) -> pd.DataFrame:
    return question(fit, name, {"r": r, "N": N, "D": D, **at}, f"{name}_at")


def _crossings(curves: np.ndarray, caps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last ratio (n, k) at which each curve (n, grid) is within its caps (n, k), and where (n, k) there is none."""
    # The least loss at each ratio and all above rises with the ratio, so that it can be searched.
    least = np.fmin.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    last = np.array([np.searchsorted(row, cap, "right") - 1 for row, cap in zip(least, caps, strict=True)])
    none, last = last < 0, np.maximum(last, 0)
    after = np.minimum(last + 1, len(GRID) - 1)
    rows = np.arange(len(curves))[:, None]
    rise = curves[rows, after] - curves[rows, last]
    part = np.divide(caps - curves[rows, last], rise, out=np.zeros(caps.shape), where=rise > 0)
    return np.where(none, 0.0, GRID[last] + part * (GRID[after] - GRID[last])), none


def _percent(loss: float, before: float) -> str:
    return f"{loss / before - 1:+.1%}"
