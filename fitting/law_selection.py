"""Comparison of laws by their errors on held-out points."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fitting.cross_validation import SPLITS, Fold, folds, held_out
from fitting.estimation import fit
from fitting.fitted import Fit
from fitting.law_average import LEAST_LOSS, LawAverage, law_weights
from fitting.laws import LAWS, UNKNOWN, Law
from fitting.laws.tokens import ONE_CURVE
from fitting.points import PointsError, law_named, missing, mixture_columns, resolve_law, with_value
from fitting.schedule import ANNEALING, LAMBDA, Schedules
from fitting.uncertainty.horizon import growth_of

DEFAULT = ("each-size", "step-thirds", "ratio-pairs", "size-and-tokens")
"""What a small study is to predict: another size, a longer run, another ratio, a larger model for longer."""
PREDICTED = {
    "ratio": "a ratio that was not run",
    "tokens": "a run half as long again",
    "size": "a larger size",
    "size-and-tokens": "a larger model trained for longer",
    "each-size": "a size that was not run",
    "step-thirds": "steps that were not run",
    "ratio-pairs": "a ratio that was not run",
    "domain-pairs": "a domain that was not run",
    "rolling-tokens": "up to twice the tokens",
    "rolling-compute": "up to twice the compute",
    "horizon": "all that follows a half, a quarter, an eighth of the tokens",
}
"""Split -> what it asks a law to predict."""
FOLLOWS = 0.5
"""R2 below which a law of one curve does not follow its points: a choice. On 143 halves and quarters of public curves
three lost a law by it, the mean error stayed at 1.00%, and of 33 it was said that no law follows them."""
LEVEL = 0.002
"""A mean error below this is no worse than the mean: held-out losses that hardly differ do so by their noise. A choice:
the last third of an imported curve, after a linear decay to 0, differed from its mean by 0.05% and was missed by 0.06%.
"""
FEWEST_RUNS = 3
"""Laws are ranked by no fewer held-out runs: the standard error of two says nothing."""
ALONG = ("tokens", "step-thirds", "rolling-tokens", "rolling-compute", "horizon")
"""Splits that hold out a part of runs and no whole ones."""


def try_out(
    points: pd.DataFrame,
    laws: Iterable[str],
    by: Iterable[str] = DEFAULT,
    schedules: Schedules | None = None,
    *,
    log: Callable[[str], object] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Every law on every fold of every split; arguments as in `held_out`, with several laws and splits.

    All laws are given the same points, those where each has a value; a parameter of `fix`, or a column of `unknown`, is
    for the laws that have it. Returns the columns law, by, split, row (position in the points), run, predicted,
    measured (nats per token) and relative_error, a row a held-out point; `attrs["reasons"]`, (law, by, reason) of what
    could not be fitted, in a fold or at all; `attrs["parameters"]`, law -> how many it has. Raises PointsError for an
    unknown law or split, and for a name of `fix` or `unknown` that none of the laws has.
    """
    named, by = {name: law_named(name, LAWS) for name in laws}, list(by)
    if unknown := [split for split in by if split not in SPLITS]:
        raise PointsError(f"cannot hold out by {unknown[0]!r}: there are {', '.join(SPLITS)}")
    points = shared_points(points, named.values())
    own = own_options(points, named, options, schedules)
    parts, reasons = [], []
    for split in by:
        for law in named:
            try:
                judged = held_out(points, law, split, schedules, log=log, **own[law])
            except PointsError as reason:
                reasons.append((law, split, str(reason)))
                continue
            reasons += [(law, split, line) for line in judged.attrs["skipped"].values()]
            kept = judged[["split", "run", "predicted", "measured", "relative_error"]]
            parts.append(kept.assign(law=law, by=split, row=judged.index))
    columns = ["law", "by", "split", "row", "run", "predicted", "measured", "relative_error"]
    table = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    table.attrs["reasons"] = reasons
    table.attrs["parameters"] = {name: len(law.parameters) for name, law in named.items()}
    return table


