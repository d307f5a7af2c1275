"""The plan of a study, written with the question and the facts of its corpora."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from yaml import YAMLError

from pipeline.plan.runs import continual_run
from pipeline.question.data import data_folder
from pipeline.question.design import candidate_peaks
from pipeline.question.loading import REFUSED, load_question, read_yaml
from pipeline.question.messages import one_line
from pipeline.study.artifacts import Corpora, PlannedCorpus
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study, StudyError, question_yaml
from training.corpora.manifest import Manifest
from training.durable import read_text, write_whole

MOST = 8
"""Changed keys that are listed."""


def write_plan(context: Context, runs: Sequence[PlannedRun]) -> list[str]:
    """Write the question, its runs and its corpora; returns lines on what changes.

    Raises StudyError: runs were imported into it, or a folder is where a file has to be.
    """
    study = context.study
    if any(run.imported for run in context.plan):
        raise StudyError(f"{study.folder}: its runs were imported, and would be lost; plan under another name=")
    study.folder.mkdir(parents=True, exist_ok=True)
    question_file = study.folder / "study.yaml"
    if folder := next((file for file in (question_file, Corpora.path(study)) if file.is_dir()), None):
        raise StudyError(f"{folder}: a folder, not a file")
    lines = list(_changes(context, runs))
    text = question_yaml(context.question)
    # A report is as new as the question: what is the same keeps its date.
    if not question_file.is_file() or question_file.read_bytes() != text.encode():
        write_whole(question_file, text)
    study.write_plan(runs)
    # Beside the plan, since a study may be read where its corpora are not.
    of_manifest = context.manifest.corpora
    tokens_per_byte = {name: text.tokens["validation"] / text.bytes["validation"] for name, text in of_manifest.items()}
    corpora = {name: PlannedCorpus(text.fingerprint, text.revision, text.tokens) for name, text in of_manifest.items()}
    Corpora(tokens_per_byte, corpora).write(study)
    return lines


def _changes(context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """A line on the keys that study.yaml has otherwise, and one on the planned runs that are left out."""
    file = context.study.folder / "study.yaml"
    if not file.exists() or not context.study.plan_file.exists():
        return
    before, now, asked = {}, {}, question_yaml(context.question)
    try:
        if (stored := read_text(file)) != asked:
            now, before = _keys(asked), _keys(stored)
    except (*REFUSED, YAMLError, OSError) as error:
        yield f"{file}: it could not be read ({one_line(error)}), and is written anew"
    keys = [key for key in {**now, **before} if str(before.get(key)) != str(now.get(key))]
    if keys:
        shown = [f"{key}={now.get(key)} (was {before.get(key)})" for key in keys[:MOST]]
        more = f" and {len(keys) - MOST} more keys" if keys[MOST:] else ""
        yield f"{file}: the question of later commands changes: {', '.join(shown)}{more}"
    kept = {run.spec.hash for run in runs}
    if gone := [run.name for run in context.plan if run.spec.hash not in kept]:
        runs_are = "1 run is" if len(gone) == 1 else f"{len(gone)} runs are"
        begun = sum((context.study.runs / name).exists() for name in gone)
        stay = f"; the files of {begun} stay" if begun else ""
        yield f"{context.study.plan_file}: {runs_are} of an earlier question and left out{stay}"


def precision_note(context: Context, runs: Sequence[PlannedRun]) -> str:
    """A line on finished runs that do not count, since they were trained in another precision; else empty."""
    now, old = {run.spec.precision for run in runs}, {}
    for run in context.plan:
        if run.spec.precision not in now and context.study.state(run) == "done":
            old[run.spec.hash] = run.spec.precision
    for precision in {*old.values()}:
        # Those behind them differ in the hash of the run that they start from too.
        if any(old.get(replace(run.spec, precision=precision).hash) for run in runs):
            count = f"{len(old)} finished run{'s' * (len(old) > 1)}"
            given = f"{', '.join(sorted(now))} is planned, and {count} in {precision} count for nothing"
            return f"note: precision: {given}; precision={precision} keeps them"
    return ""


def with_planned(context: Context, runs: Sequence[PlannedRun], *, keep: bool = False) -> list[PlannedRun]:
    """Runs for the fit, and the confirmation runs of the question that have begun; with `keep` all planned runs."""
    hashes = {run.spec.hash for run in runs}
    parents = {*hashes, None}
    others = (run for run in context.plan if run.spec.hash not in hashes)
    return [*runs, *(run for run in others if keep or (run.parent in parents and _is_of_question(context, run)))]


def _is_of_question(context: Context, run: PlannedRun) -> bool:
    """Whether this question would confirm an answer with a run, and it has begun or is queued on a cluster."""
    question = context.question
    if run.role != "confirm" or run.variant:
        return False
    if question.goal_kind.many_domains or run.imported:
        return True
    # Other goals choose the model or the length themselves.
    asked = (question.model.name, question.target.steps)
    if question.goal_kind.design_question == "trade_off" and (run.model, run.spec.steps) != asked:
        return False
    begun = question.launcher.elsewhere or (context.study.runs / run.name).exists()
    corpora, spec = question.corpora, run.spec
    domain = next((name for name in spec.mixture if name != corpora.general), "")
    if not begun or run.model not in context.models or domain not in (corpora.domain, *corpora.domains):
        return False
    context = context.asking(replace(question, corpora=replace(corpora, domain=domain)))
    place = (context, context.models[run.model], spec.mixture[domain], spec.steps, spec.seed, "confirm")
    # The peak learning rate is part of an answer.
    peaks = (None, *candidate_peaks(question))
    return any(continual_run(*place, peak=peak).spec.hash == spec.hash for peak in peaks)


def planned_corpora(context: Context) -> Manifest:
    """The prepared corpora, which are those that the study was planned with.

    Raises StudyError: they are others, so that no fit of the study predicts their losses; or they lie in another folder
    than the one that the workers, which read study.yaml, will look in.
    """
    study, manifest, folder = context.study, context.manifest, data_folder(context.question)
    planned = {name: corpus.fingerprint for name, corpus in Corpora.read(study).corpora.items()}
    others = [name for name, corpus in manifest.corpora.items() if planned.get(name) != corpus.fingerprint]
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


def as_planned(context: Context) -> Context:
    """The context with the corpora and the precision of its plan, for runs that follow it.

    Raises StudyError: as `planned_corpora`.
    """
    # Without machine.json in that of the plan: another would ask for another pre-training.
    precision = context.known_precision or next((run.spec.precision for run in context.plan), "fp32")
    return replace(context, given_manifest=planned_corpora(context), given_precision=precision)


def add_to_plan(study: Study, runs: list[PlannedRun]) -> list[PlannedRun]:
    """Put runs behind those that are planned already; returns the whole plan."""
    plan = study.read_plan()
    known = {run.spec.hash for run in plan}
    plan = [*plan, *(run for run in runs if run.spec.hash not in known)]
    study.write_plan(plan)
    return plan


def _keys(text: str) -> dict[Any, Any]:
    content: Any = OmegaConf.to_container(read_yaml(text))
    if not content or not isinstance(content, dict):
        raise ValueError("it holds no keys")
    return pd.json_normalize(content).to_dict("records")[0]
