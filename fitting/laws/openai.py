"""OpenAI's law: loss from model size and tokens, with one exponent around both.

The printed form is linear in none of its parameters. With A = Nc^aN and d = Dc / Nc^(aN/aD) it has an
amplitude, A, which is what is fitted; `printed` gives Nc and Dc.
"""

from collections.abc import Mapping

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, exponent


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    aN, aD, d = psi
    # aN / aD is in the hundreds within the bounds, and N, in billions, may be 1e-5: in logarithms nothing overflows.
    return np.exp(aD * np.logaddexp(-aN / aD * np.log(x["N"]), np.log(d) - np.log(x["D"])))[:, None]


def _printed(params: Mapping[str, float]) -> dict[str, float]:
    aN, aD = params["aN"], params["aD"]
    return {"Nc": params["A"] ** (1 / aN), "aN": aN, "Dc": params["d"] * params["A"] ** (1 / aD), "aD": aD}


OPENAI = Law(
    name="openai",
    equation=r"L = \left[(N_c/N)^{a_N/a_D} + D_c/D\right]^{a_D}",
    source="Kaplan et al. 2020, arXiv:2001.08361, eq. 1.5; Que et al. 2024, arXiv:2406.01375, eq. 13",
    parameters=(
        Parameter("A", "nats per token, at N = 1 and D without end: Nc^aN"),
        exponent("aN", "N"),
        exponent("aD", "D"),
        Parameter("d", "D at N = 1: Dc / Nc^(aN/aD)", 1e-8, 1e8, linear=False, start=(1e-3, 1e3), scale="log"),
    ),
    columns=("N", "D"),
    varies={"N": "aN", "D": "aD"},
    positive=("D",),
    basis=_basis,
    at_once=True,
    printed=_printed,
)
