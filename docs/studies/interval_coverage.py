"""What 90% intervals hold of the points that no fit saw, by kind of extrapolation, and where few runs are fitted.

    python -m docs.studies.interval_coverage         # by kind of extrapolation
    python -m docs.studies.interval_coverage few     # 4, 6 or 9 runs of a series, drawn at random, three times each
    python -m docs.studies.interval_coverage none    # runs without the corpus: do laws help that read none such?

19 series: both corpora of usages-small, general and domain of the three pairs of the transfer trials (their cosine
runs), and the six domains of dcpt-six-small. By kind: of each series the ratios, tokens, sizes, or size and tokens that
`fitting.folds` names are left out, and the rest is fitted; on the rest the same is done once more, which gives the
errors that an interval is made of. Each law is judged, and the average of all, and of those that know learning rates,
which are nearly one. Every series has the same weight. The factors of `fitting.uncertainty.misfit` make the coverage
90% here, so each is also judged by the factor that the other sources of runs ask for. Few runs: each draw is fitted and
tested as `cptlaw fit` does, the last points of all other runs are predicted, and answers asked for whose domain ratio
such a run has. None: late tokens, or the largest size, are left out, and of these the ends of runs at ratio 0 are
predicted, of which dcpt has read none.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.studies.law_errors import Series, has_trials, kept_series, last_points, trials
from fitting import PointsError
from fitting.law_average import APART, AVERAGE, LEAST_LOSS, errors_in_common, own_column
from fitting.parallel import over_cores
from fitting.schedule import ANNEALING
from fitting.uncertainty.misfit import FACTORS, NEXT, STAND_IN, average_factor, half_width
from pipeline.study.fits import SPLITS, horizon_weights, shared_folds, with_average

LAWS = {"dcpt": (60, 0.1), "transfer-anchored": (5, 0.0), "transfer-scaled": (5, 0.0), "transfer-replay": (5, 0.0)}
"""Law -> the first step and the smallest ratio that it is fitted to, as their `study` has them."""
ALIKE = "average of laws alike"
NARROW = 0.7
"""Part of the width at which the grid of the quickstart would answer within .08."""


COUNTS, DRAWS = (4, 6, 9), 3
MANY = 1_000_000
"""Runs whose number widens no interval."""
RIGHT = 1e-3
"""Distance of a ratio to an end of an interval that still counts as inside: the grid's."""
RATIOS = ("ratio", "ratio half", "ratio held")


def all_series() -> Iterator[Series]:
    """The kept series, and the cosine runs of the trials."""
    yield from kept_series()
    for one in trials() if has_trials() else []:
        p = one.points
        yield replace(one, points=p[(p["schedule"] == "cos") & (p["peak"] == 1e-3)])


def held_out_points(job: tuple[Series, str]) -> pd.DataFrame:
    """The points that are left out of one series for one kind, by every law and by their average.

    Their error, the laws' disagreement and the half-width at factor 1, on points that every law predicted.
    """
    series, kind = job
    points, schedules = series.points, series.schedules
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
    alike = [law for law in errors if law != "dcpt"]
    averaged = {AVERAGE: [*errors]} | ({ALIKE: alike} if len(alike) > 1 else {})
    weights_of = {law: pd.Series({law: 1.0}) for law in errors} | {
        name: pd.Series(fitting.law_weights({law: inside[law].to_numpy() for law in laws}))
        for name, laws in averaged.items()
    }
    tables = []
    for law, weight in weights_of.items():
        of_laws, of_all = inside[weight.index], inside[weight.index] @ weight
        mean = missed[weight.index] @ weight
        apart = np.sqrt((missed[weight.index].sub(mean, axis=0) ** 2) @ weight)
        residual = float(np.sqrt(weight @ pd.Series(residuals)[weight.index] ** 2))
        unit = half_width(of_all.to_numpy(), residual, 1.0, len(read))
        in_common = errors_in_common(of_laws.to_numpy(), weight.to_numpy())
        row = {"apart": APART * apart, "unit": unit, "law": law, "average factor": average_factor(kind, in_common)}
        tables.append(pd.DataFrame({"error": mean.abs(), **row}))
    table = pd.concat(tables)
    return table.assign(source=series.source, series=series.name, kind=kind, inner=inner, weight=1 / len(missed))


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


