"""Goals beside the trade-off: their mistakes, their places in a study, and their runs."""

import dataclasses
import functools
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.main import run
from pipeline.goals.ratio.confirm import Place, confirmation_runs
from pipeline.goals.ratio.outcomes import CONFIRMED, NEARBY, NOT_CONFIRMED, UNDETERMINED
from pipeline.goals.registry import goal_of, goal_problems, load_question, read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.schema import LawConfig, Question
from pipeline.question.validation import problems
from pipeline.study.artifacts import ModelCandidate, Outcome, Recommendation, RecommendedRun
from pipeline.study.folder import question_yaml, study_of
from tests.pipeline.goals.ratio.examples import confirmation_row, recommendation

TWO = {"transfer-two-mixtures": LawConfig()}
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"kind": "limited-data"}, "goal.domain_tokens: null with goal.kind=limited-data; allowed: tokens of the domain"),
    ({"kind": "limited-data", "domain_tokens": 5.0}, "goal.domain_tokens: 5 with goal.kind=limited-data"),
    (
        {"kind": "limited-data", "domain_tokens": 1e12},
        "goal.domain_tokens: 1e+12 with goal.kind=limited-data; allowed: tokens of the domain to be read once, a "
        "step's 2,048 to 2.048e+10, 10,000,000 steps",
    ),
    (
        {"kind": "limited-data", "domain_tokens": 1e6, "most_tokens": 1e12},
        "goal.most_tokens: 1e+12; allowed: null, or above 1e+06, goal.domain_tokens, up to 2.048e+10",
    ),
    (
        {"kind": "limited-data", "domain_tokens": 1e6, "most_tokens": 1e5},
        "goal.most_tokens: 100000; allowed: null, or above 1e+06, goal.domain_tokens",
    ),
    ({"kind": "compute"}, "goal.flops: null with goal.kind=compute; allowed: 1e+09 or more"),
    ({"kind": "compute", "flops": 1e12, "ladder": []}, "goal.kind: 'compute' with one model; allowed: two"),
    ({"domain_ratio": 0.0}, "goal.domain_ratio: 0.0; allowed: above 0, up to 1, or null"),
    ({"tolerance": 2.0}, "goal.tolerance: 2.0; allowed: above -1, below 1: 0.02 is 2%"),
    ({"kind": "data"}, "goal.kind: 'data'; allowed: trade-off, limited-data, compute, weights, balance"),
    ({"change_at": [0.5, 1.0], "law": TWO}, "goal.change_at: 1.0; allowed: parts of the run's steps, between 0 and 1"),
    ({"change_at": [0.5]}, "goal.change_at: [0.5] needs the law transfer-two-mixtures; allowed: law=[dcpt,transfer-"),
    (
        {"kind": "compute", "flops": 1e12, "change_at": [0.5], "law": TWO},
        "goal.change_at: [0.5] with goal.kind=compute; allowed: goal.kind=trade-off, or []",
    ),
    ({"around": [0.1, 1.5]}, "confirm.around: 1.5; allowed: differences of the domain ratio"),
]
LIMITED = {"kind": "limited-data", "domain_tokens": 3e5}
COMPUTE = {"kind": "compute", "flops": 6e11}


@functools.cache
def _quickstart() -> Question:
    return read_question(["experiment=quickstart", "mixture=ratios"])


def _question(**changes: Any) -> Question:
    """The quickstart's question with keys of it, of its goal or of its confirmation changed."""
    question = _quickstart()
    parts = {
        part: dataclasses.replace(own, **{name: changes.pop(name) for name in list(changes) if hasattr(own, name)})
        for part, own in (("goal", question.goal), ("confirm", question.confirm))
    }
    return dataclasses.replace(question, **parts, **changes)


@pytest.mark.parametrize(("changes", "line"), MISTAKES)
def test_a_mistake_names_key_value_and_what_is_allowed(changes: dict[str, Any], line: str) -> None:
    (problem,) = [line for line in problems(_question(**changes), goal_problems) if "goal" in line or "around" in line]
    assert problem.startswith(line)


def test_each_goal_has_its_answer_and_all_have_the_fits() -> None:
    one = _question()
    several = dataclasses.replace(one, corpora=dataclasses.replace(one.corpora, domains=["code", "law"]))
    asked = [
        study_of(dataclasses.replace(question, goal=dataclasses.replace(one.goal, kind=kind)))
        for question in (one, several)
        for kind in ("trade-off", "limited-data", "compute", "balance")
    ]
    assert [study.answer("a.json") for study in asked] == [
        *("a.json", "answers/limited-data/a.json", "answers/compute/a.json", "answers/balance/a.json"),
        *(f"answers/code/{kind}a.json" for kind in ("", "limited-data/", "compute/", "balance/")),
    ]
    assert [study.fitted("fits") for study in asked] == ["fits"] * 4 + ["answers/code/fits"] * 4


