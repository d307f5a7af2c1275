"""Laws that only this study fits: other laws with the loss before CPT, and the transfer law with factors of size.

They are written as any law of one's own is, and are in `fitting.LAWS` only while the study runs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from docs.studies.transfer_forms import FORMS
from fitting.laws import LAWS
from fitting.laws.dcpt import DCPT, DCPT_FREE
from fitting.laws.law import Columns, Law, Parameter, Slopes, power
from fitting.laws.transfer import TRANSFER

ANCHORED = TRANSFER[0]
MIDDLE = 3e-4
"""Billions of parameters at which a factor N^nu is 1: the middle of the trials' sizes."""
DOWN = 10.0
"""Nats by which the anchor is lowered, so that a constant that may have either sign is one that is not negative."""

_NU = Parameter("nu", "exponent of N / 0.3 M", -2.0, 2.0, linear=False, start=(-0.3, 0.3))


def _lowered(x: Columns, psi: np.ndarray) -> np.ndarray:
    return x["loss_before"] - DOWN


def _before(x: Columns, psi: np.ndarray) -> np.ndarray:
    return x["loss_before"]


def anchored_dcpt(law: Law, name: str) -> Law:
    """D-CPT for the change of the loss: L_before + (E - 10) + A/N^alpha + B r^eta/D^beta + C/(r+eps)^gamma."""
    return replace(law, name=name, columns=("loss_before", *law.columns), offset=_lowered)


def _areas(x: Columns, psi: np.ndarray) -> np.ndarray:
    beta, gamma, eta, eps = psi
    with np.errstate(divide="ignore"):
        of_r = np.exp(eta * np.log(x["r"]))
    tokens = of_r * power(x["s1"], -beta)
    return np.column_stack([np.ones_like(x["r"]), tokens, power(x["r"] + eps, -gamma), -x["s2"]])


def _areas_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, gamma, _, eps = psi
    r = x["r"]
    return {
        (1, 0): -np.log(x["s1"]) * basis[:, 1],
        (1, 2): np.log(np.where(r > 0, r, 1.0)) * basis[:, 1],
        (2, 1): -np.log(r + eps) * basis[:, 2],
        (2, 3): -gamma / (r + eps) * basis[:, 2],
    }


DCPT_AREAS = Law(
    name="dcpt-areas",
    equation=r"L = L_{before} + E' + B\,r^{\eta} S_1^{-\beta} + C\,(r+\epsilon)^{-\gamma} - C_2 S_2",
    source="eq. 6 of Que et al. 2024 with S1 for D, the term of S2 and the loss before in place of A/N^alpha",
    parameters=(
        *(Parameter(name, "nats per token") for name in ("E", "B", "C", "C2")),
        *(p for p in DCPT_FREE.nonlinear if p.name != "alpha"),
    ),
    columns=("loss_before", "s1", "r", "s2"),
    varies={"s1": "beta", "r": "gamma"},
    positive=("s1",),
    basis=_areas,
    slopes=_areas_slopes,
    offset=_lowered,
)


