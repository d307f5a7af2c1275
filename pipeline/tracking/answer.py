"""What a study found, as a wandb run of job type fit: answer, predicted against measured, curves, report, files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import wandb

from pipeline.question.goal import goal_of
from pipeline.question.loading import question_of_study
from pipeline.question.schema import TrackingConfig
from pipeline.report.evidence import Evidence, read_evidence
from pipeline.report.loss_figures import loss_curves, ratio_curves
from pipeline.report.write import report
from pipeline.study.folder import Study
from pipeline.tracking.runs import TrackedRun, forget, marker, mode_of, open_run

FILES = ("study.yaml", "plan.jsonl", "corpora.json", "points.parquet", "recommendation.json", "confirmation.json")
_CONFIRMED = ("domain_ratio", "corpus", "law", "recommended", "predicted", "low", "high", "measured", "relative_error")


def track(study: Study, tracking: TrackingConfig, mode: str | None = None) -> bool:
    """Tell wandb what the study found so far, once; returns whether there was anything new.

    Raises:
        StudyError, ConfigError: a file of the study that cannot be read.
    """
    identity = answer_identity(study)
    if identity is None or marker(study, identity).exists():
        return False
    domain = [f"corpora.domain={Path(study.answers).name}"] if study.answers else []
    question = question_of_study(study.folder, domain)
    if not goal_of(question).tracked:
        return False
    evidence = read_evidence(study, question)
    forget(study, identity)
    tracked = open_run(
        study,
        tracking,
        mode or mode_of(tracking),
        identity=identity,
        name=f"{study.folder.resolve().name} fit",
        job_type="fit",
        tags=list(question.law),
        config={"study": study.folder.resolve().name, "domain": evidence.domain, "general": evidence.general},
    )
    _tell(tracked, evidence)
    tracked.end(0, summary(evidence))
    return True


def answer_identity(study: Study) -> str | None:
    """wandb's id of what was found: another for other fits, answers or confirmations; None before the first fit."""
    answers = study.folder / study.answers
    found = [*sorted((answers / "fits").glob("*.json")), *(answers / name for name in FILES[-2:])]
    digest = hashlib.blake2b(study.folder.resolve().name.encode(), digest_size=6)
    fitted = False
    for path in found:
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
            fitted = True
    return f"fit-{digest.hexdigest()}" if fitted else None


def summary(evidence: Evidence) -> dict[str, Any]:
    """The answer in numbers: share and interval, and what was predicted beside what was measured."""
    content, told = evidence.recommendation, {}
    if content is not None:
        told |= {"law": content.law, "binding": content.binding, "low": content.low, "high": content.high}
        told["domain_ratio"] = evidence.share
    for corpus, loss in content.predicted.items() if content else ():
        told |= {f"predicted/{corpus}": loss.loss}
        told |= {f"predicted_low/{corpus}": loss.low, f"predicted_high/{corpus}": loss.high}
    for row in evidence.answered:
        told |= {
            f"{key}/{row.corpus}": getattr(row, key) for key in ("predicted", "measured", "relative_error", "inside")
        }
    return {key: value for key, value in told.items() if value is not None}


def _tell(tracked: TrackedRun, evidence: Evidence) -> None:
    from plotly.graph_objects import Figure as PlotlyFigure

    run, folder = tracked.run, evidence.study.folder
    run.log({"report": wandb.Html(report(evidence), inject=False)})
    for name, figure in (("ratios", ratio_curves(evidence)), ("losses", loss_curves(evidence))):
        for panel in figure.panels if figure else []:
            run.log({f"{name}/{panel.group} {panel.title}".strip(): wandb.Plotly(PlotlyFigure(panel.whole))})
    if rows := evidence.confirmations:
        table = wandb.Table(columns=list(_CONFIRMED), data=[[getattr(row, key) for key in _CONFIRMED] for row in rows])
        run.log({"predicted against measured": table})
    # wandb refuses an artifact whose name has other letters.
    artifact = wandb.Artifact("study-" + re.sub(r"[^A-Za-z0-9_.-]", "-", folder.resolve().name)[:100], "study")
    answers = folder / evidence.study.answers
    files = [*(folder / name for name in FILES[:-2]), *(answers / name for name in (*FILES[-2:], "report.html"))]
    for path in [*files, *sorted(answers.glob("fits/*.json"))]:
        if path.is_file():
            artifact.add_file(str(path), name=str(Path(path).relative_to(folder)))
    run.log_artifact(artifact)