def by_kind() -> pd.DataFrame:
    """A row a kind and what was judged: coverage of 90%, mean error, width over the narrowest constant, and factors."""
    jobs = [(series, kind) for series in all_series() for kind in FACTORS]
    table = pd.concat(over_cores(held_out_points, jobs), ignore_index=True)
    table["stand_in"] = np.where(table["inner"] == table["kind"], 1.0, STAND_IN)
    table["judged"] = table["law"].where(table["law"].isin([AVERAGE, ALIKE]), "one law")
    summary = {}
    for (kind, judged), rows in table.groupby(["kind", "judged"], sort=False):
        weight = rows["weight"]
        factors = FACTORS[str(kind)] * rows["stand_in"] if judged == "one law" else rows["average factor"]
        half = np.hypot(factors * rows["unit"], rows["apart"])
        row = {
            "points": len(rows),
            "fits": rows.groupby(["series", "law"]).ngroups,
            "mean error": np.average(rows["error"], weights=weight),
            "coverage": np.average(rows["error"] <= half, weights=weight),
            "width": np.average(half, weights=weight) / quantile(rows["error"], weight),
            "factor by 90%": factor(rows),
            f"coverage at {NARROW:g}": np.average(rows["error"] <= NARROW * half, weights=weight),
        }
        for source, some in rows.groupby("source"):
            if len(rest := rows[rows["source"] != source]):
                held = some["error"] <= np.hypot(factor(rest) * some["unit"], some["apart"])
                row[f"{source}, factor of others"] = np.average(held, weights=some["weight"])
        summary[f"{kind}, {judged}"] = row
    return pd.DataFrame(summary)


def points_of_other_runs(job: tuple[Series, int, int]) -> pd.DataFrame:
    """The last points of the runs of a series that were not drawn, predicted and asked about as a study would.

    Their error, and the half-width of the interval with and without what it is widened by because runs are few. Of
    general also the answer of `fitting.trade_off` where the tolerance is what a run measured, so that its domain ratio
    is right: the miss, and whether the interval holds it.
    """
    series, count, seed = job
    points, schedules = series.points, series.schedules
    random = np.random.default_rng([seed, count, sum(map(ord, series.source + series.name))])
    drawn = points["run"].isin(random.choice(points["run"].unique(), count, replace=False))
    admitted = {law: points[drawn & (points["step"] >= step) & (points["r"] >= r)] for law, (step, r) in LAWS.items()}
    shared = points[drawn & np.logical_and.reduce([points.index.isin(own.index) for own in admitted.values()])]
    fits, parts = dict[str, fitting.Fit](), []
    for law, own in admitted.items():
        of_law = None if law == "dcpt" else schedules
        try:
            fits[law] = fitting.fit(own, law, schedules=of_law, bootstrap=0, few=True)
        except PointsError:
            continue
        for split in SPLITS:
            try:
                judged = fitting.held_out(own, law, shared_folds(own, shared, split), of_law, few=True)
            except PointsError:
                continue
            judged = judged[judged.index.isin(shared.index)]
            parts.append(judged.assign(law=law, split=split, corpus=series.name))
    if len(fits) < 2 or not parts:
        return pd.DataFrame()
    tested, rows = pd.concat(parts), []
    for _, end in last_points(points[~drawn & (points["r"] >= max(r for _, r in LAWS.values()))]).iterrows():
        weight = horizon_weights({series.name: fits}, tested, end["N"], end["D"])
        if not weight[series.name]:
            continue
        average = with_average({series.name: fits}, weight, tested)[series.name][AVERAGE]
        assert isinstance(average, fitting.LawAverage)
        many = replace(average, fits={law: replace(fit, n_runs=MANY) for law, fit in average.fits.items()})
        frame = pd.DataFrame([end])
        for law, fit in average.fits.items():
            areas = fitting.with_areas(frame, schedules, fit.decay) if schedules else frame
            frame = frame.assign(**{own_column(law, name): areas[name] for name in ANNEALING if name in areas})
        half, plain = (np.log(of.predict_interval(frame)[1] / of.predict(frame))[0] for of in (average, many))
        error = abs(np.log(end["loss"]) - np.log(average.predict(frame)[0]))
        row = {"error": error, "half": half, "plain": plain, "kind": average.spread.kind(end["N"], end["D"])}
        domain_ratio = 1 - end["r"]
        if series.kind == "general" and 0 < domain_ratio < 1:
            at = {name: float(frame[name].iloc[0]) for name in average.columns if name not in ("N", "D", "r")}
            before, size = end["loss_before"], (end["N"], end["D"])
            sides = {"general_at": at, "domain_at": at}
            answer = fitting.trade_off(average, average, *size, end["loss"] / before - 1, before, **sides)
            ratio, low, high = (side or 0.0 for side in (answer.domain_ratio, answer.low, answer.high))
            inside = low - RIGHT <= domain_ratio <= high + RIGHT
            row |= {"ratio": abs(ratio - domain_ratio), "ratio half": (high - low) / 2, "ratio held": inside}
        rows.append(row)
    return pd.DataFrame(rows).assign(source=series.source, runs=count, weight=1 / max(len(rows), 1))


