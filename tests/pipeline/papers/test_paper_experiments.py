"""The experiments named for the papers have the papers' values, and their cost is known without hub and texts."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.presets import HUB, published_shape
from tests.pipeline.small import refused
from training.parameters import model_size

PRINTED = {
    "dcpt-paper": {
        # Table 11, 4.1, footnote 2, app. F.1 and I.2.
        "sequence_length": 2048,
        "target.peak_learning_rate": 3e-5,
        "target.steps": 200_000,
        "target.global_batch": 64,
        "mixture.domain_ratio": [0.0, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0],
        "parallel.processes": 16,
        "validation.sample": 5000,
        "validation_windows": 1000,
        "corpora.domains": ["code", "math", "law", "chemistry", "music", "medical"],
    },
    "dcpt-paper-cross": {"continual.steps": 5000, "target.steps": 200_000, "corpora.domains": ["chemistry", "music"]},
    "dynamics-paper": {
        # Table 1, app. F and I.
        "sequence_length": 4096,
        "pretrain.global_batch": 1024,
        "target.global_batch": 1024,
        "pretrain.peak_learning_rate": 2e-4,
        "target.peak_learning_rate": 2e-4,
        "pretrain.steps": 40_000,
        "target.steps": 10_000,
        "pretrain.rope_theta": 10_000,
        "optimizer.beta2": 0.95,
        "optimizer.weight_decay": 0.1,
    },
    "dynamics-paper-open": {"sequence_length": 4096, "target.peak_learning_rate": 2e-5, "target.global_batch": 1024},
    "autoscale-paper": {
        # Table 2, 5.1 and 3.1.1.
        "pretrain.global_batch": 80,
        "pretrain.peak_learning_rate": 2e-4,
        "optimizer.weight_decay": 0.01,
        "model.vocab_size": 50_257,
        "weights.passes": 3,
        "weights.factors": ["1/3", "1", "3"],
        "weights.given.llama.common-crawl": 0.67,
        "parallel.processes": 8,
    },
    "autoscale-paper-bert": {
        # Table 3.
        "sequence_length": 300,
        "objective.mask_share": 0.15,
        "pretrain.global_batch": 48,
        "pretrain.peak_learning_rate": 1e-4,
        "optimizer.weight_decay": 0.01,
        "parallel.processes": 4,
    },
}
TOKENS = {
    # Billions of tokens that the paper states of one run.
    "dcpt-paper": (26, 200_000),
    "dynamics-paper": (4, 1000),
    "dynamics-paper-open": (4, 1000),
    "autoscale-paper": (3, 36_621),
    "autoscale-paper-bert": (0.52, 36_000),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_values_are_those_that_the_paper_prints(name: str) -> None:
    question = read_question([f"experiment={name}"])
    given = OmegaConf.structured(question)
    assert {key: OmegaConf.select(given, key) for key in PRINTED[name]} == PRINTED[name]
    if name in TOKENS:
        billions, steps = TOKENS[name]
        phase = question.pretrain if question.goal_kind.many_domains else question.continual
        assert steps * phase.global_batch * question.sequence_length / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize("name", PRINTED)
def test_the_cost_is_known_without_hub_and_texts(name: str, tmp_path: Path, capsys) -> None:
    folders = [f"studies={tmp_path}", f"data={tmp_path / 'data'}"]
    assert run(["plan", f"experiment={name}", *folders]) == 0
    shown = capsys.readouterr().out
    # The D-CPT paper states 150,000 hours of one A100, app. F.2.
    assert ("1e+05 GPU-h*" if name == "dcpt-paper" else "GPU-h*") in shown
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
