"""Whether a study's folder holds what each step makes, of the question and the runs as they are now."""

import contextlib
import hashlib
from itertools import product
from pathlib import Path

from pipeline.goals.active.history import awaits_round, read_rounds
from pipeline.goals.active.outlook import begins_again
from pipeline.goals.ratio.confirm import import_remedy
from pipeline.goals.registry import goal_of
from pipeline.plan.runs import by_domain
from pipeline.question.design import is_active
from pipeline.study.artifacts import Confirmation, Export, Recommendation, read_if_there
from pipeline.study.collect import read_points
from pipeline.study.context import Context
from pipeline.study.fits import POINTS, fit_file, refuse_other_points, unfitted_laws
from pipeline.study.fitted_points import are_all_fitted
from pipeline.study.folder import PlannedRun, StudyError, question_yaml
from pipeline.study.status import ended_points, is_confirmed, is_followed
from training.durable import read_text


def is_planned(context: Context) -> bool:
    """Whether the plan is of this question."""
    path = context.study.folder / "study.yaml"
    return bool(context.plan) and path.exists() and read_text(path) == question_yaml(context.question)


def is_trained(context: Context) -> bool:
    """Whether every run for the fit is done; where results decide on further runs, train itself finds out."""
    return not goal_of(context.question).is_staged(context.question) and has_trained(context)


def is_fitted(context: Context) -> bool:
    """Whether an answer to a goal of this kind was made by fits of these laws to all points, whatever else it asked."""
    question, path = context.question, Recommendation.path(context.study)
    if question.goal_kind.many_domains or not_collected(context) or not path.exists():
        return False
    answer = Recommendation.read(context.study)
    asked = {*question.law} - unfitted_laws(context.study)
    same_laws = all({*of_law} == asked for of_law in answer.fit_points.values())
    same = answer.goal.kind == question.goal.kind and same_laws and answer.fits in ("", context.fits_digest)
    same = same and answer.points in ("", context.points_digest)
    return same and are_all_fitted(answer.fit_points, context.points, question)


def is_refitted(context: Context) -> bool:
    """Whether all laws of the question were fitted to the points that there are now, since the answer or without one.

    Of a fit that was stopped some may be of the one before.
    """
    study, question = context.study, context.question
    if question.goal_kind.many_domains or not_collected(context) or not (study.folder / study.fitted(POINTS)).exists():
        return False
    asked = product(context.corpora, {*question.law} - unfitted_laws(study))
    if not all(fit_file(study, corpus, law).exists() for corpus, law in asked):
        return False
    with contextlib.suppress(StudyError):
        refuse_other_points(study, context.points_digest)
        answer = read_if_there(Recommendation, study)
        return answer is None or answer.fits != context.fits_digest
    return False


def is_answered(context: Context) -> bool:
    """Whether recommendation.json answers this goal by those fits."""
    if not is_fitted(context):
        return False
    answer, question = Recommendation.read(context.study), context.question
    return answer.goal == question.goal and not goal_of(question).outdated(context, answer)


def is_answer_confirmed(context: Context) -> bool:
    """Whether confirmation.json compares all points with this recommendation, not an earlier one, or none is asked."""
    study, question = context.study, context.question
    followed = is_followed(study, question)
    confirmed = followed or is_confirmed(study, context.plan)
    if not confirmed or followed or question.goal_kind.many_domains:
        return confirmed
    made = context.confirmation
    return made is not None and made.is_of(Recommendation.read(study), question.corpora.domain)


def needs_no_job(context: Context) -> bool:
    """Whether no job need go on with a study whose runs are done: each answer is confirmed, or its run is followed."""
    if context.question.goal_kind.many_domains:
        return is_answer_confirmed(context)
    answers = map(context.asking, by_domain(context.question))
    return all(is_answered(answer) and is_answer_confirmed(answer) for answer in answers)


def open_runs(context: Context) -> list[PlannedRun]:
    """The runs of the plan that are neither done nor failed."""
    return [run for run in context.plan if context.study.state(run) == "open"]


def has_trained(context: Context) -> bool:
    """Whether no planned run for the fit is left to train, and no round of runs left to choose by what is measured."""
    if is_active(context.question) and (awaits_round(context.study) or begins_again(context)):
        return False
    return bool(context.plan) and not left_to_fit(context)


def left_to_fit(context: Context) -> list[PlannedRun]:
    """The planned runs for the fit, and what they start from, that are neither done nor failed."""
    return [run for run in open_runs(context) if run.role != "confirm"]


def awaits_refine(context: Context) -> bool:
    """Whether the last round is one that cptlaw refine chose and has not answered with yet, and goes on with here."""
    last = read_rounds(context.study)[-1:]
    if context.question.launcher.elsewhere or not any(one.more and one.trains for one in last):
        return False
    # A study that was planned anew, on other text, has no run of any round.
    if not any(run.role == "fit" and context.study.state(run) == "done" for run in context.plan):
        return False
    answer = read_if_there(Recommendation, context.study)
    return bool(not_collected(context)) or not answer or answer.points not in ("", context.points_digest)


def not_collected(context: Context) -> list[PlannedRun]:
    """The runs for the fit that have not failed, and whose points were not all collected."""
    study = context.study
    plan = [run for run in context.plan if run.role == "fit" and study.state(run) != "failed"]
    ended = ended_points(study, plan)
    collected = read_points(study)["run"].value_counts() if (study.folder / "points.parquet").exists() else {}
    return [run for run in plan if run.name not in ended or ended[run.name] != collected.get(run.name, 0)]


def confirming_import(context: Context) -> str:
    """Which run made elsewhere is still to be imported to confirm the answer; empty: none."""
    many = context.question.goal_kind.many_domains
    return "" if many else import_remedy(context, read_if_there(Recommendation, context.study))


def answer_digest(context: Context) -> str:
    """Digest of recommendation.json, and of confirmation.json where it is."""
    files = [kind.path(context.study) for kind in (Recommendation, Confirmation)]
    known = b"".join(path.read_bytes() for path in files if path.exists())
    return hashlib.blake2b(known, digest_size=8).hexdigest()


def exported(context: Context) -> str:
    """The command that trains by the file which cptlaw export wrote of this answer; empty: there is no such file.

    Once a run was followed, the command that follows it.
    """
    study = context.study
    with contextlib.suppress(StudyError, OSError):
        made, page = read_if_there(Export, study), study.folder / study.answer("follow.html")
        if made and made.answer == answer_digest(context) and Path(made.output).exists():
            is_followed_now = page.exists() and page.stat().st_mtime >= Export.path(study).stat().st_mtime
            follow = f"cptlaw follow {study.word} LOG, unless {page} shows the end of that run"
            return follow if is_followed_now else made.command
    return ""


def confirm_remedy(context: Context, again: bool = False) -> str:
    """What to do to confirm the answer, in words."""
    return confirming_import(context) or f"run cptlaw confirm {context.study.word}{' again' * again}"
