"""Closed forms of transfer-anchored: ratio of no return, inflection ratio.

The first is for a run at one constant rate that is also the last of pre-training, so that S2 = 0.
"""

from collections.abc import Mapping

import numpy as np

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
