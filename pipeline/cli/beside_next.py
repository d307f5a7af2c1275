"""What is said before the next command: runs that are trained now, and an answer to another question."""

from collections.abc import Sequence

from pipeline.done import open_runs
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.registry import goal_of
from pipeline.study.artifacts import Recommendation, read_if_there
from pipeline.study.context import Context
from pipeline.study.status import statuses
from training.durable import is_at_work_in


def running_line(context: Context) -> str:
    """How many runs a process of this machine, or of another, trains now, and what shows them; empty: none.

    A command that trains may also fit laws between two runs, on this machine.
    """
    runs = [] if context.question.launcher.elsewhere else open_runs(context)
    rows = statuses(context.study, runs, context.question.launcher.stale_after)
    roles, word = [row.run.role for row in rows if row.state == "running"], context.study.word
    if {*roles} == {"confirm"}:
        shows = f"cptlaw confirm {word} shows their progress, and compares them"
        return f"running now: {len(roles)} to confirm the answer; {shows}"
    shows = f"cptlaw train {word} shows their progress, and ends when all runs are done"
    if not (roles or context.question.launcher.elsewhere) and is_at_work_in(context.study.folder):
        return "running now: a command like cptlaw train, which between two runs fits laws or chooses further runs"
    return f"running now: {len(roles)}; {shows}" if roles else ""


def other_question_line(words: Sequence[str], context: Context) -> str:
    """That the words ask another question than the one that was answered; empty: they do not.

    Raises:
        StudyError: the answer is damaged.
    """
    goal, answer = goal_of(context.question), read_if_there(Recommendation, context.study)
    if answer is None or not isinstance(goal, LawGoal) or not any("=" in word for word in words):
        return ""
    changed = goal.asked_otherwise(context.question, answer)
    return f"the recommendation is out of date: it answers {changed[0]}, {changed[1]} is asked" if changed else ""
