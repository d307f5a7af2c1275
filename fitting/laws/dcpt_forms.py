"""The other parameterizations of the D-CPT law: L1, L2, L4 and L5 of table 1 of its paper."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, Slopes, Solving, StudyPoints, exponent, power, ratio_offset


def _form(name: str, equation: str, of_r: str, parameters: tuple[Parameter, ...], **fields: Any) -> Law:
    """A form with E, A and alpha before its `parameters`; `of_r` is the one that need not be fitted at one ratio."""
    linear = tuple(p for p in parameters if p.linear)
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
        **fields,
    )


def _l1(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, gamma, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    return np.array([np.ones_like(N), power(N, -alpha), power(D, -beta), power(r + eps, -gamma)]).T


def _l1_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, _, gamma, eps = psi
    r = x["r"]
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(x["D"]) * basis[:, 2],
        (3, 2): -np.log(r + eps) * basis[:, 3],
        (3, 3): -gamma / (r + eps) * basis[:, 3],
    }


def _l2(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, gamma, eta, c, eps = psi
    N, D, r = x["N"], x["D"], x["r"]
    bracket = power(D, -beta) + c * power(r + eps, -gamma)
    return np.array([np.ones_like(N), power(N, -alpha), power(bracket, eta)]).T


def _l2_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, beta, gamma, eta, c, eps = psi
    of_tokens, of_ratio = power(x["D"], -beta), power(x["r"] + eps, -gamma)
    bracket = of_tokens + c * of_ratio
    outer = eta * basis[:, 2] / bracket
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
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


def _l4(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, b, c = psi
    N, D, r = x["N"], x["D"], x["r"]
    of_tokens = np.exp(r * np.log(b) - beta * np.log(D))
    return np.array([np.ones_like(N), power(N, -alpha), of_tokens, np.exp(-r * np.log(c))]).T


def _l4_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, _, b, c = psi
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(x["D"]) * basis[:, 2],
        (2, 2): x["r"] / b * basis[:, 2],
        (3, 3): -x["r"] / c * basis[:, 3],
    }


def _l5(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, beta, sigma = psi
    N, D, r = x["N"], x["D"], x["r"]
    return np.array([np.ones_like(N), power(N, -alpha), power(r * D + (1 - r) * sigma, -beta)]).T


def _l5_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, beta, sigma = psi
    effective = x["r"] * x["D"] + (1 - x["r"]) * sigma
    return {
        (1, 0): -np.log(x["N"]) * basis[:, 1],
        (2, 1): -np.log(effective) * basis[:, 2],
        (2, 2): -beta * (1 - x["r"]) / effective * basis[:, 2],
    }


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
        basis=_l1,
        slopes=_l1_slopes,
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
        basis=_l2,
        slopes=_l2_slopes,
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
        basis=_l4,
        slopes=_l4_slopes,
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
        basis=_l5,
        slopes=_l5_slopes,
    ),
)
"""L1: Chinchilla with a term for the ratio. L2: tokens and ratio in one bracket. L4: the ratio in two exponentials.
L5: general text counts as a fixed number of domain tokens, sigma."""
