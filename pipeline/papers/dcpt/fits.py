"""Tables 1 to 4, 7, 8, 10, 13 and 14 to 21 of the D-CPT paper: how well the forms of its law fit and predict.

Tables 1 to 4 are means over domains: of all points, sizes, tokens and ratios held out. Tables 14, 16, 18 and 20 are the
Huber losses of each domain behind them, 15, 17, 19 and 21 the R2; `_of_split` numbers them.
"""

import functools
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from fitting import PointsError, fit, held_out
from fitting.answers.new_domain import PARTS
from fitting.answers.new_domain import learnability as of_run
from fitting.parallel import over_cores
from pipeline.papers.dcpt.points import CORPORA, DomainPoints, Scores, at_ratio, mean_scores, score_table, scores
from pipeline.papers.dcpt.statements import LEVEL, STATEMENTS
from pipeline.papers.table import PaperTable
from training.evaluation_steps import EvaluationPolicy, evaluation_steps

FORMS = {"L1": "dcpt-l1", "L2": "dcpt-l2", "L3": "dcpt-convex", "L4": "dcpt-l4", "L5": "dcpt-l5"}
"""The paper's name of a form of the law -> ours; L3 with eta > 1, as the paper fits it."""
REPRESENTATIONS = {f"K{number}": f"cross-domain-k{number}" for number in (1, 2, 3, 4)}
"""The paper's name of a cross-domain law -> ours."""
SPLITS = {
    "all": ("effectiveness", "Fitted to all points"),
    "each-size": ("model_size_generalizability", "Each model size held out"),
    "step-thirds": ("dataset_size_generalizability", "Each third of the tokens held out"),
    "ratio-pairs": ("mixture_ratio_generalizability", "Each pair of ratios held out"),
}
"""Split -> the paper's name and the title. all: judged on the points that were fitted; the others as `fitting.folds`
has them, the mean over the folds."""
METHODS = {"M1": "dense", "M2": "sparse", "M3": "sectional", "M4": "decay"}
"""The paper's name of a sampling method -> policy of `training.evaluation_steps`."""
Make = Callable[[DomainPoints], pd.DataFrame]
DECAY = 0.02
"""lambda of the decay policy (app. I.2)."""


@functools.lru_cache(maxsize=len(SPLITS))
def by_domain(study: DomainPoints, split: str) -> pd.DataFrame:
    """Every form on every domain and corpus (sec. 4.2, app. J): parameterization, domain, corpus, metric, value.

    A form that cannot be fitted has no row.
    """
    cells = list(product(study.domains, CORPORA))
    jobs = [(form, *cell) for form in FORMS for cell in cells]
    results: list[Scores | str] = []

    def log(result: Scores | str) -> None:
        results.append(result)
        if len(results) % len(cells) == 0:
            form, judged = jobs[len(results) - 1][0], "all points" if split == "all" else f"held out by {split}"
            r2 = [one["r2"] for one in results[-len(cells) :] if isinstance(one, dict)]
            mean = f"mean R2 {np.mean(r2):.4f}" if r2 else "none could be fitted"
            study.log(f"{form} ({FORMS[form]}), {judged}: {len(cells)} cells, {mean}")

    over_cores(lambda job: score_form(study.fitted(*job[1:]), FORMS[job[0]], split), jobs, each=log)
    return score_table(jobs, results, ("parameterization", "domain", "corpus"))


def over_domains(study: DomainPoints, split: str) -> pd.DataFrame:
    """The mean over the domains of `by_domain`: columns parameterization, corpus, metric, value."""
    table = by_domain(study, split)
    mean = table.groupby(["parameterization", "corpus", "metric"], sort=False)["value"].mean().reset_index()
    mean.attrs["note"] = f"Mean over {len(study.domains)} domains. {table.attrs['note']}".strip()
    return mean


def one_metric(study: DomainPoints, split: str, metric: str) -> pd.DataFrame:
    """The rows of `by_domain` of a metric."""
    return by_domain(study, split).query("metric == @metric").reset_index(drop=True)


def score_form(points: pd.DataFrame, law: str, split: str) -> Scores | str:
    """Scores of a law on points under a split of SPLITS, or the reason why there are none."""
    try:
        if split == "all":
            return scores(points["loss"].to_numpy(float), fit(points, law, bootstrap=0).predict(points))
        return mean_scores(held_out(points, law, split))
    except PointsError as reason:
        return str(reason)


def cross_domain(study: DomainPoints, split: str) -> pd.DataFrame:
    """One law for all domains: columns representation, corpus, metric, value.

    split: all (table 7), or domain-pairs, the mean over every pair of domains held out (table 8).
    """
    jobs = list(product(REPRESENTATIONS, CORPORA))
    points = {corpus: every_domain(study, corpus) for corpus in CORPORA}
    results = over_cores(lambda job: score_form(points[job[1]], REPRESENTATIONS[job[0]], split), jobs)
    k2 = ", ".join(f"{domain} {learnability(study, domain)['k2']:.3f}" for domain in study.domains)
    note = f"k2, nats per token, of each domain: {k2}. General is fitted with its domain's K."
    return score_table(jobs, results, ("representation", "corpus"), note)


def learnability(study: DomainPoints, domain: str) -> dict[str, float]:
    """k1, k2 and k3 of a domain, by the smallest model at the ratio nearest to a half, on the domain's own corpus.

    Source: Que et al. 2024, sec. 3.2, app. H; the paper does not say at which size and ratio they are measured.
    """
    points = study.measured(domain, "D")
    if points.empty:
        raise PointsError(f"no run of {domain} has points yet")
    points = points[points["N"] == points["N"].min()]
    run = at_ratio(points, 0.5).sort_values("step")
    run = run[run["run"] == run["run"].iloc[0]]
    return of_run(run["step"].to_list(), run["loss"].to_list(), run["step"].max() / PARTS)


