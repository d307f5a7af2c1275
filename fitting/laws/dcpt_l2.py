"""D-CPT law, parameterization L2: tokens and ratio in one bracket with an exponent around it.

What is fitted has the bracket's amplitude in front, B_l2 = B^eta and c = C / B; `printed` gives the paper's B and C.
"""

from collections.abc import Mapping

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, Slopes, exponent, power, share


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, gamma, eta, c, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    bracket = power(D, -beta) + c * power(r + eps, -gamma)
    return np.array([np.ones_like(N), power(N, -alpha), power(bracket, eta)]).T


def _slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, beta, gamma, eta, c, eps = psi
    of_tokens, of_ratio = power(x["D"], -beta), power(x["r"] + eps, -gamma)
    bracket = of_tokens + c * of_ratio
    outer = eta * basis[:, 2] / bracket
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(x["D"]) * of_tokens * outer,
        (2, 2): -np.log(x["r"] + eps) * c * of_ratio * outer,
        (2, 3): np.log(bracket) * basis[:, 2],
        (2, 4): of_ratio * outer,
        (2, 5): -gamma / (x["r"] + eps) * c * of_ratio * outer,
    }


def _printed(params: Mapping[str, float]) -> dict[str, float]:
    B = params["B^eta"] ** (1 / params["eta"])
    rest = {name: params[name] for name in ("E", "A", "alpha", "beta", "gamma", "eta", "eps")}
    return {**rest, "B": B, "C": params["C/B"] * B}


DCPT_L2 = Law(
    name="dcpt-l2",
    equation=r"L = E + A\,N^{-\alpha} + \left(B\,D^{-\beta} + C\,(r+\epsilon)^{-\gamma}\right)^{\eta}",
    source="Que et al. 2024, arXiv:2406.01375, table 1, L2",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B^eta", "nats per token"),
        exponent("alpha", "N"),
        exponent("beta", "D"),
        exponent("gamma", "r + eps"),
        Parameter("eta", "exponent of the bracket", 0.05, 10.0, linear=False, start=(0.3, 3.0)),
        Parameter("C/B", "none", 1e-6, 1e6, linear=False, start=(1e-2, 1e2), scale="log"),
        share("eps"),
    ),
    columns=("N", "D", "r"),
    varies={"N": "alpha", "D": "beta", "r": "gamma"},
    positive=("D",),
    basis=_basis,
    slopes=_slopes,
    separable=False,
    printed=_printed,
)
