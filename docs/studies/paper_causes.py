"""Why does a table of the papers not hold? Tests on kept points: numbers of docs/results/reproduction.csv.

    CPTLAW_PAPER_TABLES=FOLDER python -m docs.studies.paper_causes [TEST ...]

FOLDER holds the papers' numbers. Without names all tests are run; what is not run keeps its old value.
"""

import sys
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

import fitting
from docs.studies.law_errors import RESULTS, kept_points, last_points
from docs.studies.papers_page import DESIGNS, L3, L3_CASES
from fitting.cross_validation import folds
from fitting.mixtures.ddo import domain_effect
from fitting.parallel import over_cores
from pipeline.goals.registry import question_of_study
from pipeline.papers.catalogue import PAPERS_VARIABLE, READINGS, TABLES, paper_folder
from pipeline.papers.dcpt.fits import FORMS, score_form
from pipeline.papers.dcpt.points import CORPORA, METRICS, mean_scores
from pipeline.papers.dcpt.statements import STATEMENTS
from pipeline.papers.dynamics.fits import ACCURATE, open_model
from pipeline.papers.dynamics.points import CORPORA as SIDES
from pipeline.papers.dynamics.points import fit_to
from pipeline.papers.make import tables_of
from pipeline.papers.table import PaperStudy
from pipeline.papers.verdict import NOT_HERE, SEED_TIE, compared
from pipeline.study.folder import Study

POTENTIALS = ("wsd-tenth", "half-tenth", "constant-tenth")
"""Variants of figure 5 with re-warm-up, from the lowest loss potential to the highest."""
DRAWS = 5
"""Draws of seed noise."""


def read(name: str, study: str = "", **changes: object) -> Any:
    """The points of a kept study, by the name of its input, with changed fields."""
    folder = RESULTS / (study or READINGS[name].experiment)
    return replace(READINGS[name].read(PaperStudy(Study(folder), question_of_study(folder, []))), **changes)


def seed_noise() -> dict[str, float]:
    """Standard deviation over seeds of a final loss, from the 67 pairs of runs of near-zero that differ in it alone."""
    last = last_points(kept_points("near-zero"))
    mixture = [name for name in last if name.startswith("mixture.")]
    losses = last.fillna(dict.fromkeys(mixture, -1.0)).groupby(["model", "corpus", *mixture])["loss"]
    return {"seed sd": float(np.sqrt(losses.var().mean())), "seed pairs": float((losses.size() > 1).sum())}


def seed_ties() -> dict[str, float]:
    """How far the ratio of two forms' misfits moves with the seed: the standard deviation of its logarithm.

    Every run of law gets an offset with the standard deviation of `seed_noise` (one seed of each was trained).
    """
    points, rng, draws = read("six", DESIGNS["first"]).fitted("law", "D"), np.random.default_rng(0), []
    sd = seed_noise()["seed sd"]
    for _ in range(DRAWS):
        runs = points["run"].unique()
        offsets = dict(zip(runs, rng.normal(0, sd, len(runs))))
        moved = points.assign(loss=points["loss"] + points["run"].map(offsets))
        misfits = pd.DataFrame({form: score_form(moved, law, "all") for form, law in FORMS.items()}).loc[[*METRICS]]
        misfits.loc["r2"] = 1 - misfits.loc["r2"]
        draws.append([np.log(misfits[one] / misfits[other]) for one, other in combinations(FORMS, 2)])
    spread = np.std(draws, axis=0, ddof=1)
    return {"seed ratio, median": float(np.median(spread)), "seed ratio, largest": float(spread.max())}


def transient() -> dict[str, float]:
    """Loss on code of the smallest model before continual pre-training, and its fall until step 40, by ratio."""
    points = read("six", DESIGNS["first"], min_ratio=0.1).measured("code", "D")
    points = points[(points["N"] == points["N"].min()) & (points["r"] >= 0.1)]
    at = points.pivot_table(index="run", columns="step", values="loss")
    fall = at[0] - at[40]
    names = ("code at 0", "code fall, least", "code fall, most")
    return dict(zip(names, map(float, (at[0].mean(), fall.min(), fall.max()))))


