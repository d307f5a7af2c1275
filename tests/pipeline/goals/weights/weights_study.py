"""A study about weights without training: losses from a known law, then the real stages, proposals and comparison."""

import copy
import dataclasses
import functools
import zlib
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from pipeline.goals.registry import read_question
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.goals.weights.goal import WeightsGoal
from pipeline.goals.weights.mixtures import Search
from pipeline.question.schema import Question
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from tests.pipeline.show.report.report_study import long_corpora
from tests.pipeline.small import with_tokens, write_losses
from training.evaluation_steps import evaluation_steps

GOAL = WeightsGoal()
HOSTILE_NAME = '<b>weights & "co"'
HOSTILE_DOMAIN = "<img src=x onerror=alert(1)>"
DOMAINS = ("general", "code", HOSTILE_DOMAIN)
USEFUL = {"general": 3.0, "code": 1.0, HOSTILE_DOMAIN: 0.2}
"""How much a domain's own tokens lower its loss."""
HELPS = {"general": 0.1, "code": 0.1, HOSTILE_DOMAIN: 0.1}
"""What a domain's tokens are worth to another."""


@functools.cache
def whole_study(studies: Path) -> tuple[Study, Question]:
    """A compared study whose name and one domain want to be markup; made once a process."""
    study, setting = make_study(studies)
    recommended(study, setting)
    compared(study, setting)
    return study, setting.question


def make_study(studies: Path, *words: str, tokens: int = 10**9, name: str = HOSTILE_NAME) -> tuple[Study, Context]:
    """An empty study of three domains of so many tokens each, and its question changed by words."""
    given = ["goal=weights", "model=qwen2-0.05m", "weights.scales=[90,180]", "weights.target=720", "weights.seeds=2"]
    given += ["weights.methods=[autoscale,ddo,uniform]", "pretrain.evaluation.every=60", "precision=fp32"]
    question = copy.deepcopy(_question(*given, *words))
    question = dataclasses.replace(question, name=name, studies=str(studies))
    source = question.corpora.sources["general"]
    question.corpora = dataclasses.replace(question.corpora, sources=dict.fromkeys(DOMAINS, source))
    study = Study(studies / name)
    return study, with_tokens(Context(question, study, long_corpora(study, *DOMAINS), "fp32"), tokens)


@functools.cache
def _question(*words: str) -> Question:
    return read_question(words)


def trained(study: Study, setting: Context, runs: list[PlannedRun]) -> Context:
    """What is known once these runs are done."""
    known = study.read_plan() if study.plan_file.exists() else []
    study.write_plan({run.spec.hash: run for run in [*known, *runs]}.values())
    for run in runs:
        write_losses(study, run, _losses(run))
    collect(study, setting.question.corpora.general)
    return setting.fresh()


def recommended(study: Study, setting: Context) -> WeightsRecommendation:
    """Train until the methods want nothing more, and recommend."""
    setting = setting.fresh()
    while lacking := [run for run in GOAL.runs(setting) if not setting.once(Search).is_done(run)]:
        setting = trained(study, setting, lacking)
    return GOAL.recommend(setting, list)


def compared(study: Study, setting: Context) -> WeightsConfirmation:
    """Train and compare what was recommended."""
    runs = GOAL.confirmation_runs(setting)
    return GOAL.confirm(trained(study, setting, runs), runs)


def loss(domain: str, weights: dict[str, float], tokens: float) -> float:
    """Of the known law: a domain's own tokens lower its loss, and those of the others a little."""
    others = sum(HELPS[name] * weight for name, weight in weights.items() if name != domain)
    seen = (weights[domain] + others) * tokens / 1e5
    return 2.0 + USEFUL[domain] * (0.2 + seen) ** -0.4


def _losses(run: PlannedRun) -> Iterator[tuple[int, str, float]]:
    noise = np.random.default_rng(zlib.crc32(f"{run.name} {run.spec.seed}".encode()))
    weights = {domain: float(Fraction(weight)) for domain, weight in run.spec.mixture.items()}
    for step, domain in product(evaluation_steps(run.spec.evaluation, run.spec.steps), run.spec.corpora):
        yield step, domain, loss(domain, weights, step * run.spec.tokens_per_step) + noise.normal(0, 2e-4)
