"""Checks of a table of points before a law is fitted, with one line for each mistake."""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fitting.laws import LAWS, UNKNOWN, Law, with_unknown

TINY = 1e-30
"""What is not above it is no loss, size or number of tokens, and its inverse square may have no value."""
ABOVE_0 = ("above 0", lambda v: v > TINY)
ALLOWED = {
    "N": ("above 0, in billions of parameters", lambda v: v > TINY),
    "D": ("above 0, in billions of tokens", lambda v: v > TINY),
    **dict.fromkeys(("loss", "loss_before", "s1_pretrain", "k1", "k2", "k3", "x"), ABOVE_0),
    **dict.fromkeys(("r", "rho", "r_first"), ("in [0, 1]", lambda v: (v >= 0) & (v <= 1))),
    **dict.fromkeys(("s1", "s1_first", "s1_root"), ("0 or more", lambda v: v >= 0)),
}
"""Column -> the values that it may hold, as text and as a test."""

LARGEST = {"N": (1e4, "parameters"), "D": (1e5, "tokens")}
"""Ten trillion parameters, a hundred trillion tokens: beyond them the column holds raw counts."""
LARGEST_LOSS = 1e3
"""Nats a token. Bits and perplexities are often below it, so they cannot be recognised."""
RATIOS = ("r", "rho", "r_first")
POINT_KEYS = ("run", "step", "corpus", "domain")
"""Columns that identify a point, where the table has them."""

TAILS = ((1 - 0.9) / 2, (1 + 0.9) / 2)
"""Probabilities between which every interval lies: 90%, as much on either side."""

ONE_MIXTURE = {"r_first": "r", "s1_first": "s1"}
"""Columns of a change of the mixture -> the column that they are in a run without one."""


class PointsError(ValueError):
    """Points or arguments that cannot be used. One line says why and what to do."""


def law_named(name: str, laws: dict[str, Law]) -> Law:
    """The law of that name. Raises PointsError with the nearest names if there is none."""
    if name in laws:
        return laws[name]
    near = difflib.get_close_matches(name, laws, n=2, cutoff=0.7) or difflib.get_close_matches(name, laws, 1, 0.3)
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(laws)}"
    raise PointsError(f"no law is called {name!r}; {meant}")


def resolve_law(law: str | Law) -> Law:
    """The law that is meant by a name or by itself. Raises PointsError for anything else."""
    if isinstance(law, Law):
        return law
    if not isinstance(law, str):
        raise PointsError(f"law = {law!r} is neither a name in fitting.LAWS nor a Law")
    return law_named(law, LAWS)


def columns_of(frame: pd.DataFrame, names: Iterable[str], law: Law | None = None) -> dict[str, np.ndarray]:
    """The named columns as float arrays, checked: all present, finite and in range, or PointsError.

    `law`: the one that reads them. A law that is not in `fitting.LAWS` may give columns a meaning of its own, and one
    whose residuals are not of the log loss takes any loss.
    """
    x = numbers_of(frame, names)
    for name, values in x.items():
        free = law is not None and (law.solving.residual != "log" if name == "loss" else law.name not in LAWS)
        if not free and (line := out_of_range(name, values, frame.index)):
            raise PointsError(line)
    return x