def constraint() -> dict[str, float]:
    """Mean R2 of L3 over the domains as printed and with fewer bounds, by the cases of L3_CASES; and eta if it is free.

    eta: the median over the domains of eta without its bound.
    """
    found = {}
    for (design, least, first), law, corpus in product(L3_CASES, L3, CORPORA):
        points = read("six", DESIGNS[design], min_ratio=least, from_step=first)
        fits = [fitting.fit(points.fitted(domain, corpus), law, bootstrap=0) for domain in points.domains]
        case = f"{corpus} {design} {least:g} {first}"
        found[f"{law} {case}"] = float(np.mean([fit.metrics["r2"] for fit in fits]))
        if law == L3[1]:
            found[f"eta {case}"] = float(np.median([fit.params["eta"] for fit in fits]))
    return found


def ratio_pairs() -> dict[str, float]:
    """Table 20, each pair of ratios held out: pairs as the paper states, and pairs decided, in the last design.

    eta: without the bound eta > 1 of L3. inner, inner eta: with it and without, judged on the pairs without ratio 0,
    which the fitted ones enclose from below.
    """
    study, unbound = read("six"), {"L3": L3[1]}

    def judged(table: pd.DataFrame, laws: dict[str, str], least: float) -> pd.DataFrame:
        """The table with other numbers of ours for some forms, of pairs of this ratio and more."""

        def huber(row: int) -> float:
            form, domain, corpus = table.loc[row, ["parameterization", "domain", "corpus"]]
            points = study.fitted(domain, corpus)
            parts = [fold for fold in folds(points, "ratio-pairs") if points.loc[fold.judged, "r"].min() >= least]
            return mean_scores(fitting.held_out(points, laws[form], parts))["huber"]

        rows, moved = [*table.index[table["parameterization"].isin(laws)]], table.copy()
        moved.loc[rows, "ours"] = over_cores(huber, rows)
        return moved

    kept = pd.read_csv(RESULTS / READINGS["six"].experiment / "tables" / "dcpt-20.csv")
    inner = judged(kept, FORMS, 1e-9)
    tables = {" eta": judged(kept, unbound, 0.0), " inner": inner, " inner eta": judged(inner, unbound, 1e-9)}
    return {name: value for case, table in tables.items() for name, value in _pairs("dcpt-20", case, table).items()}


def late() -> dict[str, float]:
    """The tables that do not hold in the last design, from half of the steps on: pairs as stated, and decided."""
    verdicts = pd.read_csv(RESULTS / READINGS["six"].experiment / "tables" / "verdicts.csv")
    names = verdicts.loc[verdicts["verdict"] == NOT_HERE, "table"].tolist()
    found = {}
    for result in tables_of({"six": read("six", from_step=600)}, names, paper_folder(None), print):
        found |= _pairs(result.name, " late", result.cells)
    return found


def _pairs(name: str, case: str, table: pd.DataFrame) -> dict[str, float]:
    """How many pairs of a table's cells are as the paper states, and how many do not tie."""
    answers = [
        answer
        for statement in STATEMENTS[int(name.removeprefix("dcpt-"))]
        for _, _, answer in compared(table, TABLES[name].keys[0], statement)
        if answer is not None
    ]
    return {f"{name}{case} right": sum(answers), f"{name}{case} decided": len(answers)}


def schedules() -> dict[str, float]:
    """Eq. 4 on the held-out schedules of figure 10: as it predicts them, fitted to them too, and from step 64 on.

    Curves within 1%, of 16 a corpus (8 schedules, 2 models), and their mean relative error.
    """
    study, found = read("dynamics"), {}
    cases = {"predicted": (study, False), "fitted": (study, True)}
    cases["late"] = (replace(study, from_step=64, cache={}), False)
    for (case, (points, every)), corpus in product(cases.items(), SIDES):
        errors = []
        for model in points.models:
            runs = points.runs if every else points.fitted_runs()
            runs = runs[(runs["model"] == model) & np.isclose(runs["ratio"], 1.0)]
            law = fit_to(points, points.on(corpus, runs), "dynamics")
            held_out = points.runs[(points.runs["model"] == model) & (points.runs["role"] == "confirm")]
            judged = points.on(corpus, held_out, pretraining=False)
            error = (law.predict(judged, points.schedules) / judged["loss"] - 1).abs()
            errors.append(error.groupby(judged["run"]).mean())
        curves = pd.concat(errors)
        found[f"schedules {case} {corpus} near"] = float((curves <= ACCURATE).sum())
        found[f"schedules {case} {corpus} error"] = float(curves.mean())
    return found


