"""Learning dynamics: pre-training and continual pre-training as one curve, with a shift to another corpus.

Points of pre-training (s1 = s2 = 0) and of continual pre-training are fitted together, one fit a validation
corpus. B is above 0 on the corpus of pre-training, which is forgotten, and below 0 on the new one; with replay (eq. 8)
that holds of the whole shift, since a2 has either sign and B takes it.
"""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from fitting.laws.law import (
    AnnealingArea,
    Basis,
    Columns,
    Law,
    Parameter,
    Slopes,
    Solving,
    StudyPoints,
    exponent,
    power,
)

_L0 = Parameter("L0", "nats per token")
_A = Parameter("A", "nats per token, at S1 = 1")
_C1 = Parameter("C1", "nats per token and unit of S2 of pre-training")
_C2 = Parameter("C2", "nats per token and unit of S2")
_B = Parameter("B", "nats per token", low=-inf)
_ALPHA = exponent("alpha", "S1")
_E = Parameter("E", "per unit of S1", 1e-4, 1e8, linear=False, start=(1e-1, 1e4), scale="log")
_BETA = exponent("beta", "1 + E S1")


def _trunk(x: Columns, alpha: float) -> np.ndarray:
    return power(x["s1_pretrain"] + x["s1"], -alpha)


def shift(x: Columns, E: float, beta: float) -> np.ndarray:
    """Progress of the distribution shift (n,): 0 before the first step, 1 in the limit."""
    return -np.expm1(-beta * np.log1p(E * x["s1"]))


def signed_power(values: np.ndarray, exponent: float) -> np.ndarray:
    """|v|^exponent with the sign of v: a warm-up makes S2 negative."""
    return np.sign(values) * np.abs(values) ** exponent


