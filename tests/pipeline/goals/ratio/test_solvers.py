"""What each goal answers, by known laws, against every run that it might have chosen; and which law answers."""

import dataclasses
import functools
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fitting import LAWS, loss_curve
from pipeline.goals.ratio.answering_laws import AnsweringLaws, Solution, answering_laws
from pipeline.goals.ratio.confirm import compare
from pipeline.goals.ratio.limited_data_goal import limited_steps
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.write import add_to_plan
from pipeline.question.messages import ConfigError
from pipeline.question.schema import GoalConfig, LawConfig, Question
from pipeline.show.conclusion import conclude
from pipeline.show.report.pages import write_pages
from pipeline.show.tables import recommendation_table
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.fits import read_back_test
from pipeline.study.folder import Study, study_of
from pipeline.study.target import find_target
from tests.fitting.given import given
from tests.pipeline.show.report.report_study import long_corpora, write_runs

LAW = "transfer-anchored"
PARAMS = {
    "general": {"C2": 2.0, "C": 0.08, "G": 0.4, "eps": 0.02, "E": 500.0, "lambda": 0.99},
    "code": {"C2": 2.0, "C": 0.09, "G": 0.4, "eps": 0.02, "E": 500.0, "lambda": 0.99},
}
SIZES = {"qwen2-0.05m": 5.5e-5, "qwen2-0.15m": 1.5e-4, "qwen2-0.3m": 3.3e-4}
BEFORE = {"general": (3.2, 3.0, 2.9), "code": (5.1, 4.84, 4.76)}
"""Corpus -> loss before, by size."""
WORDS = ["experiment=quickstart", "mixture=ratios", "model=qwen2-0.3m", f"ladder=[{','.join(reversed(SIZES))}]"]


@functools.cache
def _question() -> Question:
    return read_question(WORDS)


def _asked(draws: int = 20, wobble: float = 0.01, E: float = 500.0, **goal: Any) -> AnsweringLaws:
    """Three pre-trained models; E is how fast the loss on code falls."""
    question = dataclasses.replace(_question(), goal=GoalConfig(**goal))
    rows = [
        {"run": name, "model": name, "N": N, "corpus": corpus, "r": float(corpus == "general"), "s1_pretrain": 2.0,
         "learning_rate": 3e-4, "phase": "pretrain", "step": 1200, "D": 0.002,
         "loss": loss}
        for corpus, losses in BEFORE.items() for (name, N), loss in zip(SIZES.items(), losses)
    ]  # fmt: skip
    of_corpus = {**PARAMS, "code": {**PARAMS["code"], "E": E}}
    fits = {corpus: {LAW: given(LAW, params, draws=draws, wobble=wobble)} for corpus, params in of_corpus.items()}
    return AnsweringLaws(question, pd.DataFrame(rows), fits, dict.fromkeys(PARAMS, LAW))


def _answer(asked: AnsweringLaws) -> Solution:
    return goal_of(asked.question).solve(asked)


def _losses(asked: AnsweringLaws, corpus: str, ratios: Any, model: str, steps: int) -> np.ndarray:
    """What the law says of runs at some domain ratios, from its definition."""
    target = find_target(asked.question, asked.points, model).lasting(steps)
    columns: dict[str, Any] = target.columns(corpus, asked.fit(corpus))
    r = np.atleast_1d(ratios if corpus == "code" else 1 - np.asarray(ratios))
    rows = {name: np.full(len(r), value) for name, value in columns.items()}
    return LAWS[LAW].loss({**rows, "r": r}, asked.fit(corpus).params)


def test_few_tokens_of_the_domain() -> None:
    asked = _asked(kind="limited-data", domain_tokens=3e5, most_tokens=4e6)
    found = _answer(asked)
    ratios = np.linspace(0.1, 1.0, 46)
    losses = [_losses(asked, "code", ratio, "qwen2-0.3m", limited_steps(asked.question, ratio))[0] for ratio in ratios]
    best = ratios[int(np.argmin(losses))]
    assert found.domain_ratio == pytest.approx(best, abs=0.02)
    assert 0.08 < (found.low or 0) < found.domain_ratio < (found.high or 0) < 1
    assert found.target.steps * asked.question.tokens_per_step() == pytest.approx(3e5 / found.domain_ratio, rel=0.01)
    assert found.predicted["code"][0] == pytest.approx(min(losses), abs=2e-3)
    steps, said = found.target.steps, found.predicted["general"][0]
    assert said == pytest.approx(_losses(asked, "general", found.domain_ratio, "qwen2-0.3m", steps)[0], abs=1e-9)
    assert found.identified


