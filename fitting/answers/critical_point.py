"""Critical point: where the loss turns from rising to falling, and whether it ever comes back."""

from collections.abc import Mapping

import numpy as np

from fitting.answers.answer import Answer, Status, beyond, estimate, implied, unknown_interval
from fitting.answers.loss_curve import Course, Rates
from fitting.answers.transfer_closed_form import ratio_of_no_return
from fitting.answers.turning_point import SAME, course_and_steps
from fitting.fitted import Fit


def critical_point(
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
    """Where the loss turns from rising to falling, and the point of pre-training beyond which it never comes back.

    Parameters and errors: as in `turning_length`.

    `values`: step and s1 at which the loss is highest (0 where it never rises, infinite where it still rises at the
    end). For the dynamics laws also the paper's critical point: critical_loss, to which the curve that is trained on
    the new mixture alone converges, at the rate that the schedule ends with; and critical_s1_pretrain, the forward area
    of pre-training at which the loss before is at that level. With less pre-training the loss comes back, with more it
    never does; infinite where it always does. For transfer-anchored instead critical_ratio, the ratio r of the corpus
    at and below which the loss never comes back. `predicted`: highest.

    Source: Wang et al., ICML 2025, sec. 4.3, fig. 7c; docs/laws.md.
    """
    course, step = course_and_steps(fit, rates, before, pretrain, at, decay)
    loss, draws = course.losses(step)
    drawn = fit.param_draws
    peak, peaks = _highest(step, loss[None])[0], _highest(step, draws)
    areas = np.concatenate([[0.0], np.cumsum(rates, dtype=float)]) if np.ndim(rates) else None

    def s1(t: float) -> float:
        if np.isinf(t):
            return float(t)
        return float(areas[int(t)]) if areas is not None else float(rates) * t  # pyright: ignore[reportArgumentType]

    values = {
        "step": estimate(peak, peaks, level),
        "s1": estimate(s1(peak), np.array([s1(t) for t in peaks]), level),
    }
    if fit.law.startswith("dynamics"):
        ends = np.array([_convergence(course, params) for params in (fit.params, *drawn)])
        for i, name in enumerate(("critical_loss", "critical_s1_pretrain")):
            values[name] = estimate(ends[0, i], ends[1:, i], level)
    elif fit.law == "transfer-anchored":
        at = {"rho": np.nan, **course.at}
        ratios = [ratio_of_no_return(p, {**at, **p}["rho"]) for p in (fit.params, *drawn)]
        values["critical_ratio"] = estimate(ratios[0], np.array(ratios[1:]), level)

    if peak == 0:
        status = Status("at bound", "nothing: the loss never rises above where it began")
    elif np.isinf(peak):
        status = Status("never", "the loss still rises at the end")
    else:
        status = Status("inside", "from here on the loss falls")
    highest = [int(np.argmax(loss))]
    there = course.frame(step[highest])
    warnings = beyond("fit", fit, there) + unknown_interval("fit", fit)
    predicted = {"highest": implied(fit, there, level, log_errors, draws[:, highest])}
    return Answer(values, predicted, status, warnings)


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


def _highest(step: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """The step at which each curve is highest: 0 if it never rises, infinite if it is highest at its end."""
    if not len(curves):
        return np.zeros(0)
    at = np.argmax(curves - SAME * np.abs(curves) * (np.arange(len(step)) > 0), axis=1)
    return np.where(at == len(step) - 1, np.inf, step[at].astype(float))
