"""report.html: the answer and its evidence in one file that opens offline."""

from __future__ import annotations

from pathlib import Path

from pipeline.show.report.domains_page import domains_page
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.study_page import study_page
from pipeline.show.report.weights_page import weights_page
from pipeline.study.context import Context
from training.durable import write_whole


def write_pages(context: Context) -> list[Path]:
    """Write report.html; what does not exist yet is one sentence there.

    Of a study of several domains: the page of the question's domain, then the page in the study's folder that links to
    the pages of all domains.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
        OSError: a file cannot be written.
    """
    study, question = context.study, context.question
    whole = study.folder / "report.html"
    if question.goal_kind.many_domains:
        return [_write(whole, weights_page(Evidence(context)))]
    path = _write(study.folder / study.answer("report.html"), study_page(Evidence(context)))
    return [path, _write(whole, domains_page(context))] if question.corpora.domains else [path]


def _write(path: Path, page: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path
