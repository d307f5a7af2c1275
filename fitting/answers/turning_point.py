"""When the loss that continual pre-training raises turns, when it is back at its start, and whether it ever is."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fitting.answers.answer import Answer, Status, beyond, estimate, implied, unknown_interval
from fitting.answers.loss_curve import Course, Rates
from fitting.answers.loss_potential import with_potential
from fitting.fitted import Fit
from fitting.points import PointsError
from fitting.schedule import DECAY, FORWARD

FOREVER = 1e15
"""Steps at a constant rate after which what has not happened is taken never to happen."""
HALVINGS = 10
"""Of the range of loss potentials, until it is known from which on a loss comes back."""
SAME = 1e-12
"""Relative rounding of a loss: steps that differ by less are as good as the first."""


def turning_length(
    fit: Fit,
    rates: Rates,
    *,
    before: float | None = None,
    pretrain=None,
    at: Mapping[str, float] | None = None,
    decay: float = DECAY,
) -> Answer:
    """The least number of steps t > 0 with L(t) <= L(0) again, on the corpus of pre-training as a rule.

    Where the rate first falls the loss may fall before it rises: it is back once it has risen above L(0).

    Parameters: as in `loss_curve`; `rates` may also be one number, a constant rate without end, up to 1e15 steps.
    `before`, the rate that the run starts from: by default the last of `pretrain`, or that constant rate itself.

    `values`: turning_length, in steps, infinite when the loss never comes back, 1 when it never rises.
    `predicted`: before, and after (at the turning length, where there is one).

    Raises PointsError for a law that has no value before the first step, and missing columns.

    Source: Wang et al., ICML 2025, sec. 4.4, fig. 7c.
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
        away = f"{loss[-1] - loss[0]:+.4f} nats away"
        message = f"no number of steps brings the loss back: it stays {away}"
        if np.ndim(rates):
            message = f"not within the schedule's {np.size(rates)} steps: the loss ends {away}"
        status = Status("never", message)
        shown = np.array([0])
    else:
        status = Status("inside", "the loss is back where it began")
        if turn == 1:
            status = Status("at bound", "nothing: the loss never rises")
        shown = np.array([0, turn]) if np.ndim(rates) == 0 else np.array([0, int(turn)])
    there, drawn = course.frame(shown), course.losses(shown)[1]
    predicted = {
        name: implied(fit, there.iloc[[i]], draws=drawn[:, [i]])
        for i, name in enumerate(("before", "after")[: len(shown)])
    }
    values = {"turning_length": estimate(turn, turns)}
    return Answer(values, predicted, status, beyond("fit", fit, there) + warnings)


def critical_point(
    fit: Fit, rates: Rates, *, before: float | None = None, pretrain=None, at: Mapping[str, float] | None = None
) -> Answer:
    """Where the loss turns from rising to falling, and the point of pre-training beyond which it never comes back.

    Parameters and errors: as in `turning_length`.

    `values`: step and s1 at which the loss is highest (0 where it never rises, infinite where it still rises at the
    end). For the dynamics laws also the paper's critical point: critical_loss, to which the curve that is trained on
    the new mixture alone converges, at the rate that the schedule ends with; and critical_s1_pretrain, the forward area
    of pre-training at which the loss before is at that level. With less pre-training the loss comes back, with more it
    never does; infinite where it always does; and, where `pretrain` decays, critical_loss_potential, the last rate of
    pre-training over its peak at and below which the loss never comes back: 0 where it does at any, infinite where it
    does at none. For transfer-anchored instead critical_ratio, the ratio r of the corpus at and below which the loss
    never comes back. `predicted`: highest.

    Source: Wang et al., ICML 2025, sec. 4.4, fig. 7c; docs/laws.md.
    """
    course, step = course_and_steps(fit, rates, before, pretrain, at)
    loss, draws = course.losses(step)
    drawn = fit.param_draws
    peak, peaks = _highest(step, loss[None])[0], _highest(step, draws)
    areas = np.concatenate([[0.0], np.cumsum(rates, dtype=float)]) if np.ndim(rates) else None

    def s1(t: float) -> float:
        if np.isinf(t):
            return float(t)
        return float(areas[int(t)]) if areas is not None else float(rates) * t  # pyright: ignore[reportArgumentType]

    values = {"step": estimate(peak, peaks), "s1": estimate(s1(peak), np.array([s1(t) for t in peaks]))}
    if fit.law.startswith("dynamics"):
        ends = np.array([_convergence(course, params) for params in (fit.params, *drawn)])
        for i, name in enumerate(("critical_loss", "critical_s1_pretrain")):
            values[name] = estimate(ends[0, i], ends[1:, i])
        if pretrain is not None and np.max(pretrain) > pretrain[-1]:
            potentials = np.array([_least_potential(course, step, params) for params in (fit.params, *drawn)])
            values["critical_loss_potential"] = estimate(potentials[0], potentials[1:])
    elif fit.law == "transfer-anchored":
        at = {"rho": np.nan, **course.at}
        ratios = [ratio_of_no_return(p, {**at, **p}["rho"]) for p in (fit.params, *drawn)]
        values["critical_ratio"] = estimate(ratios[0], np.array(ratios[1:]))

    if peak == 0:
        status = Status("at bound", "nothing: the loss never rises above where it began")
    elif np.isinf(peak):
        status = Status("never", "the loss still rises at the end")
    else:
        status = Status("inside", "from here on the loss falls")
    highest = [int(np.argmax(loss))]
    there = course.frame(step[highest])
    warnings = beyond("fit", fit, there) + unknown_interval("fit", fit)
    predicted = {"highest": implied(fit, there, draws=draws[:, highest])}
    return Answer(values, predicted, status, warnings)


