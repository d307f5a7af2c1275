"""cptlaw follow: the log of the real run beside its prediction as it grows, its end anew, and the rest of the run."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from pipeline.cli.fit_table import JSON
from pipeline.cli.points_file import perplexity_question
from pipeline.cli.run_logs import SAME, RunLog, join_logs, loss_keys, read_logs
from pipeline.cli.trainers.run_facts import RunFacts, facts_of, first_other_rate
from pipeline.cli.trainers.tokenization import saved_other_tokens
from pipeline.cli.verbs import print_next
from pipeline.cli.words import names_and_keys, own_words, print_line, refuse_rehearsal, settings_of
from pipeline.done import confirming_import
from pipeline.goals.ratio.answering_laws import AnsweringLaws, answering_laws
from pipeline.goals.ratio.following import Ending, FollowedRun, follow
from pipeline.goals.registry import question_of_study
from pipeline.launch.checkpoint_losses import checkpoint_losses
from pipeline.question.loading import PIECES
from pipeline.question.messages import ConfigError, StudyError
from pipeline.question.schema import Question
from pipeline.show.following import following_items
from pipeline.show.report.follow_page import write_follow_page
from pipeline.show.terminal import print_items
from pipeline.study.artifacts import Recommendation
from pipeline.study.context import Context, context_of
from pipeline.study.folder import IMPORTED, import_words
from pipeline.study.target import Target, find_target
from training.keys import Ratio, between, key_problems
from training.run import Exit


@dataclass
class FollowSettings:
    """The settings of `cptlaw follow`."""

    domain_ratio: Ratio | None = None
    """Domain ratio of the run, 0 to 1; null: that of a table's column domain_ratio, else the recommended one."""
    watch: Annotated[int, between(1, 86400, "seconds")] | None = None
    """Read again after so many seconds, 1 to 86,400, until the run has ended; null: read once. --watch 60 is short."""
    losses: dict[str, str] = field(default_factory=dict)
    """Key of a log -> corpus, {log KEY: corpus} of a perplexity; empty: eval_CORPUS_loss, eval/CORPUS_loss and
    loss/CORPUS of both corpora."""
    columns: dict[str, str] = field(default_factory=dict)
    """step, corpus, loss or run of a table -> its column: {loss: val_loss}."""
    checkpoints: str | None = None
    """Folder where the trainer saves Hugging Face checkpoints (checkpoint-N, step-N): their losses on the study's
    validation text are measured here, each once. In place of a LOG."""
    run: str | None = None
    """Which run of a table of several; null: it has one."""


HELP = {"keys": FollowSettings}
ENDS = ("loss", "low", "high")
READ = ("domain_ratio", "tokens_per_step", "non_embedding", "peak", "steps")
"""Columns of a table that say which run it is, as cptlaw import reads them."""


def carry_out(words: Sequence[str], console: Console, print_json: Callable[[JSON], object]) -> Exit:
    """Read the log, and print how the run stands; as JSON the last reading."""
    folders, settings, overrides = _read_words(words)
    study, *files = folders
    question = question_of_study(Path(study), overrides)
    refuse_rehearsal(question)
    if question.goal_kind.many_domains:
        raise ConfigError([f"goal.kind: {question.goal.kind} predicts no curve of a run; allowed: another goal"])
    context = context_of(question)
    settings.losses = settings.losses or loss_keys(context.corpora)
    laws, target, recommended = _asked(context, overrides)
    content: JSON = {}
    last, said = -1, ""
    while True:
        try:
            logs = _logs(context, target.model, files, settings, partial(print_line, console))
            run = _read(laws, target, recommended, logs, settings)
        except (StudyError, ConfigError) as error:
            # A log that another program writes may be read in the middle of a line.
            if settings.watch is None or (last < 0 and isinstance(error, ConfigError)):
                raise
            if said != (said := str(error)):
                print_line(console, said)
        else:
            if run.step < last:
                ended = f"the log ends at step {run.step:,}, at the last reading at {last:,}"
                print_line(console, f"{next(iter(logs))}: {ended}")
            if run.step != last:
                last, content = run.step, _content(study, [*logs], run)
                notes = [f"note: {file}: {line}" for file, log in logs.items() for line in log.notes]
                items = [*notes, *following_items(run)]
                print_items([*items, f"page: {write_follow_page(context.study, run)}"], console)
            if run.step >= target.steps:
                break
        if settings.watch is None:
            break
        time.sleep(settings.watch)
    # To the digits that the answer is printed with.
    is_answer = not (overrides or settings.run) and f"{content['domain_ratio']:.3f}" == f"{recommended or 0:.3f}"
    if last >= target.steps and is_answer and confirming_import(context):
        bring = import_words(question, f"{recommended:.3f}", files)
        named = (word for word in words if word.startswith(("losses", "columns")))
        print_line(console, f"next: {shlex.join(['cptlaw', *bring, 'role=confirm', *named])}")
    elif last >= target.steps:
        print_next("follow", [], question_of_study(Path(study), []), Exit.DONE, console)
    else:
        print_line(console, f"next: {shlex.join(['cptlaw', 'follow', *words])}")
    print_json(content)
    return Exit.DONE


