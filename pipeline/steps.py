"""The steps from text to report, and which of them can be done now. Nothing else knows their order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from fitting import PointsError
from pipeline.done import (
    has_trained,
    is_answer_confirmed,
    is_answered,
    is_fitted,
    is_planned,
    is_refitted,
    is_trained,
    not_collected,
    open_runs,
)
from pipeline.goals.goal import PlanNotes
from pipeline.goals.planning import Planned, notes_on_text, planned_now, planned_or_estimated, refusals, refused_by_plan
from pipeline.goals.ratio.law_goal import answer_rounds
from pipeline.goals.registry import goal_of
from pipeline.launch.launcher import launch, launcher_of
from pipeline.plan import cost
from pipeline.plan.machine import measured_machine
from pipeline.plan.memory import all_fit, memory_lines
from pipeline.plan.prepared_corpora import changed_corpora, generation_lines, prepare_corpora, refused_text
from pipeline.plan.runs import by_domain
from pipeline.plan.write import add_to_plan, as_planned, precision_note, write_plan
from pipeline.question.data import same_texts
from pipeline.question.design import is_active
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.show.report.pages import write_pages
from pipeline.show.tables import cost_table
from pipeline.show.terminal import print_items, shown, warning_once
from pipeline.show.tracking.mirror import track_answer
from pipeline.study.artifacts import Recommendation
from pipeline.study.collect import collect as collect_points
from pipeline.study.context import Context, context_of
from pipeline.study.folder import StudyError, refuse_read_only
from pipeline.study.status import is_followed, is_reported
from training.corpora.documents import CorpusError
from training.durable import folder_to_fill
from training.run import Exit
from training.spec import SpecError
from training.stop import was_interrupted


def prepare(context: Context, console: Console) -> Exit:
    """Tokenise the corpora, and measure the speed of the models in each precision; a dry run says what it would do."""
    question, study = context.question, context.study
    print_items([*same_texts(question)], console)
    if not context.is_prepared:
        if not question.dry_run and (lines := refused_text(question)):
            raise CorpusError("\n".join(lines))
        # Whether the text, or what a model has yet to write in hours, will be enough is known before.
        planned = planned_or_estimated(context, with_weights=True)
        print_items([*planned.sizes, *planned.text_lines()], console)
    if question.dry_run:
        if launcher_of(question).prepare(context, console) is None:
            what = "the corpora are prepared" if context.is_prepared else "prepare tokenises the corpora here"
            print_items([f"a dry run: {what}, without a job; nothing is written"], console)
        return Exit.DONE
    with folder_to_fill(study.folder):
        refuse_read_only(study)
        if (code := launcher_of(question).prepare(context, console)) is not None:
            return code
        prepare_corpora(question, console.print, console)
        context = context.fresh()
        if machine := measured_machine(context, console.print):
            machine.write(study)
            context = context.fresh()
        # Of text that was there before, too: the runs may be longer by now. A cost may be in measured times.
        print_items(refusals(refused_by_plan(context)) or notes_on_text(context, ()), console)
    return Exit.DONE


def plan(context: Context, console: Console) -> Exit:
    """Write plan.jsonl and print its cost; before prepare, and in a dry run, print the cost only."""
    question = context.question
    if context.is_prepared:
        _refuse_changed_text(context)
    planned = planned_or_estimated(context)
    if planned.missing and question.dry_run and not question.launcher.elsewhere:
        planned = planned_or_estimated(context, measured_machine(planned.context, console.print))
    return _write_and_print(planned, goal_of(question).plan_notes(planned.context, planned.runs), console)


def _write_and_print(planned: Planned, notes: PlanNotes, console: Console) -> Exit:
    """Write a plan, if it is neither an estimate nor a dry run, and print what is known of it."""
    context, runs, missing = planned.context, planned.runs, planned.missing
    question, study = context.question, context.study
    # All of it before a file is written: a damaged machine.json is refused here.
    table, same = cost_table(context, runs), [*same_texts(question)]
    notes_on_cost = [of(runs, question) for of in cost.NOTES]
    notes_on_cost += [precision_note(context, runs), *memory_lines(question, runs), *planned.text_lines()]
    if not (missing or question.dry_run):
        print_items(write_plan(context, runs), console)
    print_items([*question.rehearsal_changes, *same, *planned.sizes, *notes.asked], console)
    console.print(table)
    for note in filter(None, notes_on_cost):
        console.print(note, highlight=False, soft_wrap=True)
    if missing:
        again = "" if question.dry_run else "; run cptlaw prepare, then plan again"
        print_items([f"{missing}: this is an estimate, no plan is written{again}"], console)
        print_items(() if context.is_prepared else generation_lines(question), console)
    else:
        done = sum(study.state(run) == "done" for run in runs)
        where = "a dry run: nothing is written" if question.dry_run else f"written to {study.plan_file}"
        console.print(f"{len(runs)} runs, {done} of them done already; {where}", highlight=False)
    print_items(shown(notes), console)
    # Such runs would not be trained. An estimate says a cost, perhaps of another machine.
    left = [run for run in runs if study.state(run) != "done"]
    return Exit.DONE if missing or all_fit(question, left) else Exit.BAD_CONFIGURATION


def _refuse_changed_text(context: Context) -> None:
    if lines := changed_corpora(context):
        raise CorpusError("\n".join(lines))


def train(context: Context, console: Console) -> Exit:
    """Train the plan of the question, or one run of it; of a staged goal every stage."""
    question, study, goal = context.question, context.study, goal_of(context.question)
    _refuse_changed_text(context)
    if question.dry_run:
        planned = planned_or_estimated(context)
        notes, code = goal.plan_notes(planned.context, planned.runs), Exit.DONE
        if any(study.state(run) != "done" for run in planned.runs):
            code = _write_and_print(planned, notes, console)
        return code or launcher_of(question).show(planned.context, planned.runs, notes.more, console)
    if question.run is not None and study.plan_file.exists():
        return launch(context, console)
    if not context.plan:
        print_items(question.rehearsal_changes, console)  # Else plan did.
    trained, log = None, warning_once(console.print)
    while True:
        # Before planning, so that a command that was stopped between the end of a run and this goes on from here.
        context = context.fresh()
        line = goal.collect_stage(context, log)
        runs = planned_now(context)
        print_items(write_plan(context, runs), console)
        names = {run.name for run in runs if run.role != "confirm"}
        if line:
            console.print(line, highlight=False, soft_wrap=True)
        if trained is not None and names <= trained:
            return Exit.DONE
        if trained is not None and not line:
            console.print(f"next round: {len(names - trained)} more runs", highlight=False)
        code = launch(context, console)
        if code != Exit.DONE or not goal.is_staged(question) or question.run is not None:
            return code
        trained = names


def answer_trained(question: Question, console: Console) -> None:
    """Collect, fit and recommend where rounds have ended without an answer to it; what fails is a line."""
    here = is_active(question) and not question.launcher.elsewhere
    for context in map(context_of, answered_questions(question) if here else ()):
        if is_answered(context) or not has_trained(context):
            continue
        console.print("fitting the laws to all points, as cptlaw recommend does", highlight=False)
        try:
            answer_rounds(goal_of(question), context, console.print)
        except (ConfigError, PointsError, StudyError) as error:
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)


def collect(context: Context, console: Console) -> Exit:
    """Join all points into points.parquet."""
    study = context.study
    if not study.read_plan():
        console.print("nothing to collect: the plan has no runs, because no method of weights.methods needs one")
        return Exit.DONE
    table = collect_points(study, context.question.corpora.general)
    path, runs = study.folder / "points.parquet", table["run"].nunique()
    console.print(f"{len(table):,} points of {runs} runs in {path}", highlight=False)
    of_fit = [run for run in context.plan if run.role == "fit"]
    if (done := sum(study.state(run) == "done" for run in of_fit)) < len(of_fit):
        console.print(f"{done} of {len(of_fit)} runs for the fit are done", highlight=False)
    return Exit.DONE


def fit(context: Context, console: Console) -> Exit:
    """Fit what the goal's recommendation reads."""
    summary = goal_of(context.question).fit(context, console.print)
    track_answer(context.study, context.question)
    print_items(shown(summary), console)
    return Exit.DONE


