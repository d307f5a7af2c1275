"""Figure 12 and app. I.3 of the D-CPT paper: the inflection ratio, below which training raises the loss on a corpus.

"holds": in every domain the 90% interval of the general corpus's inflection ratio lies above 0 and up to CLAIMED, as
the paper says; "does not hold at this scale": of one it lies beyond, or the loss on general falls with none of general
in the mixture; "cannot be judged": an interval reaches over an end.
"""

from __future__ import annotations

import pandas as pd

from fitting import PointsError, inflection_ratio
from fitting.parallel import over_cores
from pipeline.paper_tables.dcpt.points import CORPORA, SIX, Material
from pipeline.paper_tables.table import Reading, Table
from pipeline.paper_tables.verdict import HOLDS, NOT_HERE, UNKNOWN
from pipeline.question.goal import goal_of
from pipeline.question.schema import Question

CLAIMED = 0.1
"""App. I.3: the inflection ratios of all six domains are between 0 and this."""
KEYS = ("domain", "corpus", "quantity")
REFITS = 200
"""Resamples of the runs, for the intervals."""


def inflection(material: Material) -> pd.DataFrame:
    """The inflection ratio of each domain and of general beside it, with its 90% interval and the shares around it.

    Source: Que et al. 2024, app. I.3; the method is `fitting.inflection_ratio`'s.
    """
    cells = [(domain, corpus) for domain in material.domains for corpus in CORPORA]
    found = over_cores(lambda cell: _ratio(material, *cell), cells)
    rows = [
        (*cell, quantity, value)
        for cell, own in zip(cells, found, strict=True)
        if isinstance(own, dict)
        for quantity, value in own.items()
    ]
    if not rows:
        raise PointsError(next(own for own in found if isinstance(own, str)))
    table = pd.DataFrame(rows, columns=[*KEYS, "value"])
    reasons = [f"{' '.join(cell)}: {own}" for cell, own in zip(cells, found, strict=True) if isinstance(own, str)]
    shares = ", ".join(f"{share:g}" for share in sorted(material.measured(material.domains[0], "D")["r"].unique()))
    table.attrs["note"] = ". ".join([f"Shares that were run: {shares}", *reasons]) + "."
    return table


def judge(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether the paper's claim holds here, and why."""
    at = cells[cells["corpus"] == "G"].set_index(["domain", "quantity"])["ours"]
    said, worst = [], HOLDS
    for domain in dict.fromkeys(cells["domain"]):
        if (domain, "ratio") not in at.index:
            said.append(f"beside {domain} it was not found")
            worst = UNKNOWN if worst == HOLDS else worst
            continue
        value, low, high, above = (float(at[domain, name]) for name in ("ratio", "low", "high", "share above"))
        # Where it falls at the least share that was run and that is not 0, what is below is not known.
        beyond = low > CLAIMED or value == above == 0
        verdict = NOT_HERE if beyond else HOLDS if low > 0 and high <= CLAIMED else UNKNOWN
        worst = NOT_HERE if NOT_HERE in (verdict, worst) else UNKNOWN if UNKNOWN in (verdict, worst) else HOLDS
        said.append(f"beside {domain} {value:.3f} (90%: {low:.3f} to {high:.3f})")
    return worst, f"The inflection ratio of general is {'; '.join(said)}; the paper's are in (0, {CLAIMED:g}]."


def _ratio(material: Material, domain: str, corpus: str) -> dict[str, float] | str:
    points = material.fitted(domain, corpus)
    try:
        answer = inflection_ratio(points, bootstrap=REFITS)
    except PointsError as reason:
        return str(reason)
    ratio = answer.values["inflection_ratio"]
    around = {f"share {name}": answer[name] for name in ("below", "above")}
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, **around}


def _near_zero(question: Question) -> bool:
    ratios = [ratio for ratio in question.mixture.domain_ratio if 0 < ratio <= CLAIMED]
    return not goal_of(question).many_domains and len(ratios) >= 2


READINGS = {"near-zero": Reading("near-zero", of=_near_zero, read=SIX.read, said=SIX.said)}
TABLES = {
    "dcpt-figure-12": Table(
        "The share of a corpus below which training raises the loss on it",
        "",
        inflection,
        KEYS,
        "domain",
        reads="near-zero",
        across=("quantity",),
        judge=judge,
    )
}
