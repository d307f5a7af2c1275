"""The largest domain ratio within a tolerance on the general loss (usage 1 of the D-CPT paper)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import root_scalar

from fitting.answers.answer import Status, beyond, question
from fitting.answers.grid_minimum import last_within
from fitting.fitted import Fit
from fitting.law_average import LawAverage
from fitting.points import TAILS, PointsError

GRID = np.linspace(0.0, 1.0, 1001)
NO_RATIOS = np.zeros(0)
LEAST_INFEASIBLE = 0.05
"""Probability that no ratio is feasible from which it is said; below it is within the 90% interval."""


@dataclass(frozen=True)
class TradeOff:
    """The answer of `trade_off`.

    `domain_ratio`: that of the mixture, None when no ratio keeps the general loss within tolerance; `low`, `high`: its
    interval. `predicted`: "general" and "domain" -> (loss, low, high) in nats per token at that ratio. `status`: the
    constraint that holds. `warnings`: where the laws extrapolate.
    """

    domain_ratio: float | None
    low: float | None
    high: float | None
    predicted: dict[str, tuple[float, float, float]]
    status: Status
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
) -> TradeOff:
    """The largest domain ratio r_d at which the general loss stays within tolerance of what it was.

    Solves max r_d in [0, 1] subject to (L_g(N, D, 1 - r_d) - general_before) / general_before <= tolerance; the domain
    loss falls with r_d, so this is also where it is least.

    Parameters: `general`, `domain`, fits of the two validation corpora, or averages of laws; `N` billions of
    parameters, `D` billions of tokens of the run to be made; `tolerance`, relative (0.03 is 3%); `general_before`,
    general loss before the run in nats per token. `general_at`, `domain_at`: further columns that a law reads at the
    end of the run (s1, s2, s1_pretrain, loss_before, rho); the general loss_before is `general_before` unless said
    otherwise. The interval of the ratio is over the errors of a back test, or where none are known (`held_out`) over
    the draws of the general fit.

    Raises PointsError for missing columns, and for impossible values.

    Source: Que et al. 2024, sec. 4.3, usage 1.
    """
    if not general_before > 0:
        raise PointsError(f"general_before = {general_before:g} must be above 0: the general loss before the run")
    if not np.isfinite(tolerance):
        raise PointsError("tolerance must be a finite relative change of the general loss: 0.03 is 3%")
    at = {"general": {"loss_before": general_before, **(general_at or {})}, "domain": domain_at or {}}
    found = trade_offs(
        general, domain, N, D, np.array([tolerance]), general_before, general_at=at["general"], domain_at=at["domain"]
    )
    r_d = float(found.domain_ratio[0])
    if np.isnan(r_d):
        reached = _percent(found.general_at_0, general_before)
        message = f"infeasible even at domain ratio 0: general loss would reach {reached}"
        warnings = beyond("general", general, _frame(general, N, D, np.ones(1), at["general"], "general"))
        return TradeOff(None, None, None, {}, Status("infeasible", message), warnings)
    status = Status("at bound", "nothing: predicted within tolerance at 100%")
    if r_d < 1:
        reached = _percent(general_before * (1 + tolerance), general_before)
        status = Status("limited", f"general loss reaches {reached}")
    warnings = []
    for name, fit, r in (("general", general, 1 - r_d), ("domain", domain, r_d)):
        warnings += beyond(name, fit, _frame(fit, N, D, np.array([r]), at[name], name))
    if found.infeasible[0] >= LEAST_INFEASIBLE:
        warnings.append(
            f"general: with a probability of {found.infeasible[0]:.0%} no ratio is feasible: even without the domain "
            "its loss is above what is allowed"
        )
    predicted = {
        name: (float(loss), float(low), float(high)) for name, ((loss,), (low,), (high,)) in found.predicted.items()
    }
    return TradeOff(r_d, float(found.low[0]), float(found.high[0]), predicted, status, warnings)


@dataclass(frozen=True)
class TradeOffs:
    """The answers of `trade_offs`, one a tolerance.

    `domain_ratio`, `low`, `high`: arrays (n,), NaN where no ratio keeps the general loss within the tolerance.
    `predicted`: "general" and "domain" -> array (3, n + m) of loss, low and high in nats per token, first at those
    ratios, then at the m ratios asked for. `infeasible` (n,): probability that there is no such ratio.
    `general_at_0`: general loss at a domain ratio of 0.
    """

    domain_ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    predicted: dict[str, np.ndarray]
    infeasible: np.ndarray
    general_at_0: float


def trade_offs(
    general: Fit | LawAverage,
    domain: Fit | LawAverage,
    N: float,
    D: float,
    tolerances: np.ndarray,
    general_before: float,
    ratios: np.ndarray = NO_RATIOS,
    *,
    general_at: Mapping[str, float],
    domain_at: Mapping[str, float],
    parts: int = 0,
) -> TradeOffs:
    """`trade_off` at many tolerances (n,) at once, and the losses at further domain ratios (m,).

    `parts`: where it is not 0, losses are predicted at the ratio rounded down to one of so many parts, as a mixture is
    run. The other parameters are those of `trade_off`. Raises PointsError for columns that a law reads and `general_at`
    or `domain_at` lacks.
    """

    def at(fit: Fit | LawAverage, name: str, r_d: np.ndarray) -> pd.DataFrame:
        r, columns = (1 - r_d, general_at) if name == "general" else (r_d, domain_at)
        return _frame(fit, N, D, r, columns, name)

    def loss(r_d: np.ndarray) -> np.ndarray:
        return general.predict(at(general, "general", r_d))

    caps = general_before * (1 + np.asarray(tolerances, float))
    grid = at(general, "general", GRID)
    curve = general.predict(grid)
    r_d, possible = _solved(loss, curve, caps)
    low = high = infeasible = np.full(len(caps), np.nan)
    if possible.any():
        errors = general.errors_at(grid)
        curves = general.predict_draws(grid) if errors is None else _rising(curve, curve * np.exp(errors))
        drawn, last = last_within(GRID, curves, np.tile(caps, (len(curves), 1)))
        low, high = np.quantile(np.nan_to_num(drawn), TAILS, axis=0)
        infeasible = (last < 0).mean(axis=0)
    shown = np.append(possible, np.ones(len(ratios), dtype=bool))
    where = np.append(np.floor(r_d * parts) / parts if parts else r_d, ratios)[shown]
    predicted = {}
    for name, fit in (("general", general), ("domain", domain)):
        predicted[name] = np.full((3, len(shown)), np.nan)
        frame = at(fit, name, where if len(where) else np.zeros(1))
        losses = fit.predict(frame)
        if len(where):
            predicted[name][:, shown] = [losses, *fit.predict_interval(frame)]
    r_d, low, high = np.where(possible, [r_d, np.minimum(low, r_d), np.maximum(high, r_d)], np.nan)
    return TradeOffs(r_d, low, high, predicted, infeasible, float(curve[0]))


def _rising(curve: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Curves (k, grid) that are wrong by some error, as high as they were before wherever the predicted one rises.

    Errors are larger where nothing was fitted: that alone must not let a loss fall again beyond a ratio at which it is
    above the tolerance.
    """
    least = int(np.argmin(curve))
    return np.hstack([wrong[:, :least], np.maximum.accumulate(wrong[:, least:], axis=1)])