def coverage(rows: pd.DataFrame) -> pd.Series:
    """Coverage with and without the widening, mean error and half-width, of losses and ratios; a draw weighs alike."""
    held = {"held": rows["error"] <= rows["half"], "held by plain": rows["error"] <= rows["plain"]}
    table = rows[["error", "half"]].assign(**held)
    means = {name: np.average(values, weights=rows["weight"]) for name, values in table.items()} | {"n": len(rows)}
    asked = rows.dropna(subset="ratio")
    ratios = {f"mean {name}": np.average(asked[name].astype(float), weights=asked["weight"]) for name in RATIOS}
    return pd.Series(means | ratios | {"answers": len(asked)})


def without_the_corpus(job: tuple[Series, str]) -> pd.DataFrame:
    """Log errors at the ends of runs at ratio 0 that were left out: of dcpt, and of plain means with and without it."""
    series, kind = job
    points = series.points
    try:
        (fold,) = fitting.folds(points, kind)
        ends, logs = last_points(points[fold.judged]).query("r == 0"), {}
        for law, (step, r) in LAWS.items():
            own = points[fold.fitted & (points["step"] >= step) & (points["r"] >= r)]
            fit = fitting.fit(own, law, schedules=None if law == "dcpt" else series.schedules, bootstrap=0, few=True)
            logs[law] = np.log(np.maximum(fit.predict(ends), LEAST_LOSS))
    except PointsError:
        return pd.DataFrame()
    table = pd.DataFrame(logs, index=ends.index).sub(np.log(ends["loss"]), axis=0)
    means = {"dcpt": table["dcpt"], "with": table.mean(axis=1), "without": table.drop(columns="dcpt").mean(axis=1)}
    return pd.DataFrame(means).assign(source=series.source, series=series.name, kind=kind)


def main(part: str = "") -> None:
    """Measure and print, by kind of extrapolation, of few runs or of runs without the corpus."""
    if part == "none":
        table = pd.concat(over_cores(without_the_corpus, list(product(all_series(), ("tokens", "size")))))
        squares = table.groupby(["source", "kind", "series"])[["dcpt", "with", "without"]].agg(lambda e: (e**2).mean())
        print((squares**0.5).groupby(["source", "kind"]).agg(["mean", "size"]).round(4).to_string())
        return
    if part != "few":
        print(by_kind().to_markdown(floatfmt=".4g"))
        return
    jobs = [(series, count, seed) for series in all_series() for count in COUNTS for seed in range(DRAWS)]
    table = pd.concat(over_cores(points_of_other_runs, jobs), ignore_index=True)
    table = table[np.isfinite(table["error"])]
    for by in ("runs", "kind", "source"):
        print(table.groupby(by)[[*table]].apply(coverage).round(3).to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
