"""Tables 5, 6 and 12 of the D-CPT paper: its three uses, from the confirmation runs around each predicted optimum.

Verdicts are those of `pipeline.goals.ratio.outcomes`: confirmed, "holds"; within its interval, "holds in order"; not
confirmed, "does not hold"; one seed, places that do not differ, or an optimum at a bound of the search, "cannot be
judged". The paper ran one seed of each, so that its own numbers say nothing of noise.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import pandas as pd

from pipeline.goals.ratio.outcomes import CONFIRMED, NEARBY, NOT_CONFIRMED, UNDETERMINED
from pipeline.papers.table import PaperStudy, PaperTable, StudyReader
from pipeline.papers.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Interval, Outcome, Recommendation
from pipeline.study.folder import study_of
from pipeline.study.number_format import quantity

VERDICTS = {CONFIRMED: HOLDS, NEARBY: IN_ORDER, NOT_CONFIRMED: NOT_HERE, UNDETERMINED: UNKNOWN}
KEYS = ("what", "corpus")
LOSS = "loss at "
_ENDS = {"smallest": min, "largest": max}


@dataclass(frozen=True)
class Used:
    """A goal's answer, and what its confirmation measured of the laws that answered."""

    recommendation: Recommendation
    rows: list[ConfirmationRow]
    outcome: Outcome
    corpora: tuple[str, str]
    """General, domain."""


def trade_off(used: Used) -> pd.DataFrame:
    """Losses by ratio, the increase at the answer, and the ratio at which the increase is the tolerance (table 5)."""
    outcome = used.outcome
    cells = _losses(used, lambda row: f"{row.domain_ratio:g}")
    cells += _interval("increase at the answer", "G", outcome.loss_increase)
    cells.append(("tolerance", "G", outcome.tolerance or 0.0))
    cells += _interval("ratio, predicted", "G", _domain_ratio(used))
    return _table(cells + _interval("ratio, measured", "G", outcome.crossing), outcome)


def limited_data(used: Used) -> pd.DataFrame:
    """Domain losses by ratio where the domain's tokens are used once, and the answer beside the best (table 6)."""
    cells = _losses(used, lambda row: f"{row.domain_ratio:g}")
    cells += _interval("ratio, predicted", "D", _domain_ratio(used))
    return _table(cells + _beside_best(used, "domain_ratio", "ratio"), used.outcome)


def compute(used: Used) -> pd.DataFrame:
    """Domain losses by size for the same compute, and the answer beside the best (table 12)."""
    cells = _losses(used, lambda row: _size(row.N, row.D))
    cells += _interval("N, predicted", "D", used.recommendation.optimum["N"])
    table = _table(cells + _beside_best(used, "N", "N"), used.outcome)
    sizes, best = {row.N for row in used.rows}, used.recommendation.optimum["N"].value
    if table.attrs["verdict"][0] in (HOLDS, IN_ORDER) and best in (min(sizes), max(sizes)):
        # The paper's own optimum (15.54 billion) is no bound of its search.
        why = f"The predicted optimum is a bound of the sizes that were searched. {used.outcome.sentence}"
        table.attrs["verdict"] = UNKNOWN, why
    return table


def _domain_ratio(used: Used) -> Interval:
    content = used.recommendation
    return Interval((content.mixture or {})[used.corpora[1]], content.low, content.high)


def _losses(used: Used, place: Callable[[ConfirmationRow], str]) -> list[tuple[str, str, float]]:
    letters = dict(zip(used.corpora, "GD"))
    at = attrgetter("N" if used.outcome.goal == "compute" else "domain_ratio")
    ordered = sorted(used.rows, key=at)
    cells = [(f"{LOSS}{place(row)}", letters[row.corpus], row.measured) for row in ordered]
    for row in (row for row in ordered if at(row) == at(used.outcome.places[used.outcome.at])):
        interval = Interval(row.predicted, row.low, row.high)
        cells += _interval("loss at the answer, predicted", letters[row.corpus], interval)
        cells.append(("loss at the answer, measured", letters[row.corpus], row.measured))
    return cells


