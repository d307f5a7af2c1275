"""The goals by the name that goal.kind has, and questions read with the checks of their goal."""

import re
from collections.abc import Iterable, Iterator
from functools import partial

from pipeline.goals.goal import Goal
from pipeline.goals.ratio.balance_goal import BalanceGoal
from pipeline.goals.ratio.compute_goal import ComputeGoal
from pipeline.goals.ratio.limited_data_goal import LimitedDataGoal
from pipeline.goals.ratio.trade_off_goal import TradeOffGoal
from pipeline.goals.weights.goal import WeightsGoal
from pipeline.question import loading
from pipeline.question.schema import Question

GOALS: dict[str, Goal] = {
    "trade-off": TradeOffGoal(),
    "limited-data": LimitedDataGoal(),
    "compute": ComputeGoal(),
    "weights": WeightsGoal(),
    "balance": BalanceGoal(),
}
"""goal.kind -> its implementation; `GOAL_KINDS` of pipeline.question.schema has the same names."""


def goal_of(question: Question) -> Goal:
    """The implementation of a question's goal. Raises KeyError: goal.kind is unknown, which the preflight reports."""
    return GOALS[question.goal.kind]


def goal_problems(question: Question) -> Iterator[str]:
    """A line for each mistake in the keys that only the goal of a question reads."""
    return goal_of(question).problems(question) if question.goal.kind in GOALS else iter(())


OF_RUNS = re.compile(r"(pretrain|mixture|ladder|sequence_length|corpora\.sources)\b")
"""How a key of the runs for the fit begins, which only the verbs of the way to them read."""


def unread_keys(question: Question, verb: str, overrides: Iterable[str]) -> Iterator[str]:
    """A line for each key among a verb's overrides that it does not read, or only with a goal of another kind."""
    words = [*overrides]
    keys = [word.split("=")[0] for word in words if "=" in word]
    # Without a folder the words are those of the question.
    if verb in ("fit", "recommend", "confirm") and len(keys) < len(words):
        for key in filter(OF_RUNS.match, keys):
            yield f"{key}: of the runs for the fit, which {verb} leaves as they are; cptlaw plan and train change them"
    for name in (key.removeprefix("goal.") for key in keys if key.startswith("goal.")):
        others = [kind for kind, goal in GOALS.items() if name in goal.keys]
        if name != "tolerance" and others and question.goal.kind not in others:
            yield f"goal.{name}: not read with goal.kind={question.goal.kind}; goal={others[0]} reads it"


read_question = partial(loading.read_question, goal_problems=goal_problems)
load_question = partial(loading.load_question, goal_problems=goal_problems)
question_of_study = partial(loading.question_of_study, goal_problems=goal_problems)
checked = partial(loading.checked, goal_problems=goal_problems)
