"""D-CPT law, parameterization L4: the ratio in two exponentials."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, Slopes, exponent, power


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, b, c = psi
    N, D, r = x["N"], x["D"], x["r"]
    of_tokens = np.exp(r * np.log(b) - beta * np.log(D))
    return np.array([np.ones_like(N), power(N, -alpha), of_tokens, np.exp(-r * np.log(c))]).T


def _slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, _, b, c = psi
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(x["D"]) * basis[:, 2],
        (2, 2): x["r"] / b * basis[:, 2],
        (3, 3): -x["r"] / c * basis[:, 3],
    }


DCPT_L4 = Law(
    name="dcpt-l4",
    equation=r"L = E + A\,N^{-\alpha} + B\,b^{r} D^{-\beta} + C\,c^{-r}",
    source="Que et al. 2024, arXiv:2406.01375, table 1, L4",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at D = 1, r = 0"),
        Parameter("C", "nats per token, at r = 0"),
        exponent("alpha", "N"),
        exponent("beta", "D"),
        Parameter("b", "base of r in the term of D", 1e-6, 1e6, linear=False, start=(1e-2, 1e2), scale="log"),
        Parameter("c", "base of r in its own term", 1.0 + 1e-6, 1e8, linear=False, start=(1.1, 1e3), scale="log"),
    ),
    columns=("N", "D", "r"),
    varies={"N": "alpha", "D": "beta", "r": "c"},
    positive=("D",),
    basis=_basis,
    slopes=_slopes,
)