@pytest.mark.parametrize("weight", [0.0, 0.4, 0.55, 0.7, 1.0])
def test_the_least_weighted_loss(weight: float) -> None:
    asked = _asked(kind="balance", weight=weight)
    steps, ratios = asked.question.target.steps, np.linspace(0.0, 1.0, 201)
    both = [_losses(asked, corpus, ratios, "qwen2-0.3m", steps) for corpus in ("general", "code")]
    weighted = np.array([weight, 1 - weight]) @ both
    found = _answer(asked)
    assert found.domain_ratio == pytest.approx(ratios[int(np.argmin(weighted))], abs=6e-3)
    predicted = weight * found.predicted["general"][0] + (1 - weight) * found.predicted["code"][0]
    assert predicted == pytest.approx(min(weighted), abs=1e-4)
    assert found.low <= found.domain_ratio <= found.high
    assert found.binding.startswith("nothing" if 0 < found.domain_ratio < 1 else "the range of ratios: all ")


DYNAMICS = {"L0": 2.0, "A": 0.8, "C1": 1.0, "C2": 1.0, "alpha": 0.4, "E": 500.0, "beta": 0.2, "a1": 0.1, "a2": -3.0}


@pytest.mark.slow
def test_when_the_general_loss_comes_back_and_the_best_length_and_start() -> None:
    asked = _asked(kind="balance", weight=0.5, find=["steps", "loss_potential"])
    dynamics = {
        corpus: given(law, {**DYNAMICS, "B": B, "lambda": 0.99}, draws=20)
        for corpus, law, B in (("general", "dynamics-replay", -0.02), ("code", "dynamics-replay-domain", 1.0))
    }
    fits = {corpus: {**of, "dynamics-replay": dynamics[corpus]} for corpus, of in asked.fits.items()}
    both = dataclasses.replace(asked.question, law=dict.fromkeys([LAW, "dynamics-replay"], LawConfig()))
    found, goal = _answer(asked), goal_of(asked.question)

    values, lines = goal.beside(asked, found)
    target = found.target
    rates = np.full(20_000, asked.question.target.peak_learning_rate)
    curve = loss_curve(
        given(LAW, PARAMS["general"]), rates, before=target.rate_before,
        pretrain=target.pretrain, at={"rho": 1.0, "loss_before": 2.9, "r": 1 - (found.domain_ratio or 0)},
    )["loss"].to_numpy()  # fmt: skip
    back = curve[1:] <= curve[0]
    assert values["turning_length"].value == (1 + np.argmax(back) if back.any() else np.inf)
    assert lines[-1] == (
        "goal.find: no loss_potential, since transfer-anchored does not know it; dynamics-replay knows it: cptlaw fit "
        "law=[...]"
    )
    assert 1 <= values["best_steps"].value <= target.steps

    values, lines = goal.beside(dataclasses.replace(asked, fits=fits, question=both), found)
    assert 0 <= values["best_loss_potential"].value <= 1
    assert {"turning_length", "critical_loss_potential", "best_steps"} < values.keys()
    assert "by dynamics-replay" in lines[0]
    assert len(lines) == 3
    assert f" is back where it began after {values['turning_length'].value:,.0f} steps" in lines[0]
    short = dataclasses.replace(dynamics["general"], ranges={"s1": (0.0, 1e-3)})
    fits = {**fits, "general": {**fits["general"], "dynamics-replay": short}}
    _, (line, *_) = goal.beside(dataclasses.replace(asked, fits=fits, question=both), found)
    assert line.endswith(" is not back where it began within 1,000 times the fitted summed rate, by dynamics-replay")


def test_an_optimum_at_the_longest_run_that_may_be_had_says_so() -> None:
    found = _answer(_asked(kind="limited-data", domain_tokens=1e4, most_tokens=2e4))
    assert found.domain_ratio == pytest.approx(0.5)
    assert found.binding == "goal.most_tokens=20000: a longer run with a smaller ratio would do better"


def test_of_several_peaks_the_one_with_the_least_domain_loss_answers() -> None:
    asked = _asked(kind="trade-off", tolerance=0.01)
    peak = asked.question.target.peak_learning_rate
    design = dataclasses.replace(asked.question.design, peaks=[1.0, 0.3, 3.0])
    found = _answer(dataclasses.replace(asked, question=dataclasses.replace(asked.question, design=design)))
    alone = {peak * factor: _answer(asked.at_peak(peak * factor)) for factor in (0.3, 1.0, 3.0)}
    best = min(alone, key=lambda one: alone[one].predicted["code"][0])
    assert found.peak == pytest.approx(best)
    assert found.domain_ratio == alone[best].domain_ratio
    assert len({round(answer.domain_ratio or 0, 3) for answer in alone.values()}) == 3
    assert _answer(asked).peak is None
    low = dataclasses.replace(design, peaks=[0.3])
    only = _answer(dataclasses.replace(asked, question=dataclasses.replace(asked.question, design=low)))
    assert (only.peak, only.domain_ratio) == (pytest.approx(0.3 * peak), alone[0.3 * peak].domain_ratio)


