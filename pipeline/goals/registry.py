"""The goals by the name that goal.kind has, and questions read with the checks of their goal."""

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import partial

from omegaconf import OmegaConf

from pipeline.goals.goal import Goal
from pipeline.goals.ratio.balance_goal import BalanceGoal
from pipeline.goals.ratio.compute_goal import ComputeGoal
from pipeline.goals.ratio.limited_data_goal import LimitedDataGoal
from pipeline.goals.ratio.trade_off_goal import TradeOffGoal
from pipeline.goals.weights.goal import WeightsGoal
from pipeline.question import loading
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import IMPORTED, study_of

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


OF_RUNS = re.compile(r"(pretrain|mixture|ladder|sequence_length|corpora\.sources|model)\b")
"""How a key of the runs for the fit begins, which no later verb may change: what follows on it asks study.yaml."""


def refuse_other_runs(question: Question, verb: str, overrides: Iterable[str]) -> None:
    """Raise ConfigError, a line each, for overrides that change keys of the runs which a study was planned with."""
    study = study_of(question)
    words = [*overrides]
    given = {word.split("=")[0].split("@")[-1].lstrip("+~"): word for word in words}
    given = {key: word for key, word in given.items() if OF_RUNS.match(key)}
    if all("=" in word for word in words):
        # Without a folder the words may be those of an earlier plan: which runs and text it had changes no answer.
        given = {key: word for key, word in given.items() if not re.match(r"mixture|corpora", key)}
    if verb not in ("fit", "recommend", "confirm") or not given or not (study.folder / "study.yaml").exists():
        return
    planned, asked = map(OmegaConf.structured, (question_of_study(study.folder, [], again=False), question))
    problems, trains = [], question.model.path != IMPORTED
    for key, word in given.items():
        # A model that was imported is asked about by its name.
        if OmegaConf.select(planned, key) == OmegaConf.select(asked, key) or (key == "model.name" and not trains):
            continue
        remedies = [f"give target.{word} to ask about a run of such sequences"] * (key == "sequence_length")
        if key == "model.name":
            remedies = [f"or cptlaw predict {study.word} domain_ratio=RATIO {shlex.quote(word)} has its losses"]
        elif trains:
            remedies += [f"or first cptlaw train {study.word} {shlex.quote(word)}, which trains others"]
        remedy = ", ".join(["leave it out", *remedies])
        problems.append(f"{word}: {verb} cannot change the runs of the study; {remedy}")
    if problems:
        raise ConfigError(problems)


def refuse_keys_of_answers(overrides: Iterable[str]) -> None:
    """Raise ConfigError, a line each, for keys of an answer or its confirmation, on which no predicted loss depends."""
    of_answers = r"(goal\.(?!kind\b)|confirm\.|design\.tolerance=)"
    if unread := [word.partition("=")[0] for word in overrides if re.match(of_answers, word)]:
        why = "predict does not read it: its losses are those of domain_ratio; leave it out"
        raise ConfigError([f"{key}: {why}, or give it to cptlaw recommend" for key in unread])


def unread_keys(question: Question, overrides: Iterable[str]) -> Iterator[str]:
    """A line for each key among overrides that is read only with a goal of another kind."""
    keys = [word.split("=")[0] for word in overrides if "=" in word]
    for name in (key.removeprefix("goal.") for key in keys if key.startswith("goal.")):
        others = [kind for kind, goal in GOALS.items() if name in goal.keys]
        if name != "tolerance" and others and question.goal.kind not in others:
            yield f"goal.{name}: not read with goal.kind={question.goal.kind}; goal={others[0]} reads it"


read_question = partial(loading.read_question, goal_problems=goal_problems)
load_question = partial(loading.load_question, goal_problems=goal_problems)
question_of_study = partial(loading.question_of_study, goal_problems=goal_problems)
checked = partial(loading.checked, goal_problems=goal_problems)
