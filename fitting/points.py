"""What a table of points must be before a law is fitted to it, and the one line that says what is wrong."""

import difflib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from fitting.laws.law import Law

ALLOWED = {
    "loss": ("above 0", lambda v: v > 0),
    "loss_before": ("above 0", lambda v: v > 0),
    "N": ("above 0, in billions of parameters", lambda v: v > 0),
    "D": ("above 0, in billions of tokens", lambda v: v > 0),
    "r": ("in [0, 1]", lambda v: (v >= 0) & (v <= 1)),
    "rho": ("in [0, 1]", lambda v: (v >= 0) & (v <= 1)),
    "s1": ("0 or more", lambda v: v >= 0),
    "s1_pretrain": ("above 0", lambda v: v > 0),
}
"""Column -> what its values must be, in words and as a test."""

LARGEST = {"N": (1e5, "parameters"), "D": (1e6, "tokens")}
"""A hundred trillion parameters, a quadrillion tokens: beyond them the column holds raw counts."""


class PointsError(ValueError):
    """The points, or what is asked of them, cannot be used. One line says why and what to do."""


def law_named(name: str, laws: dict[str, Law]) -> Law:
    """The law of that name. Raises PointsError with the nearest names if there is none."""
    if name in laws:
        return laws[name]
    near = difflib.get_close_matches(name, laws, n=2, cutoff=0.3)
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(laws)}"
    raise PointsError(f"no law is called {name!r}; {meant}")


def columns_of(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The named columns as float arrays, checked: all present, finite and in range, or PointsError."""
    x = numbers_of(frame, names)
    for name, values in x.items():
        if name in LARGEST and len(values) and np.median(values) > LARGEST[name][0]:
            raw = f"{name} = {values.max():g} looks like raw {LARGEST[name][1]}"
            raise PointsError(f"{raw}: give billions (divide by 1e9)")
        rule, allowed = ALLOWED.get(name, ("any", np.isfinite))
        bad = np.flatnonzero(~allowed(values))
        if len(bad):
            found = f"{name} = {values[bad[0]]:g} (row {bad[0]})"
            raise PointsError(f"{found} is not allowed: {name} must be {rule}")
    return x


def numbers_of(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The named columns as finite float arrays of any size, or PointsError."""
    names = list(names)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise PointsError(f"missing column{'s' * (len(missing) > 1)}: {', '.join(missing)}")
    x = {}
    for name in names:
        try:
            x[name] = frame[name].to_numpy(dtype=float)
        except (TypeError, ValueError):
            raise PointsError(f"column {name} holds something that is not a number") from None
        bad = np.flatnonzero(~np.isfinite(x[name]))
        if len(bad):
            where = f"{len(bad)} of {len(frame)} points (first: row {bad[0]})"
            raise PointsError(f"column {name} is not finite in {where}")
    return x


def with_value(points: pd.DataFrame, law: Law) -> np.ndarray:
    """Mask (n,) of the points where the law has a value: one that reads D has none before the first step."""
    if "D" in law.columns and "D" in points.columns:
        return (points["D"] != 0).to_numpy()
    return np.ones(len(points), dtype=bool)


def check_enough(x: dict[str, np.ndarray], law: Law, n_parameters: int) -> None:
    """Raises PointsError when the points cannot tell the law's parameters apart, whatever their noise."""
    n = len(x["loss"])
    if n < n_parameters:
        raise PointsError(f"{n} points are too few: {law.name} has {n_parameters} parameters")
    for name in law.varies:
        values = np.unique(x[name])
        if len(values) > 1:
            continue
        only = f"{ {'N': 'one size', 'r': 'one ratio'}.get(name, 'one value') } only ({name} = {values[0]:g})"
        advice = "fit chinchilla, or add runs at another ratio" if name == "r" else f"add runs at another {name}"
        raise PointsError(f"{only}: {law.name} needs two or more; {advice}")
