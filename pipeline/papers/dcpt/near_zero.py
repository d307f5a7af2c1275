"""Figure 12 and app. I.3 of the D-CPT paper: the inflection ratio, below which training raises the loss on a corpus.

Verdicts. "holds": in every domain the 90% interval of general's inflection ratio lies above 0 and up to CLAIMED, as
the paper claims. "does not hold": in one domain it lies beyond, or the loss on general falls without any
general text in the mixture. "cannot be judged": an interval contains an end.
"""

from dataclasses import replace

import pandas as pd

from fitting import PointsError, inflection_ratio
from fitting.parallel import over_cores
from pipeline.papers.dcpt.points import CORPORA, DomainPoints
from pipeline.papers.dcpt.points import READING as READING_OF_SIZES
from pipeline.papers.table import PaperTable
from pipeline.papers.verdict import HOLDS, NOT_HERE, UNKNOWN
from pipeline.question.schema import Question

CLAIMED = 0.1
"""App. I.3: the inflection ratios of all six domains are between 0 and this."""
KEYS = ("domain", "corpus", "quantity")
REFITS = 200
"""Resamples of the runs, for the intervals."""


def inflection(study: DomainPoints) -> pd.DataFrame:
    """The inflection ratio of each domain and of general beside it, its 90% interval and the measured ratios around it.

    Source: Que et al. 2024, app. I.3; the method is that of `fitting.inflection_ratio`.
    """
    cells = [(domain, corpus) for domain in study.domains for corpus in CORPORA]
    results = list(zip(cells, over_cores(lambda cell: _ratio(study, *cell), cells), strict=True))
    rows = [(*cell, *item) for cell, result in results if isinstance(result, dict) for item in result.items()]
    if not rows:
        raise PointsError(next(result for _, result in results if isinstance(result, str)))
    table = pd.DataFrame(rows, columns=[*KEYS, "value"])
    errors = [f"{' '.join(cell)}: {result}" for cell, result in results if isinstance(result, str)]
    ratios = ", ".join(f"{ratio:g}" for ratio in sorted(study.measured(study.domains[0], "D")["r"].unique()))
    table.attrs["note"] = ". ".join([f"Measured ratios: {ratios}", *errors]) + "."
    return table


def judge(cells: pd.DataFrame) -> tuple[str, str]:
    """Verdict and reason: whether the paper's claim holds here."""
    at = cells[cells["corpus"] == "G"].set_index(["domain", "quantity"])["ours"]
    texts, verdicts = [], set()
    for domain in dict.fromkeys(cells["domain"]):
        if (domain, "ratio") not in at.index:
            texts.append(f"not found beside {domain}")
            verdicts.add(UNKNOWN)
            continue
        value, low, high, above = (float(at[domain, name]) for name in ("ratio", "low", "high", "ratio above"))
        # Where the loss falls at the smallest measured ratio above 0, smaller ratios are unknown.
        beyond = low > CLAIMED or value == above == 0
        verdicts.add(NOT_HERE if beyond else HOLDS if low > 0 and high <= CLAIMED else UNKNOWN)
        texts.append(f"{value:.3f} (90%: {low:.3f} to {high:.3f}) beside {domain}")
    verdict = next(verdict for verdict in (NOT_HERE, UNKNOWN, HOLDS) if verdict in verdicts)
    return verdict, f"The inflection ratio of general is {'; '.join(texts)}; the paper's are in (0, {CLAIMED:g}]."


def _ratio(study: DomainPoints, domain: str, corpus: str) -> dict[str, float] | str:
    try:
        answer = inflection_ratio(study.fitted(domain, corpus), bootstrap=REFITS)
    except PointsError as reason:
        return str(reason)
    ratio = answer.values["inflection_ratio"]
    sides = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    return sides | {f"ratio {name}": answer[name] for name in ("below", "above")}


def _near_zero(question: Question) -> bool:
    small = sum(0 < ratio <= CLAIMED for ratio in question.mixture.domain_ratio)
    return not question.goal_kind.many_domains and small >= 2


READING = replace(READING_OF_SIZES, experiment="near-zero", fallback="", applies=_near_zero)
_TITLE = "The ratio of a corpus below which training raises the loss on it"
TABLES = {"dcpt-figure-12": PaperTable(_TITLE, "", inflection, KEYS, "near-zero", across=("quantity",), judge=judge)}
