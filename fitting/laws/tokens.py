"""Laws of one curve: loss from tokens, for one size and one mixture, to be asked far beyond the fitted tokens.

Late points count more, each by its tokens: what follows is decided by the end of a curve, and where the form is wrong,
its early part bends the end. On 30 fine-tuning curves that takes the error at 12 to 50 times the fitted tokens from 11
to 13% to 8 to 11% (E + B D^-beta).
"""

from collections.abc import Mapping

import numpy as np

from fitting.laws.law import Basis, Columns, Law, Parameter, Slopes, SlopesOf, Solving, exponent, power

_E, _B = Parameter("E", "nats per token"), Parameter("B", "nats per token, before training")
_D0 = Parameter("D0", "billions of tokens", 1e-9, 1e6, linear=False, start=(1e-4, 1e2), scale="log")
_BETA = exponent("beta", "D")


def _power(x: Columns, psi: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones_like(x["D"]), power(x["D"], -psi[0])])


def _power_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    return {(1, 0): -np.log(x["D"]) * basis[:, 1]}


def _offset(x: Columns, psi: np.ndarray) -> np.ndarray:
    beta, D0 = psi
    return np.column_stack([np.ones_like(x["D"]), power(1 + x["D"] / D0, -beta)])


def _offset_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    beta, D0 = psi
    part = x["D"] / (x["D"] + D0)
    return {(1, 0): -np.log1p(x["D"] / D0) * basis[:, 1], (1, 1): beta / D0 * part * basis[:, 1]}


def _rectified(x: Columns, psi: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones_like(x["D"]), 1 / (1 + power(x["D"] / psi[1], psi[0]))])


def _rectified_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    beta, D0 = psi
    fall = basis[:, 1] * (1 - basis[:, 1])
    return {(1, 0): -np.log(x["D"] / D0) * fall, (1, 1): beta / D0 * fall}


def _floorless_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    slopes = _rectified_slopes(x, psi, np.column_stack([basis, basis]))
    return {(0, j): slope for (_, j), slope in slopes.items()}


def _printed(params: Mapping[str, float]) -> dict[str, float]:
    """E + B / (D_l + D^beta), as Lin et al. write it."""
    scale = params["D0"] ** params["beta"]
    return {**{k: v for k, v in params.items() if k != "D0"}, "B": params["B"] * scale, "D_l": scale}


def _law(
    name: str, equation: str, parameters: tuple[Parameter, ...], basis: Basis, slopes: SlopesOf, source: str, late=1.0
) -> Law:
    return Law(
        name=name,
        equation=equation,
        source=source,
        parameters=parameters,
        columns=("D",),
        varies={"D": "beta"},
        at_once=True,
        positive=("D",),
        basis=basis,
        slopes=slopes,
        solving=Solving(late=late),
        printed=_printed if name.startswith("rectified") else None,
    )


_LIN = "Lin et al. 2024, arXiv:2402.02314, with D_l = D0^beta and B over it"
_AT_1 = Parameter("B", "nats per token, at D = 1")
TOKENS = (
    _law("power", r"L = E + B\,D^{-\beta}", (_E, _AT_1, _BETA), _power, _power_slopes, "Hoffmann et al. 2022, one N"),
    _law(
        "power-offset",
        r"L = E + B\left(1 + D/D_0\right)^{-\beta}",
        (_E, _B, _BETA, _D0),
        _offset,
        _offset_slopes,
        "Hernandez et al. 2021, arXiv:2102.01293: tokens that a model brings along",
    ),
    _law(
        "rectified",
        r"L = E + \frac{B}{1 + (D/D_0)^{\beta}}",
        (_E, _B, _BETA, _D0),
        _rectified,
        _rectified_slopes,
        _LIN,
    ),
    _law(
        "rectified-floorless",
        r"L = \frac{B}{1 + (D/D_0)^{\beta}}",
        (_B, _BETA, _D0),
        lambda x, psi: _rectified(x, psi)[:, 1:],
        _floorless_slopes,
        f"{_LIN}; E = 0",
    ),
    _law(
        "power-floorless",
        r"L = B\,D^{-\beta}",
        (_AT_1, Parameter("beta", "exponent of D", -3.0, 3.0, linear=False, start=(-0.1, 0.3))),
        lambda x, psi: _power(x, psi)[:, 1:],
        lambda x, psi, basis: {(0, 0): -np.log(x["D"]) * basis[:, 0]},
        "a straight line on logarithms; the last points count most, by the square of their tokens",
        late=2.0,
    ),
)
ONE_CURVE = tuple(law.name for law in TOKENS)