def seeded_potentials() -> dict[str, float]:
    """Figure 5 with re-warm-up by the means of several seeds: pairs decided, as stated, and the largest difference.

    A pair is two loss potentials of a model; as stated: the higher one has the lower loss on D_cpt.
    """
    points = pd.read_parquet(RESULTS / "dynamics-seeds" / "points.parquet").query("phase == 'continual'")
    last = last_points(points[points["variant"].isin(POTENTIALS) & (points["corpus"] == "code")])
    by_seed = last.pivot_table("loss", ["model", "variant"], "seed")
    mean, tie = by_seed.mean(axis=1), SEED_TIE / by_seed.shape[1] ** 0.5
    falls = [
        mean[model, low] - mean[model, high]
        for model in mean.index.levels[0]
        for low, high in combinations(POTENTIALS, 2)
    ]
    decided = [fall for fall in falls if abs(fall) > tie]
    return {
        "figure 5 seeds": by_seed.shape[1],
        "figure 5 pairs": len(falls),
        "figure 5 decided": len(decided),
        "figure 5 right": sum(fall > 0 for fall in decided),
        "figure 5 largest rise": -min(falls),
    }


def open_models() -> dict[str, float]:
    """Eq. 4 of the open model of figure 18: longer runs from all steps, from step 14 on, and fitted too."""
    study = read("open-model")
    fitted = {name: replace(run, role="fit") for name, run in study.plan.items()}
    late = replace(study, from_step=14, cache={})
    cases = {"predicted": (study, "open, shorter runs"), "late": (late, "open, shorter runs")}
    cases["fitted"] = (replace(study, plan=fitted, cache={}), "open")
    found = {}
    for case, (points, law) in cases.items():
        cells = open_model(points)
        errors = cells[(cells["law"] == law) & (cells["metric"] == "error")].set_index("corpus")["value"]
        found |= {f"open model {case} {corpus} error": float(error) for corpus, error in errors.items()}
    return found


def later_inflection() -> dict[str, float]:
    """The inflection ratio of general from all points, and from the second half of the steps."""
    study, found = read("near-zero"), {}
    for first, domain in product((study.from_step, 100), study.domains):
        points = replace(study, from_step=first).fitted(domain, "G")
        answer = fitting.inflection_ratio(points, bootstrap=0)
        found[f"inflection {domain} {first}"] = answer.values["inflection_ratio"].value
    return found


def search_power() -> dict[str, float]:
    """p of the effect on the mean loss of which domain's tokens were changed, in the search of autoscale-small.

    Two-way analysis of variance, domain and seed, at each number of steps; and without code at the last one.
    """
    points = pd.read_parquet(RESULTS / "autoscale-small" / "points.parquet")
    last = last_points(points[points["role"] == "fit"])
    mixture = [name for name in last if name.startswith("mixture.")]
    first = dict.fromkeys(("step", "seed", *mixture), "first")
    runs = last.groupby("run").agg({**first, "loss": "mean"})
    ratios = runs[mixture]
    # All domains but the changed one have one ratio.
    changed = ratios.sub(ratios.median(axis=1), axis=0).abs()
    runs = runs[changed.max(axis=1) > 1e-6].assign(domain=changed.idxmax(axis=1))
    found = {}
    for steps, rows in runs.groupby("step"):
        if rows.duplicated(["domain", "seed"]).any():
            # Random mixtures, of another method.
            continue
        losses = rows.pivot(index="domain", columns="seed", values="loss")
        found[f"autoscale p {steps}"] = domain_effect(losses.to_numpy().T)
        found["autoscale p without code"] = domain_effect(losses.drop(index="mixture.code").to_numpy().T)
    return found


TESTS = (seed_noise, seed_ties, transient, constraint, ratio_pairs, late)
TESTS += (schedules, seeded_potentials, open_models, later_inflection, search_power)


def main(*names: str) -> None:
    """Run the tests of these names, or all, and keep their numbers."""
    if paper_folder(None) is None:
        sys.exit(f"{PAPERS_VARIABLE}: give the folder of the papers' numbers")
    file = RESULTS / "reproduction.csv"
    numbers = pd.read_csv(file).set_index("name")["value"].to_dict()
    for test in TESTS:
        if not names or test.__name__ in names:
            numbers |= test()
    pd.DataFrame(numbers.items(), columns=["name", "value"]).to_csv(file, index=False, float_format="%.6g")


if __name__ == "__main__":
    main(*sys.argv[1:])