def recommend(context: Context, console: Console) -> Exit:
    """Answer the goal and write recommendation.json; CRASH where nothing meets it."""
    goal = goal_of(context.question)
    answer = goal.recommend(context, console.print)
    print_items(shown(answer, context.fresh()), console)
    for line in goal.what_would_sharpen(context, answer, console.print):
        console.print(f"note: {line}", highlight=False, markup=False, soft_wrap=True)
    return Exit.CRASH if isinstance(answer, Recommendation) and answer.mixture is None else Exit.DONE


def confirm(context: Context, console: Console) -> Exit:
    """Train runs that the fit has not seen, at the answer and around it, and compare."""
    question, study, goal = context.question, context.study, goal_of(context.question)
    elsewhere = question.launcher.elsewhere
    # Short runs of a next round may be done before the job of this round comes here.
    if elsewhere and goal.is_staged(question) and (waiting := not_collected(context)):
        console.print(f"not confirmed yet: {len(waiting)} runs for the fit are not in the answer", highlight=False)
        return Exit.DONE
    if any(run.imported for run in context.plan):
        runs = goal.imported_runs(context)
    else:
        if late := [run for run in not_collected(context) if study.state(run) == "done"]:
            again = ", ".join(f"cptlaw {name} {study.word}" for name in ("collect", "fit", "recommend"))
            count = f"{len(late)} of the runs for the fit, like {late[0].name}"
            raise StudyError(f"{study.folder}: {count}, ended since cptlaw collect; run {again} first")
        runs = goal.confirmation_runs(as_planned(context))
        add_to_plan(study, runs)
        print_items(goal.why_these(context, runs), console)
        if not elsewhere or any(study.state(run) != "done" for run in runs):
            code = launch(context, console, runs)
            if code != Exit.DONE or any(study.state(run) != "done" for run in runs):
                return code  # DONE: they are queued, and behind them the job that compares.
            add_to_plan(study, runs)  # A plan that was written meanwhile left out those that had not begun.
    print_items(shown(goal.confirm(context.fresh(), runs), context.fresh()), console)
    return Exit.DONE