def test_an_existing_study_is_asked_another_goal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(question_yaml(_question(flops=6e11)))
    goal = load_question(path, ["goal=compute", "goal.domain_ratio=0.5"]).goal
    assert (goal.kind, goal.flops, goal.domain_ratio, goal.tolerance) == ("compute", 6e11, 0.5, 0.03)
    assert run(["recommend", str(tmp_path), "goal=compte"]) == 2
    assert "did you mean compute?" in capsys.readouterr().err


def _answer(question: Question, ratio: float, model: str = "", **changes: Any) -> Recommendation:
    mixture = {question.corpora.general: 1 - ratio, question.corpora.domain: ratio}
    target = RecommendedRun(model or question.model.name, 1.0, 1.0, 600)
    return recommendation(mixture=mixture, target=target, **changes)


@pytest.mark.usefixtures("elsewhere")
def test_confirmation_is_as_it_was_unless_more_is_asked() -> None:
    question = _question()
    name = question.model.name
    assert goal_of(question).places(question, _answer(question, 0.7)) == [Place(name, 0.7, 600), Place(name, 0.55, 600)]
    assert goal_of(question).places(question, _answer(question, 0.1))[1] == Place(name, 0.25, 600)
    # A ratio that rounds to the answer's is no place of its own, nor another seed of it.
    near = _question(around=[0.0004, 0.1, -0.0004])
    assert goal_of(near).places(near, _answer(near, 0.7)) == [Place(name, 0.7, 600), Place(name, 0.8, 600)]
    asked = goal_of(question).places(question, _answer(question, 0.7))
    runs = confirmation_runs(estimate(question), asked)
    assert [(run.spec.seed, run.spec.hash[:8]) for run in runs] == [(0, "47746fbc"), (0, "4feef1e0")]


def test_the_domains_tokens_are_read_once_at_every_share() -> None:
    question = _question(**LIMITED, around=[-0.4, -0.2, 0.2, 0.7], seeds=2)
    asked = goal_of(question).places(question, _answer(question, 0.4))
    assert [place.domain_ratio for place in asked] == [0.4, 0.2, 0.6]
    runs = confirmation_runs(estimate(question), asked)
    assert Counter(run.spec.seed for run in runs) == {0: 3, 1: 3}
    for run_ in runs:
        read = Fraction(run_.spec.mixture["code"]) * run_.spec.tokens
        assert 0 <= 3e5 - read < run_.spec.tokens_per_step


def test_no_place_beside_few_domain_tokens_is_longer_than_the_answer_may_be() -> None:
    question = _question(**LIMITED | {"most_tokens": 1e6}, around=[-0.1, 0.2])
    places = goal_of(question).places(question, _answer(question, 0.3))
    assert [place.domain_ratio for place in places] == [0.3, 0.5]
    assert max(place.steps for place in places) * question.tokens_per_step() <= 1e6
    (setting, _), limit = (goal_of(question).places(question, _answer(question, 0.299))), 1e6
    assert setting.steps * question.tokens_per_step() <= limit
    unlimited = _question(**LIMITED, around=[-0.1, 0.2])
    assert len(goal_of(unlimited).places(unlimited, _answer(unlimited, 0.3))) == 3


def test_every_model_is_run_for_the_same_compute() -> None:
    question = _question(**COMPUTE, around=[-0.4])
    lengths = {"qwen2-0.15m": 322, "qwen2-0.3m": 147}
    candidates = [ModelCandidate(name, 1.0, 1.0, steps, 0.5, 4.0, 3.9, 4.1) for name, steps in lengths.items()]
    answer = _answer(question, 0.5, "qwen2-0.3m", candidates=candidates)
    asked = goal_of(question).places(question, answer)
    assert [place.model for place in asked] == ["qwen2-0.3m", "qwen2-0.15m"]
    # Down, as the mixture of the answer is, which a tolerance may hold.
    held = dataclasses.replace(answer, candidates=[dataclasses.replace(candidates[1], domain_ratio=0.4996)])
    assert [place.domain_ratio for place in goal_of(question).places(question, held)] == [0.499]
    pretraining = {run_.spec.hash: run_.model for run_ in planned_runs(estimate(question))}
    for run_ in confirmation_runs(estimate(question), asked):
        assert pretraining[run_.parent or ""] == run_.model


@pytest.mark.parametrize("keys", [{}, LIMITED, COMPUTE], ids=["trade-off", "limited-data", "compute"])
def test_an_answer_for_another_batch_is_no_answer(keys: dict[str, Any]) -> None:
    question = _question(**keys)
    steps, goal = question.target.steps, goal_of(question)
    target = RecommendedRun(question.model.name, 1.0, 1e-9 * steps * question.tokens_per_step(), steps)
    answer = dataclasses.replace(_answer(question, 0.5), goal=question.goal, target=target)
    assert goal.asked_otherwise(question, answer) == ()
    other = dataclasses.replace(question, target=dataclasses.replace(question.target, global_batch=32))
    assert goal.asked_otherwise(other, answer) == ("target.global_batch=16", "target.global_batch=32")