def numbers_of(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The named columns as finite float arrays of any size, or PointsError."""
    names = list(names)
    if line := missing(frame, names):
        raise PointsError(line)
    x = {}
    for name in names:
        column = frame[name]
        if isinstance(column, pd.Series) and column.dtype == float and np.isfinite(values := column.to_numpy()).all():
            x[name] = values
        elif line := not_numbers(frame, name):
            raise PointsError(line)
        else:
            x[name] = column.to_numpy(dtype=float)
    return x


def with_one_mixture(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The frame with those named columns of `ONE_MIXTURE` that it lacks: its runs do not change their mixture."""
    same = {name: frame[ONE_MIXTURE[name]] for name in {*names} & {*ONE_MIXTURE} if ONE_MIXTURE[name] in frame}
    return frame.assign(**{name: column for name, column in same.items() if name not in frame})


def after_mixtures(points: pd.DataFrame, law: Law) -> str | None:
    """The error line for points after a change of their run's mixture that a law does not know, or None."""
    known = 2 if "r_first" in law.columns else 1
    later = (
        int((numbers_of(points, ["mixture_phase"])["mixture_phase"] > known).sum()) if "mixture_phase" in points else 0
    )
    if not later:
        return None
    keep, whole = ("1 or 2", "") if known == 2 else ("1", ", or fit transfer-switched to the first two")
    return (
        f"mixture_phase: {later} of {len(points)} points come after a change of their run's mixture that "
        f"{law.name} does not know; keep those where it is {keep}{whole}"
    )


def missing(frame: pd.DataFrame, names: Iterable[str]) -> str | None:
    """The error line for columns that a table lacks, or None."""
    absent = [name for name in dict.fromkeys(names) if name not in frame.columns]
    if not absent:
        return None
    has = [str(name) for name in frame.columns]
    some = ", ".join(has[:12]) + (f" and {len(has) - 12} more" if len(has) > 12 else "")
    return f"missing column{'s' * (len(absent) > 1)}: {', '.join(absent)}; the table has {some or 'none'}"


def _row(rows: pd.Index, position: int | np.integer) -> Any:
    """The label of a row in its table, or its position where labels repeat."""
    return rows[int(position)] if rows.is_unique else position


def not_numbers(frame: pd.DataFrame, name: str) -> str | None:
    """The error line for a column that holds other things than finite numbers, or None."""
    column = frame[name]
    if not isinstance(column, pd.Series):
        return f"column {name} is there {column.shape[1]} times: keep one"
    try:
        values = column.to_numpy(dtype=float)
    except (TypeError, ValueError):
        values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        words = np.flatnonzero(np.isnan(values) & column.notna().to_numpy())
        if len(words):
            value = f"{column.iloc[words[0]]!r} (row {_row(frame.index, words[0])})"
            return f"column {name} holds something that is not a number: {value}"
    bad = np.flatnonzero(~np.isfinite(values))
    if not len(bad):
        return None
    where = f"{len(bad)} of {len(frame)} points (first: row {_row(frame.index, bad[0])})"
    return f"column {name} is not finite in {where}: leave them out"


def out_of_range(name: str, values: np.ndarray, rows: pd.Index) -> str | None:
    """The error line for values out of range, with the unit that they likely have, or None."""
    if name in LARGEST and len(values) and np.median(values) > LARGEST[name][0]:
        raw = f"{name} = {values.max():g} looks like raw {LARGEST[name][1]}"
        return f"{raw}: give billions (divide by 1e9)"
    if is_ratio(name) and len(values) and 2 < values.max() <= 100 and values.min() >= 0:
        return f"{name} = {values.max():g} looks like percent: give ratios between 0 and 1 (divide by 100)"
    if name == "loss" and len(values) and values.max() > LARGEST_LOSS:
        found = f"loss = {values.max():g} (row {_row(rows, values.argmax())}) is not a mean in nats per token"
        return f"{found}, where blind guessing among 250,000 tokens has 12.4: is it a sum, or another column?"
    rule, allowed = rule_of(name)
    bad = np.flatnonzero(~allowed(values))
    if not len(bad):
        return None
    return f"{name} = {values[bad[0]]:g} (row {_row(rows, bad[0])}) is not allowed: {name} must be {rule}"


def is_ratio(name: str) -> bool:
    """Whether a column holds a ratio of the training tokens."""
    return name in RATIOS or name.startswith("mixture.")


def rule_of(name: str) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The values (n,) that a column may hold, as text and as a test."""
    return ALLOWED.get("r" if is_ratio(name) else name, ("any", np.isfinite))


def duplicated(points: pd.DataFrame) -> str | None:
    """The error line for a point that is there twice: the same run, step and corpus. None without runs and steps."""
    keys = [name for name in POINT_KEYS if name in points.columns]
    if not {"run", "step"} <= set(keys):
        return None
    again = (points.duplicated(keys) & points[keys].notna().all(axis=1)).to_numpy()
    if not again.any():
        return None
    second = int(np.flatnonzero(again)[0])
    point = {name: points[name].iloc[second] for name in keys}
    same = np.logical_and.reduce([(points[name] == value).to_numpy() for name, value in point.items()])
    first = int(np.flatnonzero(same)[0])
    named = ", ".join(f"{name} {value}" for name, value in point.items())
    rows = f"rows {_row(points.index, first)} and {_row(points.index, second)}; {again.sum()} points in all"
    return f"{named} is there twice ({rows}): keep one of each, or give every run a name of its own"


def with_value(points: pd.DataFrame, law: Law) -> np.ndarray:
    """Mask (n,) of the points where the law has a value: one that reads D has none before the first step."""
    usable = np.ones(len(points), dtype=bool)
    for name in law.positive:
        if name in points.columns:
            usable &= ~(points[name] == 0).to_numpy(dtype=bool, na_value=False)
    return usable


def not_enough(x: dict[str, np.ndarray], law: Law, n_parameters: int, fixed: Collection[str] = ()) -> Iterator[str]:
    """The error lines for points that cannot identify the parameters of the law."""
    n = len(x["loss"])
    if n < n_parameters:
        yield f"{n} points are too few: {law.name} has {n_parameters} parameters"
        if not n:
            return
    for name, parameter in law.varies.items():
        if parameter in fixed or len(np.unique(x[name])) > 1:
            continue
        only = f"{ {'N': 'one size', 'r': 'one ratio'}.get(name, 'one value') } only ({name} = {x[name][0]:g}"
        only += ", in billions of parameters)" if name == "N" else ")"
        simpler = "dynamics" if "s1" in law.columns else "chinchilla"
        advice = f"fit {simpler}, or add runs at another ratio" if name == "r" else f"add runs at another {name}"
        if name == "N":
            advice = f"{_of_one_size(law, parameter)}, or {advice}"
        yield f"{only}: {law.name} needs two or more; {advice}"


def _of_one_size(law: Law, exponent: str) -> str:
    """What fits points of one size that a law of sizes is asked to fit."""
    if law.columns == ("N", "D"):
        return "fit power or rectified"
    if "s1" in law.columns:
        return f"fit {'transfer-anchored' if 'loss_before' in law.columns else 'dynamics'}"
    return f"fix={{A: 0, {exponent}: 0.3}} leaves out its term of sizes"


def mixture_columns(points: pd.DataFrame) -> list[str]:
    """The columns mixture.<corpus> of a table. Raises PointsError for fewer than two, and sums that are not 1."""
    names = [name for name in map(str, points.columns) if name.startswith("mixture.")]
    if len(names) < 2:
        found = ", ".join(names) or "none"
        raise PointsError(f"columns mixture.<corpus>, one a corpus, are needed, two or more; there is {found}")
    totals = points[names].to_numpy(dtype=float).sum(axis=1)
    wrong = np.flatnonzero(~(np.abs(totals - 1) < 0.02))
    if len(wrong):
        raise PointsError(f"the ratios {', '.join(names)} sum to {totals[wrong[0]]:g} in row {wrong[0]}, not to 1")
    return names


def problems(
    points: pd.DataFrame, law: str, *, fix: Mapping[str, float] | None = None, unknown: Collection[str] = ()
) -> list[str]:
    """The mistakes that keep a law from being fitted to points, a line each; empty where `fit` accepts them.

    Arguments as in `fit`, with s1 and s2 as columns. Whether the points suffice is checked where no column is wrong.

    >>> problems(pd.DataFrame({"N": [1e9, 2e9], "D": [1, -1]}), "chinchilla")[0]
    'missing column: loss; the table has N, D'
    """
    try:
        return list(_problems(points, law, fix or {}, unknown))
    except PointsError as error:
        return [str(error)]


def _problems(points: pd.DataFrame, law: str, fix: Mapping[str, float], unknown: Collection[str]) -> Iterator[str]:
    chosen = law_named(law, LAWS)
    if chosen.for_corpora is not None:
        chosen = chosen.for_corpora(mixture_columns(points))
    for name in unknown:
        chosen = with_unknown(chosen, name) if name in UNKNOWN and name in chosen.columns else chosen
    names = [*chosen.columns, "loss"]
    points = with_one_mixture(points, names)
    wrong = [line for line in (missing(points, names), after_mixtures(points, chosen)) if line]
    points = points.loc[with_value(points, chosen)]
    x: dict[str, np.ndarray] = {}
    for name in (name for name in names if name in points.columns):
        try:
            x |= columns_of(points, [name], chosen)
        except PointsError as error:
            wrong.append(str(error))
    if line := duplicated(points):
        wrong.append(line)
    yield from wrong
    if not wrong:
        yield from not_enough(x, chosen, sum(p.name not in fix for p in chosen.parameters), fix)
