"""goal=trade-off: the largest domain ratio at which the general loss stays within the tolerance."""

from math import inf

from pipeline.goals.ratio.answering_laws import AnsweringLaws, Solution, at_best_peak
from pipeline.goals.ratio.confirm import tolerance_outcome
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation
from pipeline.study.target import find_target


class TradeOffGoal(LawGoal):
    """Usage 1 of the D-CPT Law."""

    keys = ("tolerance",)

    def solve(self, laws: AnsweringLaws) -> Solution:
        """The answer, at the peak learning rate of `design` with the smallest domain loss."""
        _, domain = laws.corpora
        return at_best_peak(laws, _at_one_peak, lambda found: found.predicted[domain][0] if found.predicted else inf)

    def outcome(self, question: Question, recommendation: Recommendation, rows: list[ConfirmationRow]) -> Outcome:
        return tolerance_outcome(question, recommendation, rows)

    def constraint(self, question: Question) -> str:
        tolerance = 100 * question.goal.tolerance
        asked = f"has to fall by {-tolerance:.3g}%" if tolerance < 0 else f"may rise by {tolerance:.3g}%"
        return f"The loss on {question.corpora.general} {asked}."


def _at_one_peak(laws: AnsweringLaws) -> Solution:
    target = find_target(laws.question, laws.points)
    answer = laws.trade_off(target)
    losses = [answer.predicted[kind] for kind in ("general", "domain") if answer.predicted]
    interval = answer.domain_ratio, answer.low, answer.high
    wide = answer.low is not None and answer.low <= 0.0 and (answer.high or 0.0) >= 1.0
    predicted = dict(zip(laws.corpora, losses))
    return Solution(target, *interval, predicted, answer.status.message, answer.warnings, not wide)