def _of_run(made: Study, question: Question, steps: int = 1, **goal: Any) -> Context:
    """A goal of a study on disk, and a run of so many steps."""
    target, studies = dataclasses.replace(question.target, steps=steps), str(made.folder.parent)
    own = dataclasses.replace(question, target=target, goal=GoalConfig(**goal), studies=studies)
    return Context(own, study_of(own), long_corpora(made, "general", question.corpora.domain), "bf16")


def _longest(made: Study, question: Question) -> float:
    """Tokens of the longest run for the fit."""
    points = Context(question, made).points
    return 1e9 * float(points.loc[points["role"] == "fit", "D"].max())


@pytest.mark.slow
def test_the_laws_that_count_at_the_length_of_the_answer_give_it_and_judge_it(changeable) -> None:
    made, question = changeable
    longest, domain = _longest(made, question), question.corpora.domain
    for times in (0.02, 4.0):
        context = _of_run(made, question, kind="limited-data", domain_tokens=times * longest)
        goal = goal_of(context.question)
        answer = goal.recommend(context, list)
        far = 3 * longest < 1e9 * answer.target.D
        assert far == (times > 1)
        assert all(({*of} == {"dcpt"}) == far for of in answer.weights.values()), answer.weights
        runs = goal.confirmation_runs(context.fresh())
        write_runs(made, context.question, add_to_plan(made, runs))
        collect(made, "general")
        rows = compare(context.fresh(), runs, goal.outcome).confirmations
        for row in (row for row in rows if row.recommended):
            # As cptlaw predict does, which is asked about a length.
            laws = answering_laws(_of_run(made, question, row.steps))
            known = laws.loss(find_target(laws.question, laws.points), row.corpus, row.domain_ratio)
            assert (row.predicted, row.low, row.high) == pytest.approx(known, rel=1e-12)
            if row.run == rows[0].run:
                assert row.domain_ratio == pytest.approx((answer.mixture or {})[domain], abs=1e-3)
                assert dataclasses.astuple(answer.predicted[row.corpus]) == pytest.approx(known, rel=1e-3)
        assert len({row.steps for row in rows}) > 1
        # The run beside it, of another length, reads as many tokens of the domain.
        alone = compare(context.fresh(), runs[:1], goal.outcome, goal.steps).outcome
        assert alone.other_ratio == pytest.approx(runs[1].ratio_of(domain))
        assert alone.difference is not None
        losses = {row.run: row.measured for row in rows if row.corpus == domain}
        assert alone.difference.value == pytest.approx(losses[runs[0].name] - losses[runs[1].name])


@pytest.mark.slow
def test_no_run_is_recommended_that_is_too_far_to_predict(changeable) -> None:
    made, question = changeable
    longest = _longest(made, question)
    context = _of_run(made, question, kind="limited-data", domain_tokens=40 * longest)
    answer = goal_of(context.question).recommend(context, list)
    assert 40 * longest <= 1e9 * answer.target.D <= 50.001 * longest
    context = _of_run(made, question, kind="limited-data", domain_tokens=51 * longest)
    allowed = f"goal.domain_tokens: {51 * longest:g}; allowed: up to {50 * longest:g}, 50 times the longest run"
    for step in (goal_of(context.question).recommend, goal_of(context.question).fit):
        with pytest.raises(ConfigError, match=f"^{re.escape(allowed)}"):
            step(context, list)
    notes = goal_of(context.question).plan_notes(context, context.plan).lines
    assert [line for line in notes if line.startswith(allowed)]
    # Another goal is asked about this run alone.
    steps = round(60 * longest / question.tokens_per_step())
    context = _of_run(made, question, steps)
    answer = goal_of(context.question).recommend(context, list)
    assert answer.warnings[0].startswith("not known: 60 times as far as was fitted")
    assert not answer.identified
    assert "is not known yet" in conclude(context.fresh(), answer, None).headline
    cells = [row[0] for row in recommendation_table(answer, context.question).rows]
    assert not [cell for cell in cells if "loss on" in str(cell) or "change on" in str(cell)]
    # The smaller a model, the longer its run of so many FLOPs.
    smallest = min(Context(question, made).points["N"])
    context = _of_run(made, question, kind="compute", flops=6e9 * smallest * 60 * longest, domain_ratio=0.5)
    answer = goal_of(context.question).recommend(context, list)
    cells = [str(row[0]) for row in recommendation_table(answer, context.question).rows]
    tested = {row.model for row in answer.candidates if row.tested}
    assert 0 < len(tested) < len(answer.candidates)
    assert all(any(cell.startswith(f"{row.model}, ") for cell in cells) == row.tested for row in answer.candidates)
    (line,) = [line for line in answer.warnings if "left out, since intervals were tested up to 50 times as" in line]
    assert all((row.model in line) != row.tested for row in answer.candidates)


