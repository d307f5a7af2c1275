"""Keys of the design: every mistake is a line with the key, its value and what is allowed."""

import pytest

from pipeline.goals.registry import read_question
from pipeline.question.design import candidate_steps, is_active
from pipeline.question.messages import ConfigError

BAD_KEYS = {
    ("design.batch=0",): "design.batch: 0; allowed: 1 to 1,000",
    ("design.budget=0",): "design.budget: 0.0; allowed: above 0, up to 1e+30, in design.budget_unit: FLOPs like 1e18",
    ("design.tolerance=1",): "design.tolerance: 1.0; allowed: above 0, below 1",
    ("design.kind=random",): "design.kind: 'random'; allowed: auto, grid, active",
    ("design.ratios=[0.1,1.1]",): "design.ratios: 1.1; allowed: 0 to 1",
    ("design.ratios=[]",): "design.ratios: empty",
    ("design.lengths=[0]",): "design.lengths: 0.0; allowed: parts of",
    ("design.lengths=[]",): "design.lengths: empty",
    ("design.peaks=[0.5,0]",): "design.peaks: 0.0; allowed: multiples of target.peak_learning_rate, .01 to",
    ("design.peaks=[3e-4,6e-4]",): "design.peaks: 0.0003; allowed: multiples of target.peak_learning_rate, .01 to",
    ("design.peaks=[]",): "design.peaks: empty",
    ("design.budget_unit=dollars",): "design.budget_unit: 'dollars'; allowed: auto, FLOPs, tokens, device-hours",
    ("design.kind=grid",): "mixture.domain_ratio: empty with design.kind=grid and goal.kind=trade-off; allowed: ratios",
    ("mixture.replicate_at=0.5",): "mixture.replicate_at: 0.5; allowed: one of mixture.domain_ratio",
    ("variants.a={continual: {steps: 9}}",): "variants: given with runs chosen round by round; allowed: none, or a "
    "grid: mixture=ratios",
    ("transfer_steps=[600]",): "transfer_steps: given with runs chosen round by round",
    (
        "goal=compute",
        "goal.flops=1e12",
    ): "design.kind: 'active' with goal.kind=compute; allowed: auto, grid, or goal.kind of trade-off, limited-data, "
    "balance",
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


def test_runs_are_chosen_where_no_grid_is_given() -> None:
    quick = read_question(["experiment=quickstart"])
    assert is_active(quick)
    assert not is_active(read_question(["experiment=quickstart", "mixture=ratios"]))
    assert not is_active(read_question(["experiment=quickstart", "mixture.domain_ratio=[0.1,0.9]"]))
    assert is_active(read_question(["mixture=ratios", "design=active"]))
    # A grid may have what an active design may not.
    assert not is_active(read_question(["transfer_steps=[600]", "ladder=[]", "design.target_size=false"]))
    with pytest.raises(ConfigError, match=r"mixture.domain_ratio: empty with design.kind=auto and goal.kind=compute"):
        read_question(["experiment=quickstart", "goal=compute", "goal.flops=6e11"])


def test_lengths_are_whole_steps_and_distinct() -> None:
    words = ["target.steps=3", "design.lengths=[0.01,0.25,0.3,0.5,1]"]
    assert candidate_steps(read_question(words)) == [1, 2, 3]