def _replay(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, E, beta, a1, a2 = psi
    P, s1, r = x["s1_pretrain"], x["s1"], x["r"]
    trunk = power(P + s1, -alpha) - power(P, -alpha)
    shift = -np.expm1(-beta * np.log1p(E * s1))
    mixed = np.where(x["rho"] > 0, -np.expm1(-a2 * (1 - r)), np.expm1(a2 * r))
    return np.column_stack([trunk, -x["s2"] * np.exp(a1 * r), shift * mixed])


def _replay_sized(x: Columns, psi: np.ndarray) -> np.ndarray:
    alpha, E, beta, a1, a2, g1, g2, g3 = psi
    N, r = x["N"], x["r"]
    shift = -np.expm1(-beta * np.log1p(E * x["s1"]))
    mixed = np.where(x["rho"] > 0, -np.expm1(-a2 * (1 - r)), np.expm1(a2 * r))
    return np.column_stack(
        [
            np.ones_like(N),
            power(x["s1_pretrain"] + x["s1"], -alpha),
            -x["s2_pretrain"] * power(N, g1),
            -x["s2"] * power(N, g2) * np.exp(a1 * r),
            shift * mixed,
            power(N, -g3),
        ]
    )


def _unit_shift(column: int, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Coefficients of a common size where the shift's column vanishes and changes its sign with a2, as in eq. 8."""

    def amplitudes(psi: np.ndarray) -> np.ndarray:
        sizes = np.ones(count)
        sizes[column] = 1 / (psi[4] if psi[4] else 1e-9)
        return sizes

    return amplitudes


_REPLAY, _SIZE = LAWS["dynamics-replay"], LAWS["dynamics-size"]
_REPLAY_PARAMETERS = {p.name: p for p in _REPLAY.parameters}

REPLAY_ANCHORED = Law(
    name="dynamics-replay-anchored",
    equation=r"L = L_{before} + A\left((S_1^{pt}+S_1)^{-\alpha} - (S_1^{pt})^{-\alpha}\right) - C_2 S_2 e^{a_1 r} + …",
    source="Wang et al., ICML 2025, eq. 8, less its own value at the first step",
    parameters=tuple(_REPLAY_PARAMETERS[name] for name in ("A", "C2", "B", "alpha", "E", "beta", "a1", "a2")),
    columns=("loss_before", "s1_pretrain", "s1", "s2", "r", "rho"),
    varies={"s1": "E", "r": "a2"},
    positive=("s1_pretrain",),
    basis=_replay,
    offset=_before,
    amplitudes=_unit_shift(2, 3),
)
REPLAY_SIZED = Law(
    name="dynamics-replay-size",
    equation=r"eq. 8 with the three terms of N of eq. 7",
    source="Wang et al., ICML 2025, eq. 7 and 8",
    parameters=(
        *(_REPLAY_PARAMETERS[name] for name in ("L0", "A", "C1", "C2", "B")),
        *(p for p in _SIZE.linear if p.name == "F"),
        *(_REPLAY_PARAMETERS[name] for name in ("alpha", "E", "beta", "a1", "a2")),
        *(p for p in _SIZE.nonlinear if p.name in ("g1", "g2", "g3")),
    ),
    columns=("s1_pretrain", "s2_pretrain", "s1", "s2", "r", "rho", "N"),
    varies={"s1": "E", "r": "a2", "N": "g3"},
    positive=("s1_pretrain",),
    basis=_replay_sized,
    amplitudes=_unit_shift(4, 6),
)


def sized(name: str, exponents: Mapping[str, str | float]) -> Law:
    """transfer-anchored with a factor (N / 0.3 M)^nu on some of C2, C, G and E.

    Args:
        name: of the law.
        exponents: term -> the name of nu, a parameter, or its value.
    """
    names = [nu for nu in exponents.values() if isinstance(nu, str)]

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        columns, values = ANCHORED.basis(x, psi[:2]), dict(zip(names, psi[2:], strict=True))
        for term, nu in exponents.items():
            factor = power(x["N"] / MIDDLE, values[nu] if isinstance(nu, str) else nu)
            if term == "E":
                columns[:, 1] *= np.log1p(psi[1] * factor * x["s1"]) / np.log1p(psi[1] * x["s1"])
            else:
                columns[:, ("C2", "C", "G").index(term)] *= factor
        return columns

    return replace(
        ANCHORED,
        name=name,
        parameters=(*ANCHORED.parameters, *(replace(_NU, name=nu) for nu in names)),
        columns=(*ANCHORED.columns, "N"),
        varies={**ANCHORED.varies, **({"N": names[-1]} if names else {})},
        basis=basis,
    )


PROPOSED = "transfer-anchored, C N^nu"
VARIANTS = (
    anchored_dcpt(DCPT, "dcpt-anchored"),
    anchored_dcpt(DCPT_FREE, "dcpt-free-anchored"),
    *(DCPT_AREAS, REPLAY_ANCHORED, REPLAY_SIZED),
    sized("transfer-anchored, C N^nu_C and G N^nu_G", {"C": "nu_C", "G": "nu_G"}),
    # The gain grows as N^(1/3) where nothing shifts: this costs no parameter.
    sized("transfer-grown", {"G": 1 / 3}),
    *(sized(f"transfer-anchored, {term} N^nu", {term: "nu"}) for term in ("C2", "C", "G", "E")),
    *(form for form in FORMS if form.name not in LAWS),
)


@contextmanager
def registered() -> Iterator[None]:
    """The variants among `fitting.LAWS`, for as long as this lasts."""
    LAWS.update({law.name: law for law in VARIANTS})
    try:
        yield
    finally:
        for law in VARIANTS:
            del LAWS[law.name]
