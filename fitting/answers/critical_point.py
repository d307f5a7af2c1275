"""Critical point: where the loss turns from rising to falling, and whether it ever comes back."""

from collections.abc import Mapping

import numpy as np

from fitting.answers.answer import Answer, Status, beyond, estimate, implied, unknown_interval
from fitting.answers.loss_curve import Rates, columns_along, losses_along
from fitting.answers.transfer_closed_form import ratio_of_no_return
from fitting.answers.turning_point import SAME, columns_asked, start_rate, steps_asked
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

    Parameters: as in `turning_length`.

    `values`: step and s1 at which the loss is highest (0 where it never rises, infinite where it still rises at the
    end). For the dynamics laws also the paper's critical point: critical_loss, to which the curve that is trained
    on the new mixture alone converges, at the rate that the schedule ends with; and critical_s1_pretrain, the forward
    area of pre-training at which the loss before is at that level. With less pre-training the loss comes back, with
    more it never does; infinite where it always does. For transfer-anchored instead critical_ratio, the ratio r
    of the corpus at and below which the loss never comes back. `predicted`: highest.

    Raises PointsError as `turning_length` does.

    Source: Wang et al., ICML 2025, sec. 4.3, fig. 7c; docs/laws.md.
    """
    before, fixed = start_rate(rates, before, pretrain), dict(at or {})
    step = steps_asked(fit, rates)
    loss, draws = losses_along(fit, step, rates, before, pretrain, fixed, decay)
    drawn = fit.param_draws
    peak, peaks = _highest(step, loss[None])[0], _highest(step, draws)

    def s1(params: Mapping[str, float], t: float) -> float:
        if np.ndim(rates) == 0 or not np.isfinite(t):
            return float(t) if np.isinf(t) else float(rates) * t  # pyright: ignore[reportArgumentType]
        return float(columns_along(fit, params, np.array([int(t)]), rates, before, None, decay)["s1"][0])

    values = {
        "step": estimate(peak, peaks, level),
        "s1": estimate(s1(fit.params, peak), np.array([s1(p, t) for p, t in zip(drawn, peaks, strict=True)]), level),
    }
    if fit.law.startswith("dynamics"):
        ends = np.array([_convergence(fit, p, rates, before, pretrain, fixed, decay) for p in (fit.params, *drawn)])
        for i, name in enumerate(("critical_loss", "critical_s1_pretrain")):
            values[name] = estimate(ends[0, i], ends[1:, i], level)
    elif fit.law == "transfer-anchored":
        rhos = [p.get("rho", fixed.get("rho", np.nan)) for p in (fit.params, *drawn)]
        ratios = [ratio_of_no_return(p, rho) for p, rho in zip((fit.params, *drawn), rhos, strict=True)]
        values["critical_ratio"] = estimate(ratios[0], np.array(ratios[1:]), level)

    if peak == 0:
        status = Status("at bound", "nothing: the loss never rises above where it began")
    elif np.isinf(peak):
        status = Status("never", "the loss still rises at the end")
    else:
        status = Status("inside", "from here on the loss falls")
    shown = step[[int(np.argmax(loss))]]
    there = columns_asked(fit, shown, rates, before, pretrain, fixed, decay)
    own = draws[:, [int(np.argmax(loss))]] if len(draws) else None
    warnings = beyond("fit", fit, there) + unknown_interval("fit", fit)
    predicted = {"highest": implied(fit, there, level, log_errors, own)}
    return Answer(values, predicted, status, warnings)


def _convergence(fit, params, rates, before, pretrain, at, decay) -> tuple[float, float]:
    """The loss of a dynamics law at S1 without end, and S1 of pre-training at which the loss before equals it."""
    end = np.array([np.inf]) if np.ndim(rates) == 0 else np.array([len(rates)])
    columns = {**columns_along(fit, params, end, rates, before, pretrain, decay), **at}
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