def test_points_that_do_not_say_where_are_told() -> None:
    asked = _asked(draws=60, wobble=1.5, kind="limited-data", domain_tokens=3e5, most_tokens=6e5)
    assert not _answer(asked).identified


@pytest.mark.parametrize(("flops", "model"), [(2e10, "qwen2-0.3m"), (1e11, "qwen2-0.15m"), (8e11, "qwen2-0.05m")])
def test_the_best_model_for_so_much_compute(flops: float, model: str) -> None:
    asked = _asked(E=60.0, kind="compute", flops=flops, domain_ratio=0.5)
    found = _answer(asked)
    lengths = {name: round(flops / (6e9 * N * asked.question.tokens_per_step())) for name, N in SIZES.items()}
    losses = {name: _losses(asked, "code", 0.5, name, steps)[0] for name, steps in lengths.items()}
    assert found.target.model == model == min(losses, key=lambda name: losses[name])
    assert found.target.steps == lengths[model]
    assert (found.domain_ratio, found.low, found.high) == (0.5, 0.5, 0.5)
    assert {row.model: row.predicted for row in found.candidates} == pytest.approx(losses)
    assert [row.model for row in found.candidates] == list(SIZES)
    N = found.optimum["N"]
    assert 0.999 * SIZES["qwen2-0.05m"] <= N.low <= N.value <= N.high <= 1.001 * SIZES["qwen2-0.3m"]
    sides = {"qwen2-0.3m": "the greatest size", "qwen2-0.15m": "compute", "qwen2-0.05m": "the least size"}
    assert found.binding.startswith(sides[model])


def test_so_much_compute_that_no_run_is_as_long() -> None:
    with pytest.raises(
        ConfigError, match=r"^goal\.flops: 5e\+19; allowed: up to .*, 10,000,000 steps of qwen2-0\.05m$"
    ):
        _answer(_asked(kind="compute", flops=5e19, domain_ratio=0.5))


def test_without_a_share_each_model_takes_what_general_can_bear() -> None:
    asked = _asked(kind="compute", flops=2e11)
    found = _answer(asked)
    for row in found.candidates:
        before = find_target(asked.question, asked.points, row.model).before["general"]
        rise = _losses(asked, "general", row.domain_ratio, row.model, row.steps)[0] / before - 1
        assert rise == pytest.approx(0.03, abs=1e-4) or (row.domain_ratio == 1 and rise < 0.03)


def test_the_law_that_predicted_held_out_points_best_weighs_most(changeable) -> None:
    study, question = changeable
    (study.folder / "confirmation.json").unlink()
    general, domain = question.corpora.general, question.corpora.domain
    tested = read_back_test(study)
    law_of = {general: "transfer-anchored", domain: "dcpt"}
    better = tested["law"] == tested["corpus"].map(law_of)
    tested["measured"] = tested["predicted"] * np.where(better, 1.001, 1.05)
    tested.to_parquet(study.folder / "fits" / "held_out.parquet")
    answer = goal_of(question).recommend(Context(question, study), list)
    assert answer.law == {general: "average", domain: "average"}
    for corpus, law in law_of.items():
        assert answer.weights[corpus][law] > 0.8
        assert sum(answer.weights[corpus].values()) == pytest.approx(1)
    # The ratio follows from the general loss: it lies among those of the laws, near the one that weighs most.
    alone = {law: one.domain_ratio or 0.0 for law, one in answer.answers.items()}
    ratio = (answer.mixture or {})[domain]
    assert min(alone.values()) - 1e-3 <= ratio <= max(alone.values())
    assert abs(ratio - alone["transfer-anchored"]) <= min(abs(ratio - one) for one in alone.values()) + 1e-3
    shown = write_pages(Context(question, study))[0].read_text()
    assert f"weights by held-out errors: on {general} transfer-anchored" in shown
