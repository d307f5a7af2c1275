"""How well a law predicts what it was not fitted to."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd

from fitting.estimation import fit, fit_shared
from fitting.fitted import Fit
from fitting.laws import Law
from fitting.points import PointsError, columns_of, numbers_of, resolve_law, with_value
from fitting.schedule import Schedules
from fitting.solver.multi_start import VarPro, local_minima
from fitting.solver.prepare import Data

MANY = 10
"""Folds above which the starts of all fits are searched for once."""


@dataclass(frozen=True, eq=False)
class Fold:
    """One way to part the points: `label`, what is held out; `fitted` and `judged` (n,), masks of the points."""

    label: str
    fitted: np.ndarray
    judged: np.ndarray


def folds(points: pd.DataFrame, by: str, domain: str = "domain") -> list[Fold]:
    """The folds of a split, in order.

    One fold: "ratio", every third ratio between the smallest and the largest; "tokens", the last third of D; "size",
    the largest N; "size-and-tokens", a larger model trained for longer: fitted to the first half of the tokens of all
    sizes but the largest, judged on the second half of the largest.

    Cross-validation, every fold: "each-size", each N left out in turn; "step-thirds", each third of the steps (of D,
    where there is no column step); "ratio-pairs", each pair of ratios r, 36 of nine; "domain-pairs", each pair of the
    values of the column `domain`, 15 of six.

    Rolling origin: "rolling-tokens" and "rolling-compute", fitted up to an eighth, a quarter and half of the largest D
    or 6 N D, judged on what follows up to twice as far; "horizon", fitted up to a half, a quarter and an eighth of the
    largest D, judged on all that follows.

    Raises PointsError for an unknown split, missing columns and points that cannot be parted that way.

    >>> points = pd.DataFrame({"N": [0.1, 0.1, 0.4, 1.0]})
    >>> [(fold.label, fold.judged.sum().item()) for fold in folds(points, "each-size")]
    [('N = 0.1', 2), ('N = 0.4', 1), ('N = 1', 1)]
    """
    if by not in SPLITS:
        raise PointsError(f"cannot hold out by {by!r}: there are {', '.join(SPLITS)}")
    if not len(points):
        raise PointsError(f"cannot hold out by {by}: there are no points")
    if by == "domain-pairs":
        if domain not in points.columns:
            raise PointsError(f"missing column: {domain}; name the one that tells domains apart with domain=")
        return _pairs("domain", points[domain].to_numpy(), domain)
    column = "step" if by == "step-thirds" and "step" in points.columns else {"step-thirds": "D"}.get(by)
    columns, split = SPLITS[by]
    return split(**numbers_of(points, [column] if column else columns))


def held_out(
    points: pd.DataFrame,
    law: str | Law,
    by: str | Sequence[Fold],
    schedules: Schedules | None = None,
    *,
    domain: str = "domain",
    log: Callable[[str], object] | None = None,
    shared: Iterable[str] = (),
    **options: Any,
) -> pd.DataFrame:
    """Fit on a part of the points, predict the rest, for every fold of a split.

    Arguments: `by` and `domain` as in `folds`, or `by` is a list of folds of these points; `log` is given a line for
    each fold; `shared`, parameters that the corpora of the points (column corpus) have in common, as in `fit_shared`,
    () to fit all points as one corpus; `options` as in `fit` (method, fix, unknown …). No bootstrap is made. Local
    minima of the objective are searched for in each fold, or, where there are more than ten folds, once in all points;
    each fold is still fitted to its own optimum.

    Returns the judged points, fold after fold, with the columns `predicted`, `measured` (nats per token),
    `relative_error` (predicted / measured - 1) and `split` (what was held out); `attrs["skipped"]` holds the reason of
    each fold that leaves too little to fit. Raises PointsError when nothing can be held out, and when the law could be
    fitted to no fold.

    Source: the splits of Que et al. 2024, sec. 4.2 and 4.4; rolling origins and size-and-tokens are ours.
    """
    known = resolve_law(law)
    usable = with_value(points, known)
    points = points.loc[usable]
    if "run" not in points.columns:
        points = points.assign(run=np.arange(len(points)))
    options = {"schedules": schedules} | options
    if isinstance(by, str):
        parted = folds(points, by, domain)
    else:
        parted = [Fold(fold.label, fold.fitted[usable], fold.judged[usable]) for fold in by]
    shared = tuple(shared)
    method = VarPro() if (given := options.get("method", "varpro")) == "varpro" else given
    if len(parted) > MANY and not shared and isinstance(method, VarPro):
        names = ("schedules", "point_weights", "delta", "fix", "unknown")
        data = Data(**{name: options[name] for name in names if options.get(name) is not None})
        options["method"] = replace(method, minima=local_minima(points, law, data, method))
    parts, skipped = [], {}
    for fold in parted:
        rest, known_points = points.loc[fold.judged], points.loc[fold.fitted]
        try:
            if shared:
                fits = fit_shared(known_points, known.name, shared, bootstrap=0, **options)
            else:
                fits = {None: fit(known_points, law, bootstrap=0, **options)}
        except PointsError as reason:
            line = skipped[fold.label] = f"holding out {fold.label} leaves too little to fit: {reason}"
        else:
            judged = []
            for corpus, fitted in fits.items():
                own = rest if corpus is None else rest[rest["corpus"] == corpus]
                judged.append(_judged(fitted, own, schedules))
            parts.append(pd.concat(judged).assign(split=fold.label))
            line = f"{known.name}, {fold.label} held out: mean error {parts[-1]['relative_error'].abs().mean():.2%}"
        if log is not None:
            log(line)
    if not parts:
        raise PointsError(next(iter(skipped.values()), "no fold to hold out was given"))
    table = pd.concat(parts)
    table.attrs["skipped"] = skipped
    return table


def _judged(fitted: Fit, rest: pd.DataFrame, schedules: Schedules | None) -> pd.DataFrame:
    predicted, measured = fitted.predict(rest, schedules), columns_of(rest, ["loss"], fitted.equation)["loss"]
    return rest.assign(predicted=predicted, measured=measured, relative_error=predicted / measured - 1)


def _sizes(N: np.ndarray) -> list[Fold]:
    if len(np.unique(N)) < 2:
        raise PointsError(f"cannot hold out by size: there is one only, N = {N[0]:g}")
    return [_fold(f"N = {size:g}", size == N) for size in np.unique(N)]


def _thirds(**column: np.ndarray) -> list[Fold]:
    ((name, values),) = column.items()
    ends = values.max() * np.array([0.0, 1 / 3, 2 / 3, 1.0])
    inside = [(values > low if low else values >= 0) & (values <= high) for low, high in pairwise(ends)]
    named = (f"{name} {low:g} to {high:g}" for low, high in pairwise(ends))
    return [_fold(label, judged) for label, judged in zip(named, inside) if judged.any() and not judged.all()]


def _pairs(name: str, values: np.ndarray, short: str) -> list[Fold]:
    kinds = pd.unique(np.sort(values))
    if len(kinds) < 3:
        raise PointsError(f"cannot hold out by {name}: it takes three {name}s or more, there are {len(kinds)}")
    pairs = combinations(kinds, 2)
    return [_fold(f"{short} = {_text(a)}, {_text(b)}", np.isin(values, [a, b])) for a, b in pairs]


def _rolling(name: str, values: np.ndarray) -> list[Fold]:
    ends = values.max() * np.array([1 / 8, 1 / 4, 1 / 2, 1.0])
    parted = []
    for origin, end in pairwise(ends):
        fitted, judged = values <= origin, (values > origin) & (values <= end * (1 + 1e-12))
        if fitted.any() and judged.any():
            parted.append(Fold(f"{name} {origin:.4g} to {end:.4g}", fitted, judged))
    if not parted:
        raise PointsError(f"cannot roll the origin in {name}: no point has half the largest or less")
    return parted


def _horizon(D: np.ndarray) -> list[Fold]:
    parted = [D.max() / factor * (1 + 1e-9) >= D for factor in (2, 4, 8)]
    parted = [fitted for fitted in parted if fitted.sum() > 3]
    if not parted:
        raise PointsError("cannot roll the origin in D: fewer than four points have half the largest or less")
    return [Fold(f"D > {D[fitted].max():.4g}", fitted, ~fitted) for fitted in parted]


def _every_third_ratio(r: np.ndarray) -> list[Fold]:
    interior = np.unique(r)[1:-1]
    if not len(interior):
        raise PointsError("cannot hold out by ratio: it takes three ratios or more")
    chosen = interior[1::3] if len(interior) > 1 else interior
    return [_fold(f"r = {', '.join(_text(value) for value in chosen)}", np.isin(r, chosen))]


def _larger_for_longer(N: np.ndarray, D: np.ndarray) -> list[Fold]:
    largest, late = N.max() == N, D.max() / 2 < D
    if not (largest & late).any():
        late_half = "the largest size has no point in the second half of the tokens"
        raise PointsError(f"cannot hold out by size-and-tokens: {late_half}")
    return [Fold(f"N = {N.max():g} and D > {D.max() / 2:g}", ~largest & ~late, largest & late)]


def _fold(label: str, judged: np.ndarray) -> Fold:
    return Fold(label, ~judged, judged)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


SPLITS: dict[str, tuple[list[str], Callable[..., list[Fold]]]] = {
    "ratio": (["r"], _every_third_ratio),
    "tokens": (["D"], lambda D: [_fold(f"D > {2 / 3 * D.max():g}", 2 / 3 * D.max() < D)]),
    "size": (["N"], lambda N: _sizes(N)[-1:]),
    "size-and-tokens": (["N", "D"], _larger_for_longer),
    "each-size": (["N"], _sizes),
    "step-thirds": (["D"], _thirds),
    "ratio-pairs": (["r"], lambda r: _pairs("ratio", np.round(r, 9), "r")),
    "domain-pairs": ([], _pairs),
    "rolling-tokens": (["D"], lambda D: _rolling("D", D)),
    "rolling-compute": (["N", "D"], lambda N, D: _rolling("6 N D", 6 * N * D)),
    "horizon": (["D"], _horizon),
}
"""Split -> the columns that it reads and what parts them: see `folds`."""
