"""Schedules of short runs for the answer about a longer one."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.plan.runs import placeholder_manifest, planned_runs
from pipeline.question.loading import read_question
from pipeline.question.messages import ConfigError

WORDS = [
    *("experiment=quickstart", "mixture=ratios", "ladder=[]", "model=qwen2-0.05m", "mixture.domain_ratio=[0.5]"),
    *("mixture.replicates=1", "schedule@continual.schedule=wsd-eighth", "continual.evaluation.policy=pieces"),
    *("continual.steps=40", "confirm.tokens_factor=3"),
]


def test_a_short_run_decays_as_long_as_the_target_and_is_evaluated_where_its_pieces_end() -> None:
    question = read_question(WORDS)
    for steps, evaluated in ((20, (5, 12, 20)), (40, (13, 25, 40)), (120, (53, 105, 120))):
        phase = dataclasses.replace(question.continual, steps=steps)
        asked = dataclasses.replace(question, continual=phase)
        (run,) = (one for one in planned_runs(asked, placeholder_manifest(asked), "fp32") if one.role == "fit")
        assert [piece.steps for piece in run.spec.schedule] == [2, None, 15]
        assert run.spec.evaluation.policy == "explicit"
        assert run.spec.evaluation.steps == evaluated


def test_a_decay_of_the_target_that_a_short_run_has_no_room_for_is_named() -> None:
    with pytest.raises(ConfigError, match=r"continual\.schedule: its pieces take 50 steps; allowed: at most 40"):
        read_question([*WORDS, "confirm.tokens_factor=8.6"])


def test_checkpoints_do_not_follow_the_pieces() -> None:
    with pytest.raises(ConfigError, match=r"continual\.checkpoints\.policy: 'pieces'; allowed: dense, sparse"):
        read_question([*WORDS, "continual.checkpoints.policy=pieces"])
