"""All that is wrong with points before a law is fitted to them, not only what comes first."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pandas as pd

from fitting.laws import LAWS
from fitting.laws.unknown import UNKNOWN, with_unknown
from fitting.points import (
    PointsError,
    duplicated,
    law_named,
    missing,
    mixture_columns,
    not_enough,
    not_numbers,
    out_of_range,
    with_value,
)


def problems(
    points: pd.DataFrame,
    law: str,
    *,
    fix: Mapping[str, float] | None = None,
    unknown: Collection[str] = (),
) -> list[str]:
    """What keeps a law from being fitted to points, a line each; none: `fit` will take them.

    Arguments as in `fit`, with s1 and s2 as columns. Where columns are missing or wrong in themselves, it is not asked
    whether they suffice.

    >>> problems(pd.DataFrame({"N": [1e9, 2e9], "D": [1, -1]}), "chinchilla")[0]
    'missing column: loss; the table has N, D'
    """
    try:
        return list(_problems(points, law, fix or {}, unknown))
    except PointsError as error:
        return [str(error)]


def _problems(points: pd.DataFrame, law: str, fix: Mapping[str, float], unknown: Collection[str]) -> Iterator[str]:
    chosen = law_named(law, LAWS)
    if chosen.among is not None:
        chosen = chosen.among(mixture_columns(points))
    for name in unknown:
        chosen = with_unknown(chosen, name) if name in UNKNOWN and name in chosen.columns else chosen
    names = [*chosen.columns, "loss"]
    wrong = [line] if (line := missing(points, names)) else []
    points = points.loc[with_value(points, chosen)]
    x: dict[str, np.ndarray] = {}
    for name in names:
        if name not in points.columns:
            continue
        if line := not_numbers(points, name):
            wrong.append(line)
            continue
        x[name] = points[name].to_numpy(dtype=float)
        if line := out_of_range(name, x[name], points.index):
            wrong.append(line)
    if line := duplicated(points):
        wrong.append(line)
    yield from wrong
    if not wrong:
        yield from not_enough(x, chosen, sum(p.name not in fix for p in chosen.parameters), fix)