def _beside_best(used: Used, axis: str, name: str) -> list[tuple[str, str, float]]:
    outcome = used.outcome
    best = [getattr(place, axis) for place, may_be in zip(outcome.places, outcome.among_best or []) if may_be]
    cells = _interval("answer above the smallest of the others", "D", outcome.difference)
    cells += [(f"{name} that may be best, {side}", "D", pick(best)) for side, pick in _ENDS.items() if best]
    return cells + ([("noise of a run", "D", outcome.sd)] if outcome.sd is not None else [])


def _interval(name: str, corpus: str, interval: Interval | None) -> list[tuple[str, str, float]]:
    if interval is None:
        return []
    sides = {"": interval.value, ", 90% low": interval.low, ", 90% high": interval.high}
    return [(f"{name}{side}", corpus, value) for side, value in sides.items() if value is not None]


def _table(rows: list[tuple[str, str, float]], outcome: Outcome) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=[*KEYS, "value"])
    why = f"The predicted optimum is {outcome.verdict}: {outcome.sentence}"
    table.attrs["verdict"] = VERDICTS[outcome.verdict], why
    return table


def _size(N: float, D: float) -> str:
    return f"{quantity(N * 1e9)} parameters, {quantity(D * 1e9)} tokens"


def _by_ratio(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(what=LOSS + rows["r_d"].map("{:g}".format))


def _by_size(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(what=[f"{LOSS}{_size(*size)}" for size in zip(rows["N_B"], rows["D_B"])])


def _reading(kind: str, key: str, experiment: str = "usages-small") -> StudyReader:
    def applies(question: Question) -> bool:
        goal = question.goal
        # One seed says nothing about noise.
        return not question.goal_kind.many_domains and question.confirm.seeds > 1 and getattr(goal, key) is not None

    def read(source: PaperStudy) -> Used:
        goal = dataclasses.replace(source.question.goal, kind=kind)
        question = dataclasses.replace(source.question, goal=goal)
        study = dataclasses.replace(source.study, goal=study_of(question).goal)
        confirmation = Confirmation.read(study)
        rows = [row for row in confirmation.confirmations if row.recommended]
        corpora = question.corpora.general, question.corpora.domain
        return Used(Recommendation.read(study), rows, confirmation.outcome, corpora)

    verbs = ("collect", "fit", f"recommend goal.kind={kind}", f"confirm goal.kind={kind}")
    return StudyReader(experiment, applies=applies, read=read, verbs=verbs)


READINGS = {
    "trade-off": _reading("trade-off", "tolerance"),
    "limited-data": _reading("limited-data", "domain_tokens"),
    # Its optimum is no bound; that of usages-small is.
    "compute": _reading("compute", "flops", "usages-compute"),
}
_AS_SHOWN = {"keys": KEYS, "across": ("corpus",)}
TABLES = {
    "dcpt-5": PaperTable(
        "Usage 1: the largest ratio within the tolerance of the general loss", "dcpt_table05_usage1_tradeoff.csv",
        trade_off, reads="trade-off", prints=_by_ratio, columns=("r_d", "corpus", "value"), **_AS_SHOWN),
    "dcpt-6": PaperTable(
        "Usage 2: the best ratio of a domain of few tokens", "dcpt_table06_usage2_limited_domain_data.csv",
        limited_data, reads="limited-data", prints=_by_ratio, columns=("r_d", "corpus", "value"), **_AS_SHOWN),
    "dcpt-12": PaperTable(
        "Usage 3: the best size for a compute budget", "dcpt_table12_usage3_resource_allocation.csv",
        compute, reads="compute", prints=_by_size, columns=("N_B", "D_B", "corpus", "value"), **_AS_SHOWN),
}  # fmt: skip