def _read_words(words: Sequence[str]) -> tuple[list[str], FollowSettings, list[str]]:
    """The study and the logs, the settings, and the overrides of the question."""
    given, rest = [], iter(words)
    for word in rest:
        given.append(f"watch={next(rest, '')}" if word == "--watch" else word.replace("--watch=", "watch=", 1))
    names, keys = names_and_keys(given)
    own, overrides = own_words(keys, FollowSettings)
    problems = []
    if len(names) < 1 + (not any(word.startswith("checkpoints=") for word in own)):
        allowed = "a study folder and a log, or checkpoints=FOLDER in its place"
        given = f"{names[0]} alone" if names else "no name"
        problems.append(f"cptlaw follow: {given}; allowed: {allowed}, see --help")
    return names, settings_of(FollowSettings, own, problems), overrides


def _asked(context: Context, overrides: Sequence[str]) -> tuple[AnsweringLaws, Target, float | None]:
    """The laws of the study, and the recommended run but for what is given; its ratio is None: there is none."""
    study, domain = context.study, context.question.corpora.domain
    answer = Recommendation.read(study) if Recommendation.path(study).exists() else None
    ratio = answer.mixture.get(domain) if answer and answer.mixture else None
    laws = answering_laws(context)
    given = {word.split("=")[0] for word in overrides}
    if answer and answer.peak_learning_rate and "target.peak_learning_rate" not in given:
        laws = laws.at_peak(answer.peak_learning_rate)
    model = answer.target.model if answer and "model.name" not in given else None
    target = find_target(laws.question, laws.points, model)
    if answer and "target.steps" not in given and context.question.goal.kind != "trade-off":
        target = target.lasting(answer.target.steps)
    return laws.at(target), target, ratio


def _read(
    laws: AnsweringLaws,
    target: Target,
    recommended: float | None,
    logs: Mapping[str, RunLog],
    settings: FollowSettings,
) -> FollowedRun:
    """The run by its logs, name -> log. Raises ConfigError: they are of another run, or its ratio is not known."""
    log, label, first = join_logs(logs.values()), ", ".join(logs), next(iter(logs))
    of_run = log.points[[name for name in READ if name in log.points]]
    facts = facts_of(label, {"domain_ratio": settings.domain_ratio}, of_run, {})
    if problems := [*key_problems(facts)] or _other_run(log, facts, target, laws.question):
        raise ConfigError([f"{label}: {line}" for line in problems])
    ratio = recommended if facts.domain_ratio is None else facts.domain_ratio
    if ratio is None:
        raise ConfigError(["domain_ratio: not given, and the study recommends none; allowed: 0 to 1"])
    of_log = {key: corpus for key, corpus in settings.losses.items() if key in log.keys}
    if line := perplexity_question(log.points["loss"], settings.columns.get("loss", "loss"), of_log):
        raise ConfigError([f"{first}: {line}"])
    if lacking := [corpus for corpus in laws.corpora if not (log.points["corpus"] == corpus).any()]:
        keys = "losses='{eval_general_loss: general, eval_law_loss: law}' names a key for each corpus"
        raise StudyError(f"{first}: no losses on {lacking[0]}; it has {log.measured}: {keys}{_saved(laws.question)}")
    try:
        return follow(laws, target, ratio, log.points[["step", "corpus", "loss"]])
    except StudyError as error:
        raise StudyError(f"{first}: {error}") from None


