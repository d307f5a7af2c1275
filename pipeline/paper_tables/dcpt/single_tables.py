"""Tables 10 and 13 of the D-CPT paper: two laws at one ratio, and four ways to choose the steps to evaluate at."""

from __future__ import annotations

import pandas as pd

from fitting import PointsError, fit
from pipeline.paper_tables.dcpt.points import CORPORA, Material, scores
from training.evaluation_steps import EvaluationPolicy, evaluation_steps

METHODS = {"M1": "dense", "M2": "sparse", "M3": "sectional", "M4": "decay"}
"""The paper's name -> policy of `training.evaluation_steps`."""
DECAY = 0.02
"""lambda of the decay policy (app. I.1)."""


def without_ratio(material: Material) -> pd.DataFrame:
    """OpenAI's law and Chinchilla's at half domain, half general: law, corpus, metric, value (table 10).

    Of the domain code, as in the paper, or of the first one.
    """
    domain = "code" if "code" in material.domains else material.domains[0]
    rows, shares = [], set()
    for law in ("openai", "chinchilla"):
        for corpus in CORPORA:
            own = material.fitted(domain, corpus)
            share = min(own["r"].unique(), key=lambda r: abs(r - 0.5))
            own = own[own["r"] == share]
            shares.add(f"{share:g}")
            try:
                found = scores(own["loss"].to_numpy(float), fit(own, law, bootstrap=0).predict(own))
            except PointsError:
                continue
            rows += [(law, corpus, metric, value) for metric, value in found.items()]
    table = pd.DataFrame(rows, columns=["law", "corpus", "metric", "value"])
    table.attrs["note"] = f"Domain {domain}, share {', '.join(sorted(shares))} of the corpus that is predicted."
    return table


def sampling(material: Material) -> pd.DataFrame:
    """The law fitted to the points of each policy, judged on all: method, corpus, metric, value (table 13).

    Of the domain and size whose runs were evaluated most often. Its one size leaves A / N^alpha within E.

    Source: Que et al. 2024, app. I.1; on which points it judges the paper does not say.
    """
    domain, size, every = _densest(material)
    rows, counts = [], {}
    for corpus in CORPORA:
        own = material.measured(domain, corpus)
        own = own[(own["N"] == size) & (own["step"] >= max(material.from_step, 1))]
        last = int(own["step"].max())
        for method, policy in METHODS.items():
            # With the last step, which is evaluated whatever the policy.
            steps = set(evaluation_steps(EvaluationPolicy(policy, every, DECAY), last)) - {0}
            chosen = own[own["step"].isin(steps)]
            counts[method] = chosen["step"].nunique()
            try:
                fitted = fit(chosen, "dcpt", bootstrap=0, fix={"alpha": 0.5})
            except PointsError:
                continue
            found = scores(own["loss"].to_numpy(float), fitted.predict(own))
            rows += [(method, corpus, metric, value) for metric, value in found.items()]
    table = pd.DataFrame(rows, columns=["method", "corpus", "metric", "value"])
    points = ", ".join(f"{method} {count}" for method, count in counts.items())
    table.attrs["note"] = f"{domain}, N = {size * 1e3:.3g} million; evaluations a run: {points}. Judged on M1's points."
    return table


def _densest(material: Material) -> tuple[str, float, int]:
    """Domain, size and spacing of the runs with the most evaluations.

    Raises:
        PointsError: no domain's runs of a size were evaluated on a grid of 20 steps or more.
    """
    best: tuple[int, str, float, int] | None = None
    for domain in material.domains:
        for size, own in material.measured(domain, "D").groupby("N"):
            runs = own["run"].nunique()
            shared = own.groupby("step")["run"].nunique()
            steps = shared.index[shared == runs]
            gaps = steps.to_series().diff().dropna()
            # The last step may be off the grid.
            if len(steps) > 20 and gaps.iloc[:-1].nunique() == 1 and (best is None or len(steps) > best[0]):
                best = (len(steps), domain, float(size), int(gaps.iloc[0]))  # pyright: ignore[reportArgumentType]
    if best is None:
        raise PointsError("no domain's runs of one size were all evaluated densely: plan with +dense.DOMAIN=MODEL")
    return best[1:]