def report(context: Context, console: Console) -> Exit:
    """Write report.html."""
    for path, name in zip(write_pages(context), ("report", "all domains")):
        console.print(f"{name}: {path}", highlight=False)
    track_answer(context.study, context.question)
    return Exit.DONE


@dataclass(frozen=True)
class Step:
    """A step of a study; each is safe to repeat."""

    run: Callable[[Context, Console], Exit]
    """Carries it out; DONE also where it has queued runs on a cluster, behind which a job goes on."""
    is_done: Callable[[Context], bool]
    """Whether the folder holds what it makes, of the question and the runs as they are now."""
    of_answer: bool = False
    """Whether it is about one of several domains of a study, and not about all."""
    is_queued: Callable[[Context], bool] = lambda context: False
    """Whether it has left work to a cluster that is not done yet."""


STEPS = {
    "prepare": Step(
        prepare,
        lambda context: not (context.unprepared or changed_corpora(context)),
        is_queued=lambda context: not context.is_prepared,
    ),
    "plan": Step(plan, is_planned),
    "train": Step(train, is_trained, is_queued=lambda context: bool(open_runs(context))),
    "collect": Step(collect, lambda context: not not_collected(context)),
    "fit": Step(fit, is_fitted, of_answer=True),
    "recommend": Step(recommend, is_answered, of_answer=True),
    "confirm": Step(confirm, is_answer_confirmed, of_answer=True, is_queued=lambda context: bool(open_runs(context))),
    "report": Step(report, lambda context: False, of_answer=True),
}
"""Name of a step, and of its verb -> the step, in their order."""


def next_steps(context: Context) -> list[str]:
    """The steps still to take, the first one first: those from the first on that is not done."""
    first = next(number for number, step in enumerate(STEPS.values()) if not step.is_done(context))
    return list(STEPS)[first:]