def _logs(
    context: Context, model: str, files: Sequence[str], settings: FollowSettings, log: Callable[[str], object]
) -> dict[str, RunLog]:
    """Each log as it is now, and the losses of checkpoints of the model. Raises StudyError: one cannot be read."""
    logs, of_plan = {}, {run.name: run.spec for run in context.plan}
    for file in files:
        runs = read_logs(Path(file), settings.losses, settings.columns, _saved(context.question))
        name = settings.run if settings.run is not None else next(iter(runs))
        if name not in runs or (settings.run is None and len(runs) > 1):
            raise ConfigError([f"run: {settings.run}, but {file} has {len(runs)} runs; allowed: {', '.join(runs)}"])
        logs[file] = runs[name]
        # A run of the study is followed at its own ratio.
        if spec := of_plan.get(Path(file).resolve().name):
            ratio = float(Fraction(spec.mixture.get(context.question.corpora.domain, "0")))
            logs[file] = replace(runs[name], points=runs[name].points.assign(domain_ratio=ratio))
    if settings.checkpoints:
        losses = checkpoint_losses(context, Path(settings.checkpoints), model, log)
        unlike = saved_other_tokens(context.manifest, Path(settings.checkpoints))
        line = "the tokenizer saved there is not the study's, and a run on its tokens is no test of the prediction"
        logs[f"checkpoints={settings.checkpoints}"] = RunLog(losses, {}, notes=(f"{line}: {unlike}",) * bool(unlike))
    return logs


def _saved(question: Question) -> str:
    """What there is in place of losses in a log; empty for a study that has no text to measure them on."""
    return "" if question.model.path == IMPORTED else ", checkpoints=FOLDER measures what was saved"


def _other_run(log: RunLog, facts: RunFacts, target: Target, question: Question) -> list[str]:
    """A line for each way in which a log, or what a table has of its run, is not of the run that is asked about."""
    problems, last = [], int(log.points["step"].max())
    steps = facts.steps or log.steps or max(last, target.steps)
    if steps != target.steps:
        problems.append(f"of a run of {steps:,} steps, not of target.steps={target.steps}; give target.steps=")
    tokens = log.tokens_per_step or facts.tokens_per_step
    if tokens and abs(tokens / target.tokens_per_step - 1) > SAME:
        length = question.target.sequence_length or question.sequence_length
        asked = f"{target.tokens_per_step:,} (target.global_batch={question.target.global_batch} x {length})"
        problems.append(f"{tokens:,.0f} tokens a step, not {asked}; give target.global_batch=")
    size = facts.non_embedding
    if size and abs(size / (1e9 * target.N) - 1) > SAME:
        model = f"{1e9 * target.N:,.0f} of {target.model}"
        problems.append(f"non_embedding={size:,.0f}, not {model}; give model.name= of a model of the study")
    peak = question.target.peak_learning_rate
    if facts.peak and abs(facts.peak / peak - 1) > SAME:
        problems.append(f"peak={facts.peak:g}, not {peak:g}; give target.peak_learning_rate=")
    if not problems and (step := first_other_rate(target.rates.tolist(), log.rates)) is not None:
        asked = f"{target.rates[max(step, 1) - 1]:.4g} by target.schedule and peak {peak:g}"
        problems.append(
            f"learning_rate={log.rates[step]:.4g} at step {step:,}, not {asked}; give target.peak_learning_rate=, "
            f"schedule@target.schedule=wsd or another word, or pieces like {PIECES}, as the run is trained"
        )
    return problems


def _content(study: str, files: list[str], run: FollowedRun) -> JSON:
    """What `--json` prints."""
    goal = run.laws.question.goal
    corpora = {}
    for corpus in run.corpora:
        table = run.compared[corpus]
        rows = table.assign(inside=table["loss"].between(table["low"], table["high"]))
        corpora[corpus] = {
            "before": run.loss_before(corpus),
            "losses": json.loads(rows.to_json(orient="records", double_precision=15)),
            "predicted_end": dict(zip(ENDS, run.predicted_end(corpus))),
            "end": dict(zip(ENDS, run.end(corpus))),
            "refuted": run.is_refuted(corpus),
        }
    tolerance = goal.tolerance if goal.kind == "trade-off" else None
    others = []
    if tolerance is not None and run.step < run.target.steps and not run.is_refuted(run.corpora[0]):
        exceeds = run.increase(run.corpora[0], run.end(run.corpora[0])[0]) > tolerance
        others = [asdict(one) for one in run.endings(exceeds) if isinstance(one, Ending)]
    return {
        **{"schema": 1, "study": study, "logs": files, "model": run.target.model, "domain_ratio": run.domain_ratio},
        **{"step": run.step, "steps": run.target.steps, "tolerance": tolerance, "corpora": corpora, "rest": others},
    }
