"""The answer of fitted laws as wandb gets it: numbers, figures, report, and predicted beside measured losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.question.schema import Question
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.loss_figures import loss_curves, ratio_curves
from pipeline.show.report.study_page import study_page
from pipeline.study.context import Context
from pipeline.study.folder import Study

COLUMNS = ("domain_ratio", "corpus", "law", "recommended", "predicted", "low", "high", "measured", "relative_error")
"""Of the table of confirmation runs."""


@dataclass(frozen=True)
class TrackedAnswer:
    """An answer as wandb gets it."""

    page: str
    """HTML of the report."""
    figures: Mapping[str, dict[str, Any]]
    """Name -> Plotly figure: data and layout."""
    columns: Sequence[str]
    """Of `rows`."""
    rows: Sequence[Sequence[object]]
    """Predicted beside measured losses of the confirmation runs."""
    summary: dict[str, Any]
    """Numbers of the recommendation and of the confirmation, for wandb's run summary."""


def tracked_answer(question: Question, study: Study) -> TrackedAnswer:
    """The current answer of a study."""
    evidence = Evidence(Context(question, study))
    figures = {
        f"{name}/{panel.group} {panel.title}".strip(): panel.whole
        for name, figure in (("ratios", ratio_curves(evidence)), ("losses", loss_curves(evidence)))
        for panel in (figure.panels if figure else [])
    }
    rows = [[getattr(row, column) for column in COLUMNS] for row in evidence.confirmations]
    return TrackedAnswer(study_page(evidence), figures, COLUMNS, rows, _summary(evidence))


def _summary(evidence: Evidence) -> dict[str, Any]:
    content, numbers = evidence.recommendation, {}
    if content is not None:
        numbers |= {"law": content.law, "binding": content.binding, "low": content.low, "high": content.high}
        numbers["domain_ratio"] = evidence.domain_ratio
    for corpus, loss in content.predicted.items() if content else ():
        numbers |= {f"predicted/{corpus}": loss.loss}
        numbers |= {f"predicted_low/{corpus}": loss.low, f"predicted_high/{corpus}": loss.high}
    for row in evidence.answered:
        keys = ("predicted", "measured", "relative_error", "inside")
        numbers |= {f"{key}/{row.corpus}": getattr(row, key) for key in keys}
    if evidence.rounds:
        last = evidence.rounds[-1]
        spent = last.spent + sum(run.cost for run in last.chosen)
        numbers |= {"design/half_width": last.half_width, "design/rounds": last.round}
        numbers |= {"design/spent": spent, "design/unit": last.unit}
    return {key: value for key, value in numbers.items() if value is not None}