def every_domain(study: DomainPoints, corpus: str) -> pd.DataFrame:
    """The points of all domains on a corpus, G or D, with the columns domain, k1, k2 and k3."""
    known = {domain: learnability(study, domain) for domain in study.domains}
    parts = [study.fitted(domain, corpus).assign(domain=domain, **k) for domain, k in known.items()]
    points = pd.concat(parts, ignore_index=True)
    # A run on general text alone belongs to every domain, each with its own K.
    return points.assign(run=points["run"] + " " + points["domain"])


def without_ratio(study: DomainPoints) -> pd.DataFrame:
    """OpenAI's law and Chinchilla's at half code, or the first domain: law, corpus, metric, value (table 10)."""
    domain = "code" if "code" in study.domains else study.domains[0]
    points = {corpus: at_ratio(study.fitted(domain, corpus), 0.5) for corpus in CORPORA}
    jobs = list(product(("openai", "chinchilla"), CORPORA))
    ratios = {f"{ratio:g}" for own in points.values() for ratio in own["r"]}
    note = f"Domain {domain}, ratio {', '.join(sorted(ratios))} of the corpus that is predicted."
    return score_table(jobs, [score_form(points[corpus], law, "all") for law, corpus in jobs], ("law", "corpus"), note)


def sampling(study: DomainPoints) -> pd.DataFrame:
    """The law fitted to the points of each policy, judged on all: method, corpus, metric, value (table 13).

    Of the domain and size whose runs were evaluated most often. With one size A / N^alpha is part of E.

    Source: Que et al. 2024, app. I.1; the paper does not say on which points it judges.
    """
    domain, size, every = _densest(study)
    jobs = list(product(METHODS, CORPORA))
    results: list[Scores | str] = []
    counts = {}
    for method, corpus in jobs:
        points = study.measured(domain, corpus)
        points = points[(points["N"] == size) & (points["step"] >= max(study.from_step, 1))]
        # Includes the last step, which is evaluated under any policy.
        steps = set(evaluation_steps(EvaluationPolicy(METHODS[method], every, DECAY), int(points["step"].max()))) - {0}
        chosen = points[points["step"].isin(steps)]
        counts[method] = chosen["step"].nunique()
        try:
            fitted = fit(chosen, FORMS["L3"], bootstrap=0, fix={"alpha": 0.5})
            results.append(scores(points["loss"].to_numpy(float), fitted.predict(points)))
        except PointsError as reason:
            results.append(str(reason))
    points = ", ".join(f"{method} {count}" for method, count in counts.items())
    note = f"{domain}, N = {size * 1e3:.3g} million; evaluations of a run: {points}. Judged on M1's points."
    return score_table(jobs, results, ("method", "corpus"), note)


def _densest(study: DomainPoints) -> tuple[str, float, int]:
    """Domain, size and spacing of the runs with the most evaluations on a grid; PointsError where none has over 20."""
    grids: list[tuple[int, str, float, int]] = []
    for domain in study.domains:
        for size, points in study.measured(domain, "D").groupby("N"):
            runs_at = points.groupby("step")["run"].nunique()
            steps = runs_at.index[runs_at == points["run"].nunique()]
            gaps = steps.to_series().diff().dropna()
            # The last step may be off the grid.
            if len(steps) > 20 and gaps.iloc[:-1].nunique() == 1:
                grids.append((len(steps), domain, float(size), int(gaps.iloc[0])))  # pyright: ignore
    if not grids:
        raise PointsError("no domain's runs of one size were all evaluated densely: plan with +dense.DOMAIN=MODEL")
    return max(grids, key=lambda grid: grid[0])[1:]


def _of_split(number: int, split: str) -> dict[int, PaperTable]:
    """The table of means of a split, 1 to 4, and those by domain of its Huber loss and R2, from 14 and 15 on."""
    (name, title), form = SPLITS[split], "parameterization"
    mean = partial(over_domains, split=split)
    rows: list[tuple[int, str, str, Make, tuple[str, ...]]] = [(number, "mean over domains", name, mean, (form,))]
    for place, metric, label in ((12 + 2 * number, "huber", "Huber loss"), (13 + 2 * number, "r2", "R2")):
        make = partial(one_metric, split=split, metric=metric)
        rows.append((place, f"{label} by domain", f"{name}_{metric}_by_domain", make, (form, "domain")))
    return {place: _table(place, f"{title}, {of}", file, make, keys) for place, of, file, make, keys in rows}


def _table(number: int, title: str, file: str, make: Make, keys: tuple[str, ...]) -> PaperTable:
    file, states = f"dcpt_table{number:02d}_{file}.csv", STATEMENTS[number]
    return PaperTable(title, file, make, (*keys, "corpus", "metric"), states=states, level=LEVEL.get(number))


_ALL, _PAIRS = partial(cross_domain, split="all"), partial(cross_domain, split="domain-pairs")
_DOMAINS = "One law for all domains"
TABLES = {
    f"dcpt-{number}": table for split in enumerate(SPLITS, start=1) for number, table in _of_split(*split).items()
} | {
    f"dcpt-{number}": _table(number, title, file, make, (subject,))
    for number, title, file, make, subject in (
        (7, _DOMAINS, "cross_domain_effectiveness", _ALL, "representation"),
        (8, f"{_DOMAINS}, each pair of domains held out", "domain_generalizability", _PAIRS, "representation"),
        (10, "Chinchilla's law and OpenAI's at one ratio", "chinchilla_vs_openai", without_ratio, "law"),
        (13, "Which steps are evaluated", "sampling_methods", sampling, "method"),
    )
}
