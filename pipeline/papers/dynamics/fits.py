"""Table 2 and figures 3, 10, 12, 18 and 19 of the learning-dynamics paper: how well its law fits and predicts."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from fitting import Fit, PointsError
from pipeline.papers.dcpt.points import METRICS, Scores, score_table, scores
from pipeline.papers.dynamics.points import (
    CORPORA,
    PAPERS_LAMBDA,
    FitRequest,
    ScheduleStudy,
    fit_to,
    fits,
    fitted,
    relative_error,
)
from pipeline.papers.verdict import HOLDS, IN_ORDER, MOST, NOT_HERE, UNKNOWN

FORMATS = {
    "original": "dynamics",
    "lr_coefficient_eps0.1": "dynamics-lr-weighted",
    "lr_coefficient_eps0.2": "dynamics-lr-weighted-0.2",
    "s2_power": "dynamics-power",
}
"""The paper's name -> ours."""
REPLAY = {"D_pt": "dynamics-replay", "D_cpt": "dynamics-replay-domain"}
"""Eq. 8 of each corpus."""
CLOSE = 0.99
"""R2 above which a fit follows the curves."""
ACCURATE = 0.01
"""Mean relative error below which a curve counts as predicted."""
ALIKE = 0.003
"""R2 that differ by less are alike."""
FEWEST = 3
"""Runs of an open model that its law is fitted to, at least."""
LEFT_OUT = "error at the ratio left out"
SHIFT = "shift without replay"
_FIXED = f"eq. 4, {PAPERS_LAMBDA:g}"
_HALF, _LONGER = ", first half", ", shorter runs"
_JUDGED_STEPS = {_HALF: "the second half of the steps", _LONGER: "longer runs, beyond the fitted length,"}
_SPLIT_NOTES = {
    _HALF: "First half: fitted to the first half of the steps, judged on the rest.",
    _LONGER: "Shorter runs: fitted to whole runs, judged on the steps of longer ones beyond their length.",
}
_OPEN_PAST = {"s1_pretrain": 1.0, "s2_pretrain": 0.0}
"""The law of an open model: S1 is a parameter, whatever its column holds, and S2 is a constant like L0."""
Predict = Callable[[pd.DataFrame], np.ndarray]


def formats(study: ScheduleStudy) -> pd.DataFrame:
    """Eq. 4, 9 and 10 of the largest model, on the new corpus alone: format, corpus, metric, value (table 2)."""
    model, jobs = study.models[-1], list(product(FORMATS, CORPORA))
    results = fits(study, [FitRequest(FORMATS[name], corpus, model, 1.0) for name, corpus in jobs])
    return score_table(jobs, map(_scores, results), ("format", "corpus"), f"{model}; lambda is fitted.")


