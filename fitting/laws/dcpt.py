"""The D-CPT law (L3): more of a corpus in the mixture never hurts the loss on that corpus.

L falls with r everywhere in r <= 1, D >= D_min exactly when C >= B c0(psi), with c0 = eta (1+eps)^(gamma+1) /
(gamma D_min^beta) (eq. 26 and 40; c0 is the worst case r = 1, D = D_min). That is a cone in (B, C), so its
two edges take the place of the axes and non-negative least squares keeps the law monotone.
"""

import numpy as np

from fitting.laws.law import Columns, Constants, Law, Parameter


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, gamma, eta, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    return np.column_stack([np.ones_like(N), N**-alpha, r**eta * D**-beta, (r + eps) ** -gamma])


def _constants(x: Columns) -> dict[str, float]:
    return {"D_min": float(np.min(x["D"]))}


def _cone(psi: np.ndarray, constants: Constants) -> np.ndarray:
    _, beta, gamma, eta, eps = psi
    edges = np.eye(4)
    edges[3, 2] = eta * (1 + eps) ** (gamma + 1) / (gamma * constants["D_min"] ** beta)
    return edges


DCPT = Law(
    name="dcpt",
    source="Que et al. 2024, arXiv:2406.01375, eq. 6 (L3), monotone by eq. 26 and 40",
    parameters=(
        Parameter("E", "nats per token"),
        Parameter("A", "nats per token, at N = 1"),
        Parameter("B", "nats per token, at D = 1, r = 1"),
        Parameter("C", "nats per token, at r + eps = 1"),
        Parameter("alpha", "exponent of N", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("beta", "exponent of D", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("gamma", "exponent of r + eps", 0.01, 3.0, linear=False, start=(0.05, 1.0)),
        Parameter("eta", "exponent of r", 1.0, 10.0, linear=False, start=(1.05, 3.0)),
        Parameter("eps", "share", 1e-4, 1.0, linear=False, start=(0.01, 0.5), scale="log"),
    ),
    columns=("N", "D", "r"),
    varies=("N", "D", "r"),
    basis=_basis,
    constants=_constants,
    cone=_cone,
)