def ratio_of_no_return(params: Mapping[str, float], rho: float) -> float:
    """The ratio r of the corpus of pre-training at and below which a constant rate never brings its loss back.

    For transfer-anchored: far out the loss goes as (C log((rho + eps) / (r + eps)) - G) log S1, so that it comes back
    exactly when r > (rho + eps) exp(-G / C) - eps; below 0, at any ratio.

    >>> round(ratio_of_no_return({"C": 1.0, "G": 0.6931471805599453, "eps": 0.1}, 1.0), 6)
    0.45
    """
    C, G, eps = params["C"], params["G"], params["eps"]
    return float((rho + eps) * np.exp(-G / C) - eps) if C > 0 else -eps


def return_steps(step: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Step at which each curve (draws, steps) is back at its value at step 0, interpolated.

    After it has risen above that; the first step where it never does, infinite if it never comes back.

    >>> curves = np.array([[1.0, 3.0, 2.0, 0.0], [1.0, 2.0, 2.0, 2.0], [1.0, 0.5, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    >>> return_steps(np.arange(4), curves).round(6)
    array([2.5, inf, 2.5, 1. ])
    """
    height = curves - curves[:, :1] * (1 + SAME)
    # Of a curve that never rises the first step counts, for which argmax stands.
    rise = np.argmax(height > 0, axis=1)
    back = (height[:, 1:] <= 0) & (np.arange(height.shape[1] - 1) >= rise[:, None])
    rows, first = np.arange(len(curves)), 1 + np.argmax(back, axis=1)
    ahead, behind = height[rows, first - 1], height[rows, first]
    part = np.divide(ahead, ahead - behind, out=np.ones(len(curves)), where=(ahead > behind) & (first > 1))
    turn = step[first - 1] + part * (step[first] - step[first - 1])
    return np.where(back.any(axis=1), turn, np.inf)


def course_and_steps(
    fit: Fit, rates: Rates, before: float | None, pretrain, at: Mapping[str, float] | None, decay: float = DECAY
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


def _convergence(course: Course, params: Mapping[str, float]) -> tuple[float, float]:
    """The loss of a dynamics law at S1 without end, and S1 of pre-training at which the loss before equals it."""
    fit, end = course.fit, np.array([np.size(course.rates) if np.ndim(course.rates) else np.inf])
    columns = {**course.areas(end, params), **course.at}
    x = {name: np.full(2, float(np.ravel(columns[name])[0])) for name in fit.equation.columns}
    x["s1"], x["s2"] = np.array([0.0, np.inf]), np.array([0.0, x["s2"][0]])
    start, far = fit.equation.loss(x, params)
    A, alpha = params["A"], params["alpha"]
    trunk = A * (params["s1_pretrain"] if "s1_pretrain" in params else x["s1_pretrain"][0]) ** -alpha
    rise = far - start + trunk
    return float(far), float((A / rise) ** (1 / alpha)) if rise > 0 else np.inf


def _least_potential(course: Course, step: np.ndarray, params: Mapping[str, float]) -> float:
    """The loss potential of pre-training from which on a dynamics law's loss comes back; 0: any, infinite: none."""
    assert course.pretrain is not None
    pretrain, peak = course.pretrain, float(np.max(course.pretrain))
    step = step[np.unique(np.r_[0, np.geomspace(1, len(step) - 1, 300).astype(int)])]

    def comes_back(potential: float) -> bool:
        past = with_potential(pretrain, potential)
        row = replace(course, pretrain=past, before=potential * peak).frame(step, params)
        loss = course.fit.equation.loss({name: row[name].to_numpy() for name in course.fit.equation.columns}, params)
        return bool(np.isfinite(return_steps(step, loss[None])[0]))

    if comes_back(0.0) or not comes_back(1.0):
        return 0.0 if comes_back(0.0) else np.inf
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if comes_back(middle) else (middle, high)
    return high


def _highest(step: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """The step at which each curve is highest: 0 if it never rises, infinite if it is highest at its end."""
    if not len(curves):
        return np.zeros(0)
    at = np.argmax(curves - SAME * np.abs(curves) * (np.arange(len(step)) > 0), axis=1)
    return np.where(at == len(step) - 1, np.inf, step[at].astype(float))
