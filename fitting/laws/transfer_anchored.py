"""The transfer law of this project, anchored at the measured loss before continual pre-training.

    L = loss_before - C2 S2 + C log((rho + eps) / (r + eps)) log(1 + E S1) - G log(1 + S1 / S1_pretrain)

The present learning rate and its memory; the way from the share rho of the corpus in pre-training to its
share r in the continual mixture; training that simply goes on. At S1 = 0 it is the loss before.
"""

import numpy as np

from fitting.laws.law import Columns, Law, Parameter


def _offset(x: Columns) -> np.ndarray:
    return x["loss_before"]


def _basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    eps, E = psi
    S1, S2 = x["s1"], x["s2"]
    shift = np.log((x["rho"] + eps) / (x["r"] + eps)) * np.log1p(E * S1)
    return np.column_stack([-S2, shift, -np.log1p(S1 / x["s1_pretrain"])])


TRANSFER_ANCHORED = Law(
    name="transfer-anchored",
    source="cptlaw; the areas S1 and S2 are those of Wang et al., ICML 2025, eq. 1",
    parameters=(
        Parameter("C2", "nats per token and unit of S2"),
        Parameter("C", "nats per token"),
        Parameter("G", "nats per token"),
        Parameter("eps", "share", 1e-6, 1.0, linear=False, start=(1e-3, 0.3), scale="log"),
        Parameter("E", "per unit of S1", 1e-4, 1e8, linear=False, start=(1e-1, 1e4), scale="log"),
    ),
    columns=("loss_before", "rho", "r", "s1", "s2", "s1_pretrain"),
    varies=("r", "s1"),
    basis=_basis,
    offset=_offset,
)
