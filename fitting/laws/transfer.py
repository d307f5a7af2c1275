"""The transfer laws of this project: the change of the loss from before continual pre-training.

    L = before - C2 S2 + C log((rho + eps) / (r + eps)) shift(S1) - G log(1 + S1 / S1_pretrain)

The terms: annealing of the learning rate; the shift from the ratio rho of the corpus in pre-training to its ratio r in
the continual mixture; further training. `transfer-anchored` starts from the measured loss before and is exact at
S1 = 0; `transfer` fits L0 + F N^-g instead; `transfer-scaled` lets the height of the shift go with a power of N;
`transfer-rate` lets its speed depend on r; `transfer-saturating` lets it saturate; `transfer-replay` lets eps fall as
training goes on, so that the loss at r = 0 follows from runs at r > 0.

`transfer-open` is for a model that was pre-trained elsewhere, on text of which the general corpus is no sample, so that
rho is not a number between 0 and 1: the height of the shift is free (A), and the term of further training, which one
could not tell from it at S1 far below S1_pretrain, is left out. Over a factor of eight in the peak, the shift of a
model of 135M goes with the sum of the learning rates to the power 2/3, and what a high rate costs with its square.

`transfer-switched` is for runs whose mixture changes once: the change is a shift of its own, which starts anew. In
`transfer-two-mixtures` the first mixture is remembered: what is read less is forgotten towards delta, not eps, and what
is read more is learned the more slowly, the more of it was read.
"""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from fitting.laws.law import (
    AnnealingArea,
    Basis,
    Columns,
    Law,
    Parameter,
    Slopes,
    SlopesOf,
    StudyPoints,
    exponent,
    no_offset,
    power,
    ratio_offset,
)

_C2 = Parameter("C2", "nats per token and unit of S2")
_C = Parameter("C", "nats per token")
_G = Parameter("G", "nats per token")
_EPS = ratio_offset("eps", low=1e-6, start=(1e-3, 0.3))
_E = Parameter("E", "per unit of S1", 1e-4, 1e8, linear=False, start=(1e-1, 1e4), scale="log")
_A = Parameter("A", "nats per token", low=-inf)
_BETA = Parameter("beta", "exponent of 1 + E S1; 0: a logarithm", 0.0, 5.0, linear=False, start=(0.0, 1.0))
_SOURCE = "cptlaw (docs/laws.md); the areas S1 and S2 are those of Wang et al., ICML 2025, eq. 1"
_OPEN_SOURCE = "cptlaw (docs/base-model.md); areas as Wang et al., ICML 2025, eq. 1, of powers of the rate"
_OPEN_COLUMNS = ("loss_before", "r", "s1_root", "s2_square")
_OPEN_C2 = Parameter("C2", "nats per token and unit of s2_square")
_OPEN_E = replace(_E, unit="per unit of s1_root", low=1e-6, high=1e6, start=(1e-2, 1e2))
_OPEN_S2 = AnnealingArea(lambda_prior=(0.96, 0.97))
"""Runs of few lengths hardly tell what is annealed from what is learned; on SmolLM2-135M what a high rate costs lasts
some 30 steps, on general text and three domains."""
_OPEN_SHARED = ("C2",)
"""What a high rate costs is the same on both corpora of each study."""
_STUDY = StudyPoints(from_step=5)
_ROOT, _SQUARE = r"S_1[\eta^{2/3}]", r"S_2[\eta^2]"
_COLUMNS = ("rho", "r", "s1", "s2", "s1_pretrain")
_ANCHORED_COLUMNS = ("loss_before", *_COLUMNS)


def _terms(x: Columns, eps: float, shift: np.ndarray) -> np.ndarray:
    distance = np.log((x["rho"] + eps) / (x["r"] + eps))
    return np.column_stack([-x["s2"], distance * shift, -np.log1p(x["s1"] / x["s1_pretrain"])])


