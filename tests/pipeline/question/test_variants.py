"""Variants of a study: parts that differ in a few keys."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline.goals.registry import read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.collect import schedules
from pipeline.study.folder import PlannedRun, Study
from tests.pipeline.papers.schedules import dynamics_small

VARIANT = "{continual: {schedule: {pieces: [{shape: linear, end: 0.0}]}}, mixture: {domain_ratio: 0.5}, held_out: true}"


def _plan(question: Question) -> list[PlannedRun]:
    return planned_runs(estimate(question))


def test_the_dynamics_study_plans_schedules_transfer_points_ratios_and_what_no_fit_sees() -> None:
    plan = _plan(dynamics_small())
    assert Counter((run.role, run.model) for run in plan) == {
        (role, model): count
        for role, count in (("pretrain", 4), ("fit", 23), ("confirm", 8))
        for model in ("qwen2-0.05m", "qwen2-0.15m")
    }
    assert len({run.spec.hash for run in plan}) == len(plan) == 70
    rates = schedules(plan)
    before = {run.spec.hash: rates[run.name].rates for run in plan if run.role == "pretrain"}
    assert sorted({round(float(past[-1] / past.max()), 3) for past in before.values()}) == [0.0, 0.1, 0.5, 1.0]
    constant = [run for run in plan if run.variant == "constant-constant" and run.role == "fit"]
    assert {run.spec.initial.step for run in constant} == {200, 600, 1200}
    assert {run.spec.mixture["general"] for run in constant} == {"1", "67/100", "1/2", "33/100", "0"}
    assert all(np.ptp(rates[run.name].rates) == 0 for run in constant)
    held = [run for run in plan if run.role == "confirm"]
    assert {run.variant.split("-")[-1] for run in held} == {"anneal", "tenth", "peak"}
    assert not {run.spec.schedule for run in held} & {run.spec.schedule for run in plan if run.role == "fit"}
    for run in held:
        own, past = rates[run.name].rates, before[run.parent or ""]
        if run.variant.endswith("anneal"):
            assert own[0] < past[-1]
            assert own[-1] == 0
        if run.variant.endswith("tenth"):
            assert own.max() == pytest.approx(past.max() / 10)


def test_a_variant_adds_runs_and_changes_none_and_the_plan_keeps_it(tmp_path: Path) -> None:
    plain = _plan(read_question(["experiment=quickstart", "mixture=ratios"]))
    more = _plan(read_question(["experiment=quickstart", "mixture=ratios", f"variants.down={VARIANT}"]))
    assert {run.spec.hash: run.name for run in plain}.items() <= {run.spec.hash: run.name for run in more}.items()
    own = [run for run in more if run.variant]
    assert [(run.role, run.variant) for run in own] == [("confirm", "down")] * 6
    assert {run.spec.mixture["code"] for run in own} == {"1/2"}
    study = Study(tmp_path)
    study.write_plan(more)
    assert study.read_plan() == more
    assert study.plan_file.read_text().count('"variant"') == len(own)


ALLOWED = "no such key; allowed: ladder, mixture, pretrain, continual, transfer_steps, held_out"
MISTAKES = {
    "variants.a={contnual: {steps: 3}}": f"variants.a.contnual: {ALLOWED}; did you mean continual?",
    "variants.b={corpora: {domain: law}}": f"variants.b.corpora: {ALLOWED}",
    "variants.c=3": "variants.c: 3; allowed: keys that differ, like {continual: {steps: 100}}",
    "variants.d={mixture: {domain_ratio: 2}}": (
        "variants.d.mixture.domain_ratio: 2; allowed: 0 to 1, the ratio of the domain corpus"
    ),
    "variants.e={transfer_steps: [5000]}": "variants.e.transfer_steps: 5000; allowed: 1 to pretrain.steps, 1200",
    "variants.f={held_out: perhaps}": "variants.f.held_out: 'perhaps'; allowed: true or false",
}


def test_all_mistakes_in_variants_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        read_question(["experiment=quickstart", "mixture=ratios", *MISTAKES])
    assert error.value.lines == list(MISTAKES.values())
