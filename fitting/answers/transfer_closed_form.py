"""Closed forms of transfer-anchored: turning point, ratio of no return, inflection ratio, best replay ratio.

All for a run at one constant rate that is also the last of pre-training, so that S2 = 0, or at its end whatever its
schedule, where S1 is all that matters. c(r) = C log((rho + eps) / (r + eps)) is what the shift costs.
"""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import root_scalar

Params = Mapping[str, float]


def ratio_of_no_return(params: Params, rho: float) -> float:
    """The ratio r of the corpus of pre-training at and below which a constant rate never brings its loss back.

    For transfer-anchored: far out the loss goes as (C log((rho + eps) / (r + eps)) - G) log S1, so that it comes back
    exactly when r > (rho + eps) exp(-G / C) - eps; below 0, at any ratio.

    >>> round(ratio_of_no_return({"C": 1.0, "G": 0.6931471805599453, "eps": 0.1}, 1.0), 6)
    0.45
    """
    C, G, eps = params["C"], params["G"], params["eps"]
    return float((rho + eps) * np.exp(-G / C) - eps) if C > 0 else -eps


def transfer_turn(params: Params, r: float, rho: float, s1_pretrain: float) -> tuple[float, float]:
    """S1 of the critical point and of the turning length for transfer-anchored at a constant rate, S2 = 0.

    With c = C log((rho + eps) / (r + eps)) and P = s1_pretrain the loss changes by c log(1 + E S1) - G log(1 + S1/P),
    which is highest at S1 = (c E P - G) / (E (G - c)). It is back where log(1 + E S1) c = G log(1 + S1/P): no
    closed form but for rational c/G (c/G = 1/2: S1 = P (E P - 2)), so the root is sought, between the critical
    point and P ((1 + E P)^(c/(G-c)) - 1), which lies beyond it. (0, 0) where the loss does not rise at first, infinite
    where it does not come back.

    >>> E, P = 50.0, 2.0
    >>> found = transfer_turn({"C": 0.5, "G": 1.0, "eps": 0.0, "E": E}, float(np.exp(-1)), 1.0, P)
    >>> [round(x, 6) for x in found], P * (E * P - 2)
    ([1.96, 196.0], 196.0)
    """
    E, G, eps, P = params["E"], params["G"], params["eps"], s1_pretrain
    c = params["C"] * float(np.log((rho + eps) / (r + eps)))
    if c * E * P <= G:
        return 0.0, 0.0
    if c >= G:
        return np.inf, np.inf
    peak = (c * E * P - G) / (E * (G - c))
    # in log(1 + S1/P), since S1 itself may leave the range of floats
    end = c / (G - c) * np.log1p(E * P)
    bracket = (float(np.log1p(peak / P)), float(end))
    root = root_scalar(lambda y: c * np.logaddexp(0.0, np.log(E * P) + _log_expm1(y)) - G * y, bracket=bracket).root
    return peak, float(P * np.expm1(root)) if root < 700 else np.inf


def inflection_ratio_at(params: Params, s1: float, rho: float, s1_pretrain: float) -> float:
    """The ratio r at which dL/dS1 = 0: below it the loss of the corpus rises with training, above it falls.

    r = (rho + eps) exp(-G (1 + E S1) / (C E (S1_pretrain + S1))) - eps, for rates that do not change (S2 apart);
    below 0 where the loss falls at any ratio. Growing S1 takes it from where the loss rises at first to
    `ratio_of_no_return`.

    >>> p = {"C": 1.0, "G": 1.0, "eps": 0.0, "E": 1.0}
    >>> round(inflection_ratio_at(p, 0.0, 1.0, 1 / np.log(2)), 6)
    0.5
    """
    C, G, eps, E = (params[name] for name in ("C", "G", "eps", "E"))
    if C == 0:
        return -eps
    return float((rho + eps) * np.exp(-G * (1 + E * s1) / (C * E * (s1_pretrain + s1))) - eps)


def best_replay(general: Params, domain: Params, weight: float, s1: float) -> float:
    """The replay ratio of least weight * L_general + (1 - weight) * L_domain at the end of a run of forward area S1.

    With g = weight C log(1 + E S1) of general, d = (1 - weight) C log(1 + E S1) of the domain, both losses are convex
    in the ratio, and least at (g (1 + eps_d) - d eps_g) / (g + d), or at the end of [0, 1] that is nearest.

    >>> p = {"C": 1.0, "E": 1.0, "eps": 0.0}
    >>> best_replay(p, p, 0.25, 1.0)
    0.25
    """
    g = weight * general["C"] * np.log1p(general["E"] * s1)
    d = (1 - weight) * domain["C"] * np.log1p(domain["E"] * s1)
    if g + d == 0:
        return float("nan")
    return float(np.clip((g * (1 + domain["eps"]) - d * general["eps"]) / (g + d), 0.0, 1.0))


def _log_expm1(y: float) -> float:
    return float(np.log(np.expm1(y))) if y < 30 else float(y + np.log1p(-np.exp(-y)))
