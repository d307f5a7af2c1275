"""The transfer laws of this project: the change of the loss from before continual pre-training.

    L = before - C2 S2 + C log((rho + eps) / (r + eps)) shift(S1) - G log(1 + S1 / S1_pretrain)

The terms: annealing of the learning rate; the shift from the ratio rho of the corpus in pre-training to its ratio r in
the continual mixture; further training. `transfer-anchored` starts from the measured loss before and is
exact at S1 = 0; `transfer` fits L0 + F N^-g instead; `transfer-scaled` lets the height of the shift go with a power
of N; `transfer-rate` lets its speed depend on r; `transfer-saturating` lets it saturate.
"""

from dataclasses import replace

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, exponent, power, ratio_offset

_C2 = Parameter("C2", "nats per token and unit of S2")
_C = Parameter("C", "nats per token")
_G = Parameter("G", "nats per token")
_EPS = ratio_offset("eps", low=1e-6, start=(1e-3, 0.3))
_E = Parameter("E", "per unit of S1", 1e-4, 1e8, linear=False, start=(1e-1, 1e4), scale="log")
_SOURCE = "cptlaw (docs/transfer-law.md); the areas S1 and S2 are those of Wang et al., ICML 2025, eq. 1"
_COLUMNS = ("rho", "r", "s1", "s2", "s1_pretrain")


def _before(x: Columns, psi: np.ndarray) -> np.ndarray:
    return x["loss_before"]


def _terms(x: Columns, eps: float, shift: np.ndarray) -> np.ndarray:
    distance = np.log((x["rho"] + eps) / (x["r"] + eps))
    return np.column_stack([-x["s2"], distance * shift, -np.log1p(x["s1"] / x["s1_pretrain"])])


def _anchored(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E = psi
    return _terms(x, eps, np.log1p(E * x["s1"]))


def _scaled(x: Columns, psi: np.ndarray) -> np.ndarray:
    columns = _anchored(x, psi[:2])
    columns[:, 1] *= power(x["N"], psi[2])
    return columns


def _sized(x: Columns, psi: np.ndarray) -> np.ndarray:
    return np.column_stack([_anchored(x, psi[:2]), np.ones_like(x["N"]), power(x["N"], -psi[2])])


def _rate(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E, kappa = psi
    return _terms(x, eps, np.log1p(E * power(x["r"] + eps, kappa) * x["s1"]))


def _saturating(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E, beta = psi
    return _terms(x, eps, -np.expm1(-beta * np.log1p(E * x["s1"])))


_SHIFT = r"\log\frac{\rho+\epsilon}{r+\epsilon}\,"
_FURTHER = r" - G \log\left(1+S_1/S_1^{pt}\right)"

TRANSFER = (
    Law(
        name="transfer-anchored",
        equation=rf"L = L_{{before}} - C_2 S_2 + C {_SHIFT}\log(1+E S_1){_FURTHER}",
        source=_SOURCE,
        parameters=(_C2, _C, _G, _EPS, _E),
        columns=("loss_before", *_COLUMNS),
        varies={"r": "eps", "s1": "E"},
        basis=_anchored,
        offset=_before,
    ),
    Law(
        name="transfer",
        equation=rf"L = L_0 + F N^{{-g}} - C_2 S_2 + C {_SHIFT}\log(1+E S_1){_FURTHER}",
        source=_SOURCE,
        parameters=(
            *(_C2, _C, _G, Parameter("L0", "nats per token"), Parameter("F", "nats per token, at N = 1")),
            *(_EPS, _E, exponent("g", "N")),
        ),
        columns=(*_COLUMNS, "N"),
        varies={"r": "eps", "s1": "E", "N": "g"},
        basis=_sized,
    ),
    Law(
        name="transfer-scaled",
        equation=rf"L = L_{{before}} - C_2 S_2 + C N^{{\nu}} {_SHIFT}\log(1+E S_1){_FURTHER}",
        source=_SOURCE,
        parameters=(
            *(_C2, replace(_C, unit="nats per token, at N = 1"), _G, _EPS, _E),
            Parameter("nu", "exponent of N", -2.0, 2.0, linear=False, start=(-0.3, 0.3)),
        ),
        columns=("loss_before", *_COLUMNS, "N"),
        varies={"r": "eps", "s1": "E", "N": "nu"},
        basis=_scaled,
        offset=_before,
    ),
    Law(
        name="transfer-rate",
        equation=rf"L = L_{{before}} - C_2 S_2 + C {_SHIFT}\log\left(1+E (r+\epsilon)^{{\kappa}} S_1\right){_FURTHER}",
        source=_SOURCE,
        parameters=(
            *(_C2, _C, _G, _EPS, _E),
            Parameter("kappa", "exponent of r + eps in the rate", -3.0, 3.0, linear=False, start=(-1.0, 1.0)),
        ),
        columns=("loss_before", *_COLUMNS),
        varies={"r": "eps", "s1": "E"},
        basis=_rate,
        offset=_before,
    ),
    Law(
        name="transfer-saturating",
        equation=rf"L = L_{{before}} - C_2 S_2 + C {_SHIFT}\left(1-(1+E S_1)^{{-\beta}}\right){_FURTHER}",
        source=_SOURCE,
        parameters=(_C2, _C, _G, _EPS, _E, exponent("beta", "1 + E S1", high=5.0)),
        columns=("loss_before", *_COLUMNS),
        varies={"r": "eps", "s1": "E"},
        basis=_saturating,
        offset=_before,
    ),
)
