"""Loss of pre-training from the sum of learning rates S1 and the annealing area S2."""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, exponent, power


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    S1 = x["s1"]
    return np.column_stack([np.ones_like(S1), power(S1, -psi[0]), -x["s2"]])


ANNEALING = Law(
    name="annealing",
    equation=r"L = L_0 + A\,S_1^{-\alpha} - C\,S_2",
    source="Wang et al., ICML 2025, eq. 1; Tissue et al. 2024, arXiv:2408.11029",
    parameters=(
        Parameter("L0", "nats per token"),
        Parameter("A", "nats per token, at S1 = 1"),
        Parameter("C", "nats per token and unit of S2"),
        exponent("alpha", "S1"),
    ),
    columns=("s1", "s2"),
    varies={"s1": "alpha"},
    positive=("s1",),
    basis=_basis,
    at_once=True,
    slopes=lambda x, psi, basis: {(1, 0): -np.log(x["s1"]) * basis[:, 1], (2, "s2"): -basis[:, 0]},
)
