"""D-CPT law, parameterization L5: a token of general text is worth a fixed number of domain tokens, sigma in all."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, Slopes, exponent, power


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, sigma = psi
    N, D, r = x["N"], x["D"], x["r"]
    return np.array([np.ones_like(N), power(N, -alpha), power(r * D + (1 - r) * sigma, -beta)]).T


def _slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, beta, sigma = psi
    effective = x["r"] * x["D"] + (1 - x["r"]) * sigma
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(effective) * basis[:, 2],
        (2, 2): -beta * (1 - x["r"]) / effective * basis[:, 2],
    }


DCPT_L5 = Law(
    name="dcpt-l5",
    equation=r"L = E + A\,N^{-\alpha} + B\,\left(r D + (1-r)\sigma\right)^{-\beta}",
    source="Que et al. 2024, arXiv:2406.01375, table 1, L5",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at one billion effective tokens"),
        exponent("alpha", "N"),
        exponent("beta", "effective tokens"),
        Parameter("sigma", "billions of tokens", 1e-8, 1e4, linear=False, start=(1e-4, 10.0), scale="log"),
    ),
    columns=("N", "D", "r"),
    varies={"N": "alpha", "D": "beta", "r": "sigma"},
    positive=("D",),
    basis=_basis,
    slopes=_slopes,
)