def step_after(verb: str, context: Context) -> str:
    """The step to take after a verb; empty: none is left. Whether a staged goal needs more runs, only train finds."""
    names = list(STEPS)
    first = names.index(verb) + (verb != "train") if verb in STEPS else names.index("train") if context.plan else 0
    if verb == "plan" and context.unprepared:
        return "prepare"
    # What a verb was given too early or is out of date comes before what follows on it.
    many = context.question.goal_kind.many_domains
    answers = [] if many or not context.plan else ["train", "collect", "fit", "confirm"]
    # Who fits is shown the answer, though rounds of runs have made one already.
    shown = "recommend" if verb == "fit" else ""
    done = {"train": has_trained, "report": lambda context: is_reported(context.study)}
    for name in [*(one for one in answers if names.index(one) < first and one != verb), *names[first:]]:
        if name == shown or not done.get(name, STEPS[name].is_done)(context):
            return "recommend" if name == "fit" and is_refitted(context) else name
    return ""


def steps_between(first: str, last: str) -> list[str]:
    """The steps from one to another, both included.

    >>> steps_between("collect", "recommend")
    ['collect', 'fit', 'recommend']
    """
    names = list(STEPS)
    return names[names.index(first) : names.index(last) + 1]


def go_on(question: Question, console: Console) -> Exit:
    """Take the next steps of a study until one fails or runs are queued; an answer for each domain.

    What fails for one domain leaves the others their answers, and a report is written also after a failure. Returns the
    exit code of the step that failed, or DONE.
    """
    start, context = time.perf_counter(), context_of(question)
    # It writes nothing, and train estimates and prints the plan.
    left_out = ("prepare", "plan", "collect") if question.dry_run else ()
    shared = [name for name in next_steps(context) if not (STEPS[name].of_answer or name in left_out)]
    for name in shared:
        _print_rule(name, start, console)
        ended = {run.name for run in context.fresh().plan if context.study.state(run) != "open"}
        code = _take(name, context, [*answered_questions(question)], console)
        if code != Exit.DONE or STEPS[name].is_queued(context.fresh()):
            return code
        # Short runs may have ended since they were queued: the job behind them goes on all the same.
        if name == "train" and question.launcher.elsewhere and {run.name for run in context.fresh().plan} - ended:
            return code
    if question.dry_run:
        return Exit.DONE  # The steps that are left read losses, or queue runs.
    codes: list[Exit] = []
    errors: list[Exception] = []
    for single in answered_questions(question):
        try:
            codes.append(_answer(single, bool(shared), start, console))
        except Exception as error:
            errors.append(error)
            if was_interrupted():
                break
    for error in errors[1:]:
        console.print(str(error), highlight=False, markup=False, soft_wrap=True)
    if errors:
        raise errors[0]
    return next((code for code in codes if code != Exit.DONE), Exit.DONE)


def _answer(question: Question, anew: bool, start: float, console: Console) -> Exit:
    """Take the steps to the answer for one domain: all of them anew, or those that are left."""
    context = context_of(question)
    followed = is_followed(context.study, question)
    names = [name for name in STEPS if name != "confirm" or not followed] if anew else next_steps(context)
    for name in (name for name in names if STEPS[name].of_answer):
        _print_rule(f"{name} {question.corpora.domain}" if question.corpora.domains else name, start, console)
        if (code := _take(name, context, [question], console)) != Exit.DONE:
            return code
        if STEPS[name].is_queued(context.fresh()):
            return report(context.fresh(), console)
    return Exit.DONE


def _take(name: str, context: Context, answered: Sequence[Question], console: Console) -> Exit:
    """Take a step; after a failure write the reports of the questions, since what is known is shown all the same."""
    code = Exit.UNEXPECTED
    try:
        code = STEPS[name].run(context.fresh(), console)
    finally:
        has_failed = code in (Exit.CRASH, Exit.UNEXPECTED) and name != "report"
        if has_failed and context.fresh().plan and not was_interrupted():
            for question in answered:
                with contextlib.suppress(ConfigError, CorpusError, SpecError, StudyError):
                    report(context_of(question), console)
    return code


def answered_questions(question: Question) -> Iterator[Question]:
    """The question about each domain of a study; itself where one answer weighs all."""
    return iter([question]) if question.goal_kind.many_domains else by_domain(question)


def _print_rule(words: str, start: float, console: Console) -> None:
    console.rule(f"{words}, {time.perf_counter() - start:.0f} s", align="left")