AT_THE_TOLERANCE = {0.5: [2.06, 2.062, 2.058], 0.3: [2.0, 2.01, 2.02], 0.7: [2.1, 2.12, 2.11]}
RISES = {
    CONFIRMED: AT_THE_TOLERANCE,
    NEARBY: {0.5: [2.070, 2.071, 2.072], 0.3: [2.0, 2.001, 2.002], 0.7: [2.1, 2.101, 2.102]},
    NOT_CONFIRMED: {0.5: [2.200, 2.201, 2.202], 0.1: [2.0, 2.001, 2.002], 0.7: [2.3, 2.301, 2.302]},
    UNDETERMINED: {share: seeds[:1] for share, seeds in AT_THE_TOLERANCE.items()},
}
LEAST = {
    CONFIRMED: {0.5: [2.0, 2.01], 0.3: [2.1, 2.11], 0.7: [2.2, 2.21]},
    NEARBY: {0.5: [2.1, 2.11], 0.45: [2.0, 2.01], 0.7: [2.2, 2.21]},
    NOT_CONFIRMED: {0.5: [2.1, 2.11], 0.3: [2.0, 2.01], 0.7: [2.2, 2.21]},
    UNDETERMINED: {0.5: [2.0, 2.3], 0.3: [2.2, 2.1], 0.7: [2.1, 2.2]},
}
"""Verdict -> domain ratio -> losses of its seeds, the recommended ratio first."""


def _outcome(question: Question, corpus: str, losses: dict[float, list[float]]) -> Outcome:
    rows = [confirmation_row(corpus, ratio, seeds) for ratio, seeds in losses.items()]
    return goal_of(question).outcome(question, recommendation(), rows)


@pytest.mark.parametrize("verdict", RISES)
def test_where_the_general_loss_rises_by_the_tolerance(verdict: str) -> None:
    outcome = _outcome(_question(), "general", RISES[verdict])
    assert outcome.verdict == verdict
    assert [place.domain_ratio for place in outcome.places] == sorted(RISES[verdict])
    assert outcome.places[outcome.at].domain_ratio == 0.5
    assert "the tolerance is 3%" in outcome.sentence
    assert ("confirm.seeds=3" in outcome.sentence) == (verdict == UNDETERMINED)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ({1.0: [2.0], 0.85: [1.99]}, "the tolerance is 3%; no confirmation run exceeded it"),
        ({0.5: [2.2], 0.35: [2.1]}, "every confirmation run exceeded it"),
        ({0.5: [2.07, 2.0], 0.35: [2.0, 1.99]}, "the runs do not show at which ratio it is reached"),
    ],
)
def test_runs_that_do_not_enclose_the_tolerance_say_on_which_side_they_are(losses: dict, said: str) -> None:
    assert said in _outcome(_question(), "general", losses).sentence


def test_places_with_different_numbers_of_seeds_are_compared_by_those_in_common() -> None:
    losses = {0.5: [2.06, 2.062, 2.058], 0.3: [2.0, 2.01], 0.7: [2.1, 2.12]}
    outcome = _outcome(_question(), "general", losses)
    even = _outcome(_question(), "general", {ratio: seeds[:2] for ratio, seeds in losses.items()})
    assert (outcome.seeds, outcome.verdict, outcome.crossing) == (3, CONFIRMED, even.crossing)
    one = _outcome(_question(), "general", {0.5: losses[0.5], 0.3: [2.0], 0.7: [2.1]})
    assert one.verdict == CONFIRMED
    assert one.crossing
    assert one.crossing.low is None
    least = {0.5: [2.0, 2.01, 2.02], 0.3: [2.1, 2.11], 0.7: [2.2, 2.21]}
    assert _outcome(_question(**LIMITED), "code", least).verdict == CONFIRMED


def test_other_runs_of_a_study_count_for_a_minimum_beside_one_seed() -> None:
    question = _question(**LIMITED)
    for seeds, other in (([2.0], 0.45), ([2.0, 2.01], None)):
        rows = [confirmation_row("code", ratio, losses) for ratio, losses in ((0.5, seeds), (0.7, [2.2] * len(seeds)))]
        outcome = goal_of(question).outcome(question, recommendation(), rows, {0.3: 2.1, 0.45: 1.9})
        assert outcome.other_ratio == other
        assert ("0.1000 above the lowest of the other runs, others of the" in outcome.sentence) == (other is not None)
        assert ("the minimum may be at 30%, 45%, 50%, 70%: by" in outcome.sentence) == (other is not None)
        assert len(outcome.among_best or []) == len(outcome.places) == 2


@pytest.mark.parametrize("verdict", LEAST)
def test_where_the_domain_loss_is_least(verdict: str) -> None:
    outcome = _outcome(_question(**LIMITED), "code", LEAST[verdict])
    assert outcome.verdict == verdict
    assert (outcome.among_best or [])[outcome.at] == (verdict in (CONFIRMED, UNDETERMINED))
