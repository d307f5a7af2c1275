"""The plan of a study, written with the question and the facts of its corpora."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.question.data import data_folder
from pipeline.question.loading import load_question
from pipeline.study.artifacts import Corpora, PlannedCorpus
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study, StudyError, question_yaml
from training.corpora.manifest import Manifest
from training.durable import write_whole


def write_plan(context: Context, runs: Sequence[PlannedRun]) -> None:
    """Freeze the question and its runs in the study's folder."""
    study = context.study
    study.folder.mkdir(parents=True, exist_ok=True)
    write_whole(study.folder / "study.yaml", question_yaml(context.question))
    study.write_plan(runs)
    # Beside the plan, since a study may be read where its corpora are not.
    of_manifest = context.manifest.corpora
    tokens_per_byte = {name: text.tokens["validation"] / text.bytes["validation"] for name, text in of_manifest.items()}
    corpora = {name: PlannedCorpus(text.fingerprint, text.revision, text.tokens) for name, text in of_manifest.items()}
    Corpora(tokens_per_byte, corpora).write(study)


def with_planned(context: Context, runs: Sequence[PlannedRun], *, keep: bool = False) -> list[PlannedRun]:
    """Runs for the fit, and the confirmation runs that are planned already; with `keep` all planned runs."""
    hashes = {run.spec.hash for run in runs}
    return [
        *runs,
        *(
            run
            for run in context.plan
            if run.spec.hash not in hashes
            and (keep or (run.role == "confirm" and not run.variant and run.parent in {*hashes, None}))
        ),
    ]


def planned_corpora(context: Context) -> Manifest:
    """The prepared corpora, which are those that the study was planned with.

    Raises:
        StudyError: they are others, so that no fit of the study predicts their losses; or they lie in another folder
            than the one that the workers, which read study.yaml, will look in.
    """
    study, manifest = context.study, context.manifest
    folder, planned = data_folder(context.question), Corpora.read(study).corpora
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
