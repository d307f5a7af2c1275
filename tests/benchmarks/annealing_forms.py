"""Seven forms of the annealing gain, fitted to three schedules and judged on six others.

    L = L0 + A S1^-alpha - C sum_k (drop of the rate at k) G(what was walked since k)

python -m tests.benchmarks.annealing_forms (reads CPTLAW_PUBLIC_DATA; some two minutes). The forms compete by AICc on
the three training curves alone; the other six are only looked at afterwards. The multi-power law of Luo et al. 2025
(arXiv:2503.12811) is `multi-power`; as published it has a mean absolute error of .00376 on the six.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from fitting.solver.newton import huber
from tests.fitting.test_public_bars import PEAK, TEST, TRAIN, annealed

MOST_DROPS = 3000
START = (3.1, -0.6, 0.5, 6.0)
"""L0, log A, alpha, log C."""

Gain = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(shape parameters, S1 since each drop (points, drops), steps since it, rate after it over the peak) -> G."""
FORMS: dict[str, tuple[Gain, tuple[float, ...]]] = {
    "steps (lambda)": (lambda p, s, t, r: -np.expm1(-t * np.exp(p[0])), (-6.0,)),
    "rate": (lambda p, s, t, r: -np.expm1(-s * np.exp(p[0])), (2.0,)),
    "rate, by the rate after": (lambda p, s, t, r: -np.expm1(-s * np.exp(p[0]) * r ** -p[1]), (2.0, 1.0)),
    "steps, by the rate after": (lambda p, s, t, r: -np.expm1(-t * np.exp(p[0]) * r ** -p[1]), (-6.0, 0.5)),
    "power": (lambda p, s, t, r: 1 - (1 + s * np.exp(p[0])) ** -np.exp(p[1]), (3.0, -1.0)),
    "multi-power": (lambda p, s, t, r: 1 - (1 + s * np.exp(p[0]) * r ** -p[2]) ** -np.exp(p[1]), (3.0, -1.0, 0.5)),
    "rate and size of the drop": (
        lambda p, s, t, r: -np.expm1(-s * np.exp(p[0]) * r ** -p[1]) * r ** p[2],
        (2.0, 2.0, 0.0),
    ),
}


def curves(names: tuple[str, ...]) -> list[dict[str, np.ndarray]]:
    """Each schedule's points, with every drop of the rate before them (a long cosine's in groups)."""
    points, schedules = annealed(names)
    found = []
    for name, rows in points.groupby("run"):
        rates = schedules[name].rates
        drops = -np.diff(rates, prepend=PEAK)
        at = np.flatnonzero(np.abs(drops) > 1e-12)
        drops = drops[at]
        if len(at) > MOST_DROPS:
            ends = np.linspace(0, len(at), MOST_DROPS + 1).astype(int)
            drops, at = np.add.reduceat(drops, ends[:-1]), at[(ends[:-1] + ends[1:] - 1) // 2]
        walked = np.concatenate([[0.0], np.cumsum(rates)])
        step = rows["step"].to_numpy()
        past = step[:, None] > at
        found.append(
            {
                "s1": rows["s1"].to_numpy(),
                "drops": drops,
                "since": np.where(past, walked[step][:, None] - walked[at], 0.0),
                "steps": np.where(past, step[:, None] - at, 0),
                "rate": rates[at] / PEAK,
                "loss": rows["loss"].to_numpy(),
            }
        )
    return found


def predicted(gain: Gain, p: np.ndarray, curve: dict[str, np.ndarray]) -> np.ndarray:
    """Loss (points,) of a form at parameters L0, log A, alpha, log C and its shape."""
    annealed_by = gain(p[4:], curve["since"], curve["steps"], curve["rate"]) @ curve["drops"]
    return p[0] + np.exp(p[1]) * curve["s1"] ** -p[2] - np.exp(p[3]) * annealed_by


def compare() -> pd.DataFrame:
    """One row a form, best AICc first."""
    train, test = curves(TRAIN), curves(TEST)
    rows = []
    for name, (gain, shape) in FORMS.items():

        def residuals(p: np.ndarray, gain: Gain = gain) -> np.ndarray:
            return np.concatenate([np.log(predicted(gain, p, c)) - np.log(c["loss"]) for c in train])

        ends = []
        for moved in (0.0, 1.0, -1.0):
            start = np.array([*START, *shape])
            start[4] += moved
            ends.append(least_squares(residuals, start, loss="huber", f_scale=1e-3, x_scale="jac", max_nfev=300))
        p = min(ends, key=lambda end: end.cost).x
        errors = residuals(p)
        n, k = len(errors), len(p)
        rows.append(
            {
                "form": name,
                "parameters": k,
                "huber": huber(errors).sum(),
                "aicc": n * np.log(np.mean(errors**2)) + 2 * (k + 1) * n / (n - k - 2),
                "test_mae": np.mean([np.abs(predicted(gain, p, c) - c["loss"]).mean() for c in test]),
            }
        )
    return pd.DataFrame(rows).sort_values("aicc", ignore_index=True)


if __name__ == "__main__":
    print(compare().to_string(float_format=lambda value: f"{value:.6g}"))
