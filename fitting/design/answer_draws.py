"""What a design is to sharpen: losses at target rows, or the answer to a question, for each draw of the parameters."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting.answers.grid_minimum import largest_within, parabola_minima
from fitting.answers.limited_data import SMALLEST_RATIO
from fitting.design.features import Features
from fitting.design.inputs import LossColumn
from fitting.points import PointsError, missing, numbers_of
from fitting.uncertainty.posterior import Posterior

OfLaw = tuple[Posterior, Features]
QUESTIONS = {
    "trade_off": ("N", "D", "tolerance", "general_before"),
    "limited_data": ("N", "domain_tokens"),
    "compute_optimal": ("flops",),
}
"""Question -> the columns of `target`, as `fitting.<question>` names them."""
MOST_TARGETS = 100
RATIOS = np.linspace(0.0, 1.0, 201)
GRID = 241


@dataclass(frozen=True, eq=False)
class Answers:
    """The answer by each draw (k, t), in the coordinate whose variance counts; `unit` (t,) turns it into its own."""

    values: np.ndarray
    unit: np.ndarray


def losses_at(target: pd.DataFrame, output: LossColumn, posteriors: list[OfLaw]) -> Answers:
    """Losses at the target rows; the variance that counts is relative, the unit nats."""
    if len(target) > MOST_TARGETS:
        target = target.iloc[np.linspace(0, len(target) - 1, MOST_TARGETS).round().astype(int)]
    values = residuals_at(target, output, posteriors)
    scale = posteriors[0][0].scale
    return Answers(values, np.full(len(target), scale) if scale else np.exp(np.median(values, axis=0)))


def residuals_at(frame: pd.DataFrame, output: LossColumn, posteriors: list[OfLaw]) -> np.ndarray:
    """Losses (k, n) of all draws at the rows of a frame, in the coordinate of the residuals."""
    parts = []
    for one, features in posteriors:
        x = output.columns(frame, one.law)
        parts.append(one.residuals(x, features(x)))
    return np.concatenate(parts)


def _on_curves(frame: pd.DataFrame, output: LossColumn, one: OfLaw) -> np.ndarray:
    """Losses (k, n) with the misfit."""
    values = residuals_at(frame, output, [one])
    return values * one[0].scale if one[0].scale else np.exp(values)


def answer_draws(question: str, target: pd.DataFrame, output: LossColumn, posteriors: list[OfLaw]) -> Answers:
    """The answer to a question by each draw: a ratio, or the logarithm of a size."""
    if line := missing(target, QUESTIONS[question]):
        raise PointsError(f"target of {question}: {line}")
    asked = numbers_of(target, QUESTIONS[question])
    rows = [target.iloc[[row]].reset_index(drop=True) for row in range(len(target))]
    answer = {"trade_off": _trade_off, "limited_data": _limited_data, "compute_optimal": _compute_optimal}[question]
    columns = []
    for number, row in enumerate(rows):
        values = {name: float(each[number]) for name, each in asked.items()}
        columns.append(np.concatenate([answer(values, row, output, one) for one in posteriors]))
    values = np.array(columns).T
    unit = np.ones(len(target)) if question != "compute_optimal" else np.exp(np.median(values, axis=0))
    return Answers(values, unit)


def _on_grid(row: pd.DataFrame, count: int, **columns: np.ndarray) -> pd.DataFrame:
    return pd.concat([row] * count, ignore_index=True).assign(**columns)


def _trade_off(asked: dict[str, float], row: pd.DataFrame, output: LossColumn, one: OfLaw) -> np.ndarray:
    """The largest domain ratio (k,) whose general loss is within the tolerance; 0 where there is none."""
    frame = _on_grid(row, len(RATIOS), r=RATIOS if output.mirrored else 1 - RATIOS)
    name = f"{output.loss}.loss_before"
    frame = frame.assign(**{name: asked["general_before"]} if name not in frame else {})
    cap = asked["general_before"] * (1 + asked["tolerance"])
    return np.nan_to_num(largest_within(RATIOS, _on_curves(frame, output, one), cap))


def _limited_data(asked: dict[str, float], row: pd.DataFrame, output: LossColumn, one: OfLaw) -> np.ndarray:
    """The domain ratio (k,) of least loss when each domain token is read once, in a run of no more than most_tokens."""
    most = float(row["most_tokens"].iloc[0]) if "most_tokens" in row else np.inf
    grid = np.geomspace(max(SMALLEST_RATIO, asked["domain_tokens"] / most), 1.0, GRID)
    frame = _on_grid(row, GRID, r=grid, D=asked["domain_tokens"] / grid)
    return parabola_minima(grid, _on_curves(frame, output, one))


def _compute_optimal(asked: dict[str, float], row: pd.DataFrame, output: LossColumn, one: OfLaw) -> np.ndarray:
    """The logarithm (k,) of the size of least loss at 6 N D = flops."""
    budget = asked["flops"] / 6e18
    grid = np.log(budget) / 2 + np.linspace(-8.0, 8.0, GRID)
    frame = _on_grid(row, GRID, N=np.exp(grid), D=budget / np.exp(grid))
    return parabola_minima(grid, _on_curves(frame, output, one))
