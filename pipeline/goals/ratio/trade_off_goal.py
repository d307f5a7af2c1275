"""goal=trade-off: the largest domain ratio at which the general loss stays within the tolerance."""

from math import inf

import numpy as np

from pipeline.goals.ratio.answering_laws import AnsweringLaws, Solution, at_best_peak
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcomes import NO_RUNS, Others, Rows, tolerance_outcome
from pipeline.question.schema import Question
from pipeline.study.artifacts import Outcome, Recommendation
from pipeline.study.number_format import signed
from pipeline.study.target import find_target

LEAST_WIDTH = 0.01
"""Half-width of an interval of the loss increase that is not too wide, whatever the tolerance."""


class TradeOffGoal(LawGoal):
    """Usage 1 of the D-CPT Law."""

    keys = ("tolerance",)

    def solve(self, laws: AnsweringLaws) -> Solution:
        """The answer, at the peak learning rate of `design` with the smallest domain loss."""
        _, domain = laws.corpora
        return at_best_peak(laws, _at_one_peak, lambda found: found.predicted[domain][0] if found.predicted else inf)

    def outcome(self, question: Question, answer: Recommendation, rows: Rows, others: Others = NO_RUNS) -> Outcome:
        return tolerance_outcome(question, answer, rows, others)

    def constraint(self, question: Question) -> str:
        tolerance = 100 * question.goal.tolerance
        words = f"has to fall by {-tolerance:.3g}%" if tolerance < 0 else f"may rise by {tolerance:.3g}%"
        return f"The loss on {question.corpora.general} {words}."

    def too_wide(self, question: Question, answer: Recommendation) -> str:
        """Where all of the interval is within what is allowed, as at 100% domain, it need not be narrow."""
        general, tolerance = question.corpora.general, answer.goal.tolerance
        if general not in answer.predicted:
            return ""
        loss, before = answer.predicted[general], answer.loss_before[general]
        low, high = (side / before - 1 for side in (loss.low, loss.high))
        if not is_too_wide(low, high, tolerance):
            return ""
        ends = f"{signed(low, 1)} to {signed(high, 1)}"
        return f"the change of the loss on {general} is predicted as {ends}, where {asked(tolerance)}"


def is_too_wide(low: np.ndarray | float, high: np.ndarray | float, tolerance: np.ndarray | float) -> np.ndarray:
    """Whether intervals of loss increases say too little of whether tolerances are kept, of one shape.

    >>> is_too_wide(np.array([-0.06, -0.06]), np.array([0.09, 0.01]), 0.02).tolist()
    [True, False]
    """
    return ((high - low) / 2 > np.maximum(np.abs(tolerance), LEAST_WIDTH)) & (high > tolerance)


def asked(tolerance: float) -> str:
    """What is asked of the loss increase, in words.

    >>> asked(0.03), asked(-0.01)
    ('3% is allowed', '1% was asked')
    """
    return f"{100 * abs(tolerance):.3g}% {'is allowed' if tolerance >= 0 else 'was asked'}"


def _at_one_peak(laws: AnsweringLaws) -> Solution:
    target = find_target(laws.question, laws.points)
    answer = laws.trade_off(target)
    losses = [answer.predicted[kind] for kind in ("general", "domain") if answer.predicted]
    interval = answer.domain_ratio, answer.low, answer.high
    wide = answer.low is not None and answer.low <= 0.0 and (answer.high or 0.0) >= 1.0
    predicted = dict(zip(laws.corpora, losses))
    return Solution(target, *interval, predicted, answer.status.message, answer.warnings, not wide)
