"""What `cptlaw VERB ...` does: read the question from its words, and carry out a step, or a verb that is no step."""

import contextlib
import shlex
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.cli import hydra_options, sweep
from pipeline.cli.beside_next import other_question_line, running_line
from pipeline.cli.fit_table import JSON
from pipeline.cli.json_output import described_runs, json_of
from pipeline.cli.table_studies import make_all_tables, tables
from pipeline.cli.verb_table import EXPORT, HYDRA_OPTIONS, VERBS
from pipeline.cli.words import names_and_keys, text_keys
from pipeline.done import (
    awaits_refine,
    confirming_import,
    exported,
    has_trained,
    is_answered,
    is_planned,
    needs_no_job,
    open_runs,
)
from pipeline.goals.active.outlook import again_lines, costliest_round
from pipeline.goals.planning import planned_now, refused_by_plan
from pipeline.goals.ratio.asked import cost_line
from pipeline.goals.registry import goal_of, question_of_study, read_question, refuse_other_runs, unread_keys
from pipeline.launch.downstream import evaluate_tasks, task_table
from pipeline.launch.launcher import LAUNCHERS, launch
from pipeline.next_command import next_command
from pipeline.plan.prepared_corpora import with_columns
from pipeline.plan.token_supply import with_fewer_steps
from pipeline.plan.validation_documents import choose_validation
from pipeline.plan.write import as_planned, write_plan
from pipeline.question.loading import selects_file
from pipeline.question.messages import ConfigError, MissingError
from pipeline.question.schema import Question
from pipeline.show.conclusion import conclusion_of
from pipeline.show.report.page import refuse_without_plotly
from pipeline.show.terminal import answer_line, print_items
from pipeline.show.tracking.sync import sync
from pipeline.steps import STEPS, answer_trained, answered_questions, go_on, step_after, steps_between
from pipeline.study.context import Context, context_of
from pipeline.study.folder import IMPORTED, Study, StudyError, import_words, keep_overrides, study_of
from pipeline.study.status import is_followed, status_table
from training.corpora.documents import CorpusError
from training.durable import at_work_in
from training.run import Exit
from training.spec import SpecError

_KEEPING = ("fit", "recommend", "confirm")
"""Verbs whose overrides of laws, goal, bootstrap, confirmation, design and target are kept in the study."""
_ANSWERING = ("train", "recommend", "confirm", "refine", "continue", "quickstart")
"""Verbs that may make an answer, or confirm it."""
_TRAINING = ("prepare", "plan", "train", "refine", "continue")
"""Verbs of the way to runs that are trained here."""
_GOING_ON = ("train", "refine", "continue", "quickstart", "advise")
"""Verbs that, stopped once there is a plan, are gone on with by what `status` names."""
_STUDY_KEYS = {"experiment", "name", "points", "tables.points", "corpora"}
"""Keys that name the study of `cptlaw tables`."""


def run_words(
    verb: str,
    words: list[str],
    console: Console,
    loaded: Callable[[], object],
    print_json: Callable[[JSON], object] | None,
) -> Exit:
    """Read the question from the words, and carry the verb out; `loaded` is called before anything is written."""
    keys = {word.split("=")[0] for word in words}
    options = {HYDRA_OPTIONS[key] for key in keys if key in HYDRA_OPTIONS}
    if verb == "train" and options == {"--multirun"}:
        loaded()
        return sweep.run_sweep(words)
    if options:
        return hydra_options.print_asked(verb, words, partial(question_of, verb))
    in_browser, words = "--open" in words, [word for word in words if word not in VERBS[verb].options]
    if verb == "tables" and not keys & _STUDY_KEYS and all("=" in word for word in words):
        loaded()
        code = make_all_tables(words, console)
        if "dry_run=true" not in words:
            console.print("next: open tables.html in the folder of each study")
        return code
    question = question_of(verb, words)
    if question.model.path == IMPORTED and verb in _TRAINING:
        study = study_of(question)
        add = f"{shlex.join(['cptlaw', *import_words(question)])} adds runs"
        what = f"its runs were imported, {verb} cannot train more; {add}, cptlaw fit {study.word} fits"
        raise StudyError(f"{study.folder}: {what}")
    _refuse_too_early(verb, words, context_of(question))
    refuse_other_runs(question, verb, words)
    asks = verb in _KEEPING or (verb == "refine" and question.goal_kind.design_question)
    # Without a study there is nothing to continue, and no words ask for the default question.
    is_new = verb == "continue" and not study_of(question).folder.is_dir()
    if is_new or (asks and not (study_of(question).folder / "points.parquet").exists()):
        study_of(question).read_plan()  # Refuses a study that was never planned.
    loaded()
    if question.rehearsal:
        about = f"{question.name}: {question.marked('the same steps in small, whose numbers say nothing')}"
        console.print(about, highlight=False, markup=False, soft_wrap=True)
    # Tables are of several goals.
    print_items((f"note: {line}" for line in unread_keys(question, words) if verb != "tables"), console)
    works = verb in ("train", "refine", "continue", "quickstart") and not question.dry_run
    with at_work_in(study_of(question).folder) if works else contextlib.nullcontext():
        code = Exit.DONE if verb == "status" and print_json else carry_out(verb, question, console)
    # Not before: a command that was refused leaves the question as it was.
    if verb in _KEEPING and (kept := keep_overrides(Path(question.studies) / question.name, words)):
        print_items([f"kept in study.yaml: {' '.join(kept)}"], console)
    # Where no mixture meets the goal there is an answer all the same.
    if print_json and (code == Exit.DONE or (code, verb) == (Exit.CRASH, "recommend")):
        print_json({**json_of(verb, question), **({"rehearsal": True} if question.rehearsal else {})})
    if in_browser:
        _open(study_of(question), console)
    if verb == "tables" and not question.dry_run:
        console.print(f"next: open {shlex.quote(f'{question.studies}/{question.name}/tables.html')}", soft_wrap=True)
    else:
        print_next(verb, words, question, code, console)
    return code


