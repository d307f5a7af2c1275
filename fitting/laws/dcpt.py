"""The D-CPT law (L3), and the other forms of its paper's table 1: the loss on a corpus falls with its ratio.

L3 falls with r at the fitted ratios above 0 and D >= D_min exactly when C >= B c0(psi), with

    c0 = eta max over r of r^(eta-1) (r+eps)^(gamma+1) / (gamma D_min^beta),

whose maximum is at r = 1 (eq. 26 and 40) or, where eta < 1, perhaps at the smallest of these ratios. That is a cone in
(B, C): with its edges in place of the axes, non-negative least squares keeps the law monotone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fitting.laws.law import (
    Columns,
    Cone,
    Constants,
    Law,
    Parameter,
    Slopes,
    SlopesOf,
    Solving,
    StudyPoints,
    exponent,
    power,
    ratio_offset,
)


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
    """The smallest D among the fitted points and the smallest ratio above 0, from which on the law is monotone in r."""
    mixed = x["r"][x["r"] > 0]
    return {"D_min": float(np.min(x["D"])), "r_min": float(mixed.min()) if len(mixed) else 1.0}


def _steepest(psi: np.ndarray, constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """The ratio at which the bound on C is largest, and the bound over B, at psi (5, ...)."""
    _, beta, gamma, eta, eps = psi
    r_min, scale = constants.get("r_min", 1.0), eta / (gamma * constants["D_min"] ** beta)
    at_one, at_least = (1 + eps) ** (gamma + 1), r_min ** (eta - 1) * (r_min + eps) ** (gamma + 1)
    return np.where(at_one >= at_least, 1.0, r_min), scale * np.maximum(at_one, at_least)


def dcpt_cone(psi: np.ndarray, constants: Constants) -> np.ndarray:
    """Edges (..., 4, 4) of the coefficients for which the law falls with r, at psi (5, ...)."""
    bound = _steepest(psi, constants)[1]
    edges = np.zeros((*bound.shape, 4, 4))
    edges[...] = np.eye(4)
    edges[..., 3, 2] = bound
    return edges


def dcpt_cone_derivatives(psi: np.ndarray, constants: Constants) -> dict[int, np.ndarray]:
    """Derivatives of `dcpt_cone`, by the number of beta, gamma, eta and eps."""
    _, _, gamma, eta, eps = psi
    r, bound = _steepest(psi, constants)
    logs = [-np.log(constants["D_min"]), np.log(r + eps) - 1 / gamma, 1 / eta + np.log(r), (gamma + 1) / (r + eps)]
    edges = np.zeros((len(logs), *bound.shape, 4, 4))
    for edge, log in zip(edges, logs, strict=True):
        edge[..., 3, 2] = bound * log
    return dict(enumerate(edges, start=1))


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
    Parameter("eta", "exponent of r", 0.01, 10.0, linear=False, start=(0.1, 3.0)),
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
    cone=Cone(dcpt_cone, dcpt_cone_derivatives, dcpt_constants),
    study=StudyPoints(from_step=60, min_ratio=0.1),
    at_once=True,
    # From short runs it predicts that a settled model stops improving where they end (docs/results/long-runs-low).
    furthest=6.0,
)

DCPT_CONVEX = replace(
    DCPT,
    name="dcpt-convex",
    source=f"{DCPT.source}, with eta > 1 as app. E.3 has it",
    parameters=tuple(replace(p, low=1.0, start=(1.05, 3.0)) if p.name == "eta" else p for p in DCPT.parameters),
)
"""The paper writes eta = 1 + exp(eta1): few points at first would then help little, which points that have not settled
contradict."""

DCPT_FREE = replace(
    DCPT,
    name="dcpt-free",
    source="Que et al. 2024, arXiv:2406.01375, eq. 6 (L3) without eq. 26 and 40: the loss may rise with r",
    parameters=tuple(
        replace(p, high={"eps": 10.0, "gamma": 5.0}[p.name]) if p.name in ("eps", "gamma") else p
        for p in DCPT.parameters
    ),
    cone=None,
)
"""For one schedule's points close together, where the constraint costs accuracy."""


def _form(
    name: str,
    equation: str,
    of_r: str,
    parameters: tuple[Parameter, ...],
    terms: Callable[..., Sequence[np.ndarray]],
    slopes: SlopesOf,
    **fields: Any,
) -> Law:
    """A form with E, A and alpha before its `parameters`; `of_r` is the one that need not be fitted at one ratio.

    `terms` and `slopes`: columns of the basis and derivatives, but for those of E and A.
    """
    linear = tuple(p for p in parameters if p.linear)

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        return np.array([np.ones_like(x["N"]), power(x["N"], -psi[0]), *terms(x, *psi[1:])]).T

    return Law(
        name=name,
        equation=rf"L = E + A\,N^{{-\alpha}} + {equation}",
        source=f"Que et al. 2024, arXiv:2406.01375, table 1, {name[-2:].upper()}",
        parameters=(
            *(Parameter("E", "nats per token"), Parameter("A", "nats per token, at N = 1"), *linear),
            *(exponent("alpha", "N"), *parameters[len(linear) :]),
        ),
        columns=("N", "D", "r"),
        varies={"N": "alpha", "D": "beta", "r": of_r},
        positive=("D",),
        study=StudyPoints(from_step=60, min_ratio=0.1),
        at_once=True,
        basis=basis,
        slopes=lambda x, psi, made: {(1, 0): -np.log(x["N"]) * made[:, 1], **slopes(x, psi, made)},
        **fields,
    )


