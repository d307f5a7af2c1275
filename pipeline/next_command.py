"""Which command is to be given next."""

from collections.abc import Sequence

from pipeline.done import awaits_refine, confirming_import, is_answer_confirmed, left_to_fit
from pipeline.show.conclusion import conclusion_of
from pipeline.steps import step_after
from pipeline.study.context import Context
from pipeline.study.status import is_reported


def next_command(verb: str, context: Context, when_done: Sequence[str]) -> list[str]:
    """The command to give after a verb, verb and words; `when_done`: where no step is left to take here.

    Where the answer is not known it is the one that `Conclusion.remedy` names first. A rehearsal, whose answer says
    nothing, takes its steps all the same.
    """
    step, question = step_after(verb, context), context.question
    if step and verb != "fit" and awaits_refine(context):
        return ["refine", str(context.study.folder)]
    if not (question.rehearsal or question.goal_kind.many_domains):
        # Rounds that ended for another question may choose more runs for this one.
        more_rounds = step == "train" and bool(context.plan) and not left_to_fit(context)
        # What comes before the confirmation may give the answer yet.
        known = conclusion_of(context) if more_rounds or step in ("confirm", "report", "") else None
        if known and known.command and (not more_rounds or known.command[0] == "recommend"):
            return [*known.command]
        if more_rounds and known and known.is_known and is_answer_confirmed(context):
            step = "" if is_reported(context.study) else "report"
    step = "" if step == "confirm" and confirming_import(context) else step
    return [step, str(context.study.folder)] if step else [*when_done]
