"""What the verbs of the command line do with a question about weights."""

from __future__ import annotations

import functools
from collections.abc import Callable

from rich.console import Console

from pipeline.cli import verbs
from pipeline.mixture_weights import terminal_tables as weights_present
from pipeline.mixture_weights.comparison import compare, proposals_in, recommend_weights
from pipeline.mixture_weights.setting import Setting
from pipeline.mixture_weights.stages import confirming, measured_of, setting_of, stages, wanted
from pipeline.plan.machine import known_precision
from pipeline.plan.runs import data_folder, placeholder_manifest
from pipeline.plan.token_supply import supply_problems
from pipeline.question.loading import ConfigError
from pipeline.question.schema import Question
from pipeline.study.artifacts import read_comparison, read_weights
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.corpora.manifest import Manifest
from training.run import Exit


def runs_wanted(question: Question, study: Study, manifest: Manifest, precision: str) -> list[PlannedRun]:
    """The runs of the stages that can be told, as `pipeline.plan.runs.planned_runs` gives them for other goals.

    Raises:
        ConfigError: a domain with too few tokens.
    """
    return wanted(setting_of(question, manifest, precision), measured_of(study, question))


def plan(question: Question, console: Console) -> Exit:
    """Plan what can be told now, and print what all stages take, later ones too."""
    code = verbs.plan(question, console)
    study, prepared = verbs.study_of(question), (data_folder(question) / "manifest.json").exists()
    manifest = Manifest.open(data_folder(question)) if prepared else placeholder_manifest(question)
    setting = setting_of(question, manifest, known_precision(question, study) or "fp32")
    console.print(weights_present.stage_table(stages(setting, measured_of(study, question))))
    return code


def train(question: Question, console: Console) -> Exit:
    """Train what the methods want, look at what came out, and go on until they want nothing more."""
    if question.run is not None:
        return verbs.train(question, console)
    study, last = verbs.study_of(question), set()
    while True:
        # Collected here, so that one that was killed between a run's end and its collecting goes on from there.
        measured_of(study, question, anew=True)
        runs = verbs.write_plan(question, study)
        names = {run.name for run in runs if run.role != "confirm"}
        if last and names <= last:
            return Exit.DONE
        if last:
            console.print(f"next round: {len(names - last)} more runs", highlight=False)
        if (code := verbs.launch(question, study, console)) != Exit.DONE:
            return code
        last = names


def fit(question: Question, console: Console) -> Exit:
    """Say where the fits of this goal are made."""
    console.print("goal=weights: each method fits what it reads when it proposes; cptlaw recommend does both")
    return Exit.DONE


def recommend(question: Question, console: Console) -> Exit:
    """Let every method propose, write recommendation.json and print it."""
    study = verbs.study_of(question)
    log = functools.partial(console.print, highlight=False, markup=False)
    content = recommend_weights(study, _setting(question, study), measured_of(study, question), log)
    console.print(weights_present.weights_table(content))
    for line in weights_present.notes(content):
        console.print(f"note: {line}", highlight=False, markup=False)
    return Exit.DONE


def confirm(question: Question, console: Console) -> Exit:
    """Train every proposal at the target, over the seeds, and compare.

    Raises:
        StudyError: there is no recommendation, or one of another question.
        ConfigError: a domain with too few tokens for these runs.
    """
    from pipeline.answers.confirm import add_to_plan

    study = verbs.study_of(question)
    content, setting = read_weights(study), _setting(question, study)
    if set(content["mixture"]) != set(setting.domains) or content["target"]["steps"] != question.weights.target:
        raise StudyError(f"{study.folder}/recommendation.json: of another question; run cptlaw recommend again")
    runs = confirming(setting, proposals_in(content))
    if problems := list(supply_problems(runs, setting.manifest, question)):
        raise ConfigError(problems)
    add_to_plan(study, runs)
    code = verbs.launch(question, study, console, last="confirm")
    if code != Exit.DONE:
        return code
    _print_comparison(compare(study, setting, measured_of(study, question, anew=True), content), console)
    return Exit.DONE


def answer(study: Study, console: Console) -> None:
    """Print the end of the road: the weights, and how they did beside the others."""
    console.print(weights_present.weights_table(read_weights(study)))
    _print_comparison(read_comparison(study), console)


def report(question: Question, console: Console) -> Exit:
    """Write report.html."""
    from pipeline.mixture_weights.report import write_weights_report

    console.print(f"report: {write_weights_report(verbs.study_of(question), question)}", highlight=False)
    return Exit.DONE


def _print_comparison(comparison: dict, console: Console) -> None:
    console.print(*weights_present.comparison_tables(comparison))
    if line := weights_present.outdone_line(comparison):
        console.print(line, highlight=False, markup=False)


def _setting(question: Question, study: Study) -> Setting:
    precision = known_precision(question, study)
    if precision is None:
        raise StudyError(f"{study.folder}/machine.json: missing, and precision=auto; run cptlaw prepare first")
    return setting_of(question, Manifest.open(data_folder(question)), precision)


OWN: dict[str, Callable[[Question, Console], Exit]] = {
    "plan": plan,
    "train": train,
    "fit": fit,
    "recommend": recommend,
    "confirm": confirm,
    "report": report,
}
"""Verbs of `pipeline.cli.verbs` that mean something else for goal=weights."""
