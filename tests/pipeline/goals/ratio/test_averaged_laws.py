"""Which law makes the interval of an average wide."""

from dataclasses import replace

import pytest

from pipeline.goals.ratio import law_goal
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.ratio.averaged_laws import widening_law
from pipeline.goals.registry import goal_of
from pipeline.question.schema import Question
from pipeline.show.conclusion import conclude
from pipeline.study.artifacts import Recommendation
from pipeline.study.context import Context
from pipeline.study.fits import fit_file
from pipeline.study.folder import Study
from pipeline.study.number_format import signed
from pipeline.study.target import find_target


def test_the_law_that_makes_an_interval_wide_is_named(
    changeable: tuple[Study, Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, question = changeable
    context, goal = Context(question, study), goal_of(question)
    assert widening_law(context, Recommendation.read(study)) == ""
    fit = context.fits["general"]["dcpt"]
    low = replace(fit, params=fit.params | {"E": 0.0})
    fit_file(study, "general", "dcpt").write_text(low.to_json())
    context = context.fresh()
    # As an answer whose ratio is known, though its loss is not.
    wide = goal.recommend(context, list)
    ratio = (wide.mixture or {})[context.corpora[1]]
    wide = replace(wide, low=ratio - 0.01, high=ratio + 0.01)
    line, target = widening_law(context, wide), find_target(question, context.points)
    laws = answering_laws(context)
    each = {law: replace(laws, law={"general": law}).loss(target, "general", ratio)[0] for law in question.law}
    change = {law: signed(loss / target.before["general"] - 1, 1) for law, loss in each.items()}
    expected = f"dcpt predicts {change['dcpt']}, transfer-anchored {change['transfer-anchored']}"
    assert line == f"; it is so wide mostly since {expected}"
    assert line in conclude(context, wide, None).headline
    monkeypatch.setattr(law_goal, "answer_rounds", lambda *_: wide)
    goal._recommended(context, (lines := []).append)
    assert f"is allowed{line}; " in lines[-1]
    # Where the other law is as uncertain without it, none is named.
    known = replace(wide.predicted["general"], low=4.0, high=4.05)
    assert widening_law(context, replace(wide, predicted=wide.predicted | {"general": known})) == ""
