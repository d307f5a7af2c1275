"""The answer of a study as a wandb run of job type fit: numbers, figures, report and files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import wandb

from pipeline.goals.registry import question_of_study
from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.answer_content import TrackedAnswer, tracked_answer
from pipeline.show.tracking.runs import TrackedRun, forget, marker, mode_of, open_run
from pipeline.study.folder import Study

FILES = ("study.yaml", "plan.jsonl", "corpora.json", "points.parquet", "recommendation.json", "confirmation.json")


def track(study: Study, tracking: TrackingConfig, mode: str | None = None) -> bool:
    """Log the study's current answer to wandb, once; returns whether it was new.

    Raises:
        StudyError, ConfigError: a file of the study that cannot be read.
    """
    identity = answer_identity(study)
    if identity is None or marker(study, identity).exists():
        return False
    domain = [f"corpora.domain={Path(study.answers).name}"] if study.answers else []
    question = question_of_study(study.folder, domain)
    if question.goal_kind.many_domains:
        return False
    answer = tracked_answer(question, study)
    forget(study, identity)
    name = study.folder.resolve().name
    config = {"study": name, "domain": question.corpora.domain, "general": question.corpora.general}
    shown = {"id": identity, "name": f"{name} fit", "job_type": "fit", "tags": list(question.law), "config": config}
    tracked = open_run(study, tracking, mode or mode_of(tracking), **shown)
    _log(tracked, study, answer)
    tracked.end(0, answer.summary)
    return True


def answer_identity(study: Study) -> str | None:
    """The id of the answer's wandb run, a hash of fits, recommendation and confirmation; None before the first fit."""
    answers = study.folder / study.answers
    files = [*sorted((answers / "fits").glob("*.json")), *(answers / name for name in FILES[-2:])]
    present = [path for path in files if path.is_file()]
    digest = hashlib.blake2b(study.folder.resolve().name.encode(), digest_size=6)
    for path in present:
        digest.update(path.name.encode() + path.read_bytes())
    return f"fit-{digest.hexdigest()}" if present else None


def _log(tracked: TrackedRun, study: Study, answer: TrackedAnswer) -> None:
    from plotly.graph_objects import Figure

    run, folder = tracked.run, study.folder
    run.log({"report": wandb.Html(answer.page, inject=False)})
    for name, spec in answer.figures.items():
        run.log({name: wandb.Plotly(Figure(spec))})
    if answer.rows:
        table = wandb.Table(columns=list(answer.columns), data=[list(row) for row in answer.rows])
        run.log({"predicted against measured": table})
    # wandb refuses an artifact whose name has other letters.
    artifact = wandb.Artifact("study-" + re.sub(r"[^A-Za-z0-9_.-]", "-", folder.resolve().name)[:100], "study")
    answers = folder / study.answers
    files = [*(folder / name for name in FILES[:-2]), *(answers / name for name in (*FILES[-2:], "report.html"))]
    for path in [*files, *sorted(answers.glob("fits/*.json"))]:
        if path.is_file():
            artifact.add_file(str(path), name=str(Path(path).relative_to(folder)))
    run.log_artifact(artifact)
