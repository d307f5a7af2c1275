"""The answer of a study as a wandb run of job type fit: numbers, figures, report and files."""

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.goals.registry import question_of_study
from pipeline.question.schema import TrackingConfig
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.loss_figures import loss_curves, ratio_curves
from pipeline.show.report.study_page import study_page
from pipeline.show.tracking.runs import TrackedRun, WandbCopy, marker, mode_of
from pipeline.study.context import Context
from pipeline.study.folder import Study, study_of
from training.durable import read_file

FILES = ("study.yaml", "plan.jsonl", "corpora.json", "points.parquet", "recommendation.json", "confirmation.json")

COLUMNS = ("domain_ratio", "corpus", "law", "recommended", "predicted", "low", "high", "measured", "relative_error")
"""Columns of the table of confirmation runs."""


def track(study: Study, tracking: TrackingConfig, mode: str | None = None) -> bool:
    """Log the current answer to the study's goal, once, and return whether it was new; StudyError: a file is damaged.

    Of several domains it is that about the one of `study.answers`.
    """
    domain = [f"corpora.domain={Path(study.answers).name}"] if study.answers else []
    question = question_of_study(study.folder, domain)
    study = dataclasses.replace(study_of(question), folder=study.folder)
    identity = answer_identity(study)
    if identity is None or marker(study, identity).exists() or question.goal_kind.many_domains:
        return False
    evidence = Evidence(Context(question, study))
    name, corpora = f"{study.folder.resolve().name} fit", question.corpora
    config = {"domain": corpora.domain, "general": corpora.general}
    copy = WandbCopy(study, tracking, mode or mode_of(tracking))
    tracked = copy.open_run(identity, name, "fit", list(question.law), config)
    _log(tracked, evidence)
    tracked.end(0, answer_summary(evidence))
    return True


def answer_identity(study: Study) -> str | None:
    """The id of the answer's wandb run, a hash of fits, recommendation and confirmation; None before the first fit."""
    files = [*_fits(study), *(study.folder / study.answer(name) for name in FILES[-2:])]
    present = [path for path in files if path.is_file()]
    digest = hashlib.blake2b(study.folder.resolve().name.encode(), digest_size=6)
    for path in present:
        digest.update(path.name.encode() + read_file(path))
    return f"fit-{digest.hexdigest()}" if present else None


def answer_summary(evidence: Evidence) -> dict[str, Any]:
    """Numbers of the recommendation and of the confirmation, for wandb's run summary."""
    known = evidence.conclusion
    numbers: dict[str, Any] = {"conclusion": known.headline, "known": known.is_known, "confirmed": known.verdict}
    if (content := evidence.recommendation) is None or known.is_outdated or one_ratio(content):
        return numbers
    numbers |= {name: getattr(content, name) for name in ("law", "binding", "low", "high")}
    numbers |= {"domain_ratio": evidence.domain_ratio, "domain_ratio_by_runs": known.domain_ratio}
    for corpus, loss in content.predicted.items():
        sides = {"predicted": loss.loss, "predicted_low": loss.low, "predicted_high": loss.high}
        numbers |= {f"{side}/{corpus}": value for side, value in sides.items()}
    for row in evidence.answered:
        keys = ("predicted", "measured", "relative_error", "inside")
        numbers |= {f"{key}/{row.corpus}": getattr(row, key) for key in keys}
    if evidence.rounds:
        last = evidence.rounds[-1]
        spent = last.spent + sum(run.cost for run in last.chosen)
        numbers |= {"design/half_width": last.half_width, "design/rounds": last.round}
        numbers |= {"design/spent": spent, "design/unit": last.unit}
    return {key: value for key, value in numbers.items() if value is not None}


def _log(tracked: TrackedRun, evidence: Evidence) -> None:
    page = study_page(evidence)  # Says what to install, where there is no plotly.
    import wandb
    from plotly.graph_objects import Figure

    run, study, folder = tracked.run, evidence.study, evidence.study.folder
    run.log({"report": wandb.Html(page, inject=False)})
    for name, figure in (("ratios", ratio_curves(evidence)), ("losses", loss_curves(evidence))):
        for panel in figure.panels if figure else []:
            run.log({f"{name}/{panel.group} {panel.title}".strip(): wandb.Plotly(Figure(panel.whole))})
    if evidence.confirmations:
        table = wandb.Table(columns=list(COLUMNS))
        for row in evidence.confirmations:
            table.add_data(*(getattr(row, column) for column in COLUMNS))
        run.log({"predicted against measured": table})
    # wandb refuses an artifact whose name has other letters.
    artifact = wandb.Artifact("study-" + re.sub(r"[^A-Za-z0-9_.-]", "-", folder.resolve().name)[:100], "study")
    names = [*FILES[:-2], *map(study.answer, (*FILES[-2:], "report.html"))]
    for path in [*(folder / name for name in names), *_fits(study)]:
        if path.is_file():
            artifact.add_file(str(path), name=str(path.relative_to(folder)))
    run.log_artifact(artifact)


def _fits(study: Study) -> list[Path]:
    return sorted((study.folder / study.fitted("fits")).glob("*.json"))
