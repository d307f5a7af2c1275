"""The study of mixtures that change along the schedule, scored as the changelog registered it.

    python -m docs.studies.midtraining [STUDY]

prints the tables of docs/midtraining.md; STUDY is docs/results/midtraining-small unless given.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
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


def _restart(x: Columns, eps: float, E: float) -> np.ndarray:
    again = _distance(x["r_first"], x["r"], eps) * np.log1p(E * (x["s1"] - x["s1_first"]))
    return _distance(x["rho"], x["r_first"], eps) * np.log1p(E * x["s1"]) + again


def _path(x: Columns, eps: float, E: float) -> np.ndarray:
    at_change, now = np.log1p(E * x["s1_first"]), np.log1p(E * x["s1"])
    return _distance(x["rho"], x["r_first"], eps) * at_change + _distance(x["rho"], x["r"], eps) * (now - at_change)


def _mean(x: Columns, eps: float, E: float) -> np.ndarray:
    first = x["s1_first"] / x["s1"]
    return _distance(x["rho"], first * x["r_first"] + (1 - first) * x["r"], eps) * np.log1p(E * x["s1"])


def _last(x: Columns, eps: float, E: float) -> np.ndarray:
    return _distance(x["rho"], x["r"], eps) * np.log1p(E * x["s1"])


FORMS: dict[str, Callable[[Columns, float, float], np.ndarray]] = {
    "restart": _restart,
    "path": _path,
    "mean": _mean,
    "last": _last,
}


def predicted(fit: fitting.Fit, form: str, points: pd.DataFrame) -> np.ndarray:
    """Losses (n,), in nats per token, after a change, by a fit of `transfer-anchored` and a form of its shift."""
    law = LAWS["transfer-anchored"]

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        further = -np.log1p(x["s1"] / x["s1_pretrain"])
        return np.column_stack([-x["s2"], FORMS[form](x, *psi), further])

    switched = replace(law, columns=(*law.columns, "r_first", "s1_first"), basis=basis)
    return replace(fit, own_law=switched).predict(points)


def errors(study: Study) -> pd.DataFrame:
    """A row for each two-phase run, corpus and form: its mean absolute relative error, and that of its last loss."""
    plan = study.read_plan()
    points, rates = read_points(study), schedules(plan)
    points = points[(points["phase"] == "continual") & (points["step"] >= FIRST_STEP)]
    changes = {run.name: (run.spec.phases[0].first_sequence, run.spec) for run in plan if run.spec.phases}
    rows = []
    for (model, corpus), own in points.groupby(["model", "corpus"]):
        fitted = own[own["role"] == "fit"]
        fit = fitting.fit(fitted, "transfer-anchored", schedules=rates, bootstrap=0)
        after = fitting.with_areas(own[own["mixture_phase"] == 2], rates, fit.params["lambda"])
        at_change = {name: sequence // spec.global_batch for name, (sequence, spec) in changes.items()}
        after = after.assign(
            r_first=[float(Fraction(changes[run][1].mixture.get(corpus, "0"))) for run in after["run"]],
            s1_first=[float(np.sum(rates[run].rates[: at_change[run]])) for run in after["run"]],
        )
        within = np.abs(fit.predict(fitting.with_areas(fitted, rates, fit.params["lambda"])) / fitted["loss"] - 1)
        for form in FORMS:
            off = predicted(fit, form, after) / after["loss"] - 1
            for run, part in off.groupby(after["run"]):
                end = part.iloc[int(np.argmax(after.loc[part.index, "step"]))]
                facts = {"model": model, "corpus": corpus, "form": form, "run": run}
                rows.append({**facts, "error": part.abs().mean(), "end": abs(end), "fitted": within.mean()})
    return pd.DataFrame(rows)


def advantages(study: Study) -> pd.DataFrame:
    """A row for each two-phase run: its domain loss less that of constant ratios at its general loss, in nats."""
    points = read_points(study)
    points = points[points["phase"] == "continual"]
    last = points[points["step"] == 600]
    facts = ["model", "seed", "run", "variant", "role"]
    final = last.pivot_table(index=facts, columns="corpus", values="loss", dropna=False).dropna().reset_index()
    first = points.groupby("run")["ratio"].agg(["first", "last"])
    final = final.merge(first, left_on="run", right_index=True)
    rows = []
    for _, own in final.groupby("model"):
        constant = own[(own["role"] == "fit") & (own["variant"] == "")].sort_values("general")
        zero = constant[constant["seed"] == 0]
        curve = PchipInterpolator(zero["general"].to_numpy(), zero["code"].to_numpy(), extrapolate=False)
        shared = constant[constant["first"].isin(SHARED_RATIOS)].set_index(["seed", "first"])[["general", "code"]]
        moved = {seed: (shared.loc[seed] - shared.loc[0]).mean() for seed in constant["seed"].unique()}
        for _, run in own[own["role"] == "confirm"].iterrows():
            by = moved[run["seed"]]
            gain = run["code"] - by["code"] - curve(run["general"] - by["general"])
            rows.append({**run[[*facts, "first", "last", "general", "code"]], "difference": float(gain)})
    return pd.DataFrame(rows)


def interval(values: pd.Series) -> str:
    """Mean and 90% t interval."""
    half = t.ppf(0.95, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.4f} ({values.mean() - half:+.4f} to {values.mean() + half:+.4f})"


def lines(study: Study) -> Iterator[str]:
    """The tables, in Markdown."""
    table = errors(study)
    yield "| size, corpus | fitted runs | " + " | ".join(f"{form}: mean / last loss" for form in FORMS) + " |"
    yield "| --- " * (len(FORMS) + 2) + "|"
    for (model, corpus), own in table.groupby(["model", "corpus"]):
        by_form = own.groupby("form")[["error", "end"]].mean()
        cells = [f"{by_form.loc[form, 'error']:.2%} / {by_form.loc[form, 'end']:.2%}" for form in FORMS]
        yield f"| {model}, {corpus} | {own['fitted'].iloc[0]:.2%} | {' | '.join(cells)} |"
    yield ""
    found = advantages(study)
    yield "| size | domain ratio | change at | general loss | code loss | difference (90% interval) |"
    yield "| --- " * 6 + "|"
    for (model, variant, first, last), own in found.groupby(["model", "variant", "first", "last"]):
        means = f"{own['general'].mean():.4f} | {own['code'].mean():.4f}"
        changed = f"{first} to {last} | {str(variant).split('-')[0]}"
        yield f"| {model} | {changed} | {means} | {interval(own['difference'])} |"
    upward = found[found["variant"].str.startswith("decay") & (found["last"] > found["first"])]
    for model, own in upward.groupby("model"):
        seeds = own.dropna(subset=["difference"]).groupby("seed")["difference"].mean()
        yield f"\nupward changes at the decay, {model}: {interval(seeds)} over {len(seeds)} seeds"


if __name__ == "__main__":
    print(*lines(Study(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)), sep="\n")
