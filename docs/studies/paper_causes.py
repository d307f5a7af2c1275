"""Why does a table of the papers not hold? Tests on kept points: numbers of docs/results/reproduction.csv.

    CPTLAW_PAPER_TABLES=FOLDER python -m docs.studies.paper_causes [TEST ...]

FOLDER holds the papers' numbers. Without names all tests are run; what is not run keeps its old value.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from itertools import combinations, product

import numpy as np
import pandas as pd

import fitting
from docs.studies.law_errors import RESULTS
from docs.studies.papers_page import DESIGNS, L3, L3_CASES
from fitting.cross_validation import Fold, folds
from fitting.mixtures.ddo import domain_effect
from fitting.parallel import over_cores
from pipeline.goals.registry import question_of_study
from pipeline.papers.catalogue import READINGS, TABLES
from pipeline.papers.dcpt.fits import FORMS, score_form
from pipeline.papers.dcpt.points import CORPORA, METRICS, DomainPoints, Scores, mean_scores
from pipeline.papers.dcpt.statements import STATEMENTS
from pipeline.papers.dynamics.fits import ACCURATE, open_model
from pipeline.papers.dynamics.points import CORPORA as SIDES
from pipeline.papers.dynamics.points import ScheduleStudy, fit_to, predicted
from pipeline.papers.make import tables_of
from pipeline.papers.table import PAPERS_VARIABLE, PaperStudy, paper_folder
from pipeline.papers.verdict import NOT_HERE, SEED_TIE, compared
from pipeline.study.folder import Study

POTENTIALS = ("wsd-tenth", "half-tenth", "constant-tenth")
"""Variants of figure 5 with re-warm-up, from the lowest loss potential to the highest."""
DRAWS = 5
"""Draws of seed noise."""


def read(name: str) -> DomainPoints | ScheduleStudy:
    """The points of a kept study, by the name of its input."""
    folder = RESULTS / READINGS[name].experiment
    return READINGS[name].read(PaperStudy(Study(folder), question_of_study(folder, [])))


def six_domains(study: str = DESIGNS["first"], **changes: float) -> DomainPoints:
    """The points of a kept six-domain study, with changed fields."""
    folder = RESULTS / study
    points = READINGS["six"].read(PaperStudy(Study(folder), question_of_study(folder, [])))
    return dataclasses.replace(points, **changes)


def seed_noise() -> dict[str, float]:
    """Standard deviation over seeds of a final loss, from the 67 pairs of runs of near-zero that differ in it alone."""
    points = pd.read_parquet(RESULTS / "near-zero" / "points.parquet")
    points = points[points["phase"] == "continual"]
    last = points[points["step"] == points.groupby("run")["step"].transform("max")]
    mixture = [name for name in last if name.startswith("mixture.")]
    losses = last.fillna(dict.fromkeys(mixture, -1.0)).groupby(["model", "corpus", *mixture])["loss"]
    return {"seed sd": float(np.sqrt(losses.var().mean())), "seed pairs": float((losses.size() > 1).sum())}


def seed_ties() -> dict[str, float]:
    """How far the ratio of two forms' misfits moves with the seed: the standard deviation of its logarithm.

    Every run of law gets an offset with the standard deviation of `seed_noise` (one seed of each was trained).
    """
    points, rng, draws = six_domains().fitted("law", "D"), np.random.default_rng(0), []
    sd = seed_noise()["seed sd"]
    for _ in range(DRAWS):
        runs = points["run"].unique()
        offsets = dict(zip(runs, rng.normal(0, sd, len(runs))))
        moved = points.assign(loss=points["loss"] + points["run"].map(offsets))
        fits = {form: score_form(moved, law, "all") for form, law in FORMS.items()}
        misfit = {
            form: {"r2": 1 - fit["r2"], "huber": fit["huber"]} for form, fit in fits.items() if not isinstance(fit, str)
        }
        draws.append([
            np.log(misfit[one][metric] / misfit[other][metric])
            for (one, other), metric in product(combinations(FORMS, 2), METRICS)
        ])  # fmt: skip
    spread = np.std(draws, axis=0, ddof=1)
    return {"seed ratio, median": float(np.median(spread)), "seed ratio, largest": float(spread.max())}


def transient() -> dict[str, float]:
    """Loss on code of the smallest model before continual pre-training, and its fall until step 40, by ratio."""
    points = six_domains(min_ratio=0.1).measured("code", "D")
    points = points[(points["N"] == points["N"].min()) & (points["r"] >= 0.1)]
    at = points.pivot_table(index="run", columns="step", values="loss")
    fall = at[0] - at[40]
    return {
        "code at 0": float(at[0].mean()),
        "code fall, least": float(fall.min()),
        "code fall, most": float(fall.max()),
    }


LESS_BOUND = dict(zip(("eta", "free"), L3[1:]))
"""Case -> L3 with fewer bounds: without eta > 1 of eq. 26, and without C > C_0 too, with wider bounds of gamma, eps."""


def constraint() -> dict[str, float]:
    """Mean R2 of L3 over the domains as printed and with fewer bounds, by the cases of L3_CASES; and eta if it is free.

    eta: the median over the domains of eta without its bound.
    """
    found = {}
    for (design, least, first), law, corpus in product(L3_CASES, L3, CORPORA):
        points = six_domains(DESIGNS[design], min_ratio=least, from_step=first)
        fits = [fitting.fit(points.fitted(domain, corpus), law, bootstrap=0) for domain in points.domains]
        case = f"{corpus} {design} {least:g} {first}"
        found[f"{law} {case}"] = float(np.mean([fit.metrics["r2"] for fit in fits]))
        if law == LESS_BOUND["eta"]:
            found[f"eta {case}"] = float(np.median([fit.params["eta"] for fit in fits]))
    return found


OF_SPLIT = {"all": (1, 14, 15), "each-size": (2, 16, 17), "step-thirds": (3, 18, 19), "ratio-pairs": (4, 20, 21)}
"""Split of `dcpt.fits.SPLITS` -> numbers of its tables."""


def last_design() -> dict[str, float]:
    """Pairs as the paper states and pairs decided, of the tables that do not hold in the last design.

    eta, free: `LESS_BOUND` in the place of L3. late: all forms, from half of the steps on. inner, inner eta: all forms,
    judged on the pairs of ratios without 0; so with the first of `LESS_BOUND` in the place of L3.
    """
    study, found = READINGS["six"].experiment, {}
    verdicts = pd.read_csv(RESULTS / study / "tables" / "verdicts.csv").set_index("table")["verdict"]
    failing = [int(name.removeprefix("dcpt-")) for name in verdicts.index[verdicts == NOT_HERE]]
    splits = {split: [number for number in numbers if number in failing] for split, numbers in OF_SPLIT.items()}
    points, late = six_domains(study), six_domains(study, from_step=600)
    for (split, numbers), (case, law) in product(splits.items(), LESS_BOUND.items()):
        scored = _scored(points, {"L3": law}, split) if numbers else {}
        for number in numbers:
            found |= _pairs(f"dcpt-{number} {case}", number, _with_ours(number, scored))
    if splits["ratio-pairs"]:
        scored = _scored(points, FORMS | {"eta": LESS_BOUND["eta"]}, _inner_ratios)
        free = {cell: scores for cell, scores in scored.items() if cell[0] != "L3"}
        free |= {("L3", *cell[1:]): scores for cell, scores in scored.items() if cell[0] == "eta"}
        for number in splits["ratio-pairs"]:
            found |= _pairs(f"dcpt-{number} inner", number, _with_ours(number, scored))
            found |= _pairs(f"dcpt-{number} inner eta", number, _with_ours(number, free))
    names = [f"dcpt-{number}" for number in failing]
    for result in tables_of({"six": late}, names, paper_folder(None), print):
        found |= _pairs(f"{result.name} late", int(result.name.removeprefix("dcpt-")), result.cells)
    return found


def _inner_ratios(points: pd.DataFrame) -> list[Fold]:
    """The folds that hold out two ratios above 0, which the fitted ones enclose from below."""
    return [fold for fold in folds(points, "ratio-pairs") if points.loc[fold.judged, "r"].min() > 0]


Cell = tuple[str, str, str]
"""Form, domain, corpus."""


def _scored(
    points: DomainPoints, laws: Mapping[str, str], split: str | Callable[[pd.DataFrame], list[Fold]]
) -> dict[Cell, Scores]:
    """Scores of laws by form, by cell, on a split of SPLITS or on folds."""
    cells = list(product(laws, points.domains, CORPORA))

    def score(cell: Cell) -> Scores:
        fitted, law = points.fitted(*cell[1:]), laws[cell[0]]
        scores = (
            score_form(fitted, law, split)
            if isinstance(split, str)
            else mean_scores(fitting.held_out(fitted, law, split(fitted)))
        )
        assert not isinstance(scores, str), scores
        return scores

    return dict(zip(cells, over_cores(score, cells)))


def _with_ours(number: int, scored: Mapping[Cell, Scores]) -> pd.DataFrame:
    """A kept table of the last design, with other numbers of ours for the forms that were scored."""
    table = pd.read_csv(RESULTS / READINGS["six"].experiment / "tables" / f"dcpt-{number}.csv")
    metric = "huber" if number in (14, 16, 18, 20) else "r2"
    rows = table["parameterization"].isin({form for form, _, _ in scored})
    table.loc[rows, "ours"] = [
        np.mean([
            scores[row.metric if number in (1, 2, 3, 4) else metric]
            for (form, domain, corpus), scores in scored.items()
            if (form, corpus) == (row.parameterization, row.corpus) and domain == getattr(row, "domain", domain)
        ])
        for row in table[rows].itertuples()
    ]  # fmt: skip
    return table


def _pairs(key: str, number: int, table: pd.DataFrame) -> dict[str, float]:
    """How many pairs of a table's cells are as the paper states, and how many do not tie."""
    answers = [
        answer
        for statement in STATEMENTS[number]
        for _, _, answer in compared(table, TABLES[f"dcpt-{number}"].keys[0], statement)
        if answer is not None
    ]
    return {f"{key} right": sum(answers), f"{key} decided": len(answers)}


