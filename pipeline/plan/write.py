"""The plan of a study, written with the question and the facts of its corpora."""

from __future__ import annotations

from pipeline.plan.machine import required_precision
from pipeline.plan.runs import data_folder
from pipeline.question.goal import goal_of
from pipeline.question.schema import Question
from pipeline.study.artifacts import Corpora, Corpus
from pipeline.study.folder import PlannedRun, Study, question_yaml
from training.corpora.manifest import Manifest
from training.durable import write_whole


def write_plan(question: Question, study: Study, *, keep: bool = False) -> list[PlannedRun]:
    """Freeze the question and its runs in the study's folder.

    With `keep` all runs stay that are planned already.
    """
    manifest = Manifest.open(data_folder(question))
    runs = current_plan(question, study, manifest, keep=keep)
    study.folder.mkdir(parents=True, exist_ok=True)
    write_whole(study.folder / "study.yaml", question_yaml(question))
    study.write_plan(runs)
    # Beside the plan, since a study may be read where its corpora are not.
    tokens_per_byte = {
        name: corpus.tokens["validation"] / corpus.bytes["validation"] for name, corpus in manifest.corpora.items()
    }
    corpora = {name: Corpus(text.fingerprint, text.revision, text.tokens) for name, text in manifest.corpora.items()}
    Corpora(tokens_per_byte, corpora).write(study)
    return runs


def current_plan(question: Question, study: Study, manifest: Manifest, *, keep: bool = False) -> list[PlannedRun]:
    """The runs of a question, and the confirmation runs that are planned already; with `keep` all planned runs.

    Raises:
        ConfigError: a corpus too short; a line for each.
        StudyError: the precision is not measured yet.
    """
    runs = goal_of(question).runs(question, study, manifest, required_precision(question, study))
    if study.plan_file.exists():
        planned = {run.spec.hash for run in runs}
        runs += [
            run
            for run in study.read_plan()
            if run.spec.hash not in planned
            and (keep or (run.role == "confirm" and not run.variant and run.parent in {*planned, None}))
        ]
    return runs


def add_to_plan(study: Study, runs: list[PlannedRun]) -> list[PlannedRun]:
    """Put runs behind those that are planned already; returns the whole plan."""
    plan = study.read_plan()
    known = {run.spec.hash for run in plan}
    plan = [*plan, *(run for run in runs if run.spec.hash not in known)]
    study.write_plan(plan)
    return plan