def _plain(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, E, beta = psi
    one = np.ones_like(x["s1"])
    return np.column_stack([one, _trunk(x, alpha), -x["s2_pretrain"], -x["s2"], shift(x, E, beta)])


def _plain_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    alpha, E, beta = psi[:3]
    area, minus = x["s1_pretrain"] + x["s1"], -np.ones(len(basis))
    steps = np.log1p(E * x["s1"])
    left = np.exp(-beta * steps)
    return {
        (1, 0): -np.log(area) * basis[:, 1],
        (1, "s1_pretrain"): -alpha / area * basis[:, 1],
        (2, "s2_pretrain"): minus,
        (3, "s2"): minus,
        (4, 1): beta * x["s1"] * left / (1 + E * x["s1"]),
        (4, 2): steps * left,
    }


def _size(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, E, beta, g1, g2, g3 = psi
    N = x["N"]
    s2_pretrain, s2 = x["s2_pretrain"] * power(N, g1), x["s2"] * power(N, g2)
    one = np.ones_like(N)
    return np.column_stack([one, _trunk(x, alpha), -s2_pretrain, -s2, shift(x, E, beta), power(N, -g3)])


def _size_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    N, log_size = x["N"], np.log(x["N"])
    return {
        **_plain_slopes(x, psi, basis),
        (2, "s2_pretrain"): -power(N, psi[3]),
        (3, "s2"): -power(N, psi[4]),
        (2, 3): log_size * basis[:, 2],
        (3, 4): log_size * basis[:, 3],
        (5, 5): -log_size * basis[:, 5],
    }


def _replayed(x: Columns, psi: np.ndarray, of_shift: np.ndarray) -> np.ndarray:
    columns = _plain(x, psi[:3])
    columns[:, 3] *= np.exp(psi[3] * x["r"])
    columns[:, 4] *= of_shift
    return columns


def _off_zero(a2: float) -> float:
    return a2 if abs(a2) > 1e-9 else 1e-9


def _unit_shift(side: int) -> Solving:
    """Coefficients by which the shift is 1 at r = 0 (side -1), or at r = 1 (side 1); a2 can then pass through 0."""
    return Solving(amplitudes=lambda psi: np.array([1.0, 1.0, 1.0, 1.0, side / np.expm1(side * _off_zero(psi[4]))]))


def _power(x: Columns, psi: np.ndarray) -> np.ndarray:
    columns = _plain(x, psi[:3])
    columns[:, 2] = -signed_power(x["s2_pretrain"], psi[3])
    columns[:, 3] = -signed_power(x["s2"], psi[4])
    return columns


def _power_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    slopes = _plain_slopes(x, psi, basis)
    for k, j, name in ((2, 3, "s2_pretrain"), (3, 4, "s2")):
        size = np.abs(x[name])
        # At no area nothing depends on the power, nor, before the first step, on lambda.
        there = np.where(size > 0, size, 1.0)
        slopes[k, j] = np.log(there) * basis[:, k]
        slopes[k, name] = np.where(size > 0, -psi[j] * there ** (psi[j] - 1), 0.0)
    return slopes


def _law(
    name: str,
    equation: str,
    number: str,
    basis: Basis,
    linear: tuple[Parameter, ...] = (),
    nonlinear: tuple[Parameter, ...] = (),
    varies: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> Law:
    return Law(
        name=name,
        equation=equation,
        source=f"Wang et al., ICML 2025, {number}",
        parameters=(_L0, _A, _C1, _C2, _B, *linear, _ALPHA, _E, _BETA, *nonlinear),
        columns=("s1_pretrain", "s2_pretrain", "s1", "s2", *varies),
        varies={"s1": "E", **varies},
        positive=("s1_pretrain",),
        basis=basis,
        at_once="solving" not in more,
        **more,
    )


def _size_power(name: str, of: str) -> Parameter:
    return Parameter(name, f"exponent of N in {of}", -2.0, 2.0, linear=False, start=(-0.3, 0.5))


_START = r"L = L_0 + A\,(S_1^{pt}+S_1)^{-\alpha}"
_SHIFT = r"B\left(1-(1+E S_1)^{-\beta}\right)"
_A1 = Parameter("a1", "per unit of r, in the term of S2", -5.0, 5.0, linear=False, start=(-1.0, 1.0))
_A2 = Parameter("a2", "per unit of r, in the shift", -30.0, 30.0, linear=False, start=(-10.0, 10.0))
_ZETAS = tuple(
    Parameter(name, f"exponent of {of}", 0.05, 3.0, linear=False, start=(0.5, 1.5))
    for name, of in (("zeta1", "S2 of pre-training"), ("zeta2", "S2"))
)

DYNAMICS = (
    _law("dynamics", rf"{_START} - C_1 S_2^{{pt}} - C_2 S_2 + {_SHIFT}", "eq. 4", _plain, slopes=_plain_slopes),
    _law(
        "dynamics-size",
        rf"{_START} - C_1 S_2^{{pt}} N^{{g_1}} - C_2 S_2 N^{{g_2}} + F N^{{-g_3}} + {_SHIFT}",
        "eq. 7",
        _size,
        slopes=_size_slopes,
        linear=(Parameter("F", "nats per token, at N = 1"),),
        nonlinear=(
            _size_power("g1", "the term of S2 of pre-training"),
            _size_power("g2", "the term of S2"),
            exponent("g3", "N"),
        ),
        varies={"N": "g3"},
    ),
    _law(
        "dynamics-replay",
        rf"{_START} - C_1 S_2^{{pt}} - C_2 S_2 e^{{a_1 r}} + {_SHIFT}\left(1-e^{{-a_2 (1-r)}}\right)",
        "eq. 8, corpus of pre-training",
        lambda x, psi: _replayed(x, psi, -np.expm1(-_off_zero(psi[4]) * (1 - x["r"]))),
        nonlinear=(_A1, _A2),
        varies={"r": "a2"},
        solving=_unit_shift(-1),
        study=StudyPoints(from_step=1),
        on_domain="dynamics-replay-domain",
    ),
    _law(
        "dynamics-replay-domain",
        rf"{_START} - C_1 S_2^{{pt}} - C_2 S_2 e^{{a_1 r}} + {_SHIFT}\left(e^{{a_2 r}}-1\right)",
        "eq. 8, corpus of continual pre-training",
        lambda x, psi: _replayed(x, psi, np.expm1(_off_zero(psi[4]) * x["r"])),
        nonlinear=(_A1, _A2),
        varies={"r": "a2"},
        solving=_unit_shift(1),
    ),
    *(
        _law(
            name,
            rf"{_START} - C_1 \tilde S_2^{{pt}} - C_2 \tilde S_2 + {_SHIFT},\quad"
            rf"\tilde S_2 = \sum_i \eta_i^{{{power_of_rate}}} m_i",
            "eq. 9",
            _plain,
            slopes=_plain_slopes,
            s2=AnnealingArea(power_of_rate),
        )
        for name, power_of_rate in (("dynamics-lr-weighted", 0.1), ("dynamics-lr-weighted-0.2", 0.2))
    ),
    _law(
        "dynamics-power",
        rf"{_START} - C_1 (S_2^{{pt}})^{{\zeta_1}} - C_2 S_2^{{\zeta_2}} + {_SHIFT}",
        "eq. 10",
        _power,
        slopes=_power_slopes,
        nonlinear=_ZETAS,
    ),
)
