"""The study of mixtures that change along the schedule, scored as the changelog registered it.

    python -m docs.studies.midtraining [STUDY]

prints the tables of docs/results/midtraining-small/tables.md; STUDY is docs/results/midtraining-small unless given.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator
from scipy.stats import t

import fitting
from fitting.laws import LAWS
from pipeline.study.collect import read_points, schedules
from pipeline.study.folder import Study

KEPT = Path(__file__).parents[1] / "results" / "midtraining-small"
FIRST_STEP = 2
SHARED_RATIOS = (0.1, 0.2, 0.35, 0.5)
"""Constant domain ratios that every seed has."""
Columns = dict[str, np.ndarray]


def _distance(a: np.ndarray, b: np.ndarray, eps: float) -> np.ndarray:
    return np.log((a + eps) / (b + eps))


def _path(x: Columns, eps: float, E: float) -> np.ndarray:
    at_change, now = np.log1p(E * x["s1_first"]), np.log1p(E * x["s1"])
    return _distance(x["rho"], x["r_first"], eps) * at_change + _distance(x["rho"], x["r"], eps) * (now - at_change)


def _mean(x: Columns, eps: float, E: float) -> np.ndarray:
    first = x["s1_first"] / x["s1"]
    return _distance(x["rho"], first * x["r_first"] + (1 - first) * x["r"], eps) * np.log1p(E * x["s1"])


def _last(x: Columns, eps: float, E: float) -> np.ndarray:
    return _distance(x["rho"], x["r"], eps) * np.log1p(E * x["s1"])


OTHERS: dict[str, Callable[[Columns, float, float], np.ndarray]] = {
    "path": _path,
    "mean": _mean,
    "last": _last,
}
FORMS = ("restart", *OTHERS)
REMEMBERED = "two mixtures"
"""`transfer-two-mixtures`, whose delta and eta its prior decides where no fitted run changes its mixture."""
REFITTED = "restart, fitted to all runs"
"""Not a prediction: whether the form could follow the losses that it misses."""


def predicted(fit: fitting.Fit, form: str, points: pd.DataFrame) -> np.ndarray:
    """Losses (n,), in nats per token, after a change, by a fit of `transfer-anchored` and a form of its shift."""
    law = LAWS["transfer-switched"]
    if form == "restart":
        return replace(fit, law=law.name).predict(points)

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        further = -np.log1p(x["s1"] / x["s1_pretrain"])
        return np.column_stack([-x["s2"], OTHERS[form](x, *psi), further])

    return replace(fit, own_law=replace(law, basis=basis)).predict(points)


def errors(study: Study) -> pd.DataFrame:
    """A row for each two-phase run, corpus and form: its mean absolute relative error, and that of its last loss."""
    plan = study.read_plan()
    points, rates = read_points(study), schedules(plan)
    points = points[(points["phase"] == "continual") & (points["step"] >= FIRST_STEP)]
    rows = []
    for (model, corpus), own in points.groupby(["model", "corpus"]):
        fitted = own[own["role"] == "fit"]
        fit = fitting.fit(fitted, "transfer-anchored", schedules=rates, bootstrap=0)
        after = fitting.with_areas(own[own["mixture_phase"] == 2], rates, fit.params["lambda"])
        within = np.abs(fit.predict(fitting.with_areas(fitted, rates, fit.params["lambda"])) / fitted["loss"] - 1)
        again = fitting.fit(own, "transfer-switched", schedules=rates, bootstrap=0)
        refitted = again.predict(fitting.with_areas(after, rates, again.params["lambda"]))
        losses = {form: predicted(fit, form, after) for form in FORMS} | {REFITTED: refitted}
        two = fitting.fit(fitted, "transfer-two-mixtures", schedules=rates, bootstrap=0)
        losses[REMEMBERED] = two.predict(fitting.with_areas(after, rates, two.params["lambda"]))
        for form, loss in losses.items():
            off = loss / after["loss"] - 1
            for _, part in off.groupby(after["run"]):
                end = part.iloc[int(np.argmax(after.loc[part.index, "step"]))]
                change = after.loc[part.index[0], "r"] - after.loc[part.index[0], "r_first"]
                facts = {"model": model, "corpus": corpus, "form": form, "more": bool(change > 0)}
                rows.append({**facts, "error": part.abs().mean(), "end": abs(end), "fitted": within.mean()})
    return pd.DataFrame(rows)


def advantages(study: Study) -> pd.DataFrame:
    """A row for each two-phase run: its domain loss less that of constant ratios at its general loss, in nats."""
    points = read_points(study)
    points = points[points["phase"] == "continual"]
    last = points[points["step"] == 600].fillna({"variant": ""})
    facts = ["model", "seed", "run", "variant", "role"]
    final = last.pivot_table(index=facts, columns="corpus", values="loss").reset_index()
    (domain,) = {*last["corpus"]} - {"general"}
    first = points.groupby("run")["ratio"].agg(["first", "last"])
    final = final.merge(first, left_on="run", right_index=True)
    rows = []
    for _, own in final.groupby("model"):
        constant = own[(own["role"] == "fit") & (own["variant"] == "")].sort_values("general")
        zero = constant[constant["seed"] == 0]
        curve = PchipInterpolator(zero["general"].to_numpy(), zero[domain].to_numpy(), extrapolate=False)
        shared = constant[constant["first"].isin(SHARED_RATIOS)].set_index(["seed", "first"])[["general", domain]]
        moved = {seed: (shared.loc[seed] - shared.loc[0]).mean() for seed in constant["seed"].unique()}
        for _, run in own[own["role"] == "confirm"].iterrows():
            by = moved[run["seed"]]
            gain = run[domain] - by[domain] - curve(run["general"] - by["general"])
            rows.append({**run[[*facts, "first", "last", "general"]], "domain": run[domain], "difference": float(gain)})
    return pd.DataFrame(rows)


def foretold(study: Study) -> pd.DataFrame:
    """`advantages` of the first seed, with what `transfer-two-mixtures` says of each from the runs of one mixture."""
    points, rates = read_points(study), schedules(study.read_plan())
    points = points[(points["phase"] == "continual") & (points["step"] >= FIRST_STEP)]
    found = advantages(study).dropna(subset=["difference"])
    found = found[found["seed"] == 0]
    for model, own in points.groupby("model"):
        fits = {
            corpus: fitting.fit(part[part["role"] == "fit"], "transfer-two-mixtures", schedules=rates, bootstrap=0)
            for corpus, part in own.groupby("corpus")
        }
        for row in found[found["model"] == model].itertuples():
            changed, constant = {}, {}
            for corpus, fit in fits.items():
                end = own[(own["run"] == row.run) & (own["corpus"] == corpus) & (own["step"] == 600)]
                end = fitting.with_areas(end, rates, fit.params["lambda"])
                ratio = np.linspace(0, 1, 1001)
                one = pd.concat([end] * len(ratio)).assign(r=1 - ratio if corpus == "general" else ratio)
                one = one.drop(columns=["r_first", "s1_first"])
                kind = "general" if corpus == "general" else "domain"
                changed[kind], constant[kind] = fit.predict(end)[0], fit.predict(one)
            same = np.interp(changed["general"], constant["general"], constant["domain"])
            found.loc[row.Index, "predicted"] = changed["domain"] - same
    return found


def interval(values: pd.Series) -> str:
    """Mean and 90% t interval, which one seed does not have."""
    if len(values) == 1:
        return f"{values.iloc[0]:+.4f}"
    half = t.ppf(0.95, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.4f} ({values.mean() - half:+.4f} to {values.mean() + half:+.4f})"


def error_lines(study: Study) -> Iterator[str]:
    """The tables of errors after a change, in Markdown."""
    table = errors(study)
    shown = [REMEMBERED, *FORMS, REFITTED]
    yield "| size, corpus | fitted runs | " + " | ".join(shown) + " |"
    yield "| --- " * (len(shown) + 2) + "|"
    for (model, corpus), own in table.groupby(["model", "corpus"]):
        by_form = own.groupby("form")[["error", "end"]].mean()
        cells = [f"{by_form.loc[form, 'error']:.2%} / {by_form.loc[form, 'end']:.2%}" for form in shown]
        yield f"| {model}, {corpus} | {own['fitted'].iloc[0]:.2%} | {' | '.join(cells)} |"
    yield ""
    shown = [REMEMBERED, "restart", "mean"]
    for heading, more in (("more", True), ("less", False)):
        yield f"| size, corpus: {heading} of it after the change | {' | '.join(shown)} |"
        yield "| --- " * (len(shown) + 1) + "|"
        for (model, corpus), own in table[table["more"] == more].groupby(["model", "corpus"]):
            by = own.groupby("form")["error"].mean()
            yield f"| {model}, {corpus} | {' | '.join(f'{by[form]:.2%}' for form in shown)} |"
        yield ""


def advantage_lines(study: Study) -> Iterator[str]:
    """The table of `advantages`, means of the seeds, in Markdown."""
    yield "| size | domain ratio | change at | general loss | domain loss | difference (90% interval) |"
    yield "| --- " * 6 + "|"
    for (model, variant, first, last), own in advantages(study).groupby(["model", "variant", "first", "last"]):
        means = f"{own['general'].mean():.4f} | {own['domain'].mean():.4f}"
        changed = f"{first} to {last} | {str(variant).split('-')[0]}"
        yield f"| {model} | {changed} | {means} | {interval(own['difference'])} |"


def upward_differences(study: Study) -> dict[str, pd.Series]:
    """Model -> the mean of `advantages` over the upward changes at the decay, for each seed, in nats."""
    found = advantages(study).dropna(subset=["difference"])
    upward = found[found["variant"].str.startswith("decay") & (found["last"] > found["first"])]
    return {str(model): own.groupby("seed")["difference"].mean() for model, own in upward.groupby("model")}


def lines(study: Study) -> Iterator[str]:
    """The tables, in Markdown."""
    yield from error_lines(study)
    yield from advantage_lines(study)
    for model, seeds in upward_differences(study).items():
        yield f"\nupward changes at the decay, {model}: {interval(seeds)}, seeds: {len(seeds)}"
    own = foretold(study)
    missed = (own["predicted"] - own["difference"]).abs()
    yield (
        f"\ndifference of seed 0 predicted: median error {missed.median():.3f} nats, 90% within "
        f"{missed.quantile(0.9):.3f}, correlation {own['predicted'].corr(own['difference']):.2f}, changes: {len(own)}"
    )


if __name__ == "__main__":
    print(*lines(Study(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)), sep="\n")