def _solved(
    loss: Callable[[np.ndarray], np.ndarray], curve: np.ndarray, caps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The last ratio (n,) at which the loss, `curve` on the grid, is within each cap, and where (n,) there is one."""
    (r_d,), (last,) = last_within(GRID, curve[None], caps[None])
    r_d = np.nan_to_num(r_d)
    cell = np.clip(last, 0, len(GRID) - 2)
    if len(caps) == 1:
        if 0 <= last[0] < len(GRID) - 1:
            bracket = (GRID[cell[0]], GRID[cell[0] + 1])
            r_d = np.array([root_scalar(lambda r: loss(np.array([r]))[0] - caps[0], bracket=bracket).root])
        return r_d, last >= 0
    slope = (curve[cell + 1] - curve[cell]) / (GRID[cell + 1] - GRID[cell])
    for _ in range(3):  # Newton steps with the slope of the grid cell
        step = (caps - loss(r_d)) / np.where(slope > 0, slope, np.inf)
        r_d = np.clip(r_d + step, GRID[cell], GRID[cell + 1])
    return r_d, last >= 0


def _frame(
    fit: Fit | LawAverage, N: float, D: float, r: np.ndarray, at: Mapping[str, float], name: str
) -> pd.DataFrame:
    return question(fit, name, {"r": r, "N": N, "D": D, **at}, f"{name}_at")


def _percent(loss: float, before: float) -> str:
    return f"{loss / before - 1:+z.1%}"
