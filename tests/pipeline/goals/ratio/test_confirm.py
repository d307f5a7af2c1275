"""Confirmation runs beside those of other seeds and of earlier answers."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from fitting.law_average import AVERAGE
from pipeline.done import is_answer_confirmed
from pipeline.goals.ratio import confirm as confirming
from pipeline.goals.ratio.confirm import Place, compare, confirmation_runs
from pipeline.goals.registry import goal_of
from pipeline.plan.write import add_to_plan
from pipeline.question.schema import Question
from pipeline.show.report.pages import write_pages
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.folder import Study
from pipeline.study.number_format import percent
from tests.pipeline.show.report.report_study import HOSTILE_CORPUS, long_corpora, write_runs


def test_runs_of_other_seeds_and_earlier_answers_are_named(whole: tuple[Study, Question], tmp_path: Path) -> None:
    study, question = Study(tmp_path / whole[0].folder.name), whole[1]
    shutil.copytree(whole[0].folder, study.folder)
    question = dataclasses.replace(question, studies=str(tmp_path))
    context = Context(question, study, long_corpora(study, "general", HOSTILE_CORPUS), "bf16")
    answer, first = Recommendation.read(study), Confirmation.read(study)
    ratio, target = (answer.mixture or {})[HOSTILE_CORPUS], answer.target
    near = round(ratio - 0.01, 3)
    assert "Not counted" not in first.outcome.sentence

    def compared(seeds: int, *ratios: float) -> Confirmation:
        asked = [Place(target.model, own, target.steps) for own in ratios]
        seen = {run.spec.hash for run in context.plan if run.role == "confirm"}
        confirm = dataclasses.replace(question.confirm, seeds=seeds)
        runs = confirmation_runs(context.asking(dataclasses.replace(question, confirm=confirm)), asked, seen)
        write_runs(study, question, add_to_plan(study, runs))
        collect(study, "general")
        return compare(context.fresh(), runs, goal_of(question).outcome)

    made = compared(1, ratio).outcome
    said, row = made.sentence, first.confirmations[0]
    beside = max(place.domain_ratio for place in first.outcome.places)
    # The line takes the nearest runs, whoever read them; what is not counted is so as a test alone.
    ends = f"at {percent(ratio)} and {percent(beside)}, whether or not the fit has read them, it is reached at "
    assert f"; on a line between the nearest of these runs and others of the study, {ends}" in said
    assert made.crossing
    assert ratio < made.crossing.value < beside
    # By the loss of the earlier run there, of another seed.
    high = next(place.measured for place in first.outcome.places if place.domain_ratio == beside) / row.before - 1
    low = made.places[0].measured / row.before - 1
    part = (question.goal.tolerance - low) / (high - low)
    assert made.crossing.value == pytest.approx(ratio + part * (beside - ratio))
    earlier = f"{row.measured / row.before - 1:+.2%} at {100 * ratio:.3g}% (seed 0)"
    assert f"Not counted as a test of the prediction, since it was for another answer: {earlier}; both runs at" in said
    assert "kept to" not in said
    plan, runs = study.read_plan(), study.read_plan()[-1:]
    study.write_plan(dataclasses.replace(run, role="fit") if run.name == row.run else run for run in plan)
    wide = context.asking(dataclasses.replace(question, goal=dataclasses.replace(question.goal, tolerance=0.5)))
    judged = compare(wide.fresh(), runs, goal_of(question).outcome).outcome
    assert (
        f"Not counted as a test of the prediction, since the fit has read it: {earlier}; both runs at"
        in judged.sentence
    )
    assert judged.sentence.endswith(f" Another run of the study, at {percent(beside)}, kept to 50% as well.")
    study.write_plan(plan)
    assert re.search(r" together: [+-]\d.\d\d% in the mean, standard deviation \d.\d\d points.$", said)
    said = compared(1, near).outcome.sentence
    assert said.count("(seed ") == 2
    assert "together" not in said
    said = compared(2, ratio).outcome.sentence
    assert ", the mean of seeds with a standard deviation of " in said
    assert "others of the study" not in said


def test_each_row_has_the_weight_of_its_law_at_its_place(
    changeable: tuple[Study, Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, question = changeable
    context = Context(question, study)
    runs = [run for run in context.plan if run.role == "confirm"]
    ratio, *_, beside = sorted(run.ratio_of(HOSTILE_CORPUS) for run in runs)
    fits = context.fits
    # The law that was fitted to no run below 90% has no part at the least ratio that the other one was fitted to.
    for law, least in {"dcpt": 0.9, "transfer-anchored": ratio}.items():
        fit = fits[HOSTILE_CORPUS][law]
        fits[HOSTILE_CORPUS][law] = dataclasses.replace(fit, ranges=fit.ranges | {"r": (least, 1.0)})
    rows = compare(context, runs, goal_of(question).outcome).confirmations
    weights = {(row.domain_ratio, row.law): row.weight for row in rows if row.corpus == HOSTILE_CORPUS}
    assert (weights[ratio, "dcpt"], weights[ratio, "transfer-anchored"], weights[ratio, AVERAGE]) == (0.0, 1.0, None)
    assert 0 < (weights[beside, "dcpt"] or 0.0) < 0.2
    assert {row.weight for row in Confirmation.read(study).confirmations} >= {0.0, 1.0, None}
    # A law that does not see so far is not in the average at all.
    monkeypatch.setattr(confirming, "horizon_weights", lambda *_: {of: {"transfer-anchored": 1.0} for of in fits})
    rows = compare(context, runs, goal_of(question).outcome).confirmations
    assert {row.weight for row in rows if row.law == "dcpt"} == {0.0}


@pytest.mark.slow
def test_a_balance_is_compared_and_confirmed(changeable: tuple[Study, Question]) -> None:
    study, question = changeable
    goal = dataclasses.replace(question.goal, kind="balance", weight=0.7)
    question = dataclasses.replace(question, studies=str(study.folder.parent), goal=goal)
    context = Context(question, study, long_corpora(study, "general", HOSTILE_CORPUS), "bf16").asking(question)
    kind, seen = goal_of(question), set[str]()
    # Of the trade-off of the same study.
    before = sorted(run.ratio_of(HOSTILE_CORPUS) for run in context.plan if run.role == "confirm")
    for count in (1, 2):
        answer = kind.recommend(context.fresh(), list)
        ratio, target = (answer.mixture or {})[HOSTILE_CORPUS], answer.target
        asked = [Place(target.model, own, target.steps) for own in (ratio, round(ratio - 0.15, 3))]
        runs = confirmation_runs(context, asked, seen)
        write_runs(study, question, add_to_plan(study, runs))
        outcome = kind.confirm(context.fresh(), runs).outcome
        seen |= {run.spec.hash for run in runs}
        assert outcome.corpus == f"0.7 general + 0.3 {HOSTILE_CORPUS}"
        assert len(outcome.places) == 2
        assert re.search(
            rf"the lowest of the other runs, others of the study among them, at {percent(before[0])}; the minimum may "
            rf"be at [\d.]+%, [\d.]+%, {', '.join(map(percent, before))}: by one seed no place can be ruled out",
            outcome.sentence,
        )
        assert ("Not counted" in outcome.sentence) == (count == 2)
        assert outcome.other_ratio == before[0]
    rows = Confirmation.read(context.study).confirmations
    both = {row.corpus: row.measured for row in rows if row.run == runs[0].name}
    measured = 0.7 * both["general"] + 0.3 * both[HOSTILE_CORPUS]
    assert outcome.places[outcome.at].measured == pytest.approx(measured)
    assert is_answer_confirmed(context.fresh())
    assert "the loss on 0.7 general" in write_pages(context.fresh())[0].read_text()
