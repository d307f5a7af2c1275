"""Turning length: steps until the loss that continual pre-training raises is back at its start."""

from collections.abc import Mapping

import numpy as np

from fitting.answers.answer import Answer, Status, beyond, estimate, implied, unknown_interval
from fitting.answers.loss_curve import Course, Rates
from fitting.fitted import Fit
from fitting.points import PointsError
from fitting.schedule import FORWARD

FOREVER = 1e15
"""Steps at a constant rate after which what has not happened is taken never to happen."""
SAME = 1e-12
"""Relative rounding of a loss: steps that differ by less are as good as the first."""


def turning_length(
    fit: Fit,
    rates: Rates,
    *,
    before: float | None = None,
    pretrain=None,
    at: Mapping[str, float] | None = None,
    decay: float = 0.999,
    level: float = 0.9,
    log_errors: np.ndarray | None = None,
) -> Answer:
    """The least number of steps t > 0 with L(t) <= L(0), on the corpus of pre-training as a rule.

    Parameters: as in `loss_curve`; `rates` may also be one number, a constant rate without end, up to 1e15 steps.
    `before`, the rate that the run starts from: by default the last of `pretrain`, or that constant rate itself.

    `values`: turning_length, in steps, infinite when the loss never comes back, 1 when it never rises.
    `predicted`: before, and after (at the turning length, where there is one).

    Raises PointsError for a law that has no value before the first step, and missing columns.

    Source: Wang et al., ICML 2025, sec. 4.3, fig. 7c.
    """
    course, step = course_and_steps(fit, rates, before, pretrain, at, decay)
    loss, draws = course.losses(step)
    turn = return_steps(step, loss[None])[0]
    if np.isfinite(turn):  # between two steps of the grid: the first step that is back, by halving
        low, high = step[step < turn].max(), step[step >= turn].min()
        while high - low > 1:
            middle = np.floor((low + high) / 2) if high > 1e9 else (low + high) // 2
            if course.losses(np.array([middle]))[0][0] <= loss[0] * (1 + SAME):
                high = middle
            else:
                low = middle
        turn = float(high)
    turns = np.ceil(return_steps(step, draws))
    warnings = unknown_interval("fit", fit)
    never = float(np.mean(np.isinf(turns))) if len(turns) else 0.0
    if 0 < never < 1:
        warnings.append(f"{never:.0%} of the bootstrap fits never come back")
    if np.isinf(turn):
        status = Status("never", _never(rates, loss))
        shown = np.array([0])
    else:
        status = Status("inside", "the loss is back where it began")
        if turn == 1:
            status = Status("at bound", "nothing: the loss never rises")
        shown = np.array([0, turn]) if np.ndim(rates) == 0 else np.array([0, int(turn)])
    there, drawn = course.frame(shown), course.losses(shown)[1]
    predicted = {
        name: implied(fit, there.iloc[[i]], level, log_errors, drawn[:, [i]])
        for i, name in enumerate(("before", "after")[: len(shown)])
    }
    values = {"turning_length": estimate(turn, turns, level)}
    return Answer(values, predicted, status, beyond("fit", fit, there) + warnings)


def return_steps(step: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Step at which each curve (draws, steps) is first back at its value at step 0, interpolated; infinite if never.

    >>> curves = np.array([[1.0, 3.0, 2.0, 0.0], [1.0, 2.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]])
    >>> return_steps(np.arange(4), curves).round(6)
    array([2.5, inf, 1. ])
    """
    height = curves - curves[:, :1] * (1 + SAME)
    back = height[:, 1:] <= 0
    rows, first = np.arange(len(curves)), 1 + np.argmax(back, axis=1)
    ahead, behind = height[rows, first - 1], height[rows, first]
    part = np.divide(ahead, ahead - behind, out=np.ones(len(curves)), where=(ahead > behind) & (first > 1))
    turn = step[first - 1] + part * (step[first] - step[first - 1])
    return np.where(back.any(axis=1), turn, np.inf)


def course_and_steps(
    fit: Fit, rates: Rates, before: float | None, pretrain, at: Mapping[str, float] | None, decay: float
) -> tuple[Course, np.ndarray]:
    """A fit along a run, and the steps (n,) of its curve: all of a schedule, ever fewer of a constant rate."""
    late = [name for name in fit.equation.positive if name in ("s1", "D")]
    if late:
        raise PointsError(f"the law {fit.law} has no value at {late[0]} = 0, so no loss before the run")
    if not {*FORWARD} & {*fit.equation.columns}:
        raise PointsError(f"the law {fit.law} reads no s1: fit a law of schedules such as dynamics")
    rate = 0.0 if np.ndim(rates) else float(rates)  # pyright: ignore[reportArgumentType]
    if before is None:
        before = float(pretrain[-1]) if pretrain is not None and len(pretrain) else rate
    course = Course(fit, rates, float(before), pretrain, at or {}, decay)
    if np.ndim(rates):
        return course, np.arange(np.size(rates) + 1)
    if not (np.isfinite(rate) and rate > 0):
        raise PointsError(f"rates = {rate:g}: a constant rate must be above 0")
    return course, np.unique(np.r_[np.arange(1000.0), np.round(np.geomspace(1000, FOREVER, 4000))])


def _never(rates: Rates, loss: np.ndarray) -> str:
    if np.ndim(rates):
        return f"not within the schedule's {np.size(rates)} steps: the loss ends {loss[-1] - loss[0]:+.4f} nats away"
    return f"no number of steps brings the loss back: it stays {loss[-1] - loss[0]:+.4f} nats away"