def compare(
    points: pd.DataFrame,
    laws: Iterable[str],
    by: Iterable[str] = DEFAULT,
    schedules: Schedules | None = None,
    *,
    tried: pd.DataFrame | None = None,
    fits: Mapping[str, Fit] | None = None,
    log: Callable[[str], object] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """The law-selection table: a row a law, with the quality of its fit and its held-out errors.

    Arguments as in `try_out`; `tried` is the table that it returned, if you have one, and `fits`, law -> its fit to
    these points with these options. All laws are fitted to the same points, those where each has a value: R2 and AICc
    of different points do not compare.

    Returns, indexed by law: parameters (how many were searched for), r2, mae (nats per token), huber_sum and huber_mean
    (delta 1e-3, log residuals), aicc (least is best), for each split of `by` the mean absolute relative error on what
    was held out (of each run, then over runs), on the points that every law predicted which predicted any (NaN where
    there are none), and reason, "" or why the law could not be fitted.
    """
    named, by = {name: law_named(name, LAWS) for name in laws}, list(by)
    if tried is None:
        tried = try_out(points, named, by, schedules, log=log, **options)
    points = shared_points(points, named.values())
    errors = {split: errors_by_run(tried, split) for split in by}
    own, rows = own_options(points, named, options, schedules), {}
    # A fit that read points where another law has no value is not of the same points.
    known = {law: fitted for law, fitted in (fits or {}).items() if fitted.n_points == len(points)}
    for law in named:
        try:
            fitted = known.get(law) or fit(points, law, schedules=schedules, bootstrap=0, **own[law])
        except PointsError as reason:
            rows[law] = {"reason": str(reason)}
            continue
        m = fitted.metrics
        rows[law] = {
            "parameters": len(fitted.params) - len(fitted.fixed),
            **{name: m[name] for name in ("r2", "mae")},
            "huber_sum": m["huber"],
            "huber_mean": m["huber"] / fitted.n_points,
            "aicc": m["aicc"],
            **{split: errors[split][law].mean() for split in by if law in errors[split]},
            "reason": "",
        }
    columns = ["parameters", "r2", "mae", "huber_sum", "huber_mean", "aicc", *by, "reason"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("law")


def own_options(
    points: pd.DataFrame, laws: Iterable[str], options: Mapping[str, Any], schedules: Schedules | None = None
) -> dict[str, dict[str, Any]]:
    """Law -> the options of `fit` for several laws, with what that law has of `fix` and `unknown`.

    With `schedules` a law that reads S2 has lambda too.

    Raises PointsError for a name of them that none of the laws has.
    """
    own, fix, unknown = {}, options.get("fix") or {}, options.get("unknown") or ()
    could: dict[str, dict[str, None]] = {"fix": {}, "unknown": {}}
    for name in laws if fix or unknown else ():
        law = law_named(name, LAWS)
        law = law if law.for_corpora is None else law.for_corpora(mixture_columns(points))
        columns = [column for column in UNKNOWN if column in law.columns]
        decay = [LAMBDA.name] if schedules is not None and {*ANNEALING} & {*law.columns} else []
        parameters = [*(p.name for p in law.parameters), *decay, *(one for one in columns if one in unknown)]
        could["fix"] |= dict.fromkeys(parameters)
        could["unknown"] |= dict.fromkeys(columns)
        of_law = {"fix": {one: fix[one] for one in parameters if one in fix}}
        own[name] = {**options, **of_law, "unknown": [one for one in columns if one in unknown]}
    for key, names in {"fix": fix, "unknown": unknown}.items():
        if wrong := [one for one in names if one not in could[key]]:
            raise PointsError(
                f"{key}: {wrong[0]!r} is in none of {', '.join(own)}; allowed: {', '.join(could[key]) or 'none'}"
            )
    return own or {name: dict(options) for name in laws}


def average(
    points: pd.DataFrame,
    laws: Iterable[str] = ONE_CURVE,
    schedules: Schedules | None = None,
    curve: Mapping[str, float] | None = None,
    **options: Any,
) -> LawAverage:
    """The average of laws for what lies far beyond the fitted tokens.

    Each law is fitted to the points, and weighted by its errors on all that follows a half, a quarter and an eighth of
    their tokens (split "horizon"); how the errors of the average grow there makes its intervals. `laws`: unless said
    otherwise those of one curve, for points of one size and one mixture. `curve`, column -> value, picks the points of
    one size and mixture out of others, {"N": 1.5, "r": 0.3}: laws of tokens alone are fitted to these, others, like
    chinchilla or dcpt, to all points, and each is judged on the curve. Other arguments as in `fit`; no bootstrap is
    made. A law that the points do not suffice for is left out, with a warning, and so is one that does not follow them,
    where another does: of R2 below `FOLLOWS`, and worse on that split than its mean. Where the R2 of all are below it,
    a warning says so. Raises PointsError where none is left.

    >>> D = np.geomspace(0.01, 1.0, 12)
    >>> curve = pd.DataFrame({"D": D, "loss": 2.0 + D**-0.1, "run": 0})
    >>> low, high = average(curve).predict_interval(pd.DataFrame({"D": [16.0]}))
    >>> bool(low[0] < 2.0 + 16**-0.1 < high[0])
    True
    """
    resolved, curve = [resolve_law(law) for law in laws], dict(curve or {})
    if line := missing(points, ["D", "loss", *curve]):
        raise PointsError(line)
    points = shared_points(points, resolved)
    own = np.logical_and.reduce([np.isclose(points[name], value) for name, value in curve.items()] or [points["D"] > 0])
    if not own.any():
        there = (f"{name} = {', '.join(f'{one:g}' for one in sorted(points[name].unique())[:8])}" for name in curve)
        raise PointsError(f"curve = {curve}: no point is of it; there are {'; '.join(there)}")
    options = {"few": True, "schedules": schedules} | options
    of_law = {law.name: own if law.columns == ("D",) else np.ones(len(points), dtype=bool) for law in resolved}
    fits, warned = {}, []
    for law in resolved:
        try:
            fits[law.name] = fit(points.loc[of_law[law.name]], law, bootstrap=0, **options)
        except PointsError as reason:
            warned.append(f"{law.name} left out: {reason}")
    if not fits:
        raise PointsError(warned[0] if warned else "laws = [] holds none: give one or more of fitting.LAWS")
    known, tried = dict[str, pd.Series](), []
    rolled, tokens = [], points["D"].to_numpy(float)
    if (tokens[own] <= tokens[own].max() / 2).sum() > 3:
        rolled = folds(points.loc[own], "horizon")
    ends = {fold.label: float(tokens[own][fold.fitted].max()) for fold in rolled}
    parted = [Fold(label, tokens <= end, own & (tokens > end)) for label, end in ends.items()]
    for law in resolved:
        if law.name in fits and parted:
            mask = of_law[law.name]
            judged = held_out(
                points.loc[mask],
                law,
                [Fold(one.label, one.fitted[mask], one.judged[mask]) for one in parted],
                **options,
            )
            error = np.log(judged["measured"] / np.maximum(judged["predicted"], LEAST_LOSS))
            known[law.name] = error.set_axis(pd.MultiIndex.from_arrays([judged["split"], judged.index]))
            tried.append(judged.assign(law=law.name, by="horizon", row=judged.index))
    errors = pd.DataFrame(known).dropna()
    worse = {} if errors.empty else worse_than_mean(pd.concat(tried), "horizon")[0]
    low = {law: one.metrics["r2"] for law, one in fits.items() if one.metrics["r2"] < FOLLOWS}
    useless = [law for law in low if law in worse]
    if len(low) == len(fits) and (useless or errors.empty):
        warned.append(
            f"no law follows the points, R2 {min(low.values()):.2f} to {max(low.values()):.2f}: do not rely on it"
        )
    elif useless:
        fits = {law: one for law, one in fits.items() if law not in useless}
        why = f"more on {PREDICTED['horizon']} than that differs from its mean"
        warned += [
            f"{law} left out: R2 {low[law]:.2f}, and it errs by {error_percent(worse[law])}, {why}" for law in useless
        ]
    if errors.empty:
        warned.append("no rolling origin has points enough: every law counts alike, and intervals are those of others")
        return LawAverage(fits, dict.fromkeys(fits, 1 / len(fits)), warnings=tuple(warned), growth=())
    weights = law_weights({law: errors[law].to_numpy() for law in fits})
    missed = errors[[*weights]].to_numpy() @ np.array([*weights.values()])
    label, row = (errors.index.get_level_values(level) for level in (0, 1))
    origin = label.map(ends).to_numpy(float)
    growth = growth_of(missed, points.loc[row, "D"].to_numpy(float) / origin, origin)
    return LawAverage(fits, weights, warnings=tuple(warned), growth=tuple(growth))


def advise(tried: pd.DataFrame) -> list[str]:
    """The law that errs least in each split that `try_out` was given, a line each.

    Laws are compared run by run on the points that both predicted: the difference of their mean errors, with its
    standard error over the runs. Within that, or where it prints as 0.00%, it is a tie, and the law with fewer
    parameters is named; of fewer than FEWEST_RUNS there is no ranking. Laws that could not be fitted are listed, and
    those that err by more than the mean of the held-out losses would. Of `tried`, the columns law, by, split, row, run,
    measured and relative_error are read.
    """
    reasons: list[tuple[str, str, str]] = tried.attrs.get("reasons", [])
    known = {law: len(LAWS[law].parameters) for law in tried["law"].unique() if law in LAWS}
    parameters = {**known, **tried.attrs.get("parameters", {})}
    lines = []
    for by in dict.fromkeys([*tried["by"], *(split for _, split, _ in reasons)]):
        failed = {law: reason for law, split, reason in reversed(reasons) if split == by}
        errors = errors_by_run(tried, by)
        whole = (f"; {law} could not be judged: {reason}" for law, reason in failed.items() if law not in errors)
        lines.append(f"{by} ({PREDICTED[by]}): {_verdict(errors, parameters)}{_useless(tried, by)}{''.join(whole)}")
    return lines


def errors_by_run(tried: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean absolute relative error of each run (index) by each law (columns) in a split, on points all predicted."""
    rows = tried[tried["by"] == by]
    rows = rows.assign(error=rows["relative_error"].abs())
    table = rows.pivot(index=["split", "row", "run"], columns="law", values="error")
    return table.dropna().groupby("run").mean()[list(dict.fromkeys(rows["law"]))]


def error_percent(error: float) -> str:
    """A mean relative error in percent.

    >>> error_percent(0.0019), error_percent(4e4)
    ('0.19%', 'over 1,000%')
    """
    return f"{error:.2%}" if error < 10 else "over 1,000%"


def shared_points(points: pd.DataFrame, laws: Iterable[Law]) -> pd.DataFrame:
    """The points at which every law has a value, numbered from 0, each a run of its own where runs have no name."""
    points, usable = points.reset_index(drop=True), np.ones(len(points), dtype=bool)
    for law in laws:
        usable &= with_value(points, law)
    if "run" not in points.columns:
        points = points.assign(run=np.arange(len(points)))
    return points.loc[usable]


def worse_than_mean(tried: pd.DataFrame, by: str) -> tuple[dict[str, float], float]:
    """Law -> its mean error, of those that miss the held-out losses of a split by more than their mean would; that.

    None by less than LEVEL. None of fewer than FEWEST_RUNS runs, or, where a split holds out the rest of each, losses:
    one differs by nothing.
    """
    rows, errors = tried[tried["by"] == by], errors_by_run(tried, by).mean()
    distinct = rows.drop_duplicates(["split", "row", "run"])
    losses = distinct["measured"]
    spread = float((losses / losses.mean() - 1).abs().mean())
    if (len(distinct) if by in ALONG else distinct["run"].nunique()) < FEWEST_RUNS:
        return {}, spread
    return {str(law): error for law, error in errors.items() if error > max(spread, LEVEL)}, spread


def _useless(tried: pd.DataFrame, by: str) -> str:
    """The remark on the laws of `worse_than_mean`; "" where there are none."""
    laws, spread = worse_than_mean(tried, by)
    useless = [f"{law} ({error_percent(error)})" for law, error in laws.items()]
    than = f"the mean of the held-out losses errs by less, {error_percent(spread)}, so alone"
    nothing = "they say nothing here" if useless[1:] else "it says nothing here"
    return f"; {', '.join(useless)}: {than} {nothing}; an average weighs each law by its errors" if useless else ""


def _verdict(errors: pd.DataFrame, parameters: dict[str, int]) -> str:
    if errors.empty:
        return "no law could be judged"
    means = errors.mean().sort_values(kind="stable")
    best, runs = str(means.index[0]), f"{len(errors)} run{'s' * (len(errors) > 1)}"
    mean = {str(law): error_percent(error) for law, error in means.items()}
    if len(means) == 1:
        return f"only {best} could be judged: mean error {mean[best]} over {runs}"
    if len(errors) < FEWEST_RUNS:
        return f"no ranking over {runs}; mean errors: {', '.join(f'{law} {error}' for law, error in mean.items())}"
    ties, worse = [], []
    for law in map(str, means.index[1:]):
        further = errors[law] - errors[best]
        error = float(further.std(ddof=1) / np.sqrt(len(further)))
        more = f"+{error_percent(further.mean())} ± {error_percent(error)}"
        is_tie = further.mean() <= error or error_percent(further.mean()) == error_percent(0.0)
        (ties if is_tie else worse).append((law, f"{law} ({more})"))
    others = ", ".join(entry for _, entry in worse)
    if not ties:
        return f"{best} errs least, {mean[best]} over {runs}; the others by more (± standard error): {others}"
    simplest = min([best, *(law for law, _ in ties)], key=lambda law: parameters[law])
    tied = f"a tie of {best} ({mean[best]}) with {', '.join(entry for _, entry in ties)} over {runs} (± standard error)"
    return f"{tied}; of these {simplest} has the fewest parameters{f'; these err more: {others}' if worse else ''}"