def _anchored(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E = psi
    return _terms(x, eps, np.log1p(E * x["s1"]))


def _terms_slopes(x: Columns, eps: float, shift: np.ndarray, of_shift: dict[int, np.ndarray]) -> Slopes:
    """Derivatives of `_terms`; `of_shift`: number of a nonlinear parameter -> derivative (n,) of the shift."""
    rho, r, s1, past = x["rho"], x["r"], x["s1"], x["s1_pretrain"]
    distance = np.log((rho + eps) / (r + eps))
    return {
        (0, "s2"): -np.ones(len(s1)),
        (1, 0): (1 / (rho + eps) - 1 / (r + eps)) * shift,
        (1, "rho"): shift / (rho + eps),
        (2, "s1_pretrain"): s1 / (past * (past + s1)),
        **{(1, j): distance * slope for j, slope in of_shift.items()},
    }


def _anchored_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    eps, E, *_ = psi
    return _terms_slopes(x, eps, np.log1p(E * x["s1"]), {1: x["s1"] / (1 + E * x["s1"])})


def _scaled(x: Columns, psi: np.ndarray) -> np.ndarray:
    columns = _anchored(x, psi[:2])
    columns[:, 1] *= power(x["N"], psi[2])
    return columns


def _scaled_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    of_size = power(x["N"], psi[2])
    slopes = {(k, j): slope * of_size if k == 1 else slope for (k, j), slope in _anchored_slopes(x, psi, basis).items()}
    return {**slopes, (1, 2): np.log(x["N"]) * basis[:, 1]}


def _rate(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E, kappa = psi
    return _terms(x, eps, np.log1p(E * power(x["r"] + eps, kappa) * x["s1"]))


def _rate_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    eps, E, kappa = psi
    base, s1 = x["r"] + eps, x["s1"]
    rate = power(base, kappa)
    done = E * rate * s1
    of_shift = {1: rate * s1 / (1 + done), 2: np.log(base) * done / (1 + done)}
    slopes = _terms_slopes(x, eps, np.log1p(done), of_shift)
    slopes[1, 0] += np.log((x["rho"] + eps) / base) * kappa / base * done / (1 + done)
    return slopes


def _saturating(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E, beta = psi
    return _terms(x, eps, -np.expm1(-beta * np.log1p(E * x["s1"])))


def _saturating_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    eps, E, beta = psi
    steps = np.log1p(E * x["s1"])
    left = np.exp(-beta * steps)
    return _terms_slopes(x, eps, 1 - left, {1: beta * x["s1"] * left / (1 + E * x["s1"]), 2: steps * left})


def _switched(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E = psi
    columns = _terms({**x, "r": x["r_first"]}, eps, np.log1p(E * x["s1"]))
    columns[:, 1] += np.log((x["r_first"] + eps) / (x["r"] + eps)) * np.log1p(E * (x["s1"] - x["s1_first"]))
    return columns


def _two_mixtures(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E, beta, delta, eta = psi
    before, now, s1 = x["r_first"], x["r"], np.maximum(x["s1"] - x["s1_first"], 0.0)
    first = np.log((x["rho"] + eps) / (before + eps)) * _log_to_power(np.log1p(E * x["s1"]), beta)[0]
    forgotten = np.log((before + delta) / (now + delta)) * _log_to_power(np.log1p(E * s1), beta)[0]
    slower = E / (1 + before / eta)
    learned = np.log((before + eps) / (now + eps)) * _log_to_power(np.log1p(slower * s1), beta)[0]
    shift = first + np.where(now < before, forgotten, learned)
    return np.column_stack([-x["s2"], shift, -x["rho"] * np.log1p(x["s1"] / x["s1_pretrain"])])


def _log_to_power(steps: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(1 - exp(-beta steps)) / beta (n,), which is steps at beta = 0, and its derivative (n,) in beta.

    `beta`: one number, or one a point.
    """
    left = np.exp(-beta * steps)
    close = beta * steps < 1e-3  # the closed form of the derivative cancels there
    if not close.any():
        height = -np.expm1(-beta * steps) / beta
        return height, (steps * left - height) / beta
    series = steps - beta * steps**2 / 2 + beta**2 * steps**3 / 6
    of_series = -(steps**2) / 2 + beta * steps**3 / 3
    divisor = np.where(beta > 0, beta, 1.0)
    height = np.where(close, series, -np.expm1(-beta * steps) / divisor)
    return height, np.where(close, of_series, (steps * left - height) / divisor)


def _open(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E = psi
    return _open_terms(x, eps, np.log1p(E * x["s1_root"]))


def _open_saturating(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E, beta = psi
    return _open_terms(x, eps, _log_to_power(np.log1p(E * x["s1_root"]), beta)[0])


def _open_terms(x: Columns, eps: float, shift: np.ndarray) -> np.ndarray:
    return np.column_stack([-x["s2_square"], shift, -np.log(x["r"] + eps) * shift])


def _open_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    return _open_terms_slopes(x, psi[0], basis, {1: x["s1_root"] / (1 + psi[1] * x["s1_root"])})


def _open_saturating_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    eps, E, beta = psi
    steps = np.log1p(E * x["s1_root"])
    of_E = x["s1_root"] * np.exp(-(beta + 1) * steps)
    return _open_terms_slopes(x, eps, basis, {1: of_E, 2: _log_to_power(steps, beta)[1]})


def _open_terms_slopes(x: Columns, eps: float, basis: np.ndarray, of_shift: dict[int, np.ndarray]) -> Slopes:
    base = x["r"] + eps
    return {
        (0, "s2_square"): -np.ones(len(base)),
        (2, 0): -basis[:, 1] / base,
        **{(1, j): slope for j, slope in of_shift.items()},
        **{(2, j): -np.log(base) * slope for j, slope in of_shift.items()},
    }


def _replayed(x: Columns, psi: np.ndarray) -> np.ndarray:
    K, b, E, beta, nu = psi
    rho, s1, log_size = x["rho"], x["s1"], np.log(x["N"])
    done = np.power(K * s1, b)
    distance = np.log((1 + rho * done) / (1 + x["r"] * done))
    shift = np.exp(nu * rho * log_size) * distance * _log_to_power(np.log1p(E * s1), beta)[0]
    gain = rho * np.exp(log_size / 3) * np.log1p(s1 / x["s1_pretrain"])
    return np.column_stack([-x["s2"], shift, -gain])


def _replayed_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    K, b, E, beta, nu = psi
    rho, r, s1, log_size = x["rho"], x["r"], x["s1"], np.log(x["N"])
    done, steps = np.power(K * s1, b), np.log1p(E * s1)
    factor = np.exp(nu * rho * log_size)
    height, of_beta = _log_to_power(steps, beta)
    distance = np.log((1 + rho * done) / (1 + r * done))
    of_done = factor * height * done * (rho / (1 + rho * done) - r / (1 + r * done))
    past, gain = x["s1_pretrain"], np.exp(log_size / 3)
    return {
        (0, "s2"): -np.ones(len(s1)),
        (1, 0): of_done * b / K,
        (1, 1): of_done * np.log(np.where(s1 > 0, K * s1, 1.0)),
        (1, 2): factor * distance * s1 * np.exp(-(beta + 1) * steps),
        (1, 3): factor * distance * of_beta,
        (1, 4): rho * log_size * basis[:, 1],
        (1, "rho"): nu * log_size * basis[:, 1] + factor * height * done / (1 + rho * done),
        (2, "rho"): -gain * np.log1p(s1 / past),
        (2, "s1_pretrain"): rho * gain * s1 / (past * (past + s1)),
    }


_SHIFT = r"\log\frac{\rho+\epsilon}{r+\epsilon}\,"
_FURTHER = r" - G \log\left(1+S_1/S_1^{pt}\right)"

_FURTHEST = 3.0
"""Beyond it log(1 + E S1) goes on where shifts end (docs/performance.md, "How far do laws see?"). Those of base models
do not all end (docs/base-model.md, "Which law holds?")."""


def _law(
    name: str, equation: str, parameters: tuple[Parameter, ...], basis: Basis, slopes: SlopesOf | None, **more: Any
) -> Law:
    """A law with the fields that most of these have, but for those in `more`."""
    fields = {"source": _SOURCE, "columns": _ANCHORED_COLUMNS, "varies": {"r": "eps", "s1": "E"}, "study": _STUDY}
    fields |= {"parameters": parameters, "basis": basis, "slopes": slopes, "offset": lambda x, psi: x["loss_before"]}
    return Law(name=name, equation=equation, at_once=True, **(fields | more))


_OPEN: dict[str, Any] = {"varies": {"r": "eps", "s1_root": "E"}, "columns": _OPEN_COLUMNS, "source": _OPEN_SOURCE}
_OPEN |= {"s2": _OPEN_S2, "shared": _OPEN_SHARED}
_CHANGES: dict[str, Any] = {"columns": (*_ANCHORED_COLUMNS, "r_first", "s1_first")}
_CHANGES["source"] = _SOURCE.replace("laws.md", "training.md")
_AT_1 = "nats per token, at N = 1"
TRANSFER = (
    _law(
        "transfer-anchored",
        rf"L = L_{{before}} - C_2 S_2 + C {_SHIFT}\log(1+E S_1){_FURTHER}",
        (_C2, _C, _G, _EPS, _E),
        _anchored,
        _anchored_slopes,
        furthest=_FURTHEST,
    ),
    _law(
        "transfer",
        rf"L = L_0 + F N^{{-g}} - C_2 S_2 + C {_SHIFT}\log(1+E S_1){_FURTHER}",
        (_C2, _C, _G, Parameter("L0", "nats per token"), Parameter("F", _AT_1), _EPS, _E, exponent("g", "N")),
        lambda x, psi: np.column_stack([_anchored(x, psi[:2]), np.ones_like(x["N"]), power(x["N"], -psi[2])]),
        lambda x, psi, basis: {**_anchored_slopes(x, psi, basis), (4, 2): -np.log(x["N"]) * basis[:, 4]},
        columns=(*_COLUMNS, "N"),
        varies={"r": "eps", "s1": "E", "N": "g"},
        offset=no_offset,
    ),
    _law(
        "transfer-scaled",
        rf"L = L_{{before}} - C_2 S_2 + C N^{{\nu}} {_SHIFT}\log(1+E S_1){_FURTHER}",
        (
            *(_C2, replace(_C, unit=_AT_1), _G, _EPS, _E),
            Parameter("nu", "exponent of N", -2.0, 2.0, linear=False, start=(-0.3, 0.3)),
        ),
        _scaled,
        _scaled_slopes,
        columns=(*_ANCHORED_COLUMNS, "N"),
        varies={"r": "eps", "s1": "E", "N": "nu"},
        furthest=_FURTHEST,
    ),
    _law(
        "transfer-rate",
        rf"L = L_{{before}} - C_2 S_2 + C {_SHIFT}\log\left(1+E (r+\epsilon)^{{\kappa}} S_1\right){_FURTHER}",
        (
            *(_C2, _C, _G, _EPS, _E),
            Parameter("kappa", "exponent of r + eps in the rate", -3.0, 3.0, linear=False, start=(-1.0, 1.0)),
        ),
        _rate,
        _rate_slopes,
    ),
    _law(
        "transfer-saturating",
        rf"L = L_{{before}} - C_2 S_2 + C {_SHIFT}\left(1-(1+E S_1)^{{-\beta}}\right){_FURTHER}",
        (_C2, _C, _G, _EPS, _E, exponent("beta", "1 + E S1", high=5.0)),
        _saturating,
        _saturating_slopes,
    ),
    _law(
        "transfer-switched",
        r"L = L_{before} - C_2 S_2 + C \left[\log\frac{\rho+\epsilon}{r_1+\epsilon}\,\log(1+E S_1)"
        r" + \log\frac{r_1+\epsilon}{r+\epsilon}\,\log\left(1+E (S_1-S_1^a)\right)\right]"
        rf"{_FURTHER}",
        (_C2, _C, _G, _EPS, _E),
        _switched,
        None,
        study=None,
        **_CHANGES,
    ),
    _law(
        "transfer-two-mixtures",
        r"L = L_{before} - C_2 S_2 + C \left[\log\frac{\rho+\epsilon}{r_1+\epsilon}\,h(E S_1) + s\right]"
        r" - \rho\,G \log\left(1+S_1/S_1^{pt}\right),\quad h(z) = \frac{1-(1+z)^{-\beta}}{\beta},\quad s ="
        r"\begin{cases}\log\frac{r_1+\delta}{r+\delta}\,h\left(E (S_1-S_1^a)\right) & r \lt r_1\cr"
        r" \log\frac{r_1+\epsilon}{r+\epsilon}\,h\left(\frac{E}{1+r_1/\eta} (S_1-S_1^a)\right) & r \ge r_1\end{cases}",
        (
            *(_C2, _C, _G, _EPS, _E, _BETA),
            replace(ratio_offset("delta", 1e-4, (0.02, 0.8)), prior=(0.12, 0.24)),
            replace(ratio_offset("eta", 1e-4, (0.01, 0.5)), prior=(0.035, 0.07)),
        ),
        _two_mixtures,
        None,
        study=StudyPoints(from_step=2),
        **_CHANGES,
    ),
    _law(
        "transfer-open",
        rf"L = L_{{before}} - C_2 {_SQUARE} + \left(A - C \log(r+\epsilon)\right)"
        rf"\log\left(1+E\,{_ROOT}\right)",
        (_OPEN_C2, _A, _C, _EPS, _OPEN_E),
        _open,
        _open_slopes,
        nearest=_FURTHEST,
        **_OPEN,
    ),
    _law(
        "transfer-open-saturating",
        rf"L = L_{{before}} - C_2 {_SQUARE} + \left(A - C \log(r+\epsilon)\right)"
        rf"\frac{{1-\left(1+E\,{_ROOT}\right)^{{-\beta}}}}{{\beta}}",
        (_OPEN_C2, _A, _C, _EPS, _OPEN_E, _BETA),
        _open_saturating,
        _open_saturating_slopes,
        **_OPEN,
    ),
    _law(
        "transfer-replay",
        r"L = L_{before} - C_2 S_2 + C N^{\rho\nu} \log\frac{\rho+\epsilon}{r+\epsilon}\,"
        r"\frac{1-(1+E S_1)^{-\beta}}{\beta} - \rho\,G N^{1/3} \log\left(1+S_1/S_1^{pt}\right),"
        r"\quad \epsilon = (K S_1)^{-b}",
        (
            *(_C2, replace(_C, unit=_AT_1), replace(_G, unit=_AT_1)),
            Parameter("K", "per unit of S1", 1e-4, 1e8, linear=False, start=(1e0, 1e6), scale="log"),
            Parameter("b", "exponent of K S1", 0.1, 3.0, linear=False, start=(0.1, 1.5)),
            *(_E, _BETA, Parameter("nu", "exponent of N where rho = 1", -2.0, 2.0, linear=False, start=(-0.3, 0.3))),
        ),
        _replayed,
        _replayed_slopes,
        source=f"{_SOURCE}; that size acts on what is forgotten and replay stops it: Bethune et al. 2025, "
        "arXiv:2502.06042",
        columns=(*_ANCHORED_COLUMNS, "N"),
        varies={"r": "K", "s1": "E", "N": "nu"},
    ),
)