def _l1_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, _, gamma, eps = psi
    r = x["r"]
    return {
        (2, 1): -np.log(x["D"]) * basis[:, 2],
        (3, 2): -np.log(r + eps) * basis[:, 3],
        (3, 3): -gamma / (r + eps) * basis[:, 3],
    }


def _l2_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, beta, gamma, eta, c, eps = psi
    of_tokens, of_ratio = power(x["D"], -beta), power(x["r"] + eps, -gamma)
    bracket = of_tokens + c * of_ratio
    outer = eta * basis[:, 2] / bracket
    return {
        (2, 1): -np.log(x["D"]) * of_tokens * outer,
        (2, 2): -np.log(x["r"] + eps) * c * of_ratio * outer,
        (2, 3): np.log(bracket) * basis[:, 2],
        (2, 4): of_ratio * outer,
        (2, 5): -gamma / (x["r"] + eps) * c * of_ratio * outer,
    }


def _l2_printed(params: Mapping[str, float]) -> dict[str, float]:
    """B and C of the paper; what is fitted has the amplitude of the bracket in front, B^eta, and C / B."""
    B = params["B^eta"] ** (1 / params["eta"])
    rest = {name: params[name] for name in ("E", "A", "alpha", "beta", "gamma", "eta", "eps")}
    return {**rest, "B": B, "C": params["C/B"] * B}


def _l4_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, _, b, c = psi
    return {(2, 1): -np.log(x["D"]) * basis[:, 2], (2, 2): x["r"] / b * basis[:, 2], (3, 3): -x["r"] / c * basis[:, 3]}


def _l5_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, beta, sigma = psi
    effective = x["r"] * x["D"] + (1 - x["r"]) * sigma
    return {(2, 1): -np.log(effective) * basis[:, 2], (2, 2): -beta * (1 - x["r"]) / effective * basis[:, 2]}


DCPT_FORMS = (
    _form(
        "dcpt-l1",
        r"B\,D^{-\beta} + C\,(r+\epsilon)^{-\gamma}",
        "gamma",
        (
            Parameter("B", "nats per token, at D = 1"),
            Parameter("C", "nats per token, at r + eps = 1"),
            *(exponent("beta", "D"), exponent("gamma", "r + eps"), ratio_offset("eps")),
        ),
        lambda x, beta, gamma, eps: (power(x["D"], -beta), power(x["r"] + eps, -gamma)),
        _l1_slopes,
    ),
    _form(
        "dcpt-l2",
        r"\left(B\,D^{-\beta} + C\,(r+\epsilon)^{-\gamma}\right)^{\eta}",
        "gamma",
        (
            Parameter("B^eta", "nats per token"),
            *(exponent("beta", "D"), exponent("gamma", "r + eps")),
            Parameter("eta", "exponent of the bracket", 0.05, 10.0, linear=False, start=(0.3, 3.0)),
            Parameter("C/B", "none", 1e-6, 1e6, linear=False, start=(1e-2, 1e2), scale="log"),
            ratio_offset("eps"),
        ),
        lambda x, beta, gamma, eta, c, eps: (power(power(x["D"], -beta) + c * power(x["r"] + eps, -gamma), eta),),
        _l2_slopes,
        printed=_l2_printed,
    ),
    _form(
        "dcpt-l4",
        r"B\,b^{r} D^{-\beta} + C\,c^{-r}",
        "c",
        (
            Parameter("B", "nats per token, at D = 1, r = 0"),
            Parameter("C", "nats per token, at r = 0"),
            exponent("beta", "D"),
            Parameter("b", "base of r in the term of D", 1e-6, 1e6, linear=False, start=(1e-2, 1e2), scale="log"),
            Parameter("c", "base of r in its own term", 1.0 + 1e-6, 1e8, linear=False, start=(1.1, 1e7), scale="log"),
        ),
        lambda x, beta, b, c: (np.exp(x["r"] * np.log(b) - beta * np.log(x["D"])), np.exp(-x["r"] * np.log(c))),
        _l4_slopes,
        solving=Solving(rugged=True),
    ),
    _form(
        "dcpt-l5",
        r"B\,\left(r D + (1-r)\sigma\right)^{-\beta}",
        "sigma",
        (
            Parameter("B", "nats per token, at one billion effective tokens"),
            exponent("beta", "effective tokens"),
            Parameter("sigma", "billions of tokens", 1e-8, 1e4, linear=False, start=(1e-4, 10.0), scale="log"),
        ),
        lambda x, beta, sigma: (power(x["r"] * x["D"] + (1 - x["r"]) * sigma, -beta),),
        _l5_slopes,
    ),
)
"""L1: Chinchilla with a term for the ratio. L2: tokens and ratio in one bracket. L4: the ratio in two exponentials.
L5: general text counts as a fixed number of domain tokens, sigma."""
