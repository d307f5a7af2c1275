"""Chinchilla: loss from model size and tokens, at one mixture."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, StudyPoints, exponent, power


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta = psi
    N, D = x["N"], x["D"]
    return np.column_stack([np.ones_like(N), power(N, -alpha), power(D, -beta)])


CHINCHILLA = Law(
    name="chinchilla",
    equation=r"L = E + A\,N^{-\alpha} + B\,D^{-\beta}",
    source="Hoffmann et al. 2022, arXiv:2203.15556, eq. 2; Que et al. 2024, arXiv:2406.01375, eq. 14",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at D = 1"),
        exponent("alpha", "N"),
        exponent("beta", "D"),
    ),
    columns=("N", "D"),
    varies={"N": "alpha", "D": "beta"},
    positive=("D",),
    basis=_basis,
    slopes=lambda x, psi, basis: {(1, 0): -np.log(x["N"]) * basis[:, 1], (2, 1): -np.log(x["D"]) * basis[:, 2]},
    study=StudyPoints(from_step=60),
    at_once=True,
)
