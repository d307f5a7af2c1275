"""What 90% intervals hold of the points that no fit saw, by kind of extrapolation.

19 series: both corpora of usages-small, general and domain of the three pairs of the public trials (their cosine runs),
and the six domains of dcpt-six-small. Of each series the ratios, tokens, sizes, or size and tokens that `fitting.folds`
names are left out, and the rest is fitted; on the rest the same is done once more, which gives the errors that an
interval is made of. Each law is judged, and the average of all. Every series has the same weight. The factors of
`fitting.uncertainty.misfit` make the coverage 90% here, so each is also judged by the factor that the other sources of
runs ask for.

python -m tests.benchmarks misfit
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import fitting
from docs.studies.law_errors import has_trials, trials
from fitting import PointsError
from fitting.law_average import APART, AVERAGE
from fitting.parallel import over_cores
from fitting.schedule import Schedules
from fitting.uncertainty.misfit import AVERAGE_FACTORS, FACTORS, NEXT, STAND_IN, half_width
from pipeline.papers.dcpt.points import DomainPoints
from pipeline.study.fits import shared_folds
from tests.benchmarks import Row, row
from tests.benchmarks.agreement import DOMAINS, RESULTS

LAWS = {"dcpt": (60, 0.1), "transfer-anchored": (5, 0.0), "transfer-scaled": (5, 0.0), "transfer-replay": (5, 0.0)}
"""Law -> the first step and the smallest ratio that it is fitted to, as conf/law has them."""
NARROW = 0.7
"""Part of the width at which the grid of the quickstart would answer within .08."""


def all_series() -> Iterator[tuple[str, str, pd.DataFrame, Schedules | None]]:
    """Source, name, points and schedules of each series."""
    points = pd.read_parquet(RESULTS / "usages-small/points.parquet")
    for corpus, series in points[_fitted(points)].groupby("corpus"):
        yield "usages", str(corpus), series, None
    for one in trials() if has_trials() else []:
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
    """The points that are left out of one series for one kind, by every law and by their average.

    Their error, the laws' disagreement and the half-width at factor 1, on points that every law predicted.
    """
    source, name, points, schedules, kind = job
    admitted = {law: (points["step"] >= step) & (points["r"] >= r) for law, (step, r) in LAWS.items()}
    shared = points[np.logical_and.reduce(list(admitted.values()))]
    errors, known, residuals, read = {}, {}, {}, set()
    for law, chosen in admitted.items():
        own, of_law = points[chosen], None if law == "dcpt" else schedules
        try:
            (fold,) = shared_folds(own, shared, kind)
            judged = fitting.held_out(own, law, [fold], of_law)
            fit = fitting.fit(own[fold.fitted], law, schedules=of_law, bootstrap=0)
        except PointsError:
            continue
        errors[law], residuals[law] = log_errors(judged), fit.metrics["log_rmse"]
        read = {*own.loc[fold.fitted, "run"]}
        rest, of_rest = own[fold.fitted], shared[shared.index.isin(own.index[fold.fitted])]
        for inner in NEXT[kind]:
            try:
                known[law, inner] = log_errors(fitting.held_out(rest, law, shared_folds(rest, of_rest, inner), of_law))
            except PointsError:
                continue
    inner = next((one for one in NEXT[kind] if all((law, one) in known for law in errors)), None)
    if len(errors) < 2 or inner is None:
        return pd.DataFrame()
    inside = pd.DataFrame({law: known[law, inner] for law in errors}).dropna()
    missed = pd.DataFrame(errors).dropna()
    if inside.empty or missed.empty:
        return pd.DataFrame()
    weights = pd.Series(fitting.law_weights({law: inside[law].to_numpy() for law in errors}))
    weights_of = {law: pd.Series({law: 1.0}) for law in errors} | {AVERAGE: weights}
    tables = []
    for law, weight in weights_of.items():
        mean = missed[weight.index] @ weight
        apart = np.sqrt((missed[weight.index].sub(mean, axis=0) ** 2) @ weight)
        residual = float(np.sqrt(weight @ pd.Series(residuals)[weight.index] ** 2))
        unit = half_width((inside[weight.index] @ weight).to_numpy(), residual, 1.0, len(read))
        tables.append(pd.DataFrame({"error": mean.abs(), "apart": APART * apart, "unit": unit, "law": law}))
    table = pd.concat(tables)
    return table.assign(source=source, series=name, kind=kind, inner=inner, weight=1 / len(missed))


def log_errors(judged: pd.DataFrame) -> pd.Series:
    """Logarithm of measured over predicted."""
    return pd.Series(np.log(judged["measured"] / judged["predicted"]).to_numpy(), index=judged.index)


def quantile(values: pd.Series, weights: pd.Series, level: float = 0.9) -> float:
    """The weighted quantile."""
    order = np.argsort(values.to_numpy())
    reached = np.cumsum(weights.to_numpy()[order]) / weights.sum()
    return float(values.to_numpy()[order][np.searchsorted(reached, level)])


def factor(rows: pd.DataFrame) -> float:
    """The factor of the half-widths that holds 90% of the errors, beside the disagreement of the laws."""
    own = np.sqrt(np.maximum(rows["error"] ** 2 - rows["apart"] ** 2, 0.0))
    return quantile(own / rows["unit"], rows["weight"])


def measure() -> Iterator[Row]:
    """Rows of the benchmark: coverage, width and coverage of other sources, for each kind."""
    jobs = [(*series, kind) for series in all_series() for kind in FACTORS]
    table = pd.concat(over_cores(held_out_points, jobs), ignore_index=True)
    table["stand_in"] = np.where(table["inner"] == table["kind"], 1.0, STAND_IN)
    table["judged"] = np.where(table["law"] == AVERAGE, AVERAGE, "one law")
    for (kind, judged), rows in table.groupby(["kind", "judged"], sort=False):
        weight = rows["weight"]
        factors = AVERAGE_FACTORS[str(kind)] if judged == AVERAGE else FACTORS[str(kind)] * rows["stand_in"]
        half = np.hypot(factors * rows["unit"], rows["apart"])
        width = float(np.average(half, weights=weight)) / quantile(rows["error"], weight)
        others = []
        for source, some in rows.groupby("source"):
            rest = rows[rows["source"] != source]
            if len(rest):
                held = some["error"] <= np.hypot(factor(rest) * some["unit"], some["apart"])
                others.append(f"{source} {np.average(held, weights=some['weight']):.0%}")
        mean = float(np.average(rows["error"], weights=weight))
        meaning = (
            f"coverage of 90% intervals of {judged}, {len(rows)} points of {rows.groupby(['series', 'law']).ngroups} "
            f"fits; mean error {mean:.2%}; width {width:.2f} times the narrowest constant; factor by 90%: "
            f"{factor(rows):.2f}; by the other sources: {', '.join(others)}; at {NARROW:g} of the width "
            f"{np.average(rows['error'] <= NARROW * half, weights=weight):.0%}"
        )
        held = float(np.average(rows["error"] <= half, weights=weight))
        yield row(f"misfit {kind}, {judged}", held, "", meaning)
