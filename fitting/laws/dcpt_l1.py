"""D-CPT law, parameterization L1: Chinchilla with a term of its own for the replay ratio."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, Slopes, exponent, power, share


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, gamma, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    return np.array([np.ones_like(N), power(N, -alpha), power(D, -beta), power(r + eps, -gamma)]).T


def _slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, _, gamma, eps = psi
    r = x["r"]
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(x["D"]) * basis[:, 2],
        (3, 2): -np.log(r + eps) * basis[:, 3],
        (3, 3): -gamma / (r + eps) * basis[:, 3],
    }


DCPT_L1 = Law(
    name="dcpt-l1",
    equation=r"L = E + A\,N^{-\alpha} + B\,D^{-\beta} + C\,(r+\epsilon)^{-\gamma}",
    source="Que et al. 2024, arXiv:2406.01375, table 1, L1",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at D = 1"),
        Parameter("C", "nats per token, at r + eps = 1"),
        exponent("alpha", "N"),
        exponent("beta", "D"),
        exponent("gamma", "r + eps"),
        share("eps"),
    ),
    columns=("N", "D", "r"),
    varies={"N": "alpha", "D": "beta", "r": "gamma"},
    positive=("D",),
    basis=_basis,
    slopes=_slopes,
)