def _refuse_too_early(verb: str, words: Sequence[str], context: Context) -> None:
    """Raise StudyError, with the command of the first step, where a verb is asked of a question before that step."""
    skips = verb == "tables" or (verb == "refine" and not context.question.goal_kind.design_question)
    asks = verb == "train" or (not skips and VERBS[verb].on_study and any(map(selects_file, words)))
    what = context.unprepared or ("" if verb == "train" else "not planned yet")
    if asks and what and not (context.study.plan_file.exists() or context.question.dry_run):
        first = ["cptlaw", "prepare" if context.unprepared else "plan", *words]
        raise StudyError(f"{context.study.folder}: {what}; next: {shlex.join(first)}")


def print_next(verb: str, words: Sequence[str], question: Question, code: Exit, console: Console) -> None:
    """Print the command to give next, as a line that a shell can be given. StudyError: status, a damaged file."""
    context = context_of(question)
    folder = str(context.study.folder)
    same = [word for word in words if word != "dry_run=true"]
    command, ended = ["status", folder], {"quickstart": "report", "advise": "report", "continue": "report"}
    # Not whether a file is damaged: the verb is done, unless it is asked what there is.
    damage = MissingError if verb == "status" else StudyError
    with contextlib.suppress(damage, ConfigError, SpecError, CorpusError):
        if code == Exit.RUN_ME_AGAIN and verb in _GOING_ON and is_planned(context) and not _of_once(question):
            verb, code = "status", Exit.DONE  # What is left is in the folder.
        if code == Exit.RUN_ME_AGAIN or (len(same) < len(words) and not _leaves_nothing(verb, context)):
            command = [*verb.split(), *same]
            if verb == "train" and step_after("plan", context) == "prepare":
                command[0] = "prepare"
        elif verb == "status" and (running := running_line(context)):
            console.print(running, highlight=False, soft_wrap=True)
        elif verb == "report" and (other := other_question_line(words, context)):
            console.print(other, highlight=False, markup=False, soft_wrap=True)
            command = ["recommend", *same]
        # Where no mixture meets the goal there is an answer all the same.
        elif (code == Exit.DONE or (code, verb) == (Exit.CRASH, "recommend")) and not _is_queued(verb, context):
            command = next_command(ended.get(verb, verb), context, ["export", folder, *EXPORT])
            if command[0] in ("prepare", "plan") and folder not in words:
                refused = refused_by_plan(context) if verb == "prepare" else []
                named = words if context.is_prepared else with_columns(words, context.question)
                if named is None:
                    return  # Which column of a corpus is the text is not known.
                command = [command[0], *with_fewer_steps(named, refused)]
            if question.rehearsal and command[0] == "export":
                real = [word for word in words if not word.startswith("rehearsal")]
                if not real or folder in words:
                    console.print("next: the words that were rehearsed, without rehearsal=true", highlight=False)
                    return
                command = ["plan", *real]
    if command[0] in ("train", "confirm", "refine"):
        with contextlib.suppress(StudyError, ConfigError, SpecError, CorpusError):
            print_items(_cost(command, context), console)
    trains = exported(context) if command[0] == "export" else ""
    console.print(f"next: {trains or f'cptlaw {shlex.join(command)}'}", soft_wrap=True)
    if command[0] == "export" and (line := confirming_import(context)):
        console.print(f"then: {line}", highlight=False, soft_wrap=True)
    elif command[0] == "export" and "cptlaw follow" not in trains and is_followed(context.study, question):
        console.print(f"then: cptlaw follow {context.study.word} LOG, the log of that run as it grows", soft_wrap=True)


