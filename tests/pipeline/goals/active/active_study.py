"""A study of runs that are chosen round by round, with losses from a known law in place of training."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from pipeline.goals.active.history import DesignRound, read_rounds
from pipeline.goals.active.rounds import design_runs, next_round
from pipeline.goals.registry import read_question
from pipeline.question.schema import Question
from pipeline.study.context import Context
from pipeline.study.folder import Study, study_of
from tests.pipeline.show.report.report_study import long_corpora, write_runs

SMALL = (
    *("law=transfer-anchored", "design.ratios=[0,0.3,0.5,0.7,0.9]", "design.lengths=[0.5,1]", "design.batch=2"),
    *("ladder=[qwen2-0.05m,qwen2-0.3m]", "pretrain.evaluation.every=600", "continual.evaluation.every=20"),
    "design.budget=8e13",
)


@functools.cache
def words_of(*words: str) -> Question:
    return read_question(["experiment=quickstart", "design=active", "design.budget_unit=auto", *words])


def setting_of(studies: Path, *words: str, **changes: Any) -> Context:
    question = dataclasses.replace(words_of(*SMALL, *words), studies=str(studies), **changes)
    study = study_of(question)
    return Context(question, study, long_corpora(study, *question.corpora.sources), "fp32")


def asking(setting: Context, **keys: Any) -> Context:
    """The same with other keys of its design."""
    question = setting.question
    return setting.asking(dataclasses.replace(question, design=dataclasses.replace(question.design, **keys)))


def train(setting: Context, *left_out: str) -> Study:
    """Write the plan, and the losses of all its runs but some, as `cptlaw train` does."""
    study = study_of(setting.question)
    plan = design_runs(setting)
    study.write_plan(plan)
    write_runs(study, setting.question, [run for run in plan if run.name not in left_out])
    return study


def all_rounds(setting: Context, most: int = 30) -> list[DesignRound]:
    """Choose and train until choosing stops."""
    study = study_of(setting.question)
    for _ in range(most):
        found = next_round(setting)
        if found is None or found.stop:
            break
        train(setting)
    return read_rounds(study)
