"""What is wrong with a question about weights, told in one line each before anything is read."""

from pathlib import Path

import pytest

from pipeline.goals.registry import load_question, read_question
from pipeline.question.messages import ConfigError
from pipeline.study.folder import question_yaml

MISTAKES = {
    "weights.methods=[autoscales]": ["weights.methods: 'autoscales'; allowed: uniform, given", "mean autoscale?"],
    "weights.methods=[]": ["weights.methods: empty; allowed: uniform"],
    "weights.methods=[given]": ["weights.given: empty", "give weights.given.NAME"],
    "weights.phase=both": ["weights.phase: 'both'; allowed: pretrain, continual"],
    "weights.base={general: 0.5, code: 0.4}": ["weights.base: its weights sum to 0.9; allowed: 1"],
    "weights.base={general: 1.0}": ["weights.base: has no weight of code"],
    "weights.base={general: 1.0, code: 0}": ["weights.base.code: 0.0; allowed: above 0, up to 1"],
    "weights.given.mine={general: 1, code: half}": ["weights.given.mine.code: 'half'; allowed: a number, 0 to 1"],
    "weights.given.mine={general: 0.5, law: 0.5}": ["weights.given.mine: 'law' is no source; allowed: general, code"],
    "weights.given.ddo={general: 0.5, code: 0.5}": ["weights.given.ddo: also the name of a method"],
    "weights.factors=[1/3,3]": ["weights.factors: [1/3, 3]; allowed: three or more", "1 among them"],
    "weights.factors=[a,1,3]": ["weights.factors: 'a'; allowed: numbers above 0, like 1/3"],
    "weights.scales=[300,150]": ["weights.scales: [300, 150]; allowed: rising"],
    "weights.scales=[150]": ["weights.scales: [150]; allowed: two or more for autoscale"],
    "weights.target=0": ["weights.target: 0; allowed: 1 to 10,000,000"],
    "weights.rounds=0": ["weights.rounds: 0; allowed: 1 to 1,000"],
    "weights.passes=4": ["weights.passes: 4.0 with allow_repeats=false", "allow_repeats=true"],
    "weights.average=median": ["weights.average: 'median'; allowed: loss, perplexity"],
    "weights.doremi.step_size=0": ["weights.doremi.step_size: 0.0; allowed: above 0"],
    "weights.doremi.smoothing=1": ["weights.doremi.smoothing: 1.0; allowed: 0 or more, below 1"],
    "weights.mixtures=3; weights.methods=[regmix]": ["mixtures: 3; allowed: 10 or more for regmix on 2 domains"],
    "weights.concentration=[2,1]; weights.methods=[regmix]": ["concentration: [2.0, 1.0]; allowed: two numbers above"],
    "weights.value={lwa: 1}": ["weights.value: 'lwa' is no source; allowed: general, code"],
    "weights.value={code: -1, general: 2}": ["weights.value.code: -1.0; allowed: 0 to 1,000,000"],
    "weights.methods=[continual]": ["weights.phase: 'pretrain' with continual among weights.methods; allowed: conti"],
    "weights.target=many": ["weights.target", "many", "a whole number"],
    "pretrain.checkpoints.steps=[30]": ["pretrain.checkpoints.steps: given, while runs are of many lengths"],
    "ladder=[qwen2-0.05m]": ["ladder: ['qwen2-0.05m'] with goal.kind=weights; allowed: []"],
    "goal.kind=wights": ["goal.kind: 'wights'; allowed: trade-off, limited-data, compute, weights, balance"],
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A question about weights as a study holds it."""
    path = tmp_path_factory.mktemp("stored") / "study.yaml"
    path.write_text(question_yaml(read_question(["goal=weights"])))
    return path


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_one_line(override: str, stored: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_question(stored, override.split("; "))
    lines = wrong.value.lines
    assert any(all(part in line for part in MISTAKES[override]) for line in lines), lines
    # A base that invents a domain also lacks one.
    assert len(lines) == 1 + ("law" in override), lines
