"""Chinchilla: loss from model size and tokens, at one mixture."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta = psi
    N, D = x["N"], x["D"]
    return np.column_stack([np.ones_like(N), N**-alpha, D**-beta])


CHINCHILLA = Law(
    name="chinchilla",
    source="Hoffmann et al. 2022, arXiv:2203.15556, eq. 2; Que et al. 2024, arXiv:2406.01375, eq. 14",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at D = 1"),
        Parameter("alpha", "exponent of N", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("beta", "exponent of D", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
    ),
    columns=("N", "D"),
    varies=("N", "D"),
    basis=_basis,
)