def _cost(command: Sequence[str], context: Context) -> Iterator[str]:
    """What the runs cost of a command that is named next, and why it is named where it trains none, or perhaps; a line.

    Which runs refine chooses takes seconds to say, so of a new round it is the limit.
    """
    verb, folder, *overrides = command
    if verb == "train":
        yield from again_lines(context)
        return
    context = as_planned(context_of(question_of(verb, [folder, *overrides])) if overrides else context)
    goal, many = goal_of(context.question), context.question.goal_kind.many_domains
    if verb == "confirm":
        runs, most = goal.confirmation_runs(context), ""
    else:
        runs, most = [run for run in open_runs(context) if run.role != "confirm"], ""
        if not runs and not awaits_refine(context):
            runs, most = costliest_round(context), "at most "
    if verb == "confirm" and all(context.study.state(run) == "done" for run in runs):
        yield "cptlaw confirm trains nothing: the runs are done, and it compares them with the prediction"
    runs = [run for run in runs if context.study.state(run) != "done"]
    if count := sum(run.role != "pretrain" for run in runs):
        trained = f"cptlaw {verb} trains {most}{count} run{'s' * (count > 1)}"
        yield f"{trained}: {most}{cost_line(context, runs, against=not (goal.chooses_run or many))}"


def _of_once(question: Question) -> bool:
    """Whether a command was asked for what no study.yaml keeps."""
    return question.run is not None or question.retry_failed or question.remeasure


def _leaves_nothing(verb: str, context: Context) -> bool:
    """Whether the jobs that a dry run of a verb prints are none, since all runs are done, and confirmed."""
    study, plan = context.study, context.plan
    if verb != "train" or not (plan and needs_no_job(context)):
        return False
    return all(study.state(run) == "done" for run in [*plan, *planned_now(context)])


def _open(study: Study, console: Console) -> None:
    """Show the report of a study in a browser, if there is one."""
    path = (study.folder / study.answer("report.html")).resolve()
    if not webbrowser.open(path.as_uri()):
        console.print(f"no browser was found on this machine: open {path}", soft_wrap=True)


def _is_queued(verb: str, context: Context) -> bool:
    """Whether jobs of a cluster go on with the study; plan submits none."""
    elsewhere = context.question.launcher.elsewhere and verb != "plan"
    if verb == "status" and context.question.launcher.kind == "slurm" and not (context.study.folder / "jobs").exists():
        return False  # None was submitted.
    return elsewhere and (not context.is_prepared or bool(open_runs(context)))


def question_of(verb: str, rest: list[str]) -> Question:
    """The question that the words of a verb ask: of the study that they name, with overrides, or a new one.

    Raises:
        ConfigError: a word that the verb does not take, or a question that is not valid.
        StudyError: the folder is no study.
    """
    on_study = VERBS[verb].on_study
    if verb == "tables":
        rest = [_study_word(word) for word in rest]
    folders, overrides = names_and_keys(rest)
    problems = [f"{word}: no such option" for word in overrides if word.startswith("-")]
    if not problems and len(folders) > (on_study or VERBS[verb].or_study):
        problems = [f"{folders[-1]}: not key=value"]
    if problems:
        raise ConfigError([f"{problem}; see cptlaw {verb} --help" for problem in problems])
    if folders:
        folder = Path(folders[0])
        # status and cancel skip the checks, which load scipy for half a second: study.yaml was checked before.
        return question_of_study(folder, overrides, again=bool(overrides) or verb not in ("status", "cancel"))
    if verb == "quickstart" and not any(word.startswith("experiment=") for word in overrides):
        overrides = ["experiment=quickstart", *overrides]
    question = read_question(overrides)
    folder = Path(question.studies) / question.name
    # Overrides that select whole groups ask a new question; single keys, laws and goals change the study's question.
    changes = ("experiment=", "law=", "goal=")
    new = any(selects_file(word) and not word.startswith(changes) for word in overrides)
    if on_study and (folder / "study.yaml").exists() and not new:
        return question_of_study(folder, overrides)
    return question


def _study_word(word: str) -> str:
    """points=FILE as the folder of the study that it belongs to, or as tables.points=FILE."""
    if not word.startswith("points=") or not (given := text_keys([word])):
        return f"tables.{word}" if word.startswith("points=") else word
    file = Path(given["points"])
    return str(file.parent) if (file.parent / "study.yaml").exists() else f"tables.points={file}"


