"""The pages of a study's report: of fitted laws for one domain, of all domains, or of mixture weights."""

from __future__ import annotations

from pathlib import Path

from pipeline.show.report.weights_page import write_weights_report
from pipeline.show.report.write import write_report
from pipeline.study.context import Context


def write_pages(context: Context) -> list[Path]:
    """Write report.html; the page of this answer first, then those that link to it.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
    """
    study, question = context.study, context.question
    if question.goal_kind.many_domains:
        return [write_weights_report(study, question)]
    path = write_report(study, question)
    return [path, study.folder / "report.html"] if question.corpora.domains else [path]
