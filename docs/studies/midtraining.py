"""The study of mixtures that change along the schedule, scored as the changelog registered it.

    python -m docs.studies.midtraining [STUDY]

prints the tables of docs/results/midtraining-small/tables.md; STUDY is docs/results/midtraining-small unless given.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator
from scipy.stats import t

import fitting
from docs.studies.law_errors import RESULTS, markdown
from fitting.laws import LAWS
from fitting.schedule import Schedules
from pipeline.study.collect import read_points, schedules
from pipeline.study.folder import Study

KEPT = RESULTS / "midtraining-small"
FIRST_STEP = 2
SHARED_RATIOS = (0.1, 0.2, 0.35, 0.5)
"""Constant domain ratios that every seed has."""
FORMS = ("restart", "path", "mean", "last")
REMEMBERED = "two mixtures"
"""`transfer-two-mixtures`, whose delta and eta its prior decides where no fitted run changes its mixture."""
REFITTED = "restart, fitted to all runs"
"""Not a prediction: whether the form could follow the losses that it misses."""


def predicted(fit: fitting.Fit, form: str, points: pd.DataFrame) -> np.ndarray:
    """Losses (n,), in nats per token, after a change, by a fit of `transfer-anchored` and a form of its shift."""
    law = LAWS["transfer-switched"]
    if form == "restart":
        return replace(fit, law=law.name).predict(points)

    def basis(x: dict[str, np.ndarray], psi: np.ndarray) -> np.ndarray:
        eps, E = psi

        def distance(r: np.ndarray) -> np.ndarray:
            return np.log((x["rho"] + eps) / (r + eps))

        at_change, now, first = np.log1p(E * x["s1_first"]), np.log1p(E * x["s1"]), x["s1_first"] / x["s1"]
        shift = {
            "path": distance(x["r_first"]) * at_change + distance(x["r"]) * (now - at_change),
            "mean": distance(first * x["r_first"] + (1 - first) * x["r"]) * now,
            "last": distance(x["r"]) * now,
        }
        return np.column_stack([-x["s2"], shift[form], -np.log1p(x["s1"] / x["s1_pretrain"])])

    return replace(fit, own_law=replace(law, basis=basis)).predict(points)


def continual(study: Study) -> tuple[pd.DataFrame, Schedules]:
    """The points of the continual phase from `FIRST_STEP` on, and the learning rates of the runs."""
    points = read_points(study)
    chosen = (points["phase"] == "continual") & (points["step"] >= FIRST_STEP)
    return points[chosen], schedules(study.read_plan())


def errors(study: Study) -> pd.DataFrame:
    """A row for each two-phase run, corpus and form: its mean absolute relative error, and that of its last loss."""
    points, rates = continual(study)
    rows = []
    for (model, corpus), own in points.groupby(["model", "corpus"]):
        fitted = own[own["role"] == "fit"]
        after, options = own[own["mixture_phase"] == 2], {"schedules": rates, "bootstrap": 0}

        def at(fit: fitting.Fit, points: pd.DataFrame = after) -> pd.DataFrame:
            return fitting.with_areas(points, rates, fit.params["lambda"])

        known, two = (fitting.fit(fitted, law, **options) for law in ("transfer-anchored", "transfer-two-mixtures"))
        again = fitting.fit(own, "transfer-switched", **options)
        within = np.abs(known.predict(at(known, fitted)) / fitted["loss"] - 1)
        losses = {form: predicted(known, form, at(known)) for form in FORMS}
        losses |= {REFITTED: again.predict(at(again)), REMEMBERED: two.predict(at(two))}
        for form, loss in losses.items():
            for _, part in after.assign(off=loss / after["loss"] - 1).groupby("run"):
                end = part.loc[part["step"].idxmax()]
                facts = {"model": model, "corpus": corpus, "form": form, "more": end["r"] > end["r_first"]}
                off = {"error": part["off"].abs().mean(), "end": abs(end["off"])}
                rows.append({**facts, **off, "fitted": within.mean()})
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
    points, rates = continual(study)
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
    table, lines, shown = errors(study), [], [REMEMBERED, *FORMS, REFITTED]
    for (model, corpus), own in table.groupby(["model", "corpus"]):
        by_form = own.groupby("form")[["error", "end"]].mean()
        cells = (f"{by_form.loc[form, 'error']:.2%} / {by_form.loc[form, 'end']:.2%}" for form in shown)
        lines.append((f"{model}, {corpus}", f"{own['fitted'].iloc[0]:.2%}", *cells))
    yield markdown(("size, corpus", "fitted runs", *shown), lines)
    shown = [REMEMBERED, "restart", "mean"]
    for heading, more in (("more", True), ("less", False)):
        means = table[table["more"] == more].groupby(["model", "corpus", "form"])["error"].mean().unstack()
        lines = [(", ".join(of), *map("{:.2%}".format, row)) for of, row in zip(means.index, means[shown].to_numpy())]
        yield "\n" + markdown((f"size, corpus: {heading} of it after the change", *shown), lines)
    yield ""


def advantage_lines(study: Study) -> Iterator[str]:
    """The table of `advantages`, means of the seeds, in Markdown."""
    lines = []
    for (model, variant, first, last), own in advantages(study).groupby(["model", "variant", "first", "last"]):
        means = (f"{own[name].mean():.4f}" for name in ("general", "domain"))
        changed = (f"{first} to {last}", str(variant).split("-")[0])
        lines.append((model, *changed, *means, interval(own["difference"])))
    heads = ("size", "domain ratio", "change at", "general loss", "domain loss", "difference (90% interval)")
    yield markdown(heads, lines)


def upward_differences(study: Study) -> dict[str, pd.Series]:
    """Model -> the mean of `advantages` over the upward changes at the decay, for each seed, in nats."""
    found = advantages(study).dropna(subset=["difference"])
    upward = found[found["variant"].str.startswith("decay") & (found["last"] > found["first"])]
    return {str(model): own.groupby("seed")["difference"].mean() for model, own in upward.groupby("model")}


def main(study: str = str(KEPT)) -> None:
    """Print the tables of a study, in Markdown."""
    kept = Study(Path(study))
    print(*error_lines(kept), *advantage_lines(kept), sep="\n")
    for model, seeds in upward_differences(kept).items():
        print(f"\nupward changes at the decay, {model}: {interval(seeds)}, seeds: {len(seeds)}")
    own = foretold(kept)
    missed = (own["predicted"] - own["difference"]).abs()
    print(
        f"\ndifference of seed 0 predicted: median error {missed.median():.3f} nats, 90% within "
        f"{missed.quantile(0.9):.3f}, correlation {own['predicted'].corr(own['difference']):.2f}, changes: {len(own)}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
