"""The plan of a study, written with the question and the facts of its corpora."""

from __future__ import annotations

from pipeline.plan.machine import required_precision
from pipeline.plan.runs import data_folder
from pipeline.question.goal import goal_of
from pipeline.question.loading import load_question
from pipeline.question.schema import Question
from pipeline.study.artifacts import Corpora, Corpus
from pipeline.study.folder import PlannedRun, Study, StudyError, question_yaml
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


def planned_corpora(question: Question, study: Study) -> Manifest:
    """The prepared corpora, which are those that the study was planned with.

    Raises:
        StudyError: they are others, so that no fit of the study predicts their losses; or they lie in another folder
            than the one that the workers, which read study.yaml, will look in.
    """
    folder, planned = data_folder(question), Corpora.read(study).corpora
    manifest = Manifest.open(folder)
    others = [
        name
        for name, corpus in manifest.corpora.items()
        if name not in planned or planned[name].fingerprint != corpus.fingerprint
    ]
    if others:
        raise StudyError(
            f"{study.folder}: planned with other text or another tokenizer for {', '.join(others)} than {folder} has; "
            "give the corpora.* of the plan, or begin another study (name=...)"
        )
    of_workers = data_folder(load_question(study.folder / "study.yaml", again=False))
    if of_workers != folder:
        raise StudyError(
            f"{study.folder}/study.yaml: its corpora are in {of_workers}, those of this command in {folder}; "
            "run cptlaw plan with the corpora.* and data of this command first"
        )
    return manifest


def add_to_plan(study: Study, runs: list[PlannedRun]) -> list[PlannedRun]:
    """Put runs behind those that are planned already; returns the whole plan."""
    plan = study.read_plan()
    known = {run.spec.hash for run in plan}
    plan = [*plan, *(run for run in runs if run.spec.hash not in known)]
    study.write_plan(plan)
    return plan
