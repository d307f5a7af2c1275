"""How far do laws see? Errors and coverage by horizon: the target's tokens over the longest that was fitted.

    python -m docs.studies.horizon_errors

Every series of `horizon_series` is fitted up to a part of its tokens and predicts what follows, as far as 50 times: by
each law that a question would fit there and by their average, with the intervals of a recommendation; by the laws of
one curve, on each curve that has four fitted points, and by their average with laws of all points; and by a line on
logarithms through the last four points, by E + B D^-beta, and by chinchilla over all sizes. Every source has the same
weight, and so has every series of a source. Writes docs/results/horizon.csv, the table of docs/performance.md, for the
sets of docs/results/horizon-split.csv: points, mean error, what 90% intervals hold and their mean half-width over the
narrowest that is the same for all and holds 90%. The interval of `Fit.predict_interval` is that of one law.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pandas as pd

import fitting
from docs.studies.horizon_series import LADDER, all_series, apart_series
from docs.studies.law_errors import RESULTS, Series
from fitting import Fold, PointsError
from fitting.law_average import APART, AVERAGE, counted_at, errors_in_common
from fitting.laws.tokens import ONE_CURVE
from fitting.parallel import over_cores
from fitting.schedule import Schedules
from fitting.uncertainty import horizon, misfit
from fitting.uncertainty.misfit import FACTORS, NEXT, STAND_IN, extrapolation
from fitting.uncertainty.spread import HELD_OUT_HORIZON

ENDS = (1.5, 3.0, 6.0, 12.0, 24.0, 50.0)
"""Bounds of the horizons."""
PARTS = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
"""Parts of the largest D up to which a series is fitted."""
FITTED, JUDGED = 160, 40
"""Points of a series that are fitted, and that are judged beyond, at most."""
LEAST = 5
"""Points that are fitted at least."""
BASELINES = ("line", "E + B D^-beta", "chinchilla, all sizes")
OF_CURVE = (*ONE_CURVE, *BASELINES[:2])
OF_ALL = ("chinchilla", "openai", "dcpt")
"""Laws of all points that are averaged with those of one curve."""
CURVE, ONE_LAW, ROLLED = "average on one curve", "one law of one curve", "rolled"
CURVES = 5
"""Curves of a series that these are fitted to, at most."""


def origins(points: pd.DataFrame) -> Iterator[tuple[float, pd.DataFrame, pd.DataFrame]]:
    """Largest fitted D, the points up to there, and those that are judged: 1.5 to 50 times as far."""
    several = points["curve"].nunique() > 1 and points.groupby("curve")["D"].nunique().max() > 4
    may_fit = points["role"] == "fit" if "role" in points else np.ones(len(points), dtype=bool)
    longest, seen = points["D"].max(), set()
    for part in (1.0, *PARTS):
        fitted = points[may_fit & (points["D"] <= part * longest * (1 + 1e-9))]
        end = float(fitted["D"].max()) if len(fitted) else 0.0
        judged = points[(points["D"] > 1.5 * end) & (points["D"] <= 50 * end)]
        if "role" in points and not may_fit.all():
            judged = judged[~may_fit[judged.index]]
        steps = fitted.groupby("curve")["D"].nunique().max() if several and "step" in points else LEAST
        if len(fitted) < LEAST or judged.empty or end in seen or steps < LEAST - 1:
            continue
        seen.add(end)
        yield end, _some(fitted, FITTED), _some(judged, JUDGED)


def _some(points: pd.DataFrame, count: int) -> pd.DataFrame:
    return points.iloc[np.unique(np.linspace(0, len(points) - 1, min(count, len(points))).round().astype(int))]


def rolled(points: pd.DataFrame, curve: np.ndarray | None = None) -> list[Fold]:
    """Rolling origins within points: fitted to a half, a quarter, an eighth of D, judged on all that follows.

    With a mask of the points of a curve, it is the tokens of the curve, and only its points are judged.
    """
    values, folds = points["D"].to_numpy(), []
    own = np.ones(len(points), dtype=bool) if curve is None else curve
    for number, _ in pairwise((1, 2, 3, 4)):
        fitted = values <= values[own].max() / 2**number * (1 + 1e-9)
        if (fitted & own).sum() >= LEAST - 1:
            folds.append(Fold(f"{values[fitted & own].max():.9g}", fitted, ~fitted & own))
    return folds


def measured(job: tuple[Series, float, pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    """A row a judged point (inner: "") or a point that was held out of the fitted ones, and law."""
    warnings.simplefilter("ignore")
    series, end, fitted, judged = job
    kinds = extrapolation_of(fitted, judged)
    tables = [_baselines(fitted, judged)]
    for law in series.laws:
        reads_schedule = series.schedules is not None and law not in ("dcpt", "dcpt-free")
        schedules = series.schedules if reads_schedule else None
        splits = dict.fromkeys(split for kind in {*kinds.values()} for split in (kind, "tokens"))
        # Runs of a ladder end at different tokens, so that every curve has origins of its own.
        within = [] if law in LADDER else [rolled(fitted)]
        tables += [*_by_law(fitted, judged, law, schedules), *_held_out(fitted, law, [*within, *splits], schedules)]
    curves = [curve for curve, own in fitted.groupby("curve") if own["D"].nunique() >= LEAST - 1]
    for curve in [curve for curve in curves if curve in judged["curve"].to_numpy()][:CURVES]:
        own = (fitted["curve"] == curve).to_numpy()
        for law in ONE_CURVE:
            tables += _by_law(fitted[own], judged[judged["curve"] == curve], law)
            tables += _held_out(fitted[own], law, [rolled(fitted[own])])
        for law in {*series.laws} & {*LADDER}:
            tables += _held_out(fitted, law, [rolled(fitted, own)])
    table = pd.concat(tables)
    table["kind"] = [kinds.get(row, "") for row in table["row"]]
    # Of a curve how far it was fitted, of a law of all points how far any was.
    longest = np.where(table["law"].isin(OF_CURVE), table["curve"].map(fitted.groupby("curve")["D"].max()), end)
    table["horizon"] = np.where(table["horizon"].isna(), table["D"] / longest, table["horizon"])
    return table.assign(source=series.source, series=series.name, end=end)


def _by_law(
    fitted: pd.DataFrame, judged: pd.DataFrame, law: str, schedules: Schedules | None = None
) -> Iterator[pd.DataFrame]:
    try:
        fit = fitting.fit(fitted, law, bootstrap=0, schedules=schedules, few=True)
    except (PointsError, ValueError, np.linalg.LinAlgError):
        return
    yield _errors(judged, fit.predict(judged, schedules), law).assign(residual=fit.metrics["log_rmse"], runs=fit.n_runs)


def _held_out(
    fitted: pd.DataFrame, law: str, splits: list[str | list[Fold]], schedules: Schedules | None = None
) -> Iterator[pd.DataFrame]:
    """Errors on what was held out of the fitted points; a list of folds is `rolled`."""
    for split in splits:
        try:
            rows = fitting.held_out(fitted, law, split, schedules=schedules, few=True)
        except (PointsError, ValueError, np.linalg.LinAlgError):
            continue
        table = _errors(rows, rows["predicted"].to_numpy(), law)
        if isinstance(split, str):
            yield table.assign(inner=split)
            continue
        origin = rows["split"].astype(float)
        yield table.assign(inner=ROLLED, horizon=rows["D"] / origin, origin=origin)


def extrapolation_of(fitted: pd.DataFrame, judged: pd.DataFrame) -> dict[int, str]:
    """Row -> its kind by the ranges of the fitted points."""
    ranges = {name: (fitted[name].min(), fitted[name].max()) for name in ("N", "D")}
    return {row: extrapolation(ranges, N, D) for row, N, D in judged[["N", "D"]].itertuples()}


def _errors(rows: pd.DataFrame, predicted: np.ndarray, law: str) -> pd.DataFrame:
    error = np.log(rows["loss"].to_numpy() / np.maximum(predicted, 0.01))
    table = pd.DataFrame({"row": rows.index, "law": law, "error": error, "inner": "", "horizon": np.nan})
    return table.assign(**{name: rows[name].to_numpy() for name in ("N", "D", "curve")}).set_index(rows.index)


def _baselines(fitted: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """Laws of one curve of a series, where it has four points, and chinchilla."""
    tables = []
    for curve, rows in judged.groupby("curve"):
        own = fitted[fitted["curve"] == curve].sort_values("D")
        if own["D"].nunique() < 4:
            continue
        slope, level = np.polyfit(np.log(own["D"][-4:]), np.log(own["loss"][-4:]), 1)
        tables.append(_errors(rows, np.exp(level + slope * np.log(rows["D"].to_numpy())), "line"))
        fixed = {"A": 0.0, "alpha": 0.5}
        fit = fitting.fit(own, "chinchilla", bootstrap=0, fix=fixed, few=True)
        tables.append(_errors(rows, fit.predict(rows), BASELINES[1]))
    if fitted["N"].nunique() > 2 and fitted["curve"].nunique() > 2:
        fit = fitting.fit(fitted, "chinchilla", bootstrap=0, few=True)
        tables.append(_errors(judged, fit.predict(judged), BASELINES[2]))
    return pd.concat(tables) if tables else pd.DataFrame()


def of_question(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The judged points of one origin, by each law that a question fits and by their average.

    `half` is the half-width that a recommendation takes.
    """
    judged = rows[(rows["inner"] == "") & ~rows["law"].isin([*BASELINES, *ONE_CURVE])]
    inner = rows[(rows["inner"] != "") & (rows["inner"] != ROLLED)]
    for kind, own in judged.groupby("kind"):
        laws = list(own["law"].unique())
        tables = {
            split: inner[inner["inner"] == split].pivot_table(index="row", columns="law", values="error").dropna()
            for split in NEXT[str(kind)]
        }
        split = next((name for name, table in tables.items() if {*laws} <= {*table} and len(table)), None)
        if split is None:
            continue
        answers = _Answers(own, tables[split][laws], str(kind), split)
        for law in laws:
            yield answers.table(law, *answers.half_widths(np.tile(np.array(laws) == law, (len(answers.first), 1))))
        if len(laws) > 1:
            yield answers.table(AVERAGE, *answers.half_widths(answers.weights(answers.horizon)))


