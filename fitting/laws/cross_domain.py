"""Cross-domain D-CPT law: one fit for many domains, which differ in how learnable they are (K).

K comes from the first steps of a run: k1, the loss before training; k2, what the first 5,000 steps gain; k3,
the mean curvature of the first 11,000. Scaling the weights of K and F together changes
nothing, so the first weight is 1.
"""

from dataclasses import replace

import numpy as np

from fitting.laws.dcpt import (
    DCPT_CONVEX,
    LINEAR,
    dcpt_basis,
    dcpt_cone,
    dcpt_cone_derivatives,
    dcpt_constants,
    dcpt_slopes,
)
from fitting.laws.law import Columns, Cone, Law, Parameter, Slopes, Solving, exponent

_FORMS = {
    "cross-domain-k1": (r"1/k_1", ("k1",), ()),
    "cross-domain-k2": (r"k_2", ("k2",), ()),
    "cross-domain-k3": (r"1/k_1 + w_2 k_2", ("k1", "k2"), ("w2",)),
    "cross-domain-k4": (r"1/k_1 + w_2 k_2 + w_3/k_3", ("k1", "k2", "k3"), ("w2", "w3")),
}

_START = {"w2": (1e-2, 1e2), "w3": (1e-5, 1e1)}
"""k1 and k2 are of the order of a nat, k3 of a hundredth: from larger w3 its term hides the others, and descents do not
come back."""


def _learnability(x: Columns, names: tuple[str, ...], weights: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """K (n,) and its derivatives in each of its weights."""
    parts = [x[name] if name == "k2" else 1 / x[name] for name in names]
    return parts[0] + sum((w * part for w, part in zip(weights, parts[1:], strict=True)), start=0.0), parts[1:]


def _padded(edges: np.ndarray, corner: float) -> np.ndarray:
    padded = np.zeros((*edges.shape[:-2], 5, 5))
    padded[..., :4, :4], padded[..., 4, 4] = edges, corner
    return padded


_CONE = Cone(
    lambda psi, constants: _padded(dcpt_cone(psi[:5], constants), 1.0),
    lambda psi, constants: {j: _padded(edges, 0.0) for j, edges in dcpt_cone_derivatives(psi[:5], constants).items()},
    dcpt_constants,
)


def _form(name: str) -> Law:
    equation, names, weights = _FORMS[name]

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        K, _ = _learnability(x, names, psi[6:])
        return np.column_stack([dcpt_basis(x, psi[:5]), np.exp(-psi[5] * np.log(K))])

    def slopes(x: Columns, psi: np.ndarray, columns: np.ndarray) -> Slopes:
        K, parts = _learnability(x, names, psi[6:])
        of_K = {(4, 5): -np.log(K) * columns[:, 4]}
        of_weights = {(4, 6 + j): -psi[5] / K * part * columns[:, 4] for j, part in enumerate(parts)}
        return dcpt_slopes(x, psi[:5], columns) | of_K | of_weights

    return Law(
        name=name,
        equation=r"L = E + A\,N^{-\alpha} + B\,r^{\eta} D^{-\beta} + C\,(r+\epsilon)^{-\gamma} + F\,K^{-\mu},"
        rf"\quad K = {equation}",
        source="Que et al. 2024, arXiv:2406.01375, eq. 7-9, 12, 57, 58",
        parameters=(
            *LINEAR,
            Parameter("F", "nats per token, at K = 1"),
            *DCPT_CONVEX.nonlinear,
            replace(exponent("mu", "K", high=10.0), start=(0.1, 10.0)),
            *(Parameter(w, "none", 1e-6, 1e6, linear=False, start=_START[w], scale="log") for w in weights),
        ),
        columns=("N", "D", "r", *names),
        varies={"N": "alpha", "D": "beta", "r": "gamma", names[0]: "mu"},
        positive=("D",),
        basis=basis,
        slopes=slopes,
        cone=_CONE,
        solving=Solving(rugged=True),
        at_once=True,
    )


CROSS_DOMAIN = tuple(_form(name) for name in _FORMS)
