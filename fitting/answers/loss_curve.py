"""The predicted loss at every step of a schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fitting.answers.answer import question
from fitting.fitted import Fit
from fitting.points import PointsError
from fitting.schedule import DECAY, ROOT, SQUARE, UNIT, areas, areas_of_powers, lifted

BLOCK = 1000
"""Steps whose intervals are drawn at once: ten errors for each bootstrap draw would fill the memory."""
Rates = np.ndarray | list[float] | float
"""Learning rates (steps,), one a step, or one number: a constant rate without end."""


def loss_curve(
    fit: Fit,
    rates,
    *,
    before: float = 0.0,
    pretrain=None,
    at: Mapping[str, float] | None = None,
    tokens_a_step: float | None = None,
    decay: float = DECAY,
) -> pd.DataFrame:
    """The loss that a fit predicts at every step of a run, with its interval.

    Parameters: `rates` (steps,), raw learning rates, one a step; `before`, the rate that the run starts from (the last
    of pre-training; 0 where unknown); `pretrain` (steps,), the rates of pre-training, from which s1_pretrain and
    s2_pretrain come; `at`, further columns that the law reads, the same at every step (r, rho, N, loss_before);
    `tokens_a_step`, billions, for a law that reads D. `decay`: lambda of S2 where the fit has none of its own; a fit
    with lambda computes S2 anew for each of its bootstrap draws.

    Returns a frame, one row a step: step, s1, s2, loss, low, high (NaN without bootstrap draws). It begins at step
    0, before the first update, where the law has a value there, and else at step 1.

    Raises PointsError for rates that are not a finite one-dimensional array, and missing columns.

    Source: Wang et al., ICML 2025, eq. 4.
    """
    rates = _checked(rates)
    fixed: dict[str, float | np.ndarray] = dict(at or {})
    step = np.arange(len(rates) + 1)
    if tokens_a_step is not None:
        if not tokens_a_step > 0:
            raise PointsError(f"tokens_a_step = {tokens_a_step:g} must be above 0, in billions of tokens")
        fixed["D"] = tokens_a_step * step
    course = Course(fit, rates, before, pretrain, fixed, decay)
    walked = course.areas(step, fit.params)
    first = {name: np.ravel(values)[0] for name, values in {**walked, **fixed}.items()}
    if any(first.get(name) == 0 for name in fit.equation.positive):
        step = step[1:]
        course = replace(course, at={name: np.asarray(v)[1:] if np.ndim(v) else v for name, v in fixed.items()})
    loss, draws = course.losses(step)
    low, high = np.full((2, len(step)), np.nan)
    if len(draws):
        for start in range(0, len(step), BLOCK):
            part = slice(start, start + BLOCK)
            low[part], high[part] = fit.measured_interval(draws[:, part])
    own = {name: walked[name][len(walked[name]) - len(step) :] for name in ("s1", "s2")}
    return pd.DataFrame({"step": step, **own, "loss": loss, "low": low, "high": high})


@dataclass(frozen=True, eq=False)
class Course:
    """A fit along a run; the fields as in `loss_curve`, but that the rates may be one number."""

    fit: Fit
    rates: Rates
    before: float
    pretrain: np.ndarray | None
    at: Mapping[str, Any]
    decay: float

    def losses(self, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Loss (n,) at steps (n,), and (draws, n) by each bootstrap refit with its own lambda."""
        fit, law, frame = self.fit, self.fit.equation, self.frame(step)
        loss = fit.predict(frame)
        if not len(fit.draws):
            return loss, np.zeros((0, len(loss)))
        if "lambda" not in fit.params:
            return loss, fit.predict_draws(frame)
        draws = np.empty((len(fit.draws), len(loss)))
        for i, params in enumerate(fit.param_draws):
            row = self.frame(step, params)
            draws[i] = law.loss({name: row[name].to_numpy() for name in law.columns}, params)
        return loss, draws

    def frame(self, step: np.ndarray, params: Mapping[str, float] | None = None) -> pd.DataFrame:
        """The columns of the fit's law at steps (n,), a row a step, at the lambda of the fit or of other parameters."""
        areas = self.areas(step, self.fit.params if params is None else params)
        return question(self.fit, "fitted", {**areas, **self.at})

    def areas(self, step: np.ndarray, params: Mapping[str, float]) -> dict[str, Any]:
        """s1, s2, s1_root and s2_square (n,) at steps (n,), which may be infinite at a constant rate.

        And s1_pretrain and s2_pretrain, where the rates of pre-training are known.
        """
        decay, rate_power = params.get("lambda", self.decay), self.fit.equation.s2.rate_power
        before = self.before
        if np.ndim(self.rates) == 0:
            rate = float(self.rates)  # pyright: ignore[reportArgumentType]
            remembered = (1 - decay ** np.asarray(step, dtype=float)) / (1 - decay)
            squares = (before / UNIT) ** SQUARE - (rate / UNIT) ** SQUARE
            found = {"s1": rate * step, "s2": rate**rate_power * (before - rate) * remembered}
            found |= {"s1_root": (rate / UNIT) ** ROOT * step, "s2_square": squares * remembered}
        else:
            each = (*areas(self.rates, decay, before, rate_power), *areas_of_powers(self.rates, decay, before))
            names = ("s1", "s2", "s1_root", "s2_square")
            found = {name: np.concatenate([[0.0], one])[step] for name, one in zip(names, each, strict=True)}
        return found if self.pretrain is None else {**found, **pretraining_areas(self.pretrain, decay, rate_power)}


def pretraining_areas(pretrain, decay: float, rate_power: float = 0.0) -> dict[str, float]:
    """s1_pretrain and s2_pretrain of the rates of a pre-training; its warm-up counts in S1 and not in S2."""
    rates = _checked(pretrain)
    walked = lifted(rates)
    s2 = areas(walked, decay, float(walked[0]), rate_power)[1]
    return {"s1_pretrain": float(rates.sum()), "s2_pretrain": float(s2[-1])}


def _checked(rates) -> np.ndarray:
    rates = np.asarray(rates, dtype=float)
    if rates.ndim != 1 or not len(rates) or not np.isfinite(rates).all() or (rates < 0).any():
        raise PointsError("learning rates must be a one-dimensional array of finite numbers, 0 or more, one a step")
    return rates
