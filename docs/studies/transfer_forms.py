"""Forms of the transfer law with replay, size and time, registered in CHANGELOG.md before all cells were scored.

    L = before - C2 S2 + C size log((rho + eps) / (r + eps)) shift(S1) - G rho grown log(1 + S1 / S1_pretrain)

What sets them apart from transfer-anchored:

- eps = (K S1)^-b falls as training goes on. The loss of a corpus that training has left out (r = 0) rises without end,
  and training on a little of it stops the rise at -log r once K S1 r^(1/b) passes 1. So runs at r > 0 determine the
  loss at r = 0: how fast small ratios come to rest is how far r = 0 has got.
- shift = (1 - (1 + E S1)^-beta) / beta, which is log(1 + E S1) at beta = 0.
- The gain of further training belongs to the corpus of pre-training (factor rho) and grows as N^(1/3), as the gains at
  r = rho of the code pair do.
- Size acts on what is forgotten (rho > 0) through a factor on C or, as in Bethune et al. 2025 (arXiv:2502.06042), on r.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fitting.laws import LAWS
from fitting.laws.law import Columns, Law, Parameter

MIDDLE = 3e-4
"""Billions of parameters at which a factor N^nu is 1: the middle of the trials' sizes."""
REPLAY = "transfer-replay"

_K = Parameter("K", "per unit of S1", 1e-4, 1e8, linear=False, start=(1e0, 1e6), scale="log")
_B = Parameter("b", "exponent of K S1", 0.1, 3.0, linear=False, start=(0.1, 1.5))
_BETA = Parameter("beta", "exponent of 1 + E S1", 0.0, 5.0, linear=False, start=(0.0, 1.0))
_NU = Parameter("nu", "exponent of N / 0.3 M", -2.0, 2.0, linear=False, start=(-0.3, 0.3))
_C2, _C, _G, _, _E = LAWS["transfer-anchored"].parameters

Values = dict[str, float]


def saturating(E: float, beta: float, s1: np.ndarray) -> np.ndarray:
    """(1 - (1 + E S1)^-beta) / beta (n,), the logarithm of 1 + E S1 at beta = 0."""
    steps = np.log1p(E * s1)
    return -np.expm1(-beta * steps) / beta if beta > 1e-9 else steps


def _power_of_time(x: Columns, p: Values) -> np.ndarray:
    return np.power(p["K"] * x["s1"], p.get("b", 1.0))


def _half_on_the_domain(x: Columns, p: Values) -> np.ndarray:
    return np.power(p["K"] * x["s1"], (1 + x["rho"]) / 2)


def replayed(
    name: str,
    nonlinear: tuple[Parameter, ...],
    size: str,
    progress: Callable[[Columns, Values], np.ndarray] = _power_of_time,
) -> Law:
    """A form with its terms of time and size.

    Args:
        name: of the law.
        nonlinear: its nonlinear parameters; b is 1 and beta 0 where they are not among them.
        size: "forgetting", N^nu on C of the corpus of pre-training; "both", N^nu on C of either corpus; "replay", N^nu
            on r of the corpus of pre-training, and a gain that does not depend on size.
        progress: 1 / eps (n,).
    """
    names = [p.name for p in nonlinear]

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        p = dict(zip(names, psi.tolist(), strict=True))
        rho, s1, larger = x["rho"], x["s1"], np.log(x["N"] / MIDDLE)
        factor = np.exp(p["nu"] * larger * (1.0 if size == "both" else rho))
        done = progress(x, p)
        kept = x["r"] * (factor if size == "replay" else 1.0)
        shift = np.log((1 + rho * done) / (1 + kept * done)) * saturating(p["E"], p.get("beta", 0.0), s1)
        gain = rho * np.log1p(s1 / x["s1_pretrain"])
        if size == "replay":
            return np.column_stack([-x["s2"], shift, -gain])
        return np.column_stack([-x["s2"], factor * shift, -gain * np.exp(larger / 3)])

    return Law(
        name=name,
        equation=r"L = L_{before} - C_2 S_2 + C\,\log\frac{\rho+\epsilon}{r+\epsilon}\,"
        r"\frac{1-(1+E S_1)^{-\beta}}{\beta} - \rho\,G \log\left(1+S_1/S_1^{pt}\right), \epsilon = (K S_1)^{-b}",
        source="cptlaw (docs/transfer-law.md)",
        parameters=(_C2, _C, _G, *nonlinear),
        columns=("loss_before", "rho", "r", "s1", "s2", "s1_pretrain", "N"),
        varies={"r": "K", "s1": "E", "N": "nu"},
        basis=basis,
        offset=LAWS["transfer-anchored"].offset,
    )


def _rate_sized() -> Law:
    rate = LAWS["transfer-rate"]

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        columns, larger = rate.basis(x, psi[:-1]), np.log(x["N"] / MIDDLE)
        columns[:, 1] *= np.exp(psi[-1] * larger * x["rho"])
        columns[:, 2] *= x["rho"] * np.exp(larger / 3)
        return columns

    return replace(
        rate,
        name="transfer-rate, sized",
        parameters=(*rate.parameters, _NU),
        columns=(*rate.columns, "N"),
        varies={**rate.varies, "N": "nu"},
        basis=basis,
    )


_ALL = (_K, _B, _E, _BETA, _NU)
FORMS = (
    LAWS[REPLAY],
    replayed(f"{REPLAY}, b = 1 and beta = 0", (_K, _E, _NU), "forgetting"),
    replayed(f"{REPLAY}, b by rho", (_K, _E, _BETA, _NU), "forgetting", _half_on_the_domain),
    replayed(f"{REPLAY}, b by rho, N on r", (_K, _E, _BETA, _NU), "replay", _half_on_the_domain),
    replayed(f"{REPLAY}, N on both", _ALL, "both"),
    _rate_sized(),
)
"""The six registered forms. The first was proposed, and has become a law; its N is not divided by MIDDLE, which C and G
make up for."""
