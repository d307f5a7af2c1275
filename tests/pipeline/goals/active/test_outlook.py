"""What a plan says of runs that its budget does not hold."""

import re

import pytest

from pipeline.goals.active.candidates import candidate_runs
from pipeline.goals.active.outlook import budget_lines
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.runs import estimate
from pipeline.plan.token_supply import demand_of
from pipeline.question.messages import ConfigError
from tests.pipeline.small import with_tokens

WORDS = ["experiment=quickstart", "precision=fp32", "target.steps=6000", "evaluation_budget=1", "large.tokens=1e6"]
WORDS += ["design.budget_unit=tokens", "ladder=[]"]
WORDS += ["large.first=[{domain_ratio: 0.9, length: 0.08}, {domain_ratio: 0.1, length: 0.015}]"]
OTHERS = "; others are chosen in place of all; give"
COST = "large.first: its runs cost 0.095 of the run asked about, more than"
LACKS = "large.first: no run of 90 steps at domain ratio 0.1 can be chosen:"
ONE = "holds runs at one domain ratio alone, "


def _lines(*words: str) -> list[str]:
    question = read_question([*WORDS, *words])
    context = estimate(question)
    return [*budget_lines(context, goal_of(question).runs(context))]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("words", "first", "one_ratio"),
    [
        ([], "", ""),
        (["large.budget=0.05"], f"{COST} large.budget=0.05{OTHERS} large.budget=0.095 or more", ""),
        (["large.budget=0.013"], f"{COST} large.budget=0.013{OTHERS} large.budget=0.095 or more", "0.0275"),
        (["large.budget=0.013", "large.first=[]"], "", "0.025"),
        (["design.ratios=[0.9,0.5]"], f"{LACKS} design.ratios=[0.9, 0.5] lacks 0.1{OTHERS} large.first=[], or", ""),
        (["design.peaks=[0.5,2]"], f"{LACKS} design.peaks=[0.5, 2.0] lacks 1{OTHERS} large.first=[], or", ""),
        (["large.tokens=1e18"], "", ""),
        (["mixture.domain_ratio=[0.2,0.5]"], "", ""),
    ],
)
def test_what_the_budget_does_not_hold_is_said_with_what_would(words: list[str], first: str, one_ratio: str) -> None:
    lines = _lines(*words)
    assert len(lines) == bool(first) + bool(one_ratio)
    assert not first or lines[0].startswith(first)
    if one_ratio:
        assert lines[-1].startswith(f"large.budget=0.013 {ONE}")
        assert lines[-1].endswith(
            f"two ratios cost {one_ratio} of the run asked about: give large.budget={one_ratio} or more"
        )


@pytest.mark.usefixtures("elsewhere")
def test_text_is_asked_for_of_the_first_runs_and_not_of_all_that_may_be_chosen() -> None:
    """A run at a domain ratio of 1 reads more of the domain, and one at 0 more of general."""
    question = read_question(WORDS)
    context = estimate(question)
    first = [run for run in goal_of(question).runs(context) if run.role == "fit"]
    with pytest.raises(ConfigError) as refused:
        candidate_runs(with_tokens(context, 2049))
    most = [max(demand_of(run, corpus) for run in first) for corpus in ("code", "general")]
    of_fit = [line for line in refused.value.lines if " continual-" in line]
    assert [f"would read {demand:,}," in line for demand, line in zip(most, of_fit, strict=True)] == [True, True]


@pytest.mark.usefixtures("elsewhere")
def test_the_budget_that_is_named_is_enough() -> None:
    of_first, of_ratios = _lines("design.budget=2e5")
    assert f"{COST.split(' cost')[0]} cost 1.17e+06 tokens, more than design.budget=2e+05{OTHERS} " in of_first
    assert f"design.budget=2e+05 {ONE}" in of_ratios
    for line, left in ((of_first, 0), (of_ratios, 1)):
        (more,) = re.findall(r"give (design.budget=\S+) or more", line)
        assert len(_lines(more)) == left
