"""The D-CPT law (L3): the loss on a corpus falls with its ratio in the mixture.

L falls with r everywhere in r <= 1, D >= D_min exactly when C >= B c0(psi), with c0 = eta (1+eps)^(gamma+1) /
(gamma D_min^beta) (eq. 26 and 40; c0 is the worst case r = 1, D = D_min). That is a cone in (B, C): with its
edges in place of the axes, non-negative least squares keeps the law monotone.
"""

from dataclasses import replace

import numpy as np

from fitting.laws.law import Columns, Constants, Law, Parameter, Slopes, exponent, no_constants, power, ratio_offset


def dcpt_basis(x: Columns, psi: np.ndarray) -> np.ndarray:
    """Columns 1, N^-alpha, r^eta D^-beta, (r + eps)^-gamma, for psi = alpha, beta, gamma, eta, eps."""
    alpha, beta, gamma, eta, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    with np.errstate(divide="ignore"):
        of_r = np.exp(eta * np.log(r))
    return np.array([np.ones_like(N), power(N, -alpha), of_r * power(D, -beta), power(r + eps, -gamma)]).T


def dcpt_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    """Derivatives of `dcpt_basis`."""
    _, _, gamma, _, eps = psi
    r = x["r"]
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(x["D"]) * basis[:, 2],
        (2, 3): np.log(np.where(r > 0, r, 1.0)) * basis[:, 2],
        (3, 2): -np.log(r + eps) * basis[:, 3],
        (3, 4): -gamma / (r + eps) * basis[:, 3],
    }


def dcpt_constants(x: Columns) -> dict[str, float]:
    """The smallest D among the fitted points, from which on the law is monotone in r."""
    return {"D_min": float(np.min(x["D"]))}


def dcpt_cone(psi: np.ndarray, constants: Constants) -> np.ndarray:
    """Edges (4, 4) of the coefficients for which the law falls with r."""
    _, beta, gamma, eta, eps = psi
    edges = np.eye(4)
    edges[3, 2] = eta * (1 + eps) ** (gamma + 1) / (gamma * constants["D_min"] ** beta)
    return edges


def dcpt_turns(psi: np.ndarray, constants: Constants) -> dict[int, np.ndarray]:
    """Derivatives of `dcpt_cone`, which beta, gamma, eta and eps turn."""
    _, _, gamma, eta, eps = psi
    logs = {1: -np.log(constants["D_min"]), 2: np.log1p(eps) - 1 / gamma, 3: 1 / eta, 4: (gamma + 1) / (1 + eps)}
    edge = dcpt_cone(psi, constants) - np.eye(4)
    return {j: edge * log for j, log in logs.items()}


LINEAR = (
    Parameter("E", "nats per token"),
    Parameter("A", "nats per token, at N = 1"),
    Parameter("B", "nats per token, at D = 1, r = 1"),
    Parameter("C", "nats per token, at r + eps = 1"),
)
NONLINEAR = (
    exponent("alpha", "N"),
    exponent("beta", "D"),
    exponent("gamma", "r + eps"),
    Parameter("eta", "exponent of r", 1.0, 10.0, linear=False, start=(1.05, 3.0)),
    ratio_offset("eps"),
)

DCPT = Law(
    name="dcpt",
    equation=r"L = E + A\,N^{-\alpha} + B\,r^{\eta} D^{-\beta} + C\,(r+\epsilon)^{-\gamma}",
    source="Que et al. 2024, arXiv:2406.01375, eq. 6 (L3), monotone by eq. 26 and 40",
    parameters=LINEAR + NONLINEAR,
    columns=("N", "D", "r"),
    varies={"N": "alpha", "D": "beta", "r": "gamma"},
    positive=("D",),
    basis=dcpt_basis,
    slopes=dcpt_slopes,
    constants=dcpt_constants,
    cone=dcpt_cone,
    turns=dcpt_turns,
)

DCPT_FREE = replace(
    DCPT,
    name="dcpt-free",
    source="Que et al. 2024, arXiv:2406.01375, eq. 6 (L3) without eq. 26 and 40: the loss may rise with r",
    parameters=LINEAR
    + tuple(
        replace(
            p,
            **{"eta": {"low": 0.01, "start": (0.1, 3.0)}, "eps": {"high": 10.0}, "gamma": {"high": 5.0}}.get(
                p.name, {}
            ),
        )
        for p in NONLINEAR
    ),
    constants=no_constants,
    cone=None,
    turns=None,
)
"""For one schedule's points close together, where the constraint costs accuracy."""
