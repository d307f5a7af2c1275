"""D-CPT law, parameterization L1: Chinchilla with a term of its own for the replay ratio."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, gamma, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    return np.column_stack([np.ones_like(N), N**-alpha, D**-beta, (r + eps) ** -gamma])


DCPT_L1 = Law(
    name="dcpt-l1",
    source="Que et al. 2024, arXiv:2406.01375, table 1, L1",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at D = 1"),
        Parameter("C", "nats per token, at r + eps = 1"),
        Parameter("alpha", "exponent of N", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("beta", "exponent of D", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("gamma", "exponent of r + eps", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("eps", "share", 1e-4, 1.0, linear=False, start=(0.01, 0.5), scale="log"),
    ),
    columns=("N", "D", "r"),
    varies=("N", "D", "r"),
    basis=_basis,
)
