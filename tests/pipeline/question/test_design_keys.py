"""Keys of the design: every mistake is a line with the key, its value and what is allowed."""

from __future__ import annotations

import pytest

from pipeline.question.design import candidate_steps
from pipeline.question.loading import read_question
from pipeline.question.messages import ConfigError

BAD_KEYS = {
    ("design.batch=0",): "design.batch: 0; allowed: 1 or more",
    ("design.budget=0",): "design.budget: 0.0; allowed: above 0, FLOPs like 1e18",
    ("design.tolerance=1",): "design.tolerance: 1.0; allowed: above 0, below 1",
    ("design.kind=random",): "design.kind: 'random'; allowed: grid, active",
    ("design.ratios=[0.1,1.1]",): "design.ratios: 1.1; allowed: 0 to 1",
    ("design.ratios=[]",): "design.ratios: empty",
    ("design.lengths=[0]",): "design.lengths: 0.0; allowed: parts of",
    ("design.lengths=[]",): "design.lengths: empty",
    ("variants.a={continual: {steps: 9}}",): "variants: given with design.kind=active; allowed: none, or design=grid",
    ("transfer_steps=[600]",): "transfer_steps: given with design.kind=active",
    ("goal=compute", "goal.flops=1e12"): "design.kind: 'active' with goal.kind=compute; allowed: grid, or goal.kind of "
    "trade-off, limited-data",
    ("design.target_size=false", "ladder=[]"): "design.target_size: false with ladder=[]",
    ("goal=limited-data", "goal.domain_tokens=1e6", "law=[transfer-anchored]"): "law: ['transfer-anchored'] with "
    "design.kind=active; allowed: at least one that reads D",
    ("continual.evaluation.policy=explicit", "continual.evaluation.steps=[200]"): "design.lengths: a run of 150 steps: "
    "continual.evaluation.steps: 200 is not in the run",
}


@pytest.mark.parametrize(("words", "line"), BAD_KEYS.items(), ids=" ".join)
def test_a_wrong_key_is_named_with_what_is_allowed(words: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_question(["experiment=quickstart", "design=active", *words])
    assert any(one.startswith(line) for one in caught.value.lines), caught.value.lines


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_question(
            ["design=active", "design.batch=0", "design.ratios=[2]", "design.lengths=[3]", "goal.tolerance=0"]
        )
    assert len(caught.value.lines) == 4


def test_a_grid_may_have_what_an_active_design_may_not() -> None:
    assert read_question(["transfer_steps=[600]", "ladder=[]", "design.target_size=false"]).design.kind == "grid"


def test_lengths_are_whole_steps_and_distinct() -> None:
    words = ["continual.steps=3", "confirm.tokens_factor=1", "design.lengths=[0.01,0.25,0.3,0.5,1]"]
    assert candidate_steps(read_question(words)) == [1, 2, 3]