def schedules() -> dict[str, float]:
    """Eq. 4 on the held-out schedules of figure 10: as it predicts them, fitted to them too, and from step 64 on.

    Curves within 1%, of 16 a corpus (8 schedules, 2 models), and their mean relative error.
    """
    study, found = read("dynamics"), {}
    assert isinstance(study, ScheduleStudy)
    cases = {"predicted": (study, False), "fitted": (study, True)}
    cases["late"] = (dataclasses.replace(study, from_step=64, cache={}), False)
    for (case, (points, every)), corpus in product(cases.items(), SIDES):
        errors = []
        for model in points.models:
            runs = points.runs if every else points.fitted_runs()
            runs = runs[(runs["model"] == model) & np.isclose(runs["ratio"], 1.0)]
            law = fit_to(points, points.on(corpus, runs), "dynamics")
            held_out = points.runs[(points.runs["model"] == model) & (points.runs["role"] == "confirm")]
            judged = points.on(corpus, held_out, pretraining=False)
            error = (predicted(law, judged, points.schedules) / judged["loss"] - 1).abs()
            errors.append(error.groupby(judged["run"]).mean())
        curves = pd.concat(errors)
        found[f"schedules {case} {corpus} near"] = float((curves <= ACCURATE).sum())
        found[f"schedules {case} {corpus} error"] = float(curves.mean())
    return found


