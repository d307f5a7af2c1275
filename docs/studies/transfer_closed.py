"""The closed forms of transfer-anchored beside what is found numerically on the same fits, and beside the runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize_scalar

import fitting
from docs.studies.transfer_points import SLOW, Series, rates_of
from docs.studies.transfer_questions import base
from fitting.answers.transfer_closed_form import best_replay, inflection_ratio_at, ratio_of_no_return, transfer_turn

CAP = 0.03
REPLAYED = 0.9
"""General ratio of the run whose turning length is computed: above the ratio of no return."""


@dataclass(frozen=True)
class Found:
    """One number, three ways; NaN where the runs do not show it."""

    name: str
    closed: float
    numerical: float
    measured: float = np.nan


def best_under_cap(general: Mapping[str, float], before: float, cap: float, s1: float, s2: float, P: float) -> float:
    """The largest domain ratio with L_general <= (1 + cap) before at the end of a run of areas s1 and s2.

    The general ratio r solves C log((1 + eps)/(r + eps)) log(1 + E s1) = cap before + C2 s2 + G log(1 + s1/P).
    """
    room = cap * before + general["C2"] * s2 + general["G"] * np.log1p(s1 / P)
    worth = general["C"] * np.log1p(general["E"] * s1)
    eps = general["eps"]
    return float(np.clip(1 + eps - (1 + eps) * np.exp(-room / worth), 0.0, 1.0))


def closed_forms(general: Series, domain: Series, fits: tuple[fitting.Fit, fitting.Fit]) -> Iterator[Found]:
    """Every closed form for the largest size of a pair, under the base schedule or a constant rate of 3e-4."""
    of_general, of_domain = fits
    runs = general.points[base(general.points) & (general.points["N"] == general.points["N"].max())]
    ends = runs[runs["step"] == runs["step"].max()]
    N, before, P = (float(ends[name].iloc[0]) for name in ("N", "loss_before", "s1_pretrain"))
    at = {"s1_pretrain": P, "rho": 1.0, "loss_before": before}
    s1 = float(ends["s1"].iloc[0])
    s2 = _end_s2(of_general)
    g, d = of_general.params, of_domain.params

    capped = fitting.trade_off(of_general, of_domain, N, 1.0, CAP, before, general_at={**at, "s1": s1, "s2": s2},
                               domain_at=_domain_at(domain, N, s1, _end_s2(of_domain), P))  # fmt: skip
    shares, rises = ends["share"].to_numpy(), ends["loss"].to_numpy() / before - 1
    order = np.argsort(shares)
    yield Found(
        "largest domain ratio, general loss +3% at most",
        best_under_cap(g, before, CAP, s1, s2, P),
        np.nan if capped.domain_ratio is None else capped.domain_ratio,
        _crossing(shares[order], rises[order], CAP),
    )

    def loss(r: float, s: float, s2: float = 0.0) -> float:
        return float(of_general.predict(_row(at, r, s, s2))[0])

    def slope(r: float, s: float) -> float:
        return (loss(r, s * (1 + 1e-6) + 1e-9) - loss(r, s)) / (s * 1e-6 + 1e-9)

    for name, s in (("at the first step", 0.0), ("at the end", s1)):
        closed = inflection_ratio_at(g, s, 1.0, P)
        yield Found(f"inflection ratio of general {name}", closed, _root(lambda r, s=s: slope(r, s)))
    far = 1e12
    yield Found("ratio of no return", ratio_of_no_return(g, 1.0), _root(lambda r: loss(r, far) - before))
    turn = fitting.turning_length(of_general, SLOW, before=SLOW, at={**at, "r": REPLAYED})
    yield Found(
        f"turning length at {REPLAYED:g} general, constant {SLOW:g}, in steps",
        transfer_turn(g, REPLAYED, 1.0, P)[1] / SLOW,
        turn.values["turning_length"].value,
    )

    def blended(r: float) -> float:
        its = _domain_at(domain, N, s1, _end_s2(of_domain), P)
        return loss(r, s1, s2) + float(of_domain.predict(_row(its, 1 - r, s1, its["s2"]))[0])

    yield Found(
        "general ratio at the minimum of L_general + L_domain",
        best_replay(g, d, 0.5, s1),
        float(minimize_scalar(blended, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9}).x),  # pyright: ignore
        _lowest(general, domain, N),
    )


def _row(at: Mapping[str, float], r: float, s1: float, s2: float) -> pd.DataFrame:
    return pd.DataFrame([{**at, "r": r, "s1": s1, "s2": s2}])


def _end_s2(fit: fitting.Fit) -> float:
    return float(fitting.areas(rates_of("cos", 1e-3, 360), fit.params["lambda"], SLOW)[1][-1])


def _domain_at(domain: Series, N: float, s1: float, s2: float, P: float) -> dict[str, float]:
    before = float(domain.points.loc[domain.points["N"] == N, "loss_before"].iloc[0])
    return {"s1": s1, "s2": s2, "s1_pretrain": P, "rho": 0.0, "loss_before": before}


def _root(value) -> float:
    """Where value(r) changes sign in [0, 1]; NaN where it does not."""
    grid = np.linspace(0.0, 1.0, 401)
    values = [value(r) for r in grid]
    for low, high, a, b in zip(grid, grid[1:], values, values[1:], strict=False):
        if a > 0 >= b:
            return float(brentq(value, low, high))  # pyright: ignore[reportArgumentType]
    return np.nan


def _crossing(shares: np.ndarray, rises: np.ndarray, cap: float) -> float:
    above = np.flatnonzero(rises > cap)
    if not len(above) or above[0] == 0:
        return np.nan
    i = above[0]
    part = (cap - rises[i - 1]) / (rises[i] - rises[i - 1])
    return float(shares[i - 1] + part * (shares[i] - shares[i - 1]))


def _lowest(general: Series, domain: Series, N: float) -> float:
    """The general ratio of the run with the smallest sum of the two losses."""
    sums = []
    for series in (general, domain):
        p = series.points[base(series.points) & (series.points["N"] == N)]
        sums.append(p[p["step"] == p["step"].max()].set_index("share")["loss"])
    total = sums[0] + sums[1]
    return float(1 - total.idxmin()) if len(total) > 4 else np.nan
