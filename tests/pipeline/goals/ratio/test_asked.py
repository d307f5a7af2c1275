"""What a plan says first: the run that is asked about, and what the advice costs against it."""

import dataclasses

import pytest

from pipeline.goals.active.candidates import asked_run, budget
from pipeline.goals.ratio.asked import asked_lines, short_lines
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.runs import estimate
from pipeline.question.messages import ConfigError
from pipeline.steps import STEPS
from pipeline.study.context import Context
from tests.pipeline.show.report.report_study import HOSTILE_CORPUS, long_corpora

WORDS = ["experiment=quickstart", "precision=fp32", "target.steps=600", "evaluation_budget=1"]
WORDS += ["design.budget_unit=tokens"]
ASKED = "asked about: qwen2-0.7m, 600 steps of 16 x 128 tokens: 1.23 M tokens, "
FOLLOWED = (
    " that run, by tokens, beside the pre-training of qwen2-0.7m; no other run confirms it, cptlaw follow reads its "
    "own log (large.confirm=true: such runs do)"
)
WIDE = ", where the 90% interval of a predicted loss is some"
AVERAGED = " to either side, more where the laws disagree"
BESIDE = " that run, by tokens, beside the pre-training of qwen2-0.7m; to confirm it, "


def _horizon(times: object, run: str) -> str:
    none = f"no extrapolation in length, the {run} has as many steps"
    return f"horizon: {none if str(times) == '1' else f'that run has {times} times the steps of the {run}'}"


@pytest.mark.parametrize(
    ("words", "cost", "together", "horizon"),
    [
        # A quarter of 1,228,800 tokens, whatever the first round chooses: no run of it is longer.
        (["design.budget=307200"], f"at most 25% of{BESIDE}2 such runs follow", "at most 4.25", "4"),
        (
            ["design.budget=2457600", "confirm.neighbour=0"],
            f"at most 2 times{BESIDE}1 such run follows",
            "at most 5",
            "1",
        ),
        # Three ratios of half of its steps.
        (
            ["mixture.domain_ratio=[0.2,0.5,0.8]", "mixture.replicates=1", "ladder=[]", "confirm.seeds=2"],
            f"150% of{BESIDE}4 such runs follow",
            "7.5",
            "2",
        ),
        (
            ["design.budget=3e6", "design.lengths=[0.05,0.1]"],
            f"at most 2.44 times{BESIDE}2 such runs follow",
            "at most 6.44",
            "10",
        ),
    ],
)  # Its pre-training is twice as long as the run.
def test_the_cost_is_said_against_the_run_that_is_asked_about(words: list[str], cost, together, horizon) -> None:
    question = read_question([*WORDS, *words])
    context = estimate(question)
    lines = asked_lines(context, goal_of(question).runs(context))
    assert lines[0].startswith(ASKED)
    assert lines[1] == f"the runs for the fit cost {cost}"
    assert lines[2] == f"all together, with 2 for the pre-training, {together} times that run"
    run = "longest run for the fit" if question.mixture.domain_ratio else "longest run that may be chosen for the fit"
    width = {"2": f"{WIDE} 0.9%{AVERAGED}", "4": f"{WIDE} 2.6%{AVERAGED}", "10": f"{WIDE} 5.6%{AVERAGED}"}
    assert lines[3] == _horizon(horizon, run) + width.get(horizon, "")
    alone = asked_lines(estimate(read_question([*WORDS, *words, "law=dcpt"])), [])
    assert horizon != "10" or alone[3].endswith(f"{WIDE} 15.7% to either side")


def test_what_variants_add_is_beside_the_runs_for_the_fit_and_in_the_sum() -> None:
    words = ["mixture.domain_ratio=[0.2,0.5,0.8]", "mixture.replicates=1", "ladder=[]"]
    question = read_question([*WORDS, *words, "variants.short={pretrain: {steps: 600}, held_out: true}"])
    context = estimate(question)
    runs = goal_of(question).runs(context)
    _, cost, together, _ = asked_lines(context, runs)
    others = "the 2 pre-trainings of qwen2-0.7m and 3 runs of variants that no fit reads; to confirm it, 2 such"
    assert cost == f"the runs for the fit cost 150% of that run, by tokens, beside {others} runs follow"
    every = sum(run.spec.tokens for run in runs) / asked_run(context).spec.tokens
    beside = f"with {every - 1.5:g} for the 2 pre-trainings and the runs of variants"
    assert together == f"all together, {beside}, {every + 2:g} times that run"


def test_no_runs_follow_to_confirm_an_answer_whose_own_are_done(changeable) -> None:
    study, question = changeable
    context = Context(question, study, long_corpora(study, "general", HOSTILE_CORPUS), "bf16")
    of_fit = [run for run in context.plan if run.role != "confirm"]
    _, cost, together, *_ = asked_lines(context, of_fit)
    asked, confirmed = cost.split("; ")
    assert asked.endswith(", beside the pre-training of qwen2-0.7m")
    assert confirmed == "the confirmation runs so far cost 2 times that run"
    longer = dataclasses.replace(question, target=dataclasses.replace(question.target, steps=2 * question.target.steps))
    assert asked_lines(dataclasses.replace(context, question=longer), of_fit)[1].endswith(
        "confirm it, 2 such runs follow"
    )
    (study.runs / next(run.name for run in context.plan if run.role == "confirm") / "DONE").unlink()
    _, before, same, *_ = asked_lines(context, of_fit)
    assert before == f"{asked}; to confirm it, 2 such runs follow"
    assert together == same