def seeded_potentials() -> dict[str, float]:
    """Figure 5 with re-warm-up by the means of several seeds: pairs decided, as stated, and the largest difference.

    A pair is two loss potentials of a model; as stated: the higher one has the lower loss on D_cpt.
    """
    points = pd.read_parquet(RESULTS / "dynamics-seeds" / "points.parquet")
    points = points[
        points["variant"].isin(POTENTIALS) & (points["phase"] == "continual") & (points["corpus"] == "code")
    ]
    last = points[points["step"] == points.groupby("run")["step"].transform("max")]
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
    assert isinstance(study, ScheduleStudy)
    fitted = {name: dataclasses.replace(run, role="fit") for name, run in study.plan.items()}
    late = dataclasses.replace(study, from_step=14, cache={})
    cases = {"predicted": (study, "open, shorter runs"), "late": (late, "open, shorter runs")}
    cases["fitted"] = (dataclasses.replace(study, plan=fitted, cache={}), "open")
    found = {}
    for case, (points, law) in cases.items():
        cells = open_model(points)
        errors = cells[(cells["law"] == law) & (cells["metric"] == "error")].set_index("corpus")["value"]
        found |= {f"open model {case} {corpus} error": float(error) for corpus, error in errors.items()}
    return found


def later_inflection() -> dict[str, float]:
    """The inflection ratio of general from all points, and from the second half of the steps."""
    study, found = read("near-zero"), {}
    assert isinstance(study, DomainPoints)
    for first, domain in product((study.from_step, 100), study.domains):
        points = dataclasses.replace(study, from_step=first).fitted(domain, "G")
        answer = fitting.inflection_ratio(points, bootstrap=0)
        found[f"inflection {domain} {first}"] = answer.values["inflection_ratio"].value
    return found


def search_power() -> dict[str, float]:
    """p of the effect on the mean loss of which domain's tokens were changed, in the search of autoscale-small.

    Two-way analysis of variance, domain and seed, at each number of steps; and without code at the last one.
    """
    points = pd.read_parquet(RESULTS / "autoscale-small" / "points.parquet").query("role == 'fit'")
    last = points[points["step"] == points.groupby("run")["step"].transform("max")]
    mixture = [name for name in last if name.startswith("mixture.")]
    runs = last.groupby("run").agg(
        {"step": "first", "seed": "first", "loss": "mean", **dict.fromkeys(mixture, "first")}
    )
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


TESTS = (
    *(seed_noise, seed_ties, transient, constraint, last_design, schedules),
    *(seeded_potentials, open_models, later_inflection, search_power),
)

if __name__ == "__main__":
    if paper_folder(None) is None:
        sys.exit(f"{PAPERS_VARIABLE}: give the folder of the papers' numbers")
    file = RESULTS / "reproduction.csv"
    numbers = pd.read_csv(file).set_index("name")["value"].to_dict()
    for test in TESTS:
        if len(sys.argv) == 1 or test.__name__ in sys.argv[1:]:
            numbers |= test()
    pd.DataFrame(numbers.items(), columns=["name", "value"]).to_csv(file, index=False, float_format="%.6g")