def carry_out(verb: str, question: Question, console: Console) -> Exit:
    """Carry out a step, or another verb, and print what is known of the answers that it makes or confirms."""
    code = STEPS[verb].run(context_of(question), console) if verb in STEPS else FUNCTIONS[verb](question, console)
    code = code or Exit.DONE
    if verb == "train" and code == Exit.DONE and not question.dry_run and question.run is None:
        answer_trained(question, console)
    if verb in _ANSWERING and code in (Exit.DONE, Exit.CRASH) and not question.dry_run:
        every = answered_questions(question) if verb in ("train", "continue", "quickstart") else [question]
        _print_known(every, console)
    return code


def _print_known(questions: Iterable[Question], console: Console) -> None:
    """Print what is known of the answer to each question that has one."""
    with contextlib.suppress(StudyError):
        for context in map(context_of, questions):
            if not context.question.goal_kind.many_domains and is_answered(context):
                print_items(conclusion_of(context).lines, console)


def with_first_step(error: MissingError) -> StudyError:
    """The error with the first step that is left in place of the one that makes the missing file."""
    with contextlib.suppress(ConfigError, StudyError):
        context = context_of(question_of_study(error.folder, [], again=False))
        if context.plan and error.verb in STEPS:
            return MissingError(error.path, _first_left(context, error.verb), error.folder)
    return error


def _first_left(context: Context, verb: str) -> str:
    """The first step from train to that of a verb which is not done; that of the verb, where it alone is left."""
    done = {"train": _is_trained, "fit": _is_fitted}
    names = steps_between("train", verb) if verb in [*STEPS][[*STEPS].index("train") :] else [verb]
    return next((name for name in names if not done.get(name, STEPS[name].is_done)(context)), verb)


def _is_trained(context: Context) -> bool:
    return has_trained(context) or any(run.imported for run in context.plan)


def _is_fitted(context: Context) -> bool:
    """Whether laws are fitted, of any domain; methods for mixture weights fit theirs as they recommend."""
    folder = context.study.folder
    fits = (file for pattern in ("fits/*.json", "answers/*/fits/*.json") for file in folder.glob(pattern))
    return context.question.goal_kind.many_domains or any(fits)


def refine(question: Question, console: Console) -> Exit:
    """Choose and train one more round, and answer again; finished confirmation runs become points for the fit."""
    context = context_of(question)
    before = not conclusion_of(context).is_outdated and answer_line(context)
    if line := goal_of(question).add_round(context):
        console.print(line, highlight=False, soft_wrap=True)
    context = context.fresh()
    print_items(write_plan(context, planned_now(context)), console)
    code = launch(context, console)
    if code != Exit.DONE or question.launcher.elsewhere:
        return code  # DONE: the runs are queued, and behind them the job that answers.
    for name in steps_between("collect", "recommend"):
        if (code := STEPS[name].run(context.fresh(), console)) != Exit.DONE:
            return code
    console.print(f"before: {before or 'no answer to this question'}", highlight=False)
    console.print(f"now:    {answer_line(context)}", highlight=False)
    return Exit.DONE


def status(question: Question, console: Console) -> None:
    """Print a table of all runs; on a terminal it is updated while a run is in progress."""
    context = context_of(question)

    def read() -> tuple[bool, Group]:
        rows, lines = described_runs(context, briefly=True)
        table = [status_table(rows)] if rows else []
        return any(row.state == "running" for row in rows), Group(*table, *map(Text, lines))

    running, shown = read()
    if not console.is_terminal:
        console.print(shown)
        return
    with Live(shown, console=console, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
        while running:
            time.sleep(1.0)
            running, shown = read()
            live.update(shown, refresh=True)


def cancel(question: Question, console: Console) -> None:
    """Cancel the study's jobs on the cluster."""
    lines = [line for launcher in LAUNCHERS.values() for line in launcher.cancel(context_of(question))]
    for line in lines:
        console.print(line, highlight=False, markup=False)
    console.print("running jobs save their state first; cptlaw train continues" if lines else "no job runs or waits")


def evaluate(question: Question, console: Console) -> None:
    """Down-stream tasks of the kept checkpoints."""
    console.print(task_table(evaluate_tasks(study_of(question), question, console)))


def quickstart(question: Question, console: Console) -> Exit:
    """All steps."""
    refuse_without_plotly()
    return go_on(question, console)


FUNCTIONS: dict[str, Callable[[Question, Console], Exit | None]] = {
    "prepare validation": choose_validation,
    "continue": go_on,
    "refine": refine,
    "status": status,
    "cancel": cancel,
    "tables": tables,
    "evaluate": evaluate,
    "track sync": sync,
    "quickstart": quickstart,
}
"""Verb -> its function, of whose end None is DONE."""
