"""What 90% intervals hold of the points that no fit saw, by kind of extrapolation.

20 series: both corpora of usages-small, general and domain of the three pairs of the public trials (their cosine runs),
and the six domains of dcpt-six-small. Of each series the ratios, tokens, sizes, or size and tokens that `fitting.folds`
names are left out, and the rest is fitted; on the rest the same is done once more, which gives the errors that an
interval is made of. Every law on every series has the same weight. The factors of `fitting.uncertainty.misfit` make the
coverage 90% here, so each is also judged by the factor that the other sources of runs ask for.

python -m tests.benchmarks misfit
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import fitting
from docs.studies.transfer_points import read_series, there
from fitting import PointsError
from fitting.parallel import over_cores
from fitting.schedule import Schedules
from fitting.uncertainty.misfit import FACTORS, half_width
from pipeline.paper_tables.dcpt.points import DomainPoints
from tests.benchmarks import Row, row
from tests.benchmarks.agreement import DOMAINS, RESULTS

LAWS = {"dcpt": (60, 0.1), "transfer-anchored": (5, 0.0), "transfer-scaled": (5, 0.0)}
"""Law -> the first step and the smallest ratio that it is fitted to, as conf/law has them."""


def all_series() -> Iterator[tuple[str, str, pd.DataFrame, Schedules | None]]:
    """Source, name, points and schedules of each series."""
    points = pd.read_parquet(RESULTS / "usages-small/points.parquet")
    for corpus, series in points[_fitted(points)].groupby("corpus"):
        yield "usages", str(corpus), series, None
    for one in read_series() if there() else []:
        yield (
            "trials",
            one.name,
            one.points[(one.points["schedule"] == "cos") & (one.points["peak"] == 1e-3)],
            (one.schedules),
        )
    points = pd.read_parquet(RESULTS / "dcpt-six-small/points.parquet")
    study = DomainPoints(points[_fitted(points)], "general", DOMAINS, from_step=5)
    for domain in DOMAINS:
        for corpus in ("G", "D"):
            yield "six domains", f"{domain} {corpus}", study.fitted(domain, corpus), None


def _fitted(points: pd.DataFrame) -> pd.Series:
    return (points["phase"] == "continual") & (points["role"] == "fit") & (points["step"] > 0)


def held_out_points(job: tuple) -> pd.DataFrame:
    """The points that are left out of one series for one law and kind: their error, and the half-width at factor 1."""
    source, name, points, schedules, law, kind = job
    from_step, min_ratio = LAWS[law]
    points = points[(points["step"] >= from_step) & (points["r"] >= min_ratio)].reset_index(drop=True)
    schedules = None if law == "dcpt" else schedules
    try:
        (fold,) = fitting.folds(points, kind)
        judged = fitting.held_out(points, law, kind, schedules)
        inner = fitting.held_out(points[fold.fitted], law, kind, schedules)
        residual = fitting.fit(points[fold.fitted], law, schedules=schedules, bootstrap=0).metrics["log_rmse"]
    except PointsError:
        return pd.DataFrame()
    errors, known = (np.log(rows["measured"] / rows["predicted"]).to_numpy() for rows in (judged, inner))
    width = half_width({kind: known}, residual, kind)
    assert width is not None
    table = pd.DataFrame({"error": np.abs(errors), "unit": width / FACTORS[kind], "weight": 1 / len(errors)})
    return table.assign(source=source, series=name, law=law, kind=kind)


def quantile(values: pd.Series, weights: pd.Series, level: float = 0.9) -> float:
    """The weighted quantile."""
    order = np.argsort(values.to_numpy())
    reached = np.cumsum(weights.to_numpy()[order]) / weights.sum()
    return float(values.to_numpy()[order][np.searchsorted(reached, level)])


def measure() -> Iterator[Row]:
    """Rows of the benchmark: coverage, width and coverage of other sources, for each kind."""
    jobs = [(*series, law, kind) for series in all_series() for law in LAWS for kind in FACTORS]
    table = pd.concat(over_cores(held_out_points, jobs), ignore_index=True)
    for kind, rows in table.groupby("kind", sort=False):
        factor, weight = FACTORS[str(kind)], rows["weight"]
        inside = rows["error"] <= factor * rows["unit"]
        width = float(np.average(factor * rows["unit"], weights=weight)) / quantile(rows["error"], weight)
        others = []
        for source, some in rows.groupby("source"):
            rest = rows[rows["source"] != source]
            if len(rest):
                asked = quantile(rest["error"] / rest["unit"], rest["weight"])
                held = np.average(some["error"] <= asked * some["unit"], weights=some["weight"])
                others.append(f"{source} {held:.0%}")
        meaning = (
            f"coverage of 90% intervals, {len(rows)} points of {rows.groupby(['series', 'law']).ngroups} fits; width "
            f"{width:.2f} times the narrowest constant; factor by 90%: "
            f"{quantile(rows['error'] / rows['unit'], weight):.2f}; by the other sources: {', '.join(others)}"
        )
        yield row(f"misfit {kind}", float(np.average(inside, weights=weight)), "", meaning)
