"""Write the tables of docs/papers.md, between marked lines, from the kept tables of docs/results.

python -m docs.studies.papers_page
"""

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from docs.studies.law_errors import RESULTS, markdown
from docs.studies.laws_page import renewed
from pipeline.papers.catalogue import READINGS, TABLES
from pipeline.papers.show import PAPERS, numbered
from pipeline.papers.table import judged
from pipeline.papers.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN

PAGE = Path(__file__).parents[1] / "papers.md"
VERDICTS = (HOLDS, IN_ORDER, NOT_HERE, UNKNOWN)
DESIGNS = {"first": "dcpt-six-small", "second": "dcpt-six-long", "third": "dcpt-six-annealed"}
"""The designs of the six-domain study, in their order; the tables are made from the last."""
L3 = ("dcpt-convex", "dcpt", "dcpt-free")
"""L3 as the D-CPT paper fits it (eq. 26: eta > 1 and C > C_0), without the bound of eta, and without both."""
L3_CASES = (
    *(("first", least, first) for least, first in ((0.0, 40), (0.1, 40), (0.1, 120))),
    *(("second", 0.0, first) for first in (300, 600)),
    ("third", 0.0, 300),
)
"""Design, least ratio and first step of the points that L3 is fitted to with and without its constraints."""
STATEMENTS = {
    "dcpt-1": "4.2: fitted to all points, L3 is best or comparable to L2, R2 above .97; L5 is worst",
    "dcpt-2": "4.2: L3 predicts a size that was held out best",
    "dcpt-3": "4.2: L3 predicts a third of the tokens that was held out best",
    "dcpt-4": "4.2: L3 predicts ratios that were held out best",
    "dcpt-5": "4.3, usage 1: the law finds the ratio at which a tolerance of the general loss is reached",
    "dcpt-6": "4.3, usage 2: the law finds the best ratio of a domain of few tokens",
    "dcpt-7": "4.4: one law for all domains fits with K3 or K4, worse with K1 or K2 on the domain",
    "dcpt-8": "4.4: K3 predicts domains that were held out best",
    "dcpt-10": "app. D: at one ratio Chinchilla's law fits better than OpenAI's",
    "dcpt-12": "4.3, usage 3: the law finds the best size for a compute budget",
    "dcpt-13": "app. I.1: evaluations that thin out (M4) lose nothing to dense ones (M1)",
    "dcpt-figure-12": "app. I.3: below a ratio in (0, .1] training raises the loss on that corpus",
    "dynamics-2": "app. J: other formats of the annealing term do as well",
    "dynamics-figure-2": "3.2: the shift does not depend on the point of transfer",
    "dynamics-figure-3": "3.3: eq. 4 follows all curves under several schedules",
    "dynamics-figure-5": "finding 3: more loss potential, lower loss on the new corpus, consistently",
    "dynamics-figure-6": "4.2: more replay, a smaller shift",
    "dynamics-figure-7": "4.3: a higher peak, less loss on the new corpus and more on the old",
    "dynamics-figure-7c": "4.4, finding 4: less pre-training or more replay, an earlier return of the old loss",
    "dynamics-figure-8": "finding 5: how the best potential, peak and replay move with the weight",
    "dynamics-figure-10": "fig. 10: eq. 4 predicts other schedules",
    "dynamics-figure-12": "app. D: eq. 4 follows each replay ratio by itself",
    "dynamics-figure-14": "app. E: the shift does not depend on the size",
    "dynamics-figure-18": "6: an open model's curves are predicted without its past",
    "dynamics-figure-19": "app. H: eq. 8 follows all replay ratios",
    "autoscale-7": "5.3: its extrapolated weights reach the loss of equal weights in fewer steps",
}
"""Name of TABLES -> the statement of the paper that it is judged by; of others the title stands for it."""


@functools.cache
def kept_tables() -> dict[str, Any]:
    """Name of TABLES -> verdict, why and study of the kept table; of several studies that of its experiment."""
    files = sorted(RESULTS.glob("*/tables/verdicts.csv"))
    every = pd.concat(pd.read_csv(file, keep_default_na=False).assign(study=file.parents[1].name) for file in files)
    kept = {}
    for row in every[every["table"].isin(TABLES)].itertuples():
        if row.table not in kept or row.study == READINGS[TABLES[row.table].reads].experiment:
            kept[row.table] = row
    return {name: kept[name] for name in TABLES if name in kept}


def counts() -> str:
    """How many tables of each paper have each verdict."""
    rows = []
    for paper, title in PAPERS.items():
        found = Counter(table.verdict for name, table in kept_tables().items() if name.startswith(paper))
        rows.append((title, *(found[verdict] or "" for verdict in VERDICTS)))
    return markdown(("tables and figures", *VERDICTS), rows)


def verdicts(paper: str) -> str:
    """Table, statement, verdict, reason and study of a paper's tables."""
    rows = [
        (numbered(name).split(" ", 1)[1], STATEMENTS.get(name, TABLES[name].title), kept.verdict, kept.why, kept.study)
        for name, kept in kept_tables().items()
        if name.startswith(paper)
    ]
    return markdown(("table", "statement", "verdict", "why", "study"), rows)


def designs() -> str:
    """The verdicts of the tables of the third six-domain design in all three."""
    by_design = {
        design: {
            file.stem: judged(TABLES[file.stem], pd.read_csv(file))[0]
            for file in (RESULTS / study / "tables").glob("dcpt-*.csv")
        }
        for design, study in DESIGNS.items()
    }
    names = [name for name, kept in kept_tables().items() if kept.study == DESIGNS["third"]]
    rows = [
        (numbered(name).split(" ", 1)[1], *(by_design[design].get(name, "") for design in DESIGNS)) for name in names
    ]
    heads = ("first, from step 40 of 400", "second, from step 300 of 1,200", "third, from step 300 of 1,200")
    return markdown(("D-CPT", *heads), rows)


def constraints() -> str:
    """The mean R2 of L3 over the domains, with and without its constraints."""
    measured = pd.read_csv(RESULTS / "reproduction.csv").set_index("name")["value"]
    rows = [
        (
            *(design, f"{least:g} and more" if least else "all", first),
            *(f"{measured[f'{law} {corpus} {design} {least:g} {first}']:.4f}" for corpus in "GD" for law in L3),
        )
        for design, least, first in L3_CASES
    ]
    heads = (f"{law}, {corpus}" for corpus in ("general", "domain") for law in L3)
    return markdown(("design", "ratios", "from step", *heads), rows)


TABLES_OF_PAGE = {
    "counts": counts,
    **{paper: functools.partial(verdicts, paper) for paper in PAPERS},
    "designs": designs,
    "constraints": constraints,
}
"""Mark -> what makes the table under it."""


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), TABLES_OF_PAGE), encoding="utf-8")