def test_a_run_shorter_than_those_for_the_fit_needs_no_extrapolation() -> None:
    words = ["mixture.domain_ratio=[0.2,0.5,0.8]", "ladder=[]", "target.steps=150", "continual.steps=300"]
    question = read_question([*WORDS, *words])
    context = estimate(question)
    (*_, line) = asked_lines(context, goal_of(question).runs(context))
    assert line == "horizon: no extrapolation in length, the longest run for the fit has 2 times the steps"


LARGE = ["large.tokens=1e6", "target.steps=6000"]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("words", "cost", "horizon"),
    [
        ([], f"at most 10% of{FOLLOWED}", 20),
        (["large.budget=0.05", "large.lengths=[0.01]"], f"at most 5% of{FOLLOWED}", 100),
        (["large.confirm=true"], f"at most 10% of{BESIDE}2 such runs follow", 20),
        (["design.budget=12288000"], f"at most 100% of{FOLLOWED}", 20),
        # No run is large before 1e8 tokens.
        # What the first round leaves of that is enough for half of its steps.
        (["large.tokens=1e8", "design.budget=12288000"], f"at most 100% of{BESIDE}2 such runs follow", 2),
    ],
)
def test_a_large_run_is_advised_for_a_tenth_of_its_cost(words: list[str], cost: str, horizon: int) -> None:
    question = read_question([*WORDS, *LARGE, *words])
    context = estimate(question)
    runs = goal_of(question).runs(context)
    lines = asked_lines(context, runs)
    assert lines[1] == f"the runs for the fit cost {cost}"
    assert lines[3].startswith(_horizon(horizon, "longest run that may be chosen for the fit"))
    of_fit = [run for run in runs if run.role == "fit"]
    assert sum(run.spec.tokens for run in of_fit) <= context.once(budget)
    assert STEPS["confirm"].is_done(context) == (FOLLOWED in lines[1])


def test_a_tenth_that_buys_no_run_is_refused_with_what_is_needed() -> None:
    words = [*WORDS, *LARGE, "large.budget=0.01"]
    with pytest.raises(ConfigError, match=r"large.budget: 0.01 of the run asked about; allowed: 0.0125 or more, the"):
        goal_of(question := read_question(words)).runs(estimate(question))
    with pytest.raises(ConfigError, match=r"large\.lengths: empty; allowed"):
        read_question([*WORDS, *LARGE, "large.lengths=[]"])


def test_nothing_is_said_where_the_answer_chooses_the_run() -> None:
    question = read_question(["experiment=quickstart", "precision=fp32", "goal=limited-data", "goal.domain_tokens=3e5"])
    context = estimate(question)
    assert not goal_of(question).plan_notes(context, []).asked


SHORT = "runs for the fit of"
FIRST = "{domain_ratio: 0.9, length: 0.09}, {domain_ratio: 0.1, length: 0.015}"


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (LARGE, []),
        (["large.tokens=1e6"], [f"large.lengths: {SHORT} 8, 15, 30 steps, for one of 600: in fewer"]),
        # What the first round leaves of the budget is enough for no longer run.
        (["large.tokens=1e6", "large.budget=0.03"], [f"large.lengths: {SHORT} 8 steps, for one of 600: in fewer"]),
        (
            ["large.tokens=1e6", "large.budget=0.11", f"large.first=[{FIRST}]"],
            [f"large.first: {SHORT} 9 steps, for one of 600: in fewer"],
        ),
        (
            ["large.tokens=1e6", "large.budget=0.3", "large.lengths=[0.02,0.5]", f"large.first=[{FIRST}]"],
            [f"large.first and large.lengths: {SHORT} 9, 12 steps, for one of 600: in fewer"],
        ),
        (["large.tokens=1e6", "large.lengths=[0.0667]"], []),
        (["large.lengths=[0.01]"], []),
        (
            [*LARGE, "target.schedule.pieces=[{shape: linear, end: 1.0, steps: 60}, {shape: cosine, end: 0.1}]"],
            ["target.schedule: the learning rate rises in 60 of 75 steps of runs for the fit; give longer"],
        ),
    ],
)
def test_runs_that_are_too_short_to_learn_from_are_named(words: list[str], lines: list[str]) -> None:
    question = read_question([*WORDS, "ladder=[]", *words])
    context = estimate(question)
    found = [*short_lines(context, goal_of(question).runs(context))]
    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines
    lengths = ["length: 0.067 or more in large.first"] * any("large.first" in line for line in lines)
    lengths += ["large.lengths=[0.067] or more"] * any("large.lengths" in line for line in lines)
    assert read_question([*WORDS, "large.tokens=1e18"]).large.tokens == 1e18
    assert not lengths or found[0].endswith(", or large.tokens=1e18")
    assert not lengths or f"; give {', '.join(lengths)} and a large.budget of at least as much a run, " in found[0]


@pytest.mark.parametrize(("peak", "said"), [("2", True), ("0.05", True), ("3e-3", False)])
def test_a_peak_that_is_a_slip_of_the_unit_is_noted(peak: str, said: bool) -> None:
    question = read_question([*WORDS, f"target.peak_learning_rate={peak}"])
    context = estimate(question)
    lines = asked_lines(context, goal_of(question).runs(context))
    assert any(line.startswith(f"note: target.peak_learning_rate={peak}: AdamW changes") for line in lines) == said
