"""`goal.change_at`: what a study answers, what it says of it, and the run that its words train."""

import dataclasses
import shlex
from pathlib import Path

import pandas as pd
import pytest

from pipeline.goals.ratio.answering_laws import CHANGE_LAW as LAW
from pipeline.goals.ratio.answering_laws import AnsweringLaws, change_lines, mixture_changes
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.phases import pieces
from pipeline.show.tables import recommendation_table
from pipeline.study.artifacts import Recommendation, RecommendedChange
from pipeline.study.context import Context
from pipeline.study.fits import HELD_OUT
from pipeline.study.folder import Study
from pipeline.study.target import find_target
from tests.fitting.given import given
from training.schedule import learning_rates

WORDS = ["experiment=quickstart", "mixture=ratios", f"law=[{LAW}]", "goal.tolerance=0.05"]
PARAMS = {"C2": 0.5, "C": 0.1, "G": 0.2, "eps": 0.01, "E": 300.0, "beta": 0.1, "delta": 0.17, "eta": 0.05}
CHANGE = RecommendedChange(0.8, 0.5, 0.25, {"general": 3.1, "code": 3.9}, -0.1, better=True)


def _asked(*words: str, **domain: float) -> AnsweringLaws:
    question = read_question([*WORDS, *words])
    facts = {"run": "pretraining", "phase": "pretrain", "role": "pretrain", "model": question.model.name}
    facts |= {"N": 3e-4, "s1_pretrain": 2.0, "learning_rate": 3e-4}
    rows = [
        {**facts, "step": 1200, "D": 0.002, "corpus": corpus, "r": ratio, "loss": loss}
        for corpus, ratio, loss in (("general", 1.0, 3.0), ("code", 0.0, 5.0))
    ]
    # General text that is learned again as fast as at first.
    params = {"general": {**PARAMS, "eta": 1.0, "lambda": 0.9}, "code": {**PARAMS, "lambda": 0.9, **domain}}
    fits = {corpus: {LAW: given(LAW, own, draws=4)} for corpus, own in params.items()}
    return AnsweringLaws(question, pd.DataFrame(rows), fits, dict.fromkeys(fits, LAW))


def test_each_time_is_answered_for_the_schedule_of_the_run() -> None:
    asked = _asked("goal.change_at=[0.5,0.75]", delta=0.9)
    question, target = asked.question, find_target(asked.question, asked.points)
    found = mixture_changes(asked, target)
    assert [change.at for change in found] == [0.5, 0.75]
    rates = learning_rates(pieces(dataclasses.replace(question.continual, steps=target.steps)), target.steps, 3e-4)
    for change in found:
        # Half of the steps of a cosine are more than half of its S1.
        s1_first = rates[: round(change.at * target.steps)].sum()
        ratios = {"general": (1 - change.before, 1 - change.after), "code": (change.before, change.after)}
        for corpus, (first, last) in ratios.items():
            fit = asked.fits[corpus][LAW]
            own = {**target.columns(corpus, fit), "r_first": first, "r": last, "s1_first": s1_first}
            assert fit.predict(pd.DataFrame([own]))[0] == pytest.approx(change.predicted[corpus])
        assert change.before > change.after
        assert change.difference < 0


def test_one_mixture_is_kept_where_a_change_is_not_better() -> None:
    asked = _asked("goal.change_at=[0.5]")
    (line,) = change_lines(asked.question, mixture_changes(asked, find_target(asked.question, asked.points)))
    assert line.startswith("keep one mixture: a change lowers the loss on code by ")
    nothing = dataclasses.replace(CHANGE, after=0.5, difference=0.0, better=False)
    assert "by none; such differences are missed by 0.06 nats" in next(change_lines(asked.question, [nothing]))
    assert not list(change_lines(asked.question, []))


def test_the_words_of_a_better_change_train_its_run() -> None:
    question = read_question(WORDS)
    worse = dataclasses.replace(CHANGE, at=0.5, difference=-0.08)
    (line,) = change_lines(question, [worse, CHANGE])
    assert "after 80% of the steps, from 0.500 to 0.250 code, may lower its loss by 0.100 nats" in line
    own = read_question([*WORDS[:2], *shlex.split(line.partition("study of its own with ")[2])])
    (run,) = [run for run in planned_runs(estimate(own)) if run.spec.phases and not run.spec.seed]
    assert (run.model, run.spec.steps) == (question.model.name, question.target.steps)
    parts = [(stop - start, mixture["code"]) for start, stop, mixture in run.spec.mixtures]
    total = sum(sequences for sequences, _ in parts)
    assert [(sequences / total, ratio) for sequences, ratio in parts] == [(0.8, "1/2"), (0.2, "1/4")]


def test_an_answered_study_keeps_its_changes_and_prints_them(tmp_path: Path) -> None:
    asked, study = _asked("goal.change_at=[0.5]", delta=0.9), Study(tmp_path)
    held_out = tmp_path / study.fitted("fits") / "held_out.parquet"
    held_out.parent.mkdir()
    pd.DataFrame(columns=[*HELD_OUT]).to_parquet(held_out)
    context = Context(asked.question, study)
    vars(context).update(points=asked.points, fits=asked.fits)
    content = goal_of(asked.question).recommend(context, list)
    (change,) = content.changes
    target = find_target(asked.question, asked.points)
    assert Recommendation.read(study).changes == [change] == mixture_changes(asked, target)
    assert next(change_lines(asked.question, [change])) in content.warnings
    same = dataclasses.replace(change, after=change.before)
    rows = recommendation_table(dataclasses.replace(content, changes=[change, same]), asked.question).rows
    ratios = f"{change.before:.2f} to {change.after:.2f}"
    assert ["change at 50%", ratios, f"{change.difference:+.4f} on code"] in rows
    assert ["change at 50%", "none", ""] in rows