class _Answers:
    """The judged points (n) of one origin and kind, and what laws err on them and on what was held out.

    As `LawAverage` and `Spread` have them of fits.
    """

    def __init__(self, own: pd.DataFrame, known: pd.DataFrame, kind: str, split: str) -> None:
        self.laws, self.known, self.kind, self.split = list(known), known.to_numpy(), kind, split
        errors = own.pivot_table(index="row", columns="law", values="error")[self.laws].dropna()
        self.errors, of_law = errors.to_numpy(), own.groupby("law")[["residual", "runs"]].first().loc[self.laws]
        self.first = own[own["law"] == self.laws[0]].set_index("row", drop=False).loc[errors.index]
        self.residual, self.runs = of_law["residual"].to_numpy(), of_law["runs"].to_numpy()
        self.horizon = self.first["horizon"].to_numpy()

    def table(self, law: str, error: np.ndarray, half: np.ndarray) -> pd.DataFrame:
        """The points with what answers."""
        return self.first.assign(law=law, error=error, half=half)

    def weights(self, horizons: np.ndarray) -> np.ndarray:
        """Weights (n, laws) at horizons (n,)."""
        errors = dict(zip(self.laws, self.known.T))
        each = (fitting.law_weights(errors, counted_at(self.laws, ahead), ahead) for ahead in horizons)
        return np.array([[weight.get(law, 0.0) for law in self.laws] for weight in each])

    def half_widths(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors (n,) and half-widths (n,) of the mean by weights (n, laws)."""
        error = np.sum(self.errors * weights, axis=1)
        apart = APART * np.sqrt(np.sum((self.errors - error[:, None]) ** 2 * weights, axis=1))
        return error, np.hypot([self._half(*row) for row in zip(weights, self.horizon)], apart)

    def _half(self, weight: np.ndarray, ahead: float) -> float:
        used, missed, several = weight > 0, self.known @ weight, (weight > 0).sum() > 1
        root, residual = float(np.sqrt(np.mean(missed**2))), float(np.sqrt(self.residual**2 @ weight))
        factor = FACTORS[self.kind] * (1.0 if self.split == self.kind else STAND_IN)
        if several:
            factor = misfit.average_factor(self.kind, errors_in_common(self.known[:, used], weight[used]))
        longest = HELD_OUT_HORIZON.get(self.split)
        growth = [root / np.log(longest) ** horizon.POWER] if longest else []
        law = "average" if several else horizon.kind_of(self.laws[int(np.argmax(weight))])
        half = misfit.half_width(missed, residual, factor, int(self.runs[used].min()))
        return max(half, float(horizon.half_width(np.array([ahead]), growth, residual, law)[0]))


def of_one_curve(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The judged points of one origin by the laws of one curve, and by their average with laws of all points.

    The average is that of `fitting.average` with `curve`.
    """
    every = rows[rows["law"].isin([*ONE_CURVE, *OF_ALL])]
    for _, own in every.groupby("curve"):
        judged, inner = own[own["inner"] == ""], own[own["inner"] == ROLLED]
        laws = [law for law in (*ONE_CURVE, *OF_ALL) if law in set(judged["law"])]
        if not {*laws} & {*ONE_CURVE}:
            continue
        for law in (law for law in laws if law in ONE_CURVE):
            alone = judged[judged["law"] == law].set_index("row", drop=False)
            half = horizon.half_width(alone["horizon"].to_numpy(), [], float(alone["residual"].iloc[0]))
            yield alone.assign(half=half, law=ONE_LAW)
        errors = inner.pivot_table(index=["row", "origin"], columns="law", values="error").dropna()
        weight, growth = dict.fromkeys(laws, 1 / len(laws)), []
        if len(errors) and {*laws} <= {*errors}:
            weight = fitting.law_weights({law: errors[law].to_numpy() for law in laws})
            row, origin = (errors.index.get_level_values(level).to_numpy() for level in (0, 1))
            ahead = own.drop_duplicates("row").set_index("row")["D"].loc[row].to_numpy() / origin
            growth = horizon.growth_of(errors[laws].to_numpy() @ [weight[law] for law in laws], ahead, origin)
        part = pd.Series(weight)
        known = judged.pivot_table(index="row", columns="law", values="error")[list(weight)].dropna()
        table = judged[judged["law"] == part.index[0]].set_index("row", drop=False).loc[known.index]
        residual = float(np.sqrt(judged.groupby("law")["residual"].first()[part.index] ** 2 @ part))
        half = horizon.half_width(table["horizon"].to_numpy(), growth, residual, "curve")
        yield table.assign(error=known @ part, half=half, law=CURVE)


def weighted(rows: pd.DataFrame) -> np.ndarray:
    """Weights (n,): each source the same, and each series of a source."""
    series = rows.groupby(["source", "series"])["row"].transform("size")
    return (1 / (series * rows.groupby("source")["series"].transform("nunique"))).to_numpy(float)


def coverage(rows: pd.DataFrame) -> pd.Series:
    """Points, mean error, part inside, mean half-width over the narrowest that holds 90%."""
    weight, error = weighted(rows), rows["error"].abs().to_numpy()
    order = np.argsort(error)
    narrowest = error[order][np.searchsorted(np.cumsum(weight[order]) / weight.sum(), 0.9)]
    known = np.isfinite(rows["half"].to_numpy(float))
    return pd.Series(
        {
            "points": len(rows),
            "error": np.average(error, weights=weight),
            "inside": np.nan if rows["half"].isna().all() else np.average(error <= rows["half"], weights=weight),
            # A law that predicts less than nothing at a fitted point has no residual; its interval holds nothing.
            "width": np.average(rows["half"][known], weights=weight[known]) / narrowest if known.any() else np.nan,
        }
    )


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """`coverage` of all sources and of each, by what was judged and horizon."""
    judged = [*(table for _, one in rows.groupby(["source", "series", "end"]) for table in of_question(one))]
    judged += [*(table for _, one in rows.groupby(["source", "series", "end"]) for table in of_one_curve(one))]
    table = pd.concat(judged)
    table["judged"] = np.where(table["law"].isin([AVERAGE, CURVE, ONE_LAW]), table["law"], "one law")
    compared = pd.concat([table[table["law"] == CURVE], rows[rows["law"].isin(BASELINES) & (rows["inner"] == "")]])
    laws = compared.groupby(["source", "series", "end", "row"])["law"]
    shared = compared[laws.transform("nunique") == compared.groupby("source")["law"].transform("nunique")]
    shared = shared.assign(judged=shared["law"] + ", same points")
    shared["half"] = np.nan
    every = pd.concat([table, shared])
    parts = {"all": table, **dict(tuple(every.groupby("source")))}
    tables = [
        own.groupby(["judged", "bin"], observed=True)[[*own]].apply(coverage).assign(source=source)
        for source, own in parts.items()
    ]
    return pd.concat(tables).reset_index().set_index(["source", "judged", "bin"])


def main() -> None:
    """Measure, write and print; both sets of docs/results/horizon-split.csv, each with its own means."""
    tables = []
    for name, all_of_set in (("learn", all_series), ("apart", apart_series)):
        jobs = [(series, *origin) for series in all_of_set() for origin in origins(series.points)]
        rows = pd.concat(over_cores(measured, jobs), ignore_index=True)
        rows["bin"] = pd.cut(rows["horizon"], ENDS).astype(str)
        tables.append(pd.concat({name: summary(rows)}, names=["set"]))
    table = pd.concat(tables)
    table.round(4).to_csv(RESULTS / "horizon.csv")
    print(table.xs("all", level="source").to_markdown(floatfmt=".3g"))


if __name__ == "__main__":
    main()
