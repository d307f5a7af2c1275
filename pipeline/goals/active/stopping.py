"""Whether an answer within design.tolerance is enough to choose no further runs."""

from collections.abc import Sequence

from pipeline.goals.active.history import ChosenRun, DesignRound
from pipeline.question.design import candidate_peaks
from pipeline.question.schema import Question


def agrees(last: DesignRound, one: DesignRound) -> bool:
    """Whether the round before was as narrow and near: the first narrow interval may be so by chance.

    One that cptlaw refine asked for has no answer of fits, only the posterior's, which is narrower.
    """
    if last.more or last.unsettled or last.answer is None or last.half_width is None or one.answer is None:
        return False
    return last.half_width <= one.tolerance and abs(last.answer - one.answer) <= one.tolerance


def encloses(question: Question, runs: Sequence[ChosenRun], one: DesignRound) -> bool:
    """Whether runs of the target's model and length enclose the interval: only extrapolated ones were wrong."""
    if question.goal_kind.design_question != "trade_off" or len(candidate_peaks(question)) > 1:
        return False
    assert one.answer is not None
    assert one.half_width is not None
    ratios = [
        run.domain_ratio for run in runs if (run.model, run.steps) == (question.model.name, question.target.steps)
    ]
    low, high = max(one.answer - one.half_width, 0.0), min(one.answer + one.half_width, 1.0)
    return bool(ratios) and min(ratios) <= low and high <= max(ratios)
