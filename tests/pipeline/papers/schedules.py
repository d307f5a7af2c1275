"""A study of schedules whose losses are drawn from eq. 8 of the learning-dynamics paper."""

import dataclasses
import functools
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fitting import LAWS, with_areas
from pipeline.goals.registry import read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.presets import preset
from pipeline.question.schema import Question
from pipeline.study.collect import collect, schedules
from pipeline.study.folder import Study
from tests.pipeline.small import write_losses
from training.evaluation_steps import evaluation_steps

MEMORY = 0.97
TRUE = {
    "general": ("dynamics-replay", {
        "L0": 2.9, "A": 0.5, "C1": 1.5, "C2": 1.2, "B": 0.5, "alpha": 0.6, "E": 30.0, "beta": 0.4, "a1": 0.1, "a2": 2.5,
    }),
    "code": ("dynamics-replay-domain", {
        "L0": 4.6, "A": 0.4, "C1": 0.9, "C2": 1.3, "B": -1.2, "alpha": 0.5, "E": 40.0, "beta": 0.5,
        "a1": 0.1, "a2": 0.7,
    }),
}  # fmt: skip
"""Corpus -> law and parameters; made up."""


@functools.cache
def dynamics_small() -> Question:
    """experiment=dynamics-small, which takes most of a second to read."""
    return read_question(["experiment=dynamics-small"])


def study_of_schedules(folder: Path, noise: float = 5e-4, **keys: Any) -> tuple[Study, Question]:
    """The study with its smaller model, planned, its losses written and collected; `keys` of the question replaced."""
    question = dataclasses.replace(dynamics_small(), ladder=[], model=preset("qwen2-0.05m"), **keys)
    study, plan = Study(folder), planned_runs(estimate(question))
    study.write_plan(plan)
    known, rng = schedules(plan), np.random.default_rng(0)
    for run in plan:
        steps = np.array(evaluation_steps(run.spec.evaluation, run.spec.steps))
        # Before its first step the law of a pre-training has no value.
        steps = steps[steps > 0] if run.role == "pretrain" else steps
        areas = with_areas(pd.DataFrame({"run": run.name, "step": steps}), known, MEMORY)
        losses = []
        for corpus, (law, params) in TRUE.items():
            columns = {name: areas[name].to_numpy(float) for name in LAWS[law].columns if name in areas}
            columns["r"] = np.full(len(steps), float(Fraction(run.spec.mixture[corpus])))
            loss = LAWS[law].loss(columns, params) * np.exp(noise * rng.standard_normal(len(steps)))
            losses += zip(steps, repeat(corpus), loss)
        write_losses(study, run, losses)
    collect(study, "general")
    return study, question