def judge_formats(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether the formats are alike, as in the paper."""
    r2 = cells[cells["metric"] == "r2"].dropna(subset="ours")
    if len(r2) < len(FORMATS) * len(CORPORA):
        return UNKNOWN, "Not every format could be fitted."
    by_corpus = r2.groupby("corpus")
    ours, paper = (by_corpus[side].max() - by_corpus[side].min() for side in ("ours", "paper"))
    printed = {at: "" if np.isnan(paper[at]) else f" ({paper[at]:.4f} in the paper)" for at in CORPORA}
    differences = ", ".join(f"{ours[at]:.4f} on {at}{printed[at]}" for at in CORPORA)
    why = f"Best and worst R2 differ by {differences}; {ALIKE:g} is alike."
    return (HOLDS if (ours <= ALIKE).all() else NOT_HERE), why


def curves(study: ScheduleStudy) -> pd.DataFrame:
    """Eq. 4 of each model, lambda fitted and as in the paper, and eq. 7 of all models (figures 3, 15 and 16)."""
    laws = [("eq. 4", "dynamics", model, None) for model in study.models]
    laws += [(_FIXED, "dynamics", model, PAPERS_LAMBDA) for model in study.models]
    jobs = list(product([*laws, ("eq. 7", "dynamics-size", None, None)], CORPORA))
    results = fits(study, [FitRequest(law, corpus, model, 1.0, decay) for (_, law, model, decay), corpus in jobs])
    cells = [(name, model or "all", corpus) for (name, _, model, _), corpus in jobs]
    fitted_4 = {at: fit for at, fit in zip(cells, results) if isinstance(fit, Fit) and at[0] == "eq. 4"}
    decays = ", ".join(f"{model} {corpus} {fit.decay:.3g}" for (_, model, corpus), fit in fitted_4.items())
    note = f"lambda of eq. 4, fitted: {decays}. {_FIXED}: as the paper has it."
    return score_table(cells, map(_scores, results), ("law", "model", "corpus"), note)


def replay_ratios(study: ScheduleStudy) -> pd.DataFrame:
    """Eq. 4 at each replay ratio by itself: law, replay, model, corpus, metric, value (figure 12)."""
    ratios = sorted(ratio for ratio in study.fitted_runs()["ratio"].unique() if ratio > 0)
    jobs = list(product(ratios, study.models, CORPORA))
    results = fits(study, [FitRequest("dynamics", corpus, model, ratio) for ratio, model, corpus in jobs])
    cells = [("eq. 4", f"{1 - ratio:.0%}", model, corpus) for ratio, model, corpus in jobs]
    return score_table(cells, map(_scores, results), ("law", "replay", "model", "corpus"))


def judge_curves(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether eq. 4, with its lambda fitted, follows the curves that it was fitted to."""
    r2 = cells.loc[(cells["metric"] == "r2") & (cells["law"] == "eq. 4"), "ours"]
    if r2.empty:
        return UNKNOWN, "Eq. 4 could not be fitted."
    why = f"R2 of eq. 4 is {r2.min():.4f} to {r2.max():.4f} over its rows and corpora (required: {CLOSE:g} of all)."
    return (HOLDS if r2.min() >= CLOSE else NOT_HERE), why


def held_out_schedules(study: ScheduleStudy) -> pd.DataFrame:
    """Mean relative error on held-out schedules, by law: schedule, corpus, law, value (figure 10).

    Eq. 4 is fitted to runs on the new corpus alone, eq. 8 and the transfer law to all ratios. Each model has its own
    fit; the value is the mean over models.
    """
    held_out = study.runs[study.runs["role"] == "confirm"]
    if held_out.empty:
        raise PointsError("no run was held out: plan with a variant that is held_out")
    requests = {
        (name, model, corpus): FitRequest(law, corpus, model, ratio, decay)
        for model, corpus in product(study.models, CORPORA)
        for name, law, ratio, decay in (
            ("eq. 4", "dynamics", 1.0, None),
            (_FIXED, "dynamics", 1.0, PAPERS_LAMBDA),
            ("eq. 8", REPLAY[corpus], None, None),
            ("transfer", "transfer-anchored", None, None),
        )
    }
    results = dict(zip(requests, fits(study, requests.values()), strict=True))
    rows = [_errors(study, held_out, *at, fit) for at, fit in results.items() if isinstance(fit, Fit)]
    errors = [f"No number for {' '.join(at)}: {error}." for at, error in results.items() if isinstance(error, str)]
    if not rows:
        raise PointsError(errors[0])
    table = pd.concat(rows).groupby(["schedule", "corpus", "law"])["value"].mean().round(5).reset_index()
    note = f"Mean relative error, also over the models. {_FIXED}: with the paper's lambda; transfer: transfer-anchored."
    table.attrs["note"] = " ".join([note, *errors])
    return table


def judge_held_out(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether eq. 4 predicts the schedules that it was not fitted to."""
    by_law = {str(law): rows["ours"] for law, rows in cells.groupby("law", sort=False)}
    if "eq. 4" not in by_law:
        return UNKNOWN, "Eq. 4 could not be fitted."
    errors = by_law["eq. 4"]
    near = errors <= ACCURATE
    means = ", ".join(f"{law} {values.mean():.2%}" for law, values in by_law.items())
    why = (
        f"Eq. 4 predicts {near.sum()} of {len(errors)} curves within {ACCURATE:.0%} (required: {MOST:.0%} of them), "
        f"the worst within {errors.max():.2%}. Means: {means}."
    )
    return (HOLDS if near.mean() >= MOST else NOT_HERE), why


def coefficients(study: ScheduleStudy) -> pd.DataFrame:
    """Eq. 8 of the smallest model at all ratios, its R2, and its error at a middle ratio left out (figure 19)."""
    model = study.models[0]
    runs = study.fitted_runs(model)
    middle = min(runs["ratio"].unique(), key=lambda ratio: abs(ratio - 0.5))
    rows = []
    for corpus, law in REPLAY.items():
        fit = fitted(study, FitRequest(law, corpus, model))
        rows += [(name, corpus, value) for name, value in fit.params.items()]
        B, a2 = fit.params["B"], fit.params["a2"]
        rows.append((SHIFT, corpus, float(-B * np.expm1(-a2) if corpus == "D_pt" else B * np.expm1(a2))))
        others, left_out = runs[runs["ratio"] != middle], study.on(corpus, runs[runs["ratio"] == middle], False)
        without = fit_to(study, study.on(corpus, others), law)
        error = relative_error(left_out["loss"], without.predict(left_out, study.schedules))
        rows += [("R2", corpus, fit.metrics["r2"]), (LEFT_OUT, corpus, error)]
    table = pd.DataFrame(rows, columns=["coefficient", "corpus", "value"])
    table.attrs["note"] = (
        f"{model}; left out: {1 - middle:.0%} replay. Shift: its limit in nats per token without replay; its "
        "sign does not depend on that of a2. The paper's a2 of D_cpt would make it -156, so its sign is in doubt, "
        "and its beta is not printed; coefficients depend on size, tokens and rates, which differ here."
    )
    return table


def printed_coefficients(file: pd.DataFrame) -> pd.DataFrame:
    """The paper's file as coefficient, corpus, value; without what it does not give."""
    names = {"L_pt": "D_pt", "L_cpt": "D_cpt"}
    table = file.assign(corpus=file["equation"].map(names), value=pd.to_numeric(file["value"], errors="coerce"))
    return table.dropna(subset="value")


def judge_coefficients(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether eq. 8 follows all replay ratios, with a shift up on D_pt and down on D_cpt (app. H, figure 19).

    The paper holds out no ratio: the error at the one that is left out here is reported, and not judged.
    """
    at = cells.set_index(["coefficient", "corpus"])["ours"]
    of_old, of_new = float(at[SHIFT, "D_pt"]), float(at[SHIFT, "D_cpt"])
    error, r2 = at[LEFT_OUT].dropna(), at["R2"].dropna()
    why = (
        f"Without replay the shift is {of_old:+.3g} on D_pt and {of_new:+.3g} on D_cpt (the paper: up and down). "
        f"R2 is {r2.min():.4f} to {r2.max():.4f} (required: {CLOSE:g}); the error at a ratio left out, which the paper "
        f"does not try, is {error.max():.2%} at most."
    )
    return (IN_ORDER if of_old > 0 > of_new and r2.min() >= CLOSE else NOT_HERE), why


def open_model(study: ScheduleStudy) -> pd.DataFrame:
    """Eq. 4 of an open model, of which only the weights are known: law, model, corpus, metric, value (figure 18).

    open: S1 of pre-training is one more parameter, its last rate is taken as 0 and its points are not used; full: the
    same runs with their past. In a study with pre-training the model with the smallest loss potential acts as the open
    one. Where held-out runs last longer than all others, as in the paper, their steps beyond those are predicted; else
    the second half of all runs, from the first.

    Source: Wang et al. 2025, sec. 6, app. G.
    """
    runs, rows = _as_open(study), []
    fitted_steps = max(map(study.steps, runs.loc[runs["role"] == "fit", "run"]))
    longer_runs = {run for run in runs["run"] if study.steps(run) > fitted_steps}
    split = _LONGER if longer_runs else _HALF
    for (model, of_model), corpus in product(runs.groupby("model", sort=False), CORPORA):
        points = study.on(corpus, of_model, pretraining=False)
        longer = points["run"].isin(longer_runs)
        early = ~longer if longer_runs else points["step"] <= points["run"].map(study.steps) / 2
        late = points["step"] > fitted_steps if longer_runs else ~early
        methods = {"open": _open, **({"full": _full} if of_model["parent"].iloc[0] else {})}
        parts = {"": (points[~longer], points[~longer]), split: (points[early], points[late])}
        for (name, method), (suffix, (fitted_points, judged)) in product(methods.items(), parts.items()):
            losses, measured = method(study, of_model, corpus, fitted_points)(judged), judged["loss"]
            values = {"r2": scores(measured.to_numpy(float), losses)["r2"]}
            values["error"] = round(relative_error(measured, losses), 5)
            rows += [(name + suffix, model, corpus, *item) for item in values.items()]
    table = pd.DataFrame(rows, columns=["law", "model", "corpus", "metric", "value"])
    parents = ", ".join(parent for parent in dict.fromkeys(runs["parent"]) if parent)
    past = f"The open model is {parents}, whose past only the full fit knows. " if parents else ""
    table.attrs["note"] = f"{past}{_SPLIT_NOTES[split]}"
    return table


def judge_open_model(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether an open model's curves are predicted without its past."""
    at = cells[cells["metric"] == "error"].groupby("law")["ours"].max()
    split = _LONGER if f"open{_LONGER}" in at else _HALF
    error, beside = float(at[f"open{split}"]), f", {at[f'full{split}']:.2%} with it" if f"full{split}" in at else ""
    why = f"Without its past the error in {_JUDGED_STEPS[split]} is {error:.2%} at most{beside}"
    return (HOLDS if error <= ACCURATE else NOT_HERE), f"{why} (mean over a corpus; required: {ACCURATE:.0%})."


def _as_open(study: ScheduleStudy) -> pd.DataFrame:
    """Runs at the largest domain ratio of one base model of each size: the most annealed, or the open one."""
    runs = study.runs[np.isclose(study.runs["ratio"], study.runs["ratio"].max())]
    runs = runs[runs.groupby(["model", "parent"])["run"].transform("size") >= FEWEST]
    if runs.empty:
        raise PointsError(f"no base model has runs under {FEWEST} schedules or more")
    return runs[runs["potential"] == runs.groupby("model")["potential"].transform("min")]


def _open(study: ScheduleStudy, runs: pd.DataFrame, corpus: str, points: pd.DataFrame) -> Predict:
    rates = {run: dataclasses.replace(study.schedules[run], before=0.0, pretrain=None) for run in runs["run"]}
    blind = dataclasses.replace(study, schedules=rates)
    fit = fit_to(blind, points.assign(**_OPEN_PAST), "dynamics", unknown=["s1_pretrain"], fix={"C1": 0.0})
    return lambda points: fit.predict(points.assign(**_OPEN_PAST), rates)


def _full(study: ScheduleStudy, runs: pd.DataFrame, corpus: str, points: pd.DataFrame) -> Predict:
    both = study.on(corpus, runs)
    fit = fit_to(study, pd.concat([both[both["phase"] == "pretrain"], points], ignore_index=True), "dynamics")
    return lambda points: fit.predict(points, study.schedules)


def _scores(fit: Fit | str) -> Scores | str:
    return fit if isinstance(fit, str) else {metric: fit.metrics[metric] for metric in METRICS}


def _errors(study: ScheduleStudy, held_out: pd.DataFrame, law: str, model: str, corpus: str, fit: Fit) -> pd.DataFrame:
    runs = held_out[held_out["model"] == model]
    runs = runs[np.isclose(runs["ratio"], 1.0) | (not law.startswith("eq. 4"))]
    points = study.on(corpus, runs, pretraining=False)
    losses = fit.predict(points, study.schedules)
    error = points["loss"].rdiv(losses).sub(1).abs().groupby(points["run"]).mean()
    variants: Sequence[str] = runs.set_index("run")["variant"].reindex(error.index).replace("", "confirmation").tolist()
    return pd.DataFrame({"schedule": variants, "law": law, "corpus": corpus, "value": error.to_numpy()})
