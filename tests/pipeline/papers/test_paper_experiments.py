"""The experiments named for the papers have the papers' values, and their cost is known without hub and texts."""

from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.presets import HUB, published_shape
from tests.pipeline.small import refused
from training.parameters import model_size

TOKENS = {
    "dcpt-paper": (26, 200_000),
    "dcpt-paper-cross": (26, 200_000),
    "dynamics-paper": (4, 1000),
    "dynamics-paper-open": (4, 1000),
    "autoscale-paper": (3, 36_621),
    "autoscale-paper-bert": (0.52, 36_000),
}
"""Experiment -> billions of tokens that the paper states of so many steps. The files cite the other values."""


@pytest.mark.parametrize("name", TOKENS)
def test_steps_batch_and_length_are_the_tokens_that_the_paper_states(name: str) -> None:
    question, (billions, steps) = read_question([f"experiment={name}"]), TOKENS[name]
    phase = question.pretrain if question.goal_kind.many_domains else question.target
    assert steps * phase.global_batch * question.sequence_length / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize("name", TOKENS)
def test_the_cost_is_known_without_hub_and_texts(name: str, tmp_path: Path, capsys) -> None:
    folders = [f"studies={tmp_path}", f"data={tmp_path / 'data'}"]
    assert run(["plan", f"experiment={name}", *folders]) == 0
    shown = capsys.readouterr().out
    # The D-CPT paper states 150,000 hours of one A100, app. F.2.
    assert ("100,000 GPU-h*" if name == "dcpt-paper" else "GPU-h*") in shown
    assert " GB " in shown
    assert not list(tmp_path.iterdir())


def test_an_estimate_takes_a_published_shape(capsys) -> None:
    words = ["experiment=own", "mixture.domain_ratio=[0.5]", "model=hf", "model.path=Qwen/Qwen1.5-4B"]
    words += ["corpora.sources.general.path=.", "corpora.sources.domain.path=."]
    question = read_question([*words, "ladder=[Qwen/Qwen1.5-0.5B,Qwen/Qwen1.5-1.8B]", "+dense.domain=qwen1.5-0.5b"])
    runs = planned_runs(estimate(question))
    assert [(one.model, one.start) for one in runs] == [
        ("qwen1.5-1.8b", "Qwen/Qwen1.5-1.8B"),
        ("qwen1.5-0.5b", "Qwen/Qwen1.5-0.5B"),
    ]
    assert {round(model_size(one.spec.model, 128).non_embedding / 1e6) for one in runs} == {308, 1214}
    assert all(published_shape(hub) for hub in HUB.values())
    assert published_shape("Qwen/Qwen1.5-7B") is None
    assert "Qwen/None-7B" in refused(["plan", *words, "ladder=[Qwen/None-7B]"], capsys, 3)
