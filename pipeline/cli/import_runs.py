"""cptlaw import: losses of runs made elsewhere become a study, which fit and recommend read like any other."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING, OmegaConf
from rich.console import Console

from pipeline.cli.points_file import COLUMNS, perplexity_question
from pipeline.cli.run_logs import SAME, RunLog, join_logs, loss_keys, read_logs
from pipeline.cli.trainers.run_facts import Facts, RunFacts, facts_of, other_rates, pieces_of, schedule_of
from pipeline.cli.words import (
    names_and_keys,
    own_words,
    print_line,
    settings_of,
    text_keys,
    yaml_with_text_names,
)
from pipeline.goals.registry import question_of_study, read_question
from pipeline.question.loading import read_yaml
from pipeline.question.messages import ConfigError, one_line
from pipeline.question.overrides import with_whole_numbers
from pipeline.question.schema import Question
from pipeline.study.collect import collect
from pipeline.study.folder import IMPORTED, PlannedRun, Study, StudyError, question_yaml
from pipeline.study.target import other_batch
from training.durable import read_text, write_whole
from training.evaluation_steps import EvaluationPolicy
from training.keys import MOST_STEPS, key_problems
from training.run import Exit
from training.schedule import learning_rates
from training.spec import Initial, RunSpec


@dataclass
class ImportSettings(RunFacts):
    """The settings of `cptlaw import`."""

    name: str = MISSING
    """Name of the study that is made."""
    studies: str = "studies"
    """Folder that holds the studies."""
    general: str = "general"
    """Name of the general corpus in the logs."""
    domain: str = "domain"
    """Name of the domain corpus in the logs."""
    losses: dict[str, str] = field(default_factory=dict)
    """Key of a log -> corpus, {log KEY: corpus} of a perplexity; empty: eval_CORPUS_loss, eval/CORPUS_loss and
    loss/CORPUS of both corpora."""
    columns: dict[str, str] = field(default_factory=dict)
    """Names in a table: step, corpus, loss, run, or a fact of its runs -> column of the file."""
    runs: str | None = None
    """YAML file with any of these keys, and under runs: a file or run -> its facts."""


HELP = {"facts": RunFacts, "keys": ImportSettings}
FEWEST = 4
"""Equal losses from which on two runs are taken for one."""
SAME_LOSS = 0.001
"""Relative difference up to which a given loss is a rounded one of a log."""
NEEDED = ("domain_ratio", "tokens_per_step", "non_embedding", "peak")


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Make or extend the study that the words name, and collect its points."""
    files, keys = names_and_keys(words)
    settings, given, overrides, of_run = read_settings(keys)
    if not files:
        raise ConfigError(["cptlaw import: no file; allowed: one or more, see cptlaw import --help"])
    both = (settings.general, settings.domain)
    losses = settings.losses or loss_keys(both)
    parts: dict[tuple[str, ...], list[tuple[str, str, RunLog]]] = defaultdict(list)
    for file in map(str, map(Path, files)):
        for name, log in read_logs(Path(file), losses, settings.columns).items():
            # A run that was resumed has several logs; the runs of a table have one each, or a table for each corpus.
            whole = name and {*both} <= {*log.points["corpus"]}
            key = (file, name) if whole else (name or log.source, repr(of_run.get(file)))
            parts[key].append((file, name, log))
    runs, tables, problems, assumed = [], {}, defaultdict[str, list[str]](list), list[str]()
    for logs in parts.values():
        file, name, _ = logs[0]
        label = ", ".join(dict.fromkeys(file for file, _, _ in logs)) + f": {name}" * bool(name)
        log = join_logs(log for _, _, log in logs)
        try:
            if name and len(log.points) < sum(len(own.points) for _, _, own in logs):
                raise ConfigError([f"{label}: two logs of one run on one corpus; give one alone"])
            facts = facts_of(label, given, log.points, of_run.get(name) or of_run.get(file) or {})
            runs.append(imported_run(label, name or file, facts, settings, log))
            assumed += [] if log.rates else [schedule_of(facts, log.points)]
            tables[runs[-1].name] = with_loss_before(log.points, facts, runs[-1].spec)
        except ConfigError as error:
            for line in error.lines:
                # The same mistake in many runs differs in its numbers and the run.
                problems[re.sub(r"\d[\d.,e+-]*", "0", line.removeprefix(label))].append(line)
    study = Study(Path(settings.studies) / settings.name)
    known = study.read_plan() if study.plan_file.exists() else []
    read = {word for logs in parts.values() for file, name, _ in logs for word in (file, name)}
    # One file of facts may serve for several imports.
    read |= {run.source for run in known}
    unread = [name for name in of_run if name not in read and not Path(name).exists()]
    notes = [f"runs: {settings.runs}: {name}: no file or run that is given is called so" for name in unread]
    if problems:
        more = {of[0]: len({*of}) - 1 for of in problems.values()}
        raise ConfigError(
            [line + f"; and so in {count} more run{'s' * (count > 1)}" * (count > 0) for line, count in more.items()]
            + notes
        )
    if twice := [key for key, count in Counter(map(_identity, runs)).items() if count > 1]:
        remedy = "give one alone, or the same facts for both; give different runs a seed or a model_name each"
        raise ConfigError([f"{source}: two logs of one run; {remedy}" for source, _, _ in twice])
    if not all(run.imported for run in known):
        raise StudyError(f"{study.folder}: a study with runs of its own; import under another name=")
    if known and {*known[0].spec.corpora} != {*both}:
        names = " and ".join(known[0].spec.corpora)
        raise StudyError(f"{study.folder}: its corpora are {names}; give general= and domain= as at the first import")
    plan = [*{_identity(run): run for run in [*known, *runs]}.values()]
    if alike := [name for name, count in Counter(run.name for run in plan).items() if count > 1]:
        raise ConfigError([f"{', '.join(alike)}: runs that are alike; give them a seed each"])
    replaced = [run for run in known if _identity(run) in {*map(_identity, runs)}]
    question = question_of(settings, [run for run in plan if run.role == "fit"], overrides)
    write_study(study, question, plan, tables)
    points = collect(study, question.corpora.general)
    for name in {run.name for run in replaced} - {run.name for run in plan}:
        shutil.rmtree(study.runs / name, ignore_errors=True)
    for schedule, count in Counter(assumed).items():
        line = f"no learning rates in the log of {count} run{'s' * (count > 1)}: taken as {schedule}"
        print_line(console, f"{line}; else give warmup=, decay=, decay_steps= and final=, as they were trained")
    if replaced:
        names = ", ".join(run.source for run in replaced[:5]) + ", ..." * (len(replaced) > 5)
        print_line(console, f"replaced {len(replaced)} runs that were imported before: {names}")
    notes += dict.fromkeys(f"{file}: {line}" for logs in parts.values() for file, _, log in logs for line in log.notes)
    notes += [other_batch(plan, question.tokens_per_step()), copies_line(points), starts_line(points)]
    for line in filter(None, notes):
        print_line(console, f"note: {line}")
    read = {key for logs in parts.values() for _, _, log in logs for key in log.keys}
    keys = {key: corpus for key, corpus in losses.items() if key in read}
    low, high = points["loss"].min(), points["loss"].max()
    line = perplexity_question(points["loss"], settings.columns.get("loss", "loss"), keys)
    print_line(console, line or f"loss: {low:.4g} to {high:.4g}, taken as {COLUMNS['loss']}")
    verb = "confirm" if all(run.role == "confirm" for run in runs) else "fit"
    line = f"{len(points):,} points of {points['run'].nunique()} runs in {study.folder}"
    print_line(console, f"{line}; next: {shlex.join(['cptlaw', verb, str(study.folder)])}")
    return Exit.DONE


def _identity(run: PlannedRun) -> tuple[str, str, int]:
    """What a second import of a run has in common with the first, whatever was logged or corrected in between."""
    # A study of an earlier version has no sources.
    return run.source or run.name, run.model, run.spec.seed


def read_settings(words: Sequence[str]) -> tuple[ImportSettings, Facts, list[str], dict[str, Facts]]:
    """(settings, those facts among them that are given, overrides of the question, file or run -> its own facts)."""
    own, overrides = own_words(words, ImportSettings)
    # The command line changes what the file says.
    base, content, problems = OmegaConf.structured(ImportSettings), dict[Any, Any](), []
    of_run: dict[str, Facts] = {}
    if file := text_keys(word for word in own if word.startswith("runs=")).get("runs"):
        try:
            content: Any = OmegaConf.to_container(read_yaml(yaml_with_text_names(read_text(Path(file)))))
            of_run = content.pop("runs", None) or {}
            if not isinstance(of_run, dict) or not all(isinstance(facts, dict) for facts in of_run.values()):
                allowed = "below each file or run its facts, like {a.csv: {domain_ratio: 0.3}}"
                raise ValueError(f"runs: {of_run!r:.60}; allowed: {allowed}")
            of_run = {str(Path(name)) if Path(name).exists() else name: facts for name, facts in of_run.items()}
            base = OmegaConf.merge(base, with_whole_numbers(content, ImportSettings))
        except Exception as e:  # Whatever is wrong with the file.
            problems.append(f"runs: {file}: {one_line(e, ImportSettings)}")
    settings = settings_of(ImportSettings, own, problems, base)
    named = {*map(str, content), *(re.split(r"[.=]", word)[0] for word in own)}
    given: Facts = {key.name: getattr(settings, key.name) for key in dataclasses.fields(RunFacts) if key.name in named}
    return settings, given, overrides, of_run


def imported_run(label: str, slug: str, facts: RunFacts, settings: ImportSettings, log: RunLog) -> PlannedRun:
    """The run as a plan has it.

    Raises:
        ConfigError: facts that are missing or impossible or not what the log has; each line begins with `label`.
    """
    table = log.points
    where = "on the command line for all runs, or for this one in runs=FACTS.yaml"
    problems = [f"{label}: no {key}; give {key}=... {where}" for key in NEEDED if getattr(facts, key) is None]
    problems += [f"{label}: {line}" for line in key_problems(facts)]
    remedy = "see losses=, general=, domain=, or give the file that has them beside this one"
    for corpus in (settings.general, settings.domain):
        rows = table[table["corpus"] == corpus]
        first = rows.loc[rows["step"] == 0, "loss"]
        given = facts.loss_before.get(corpus)
        if not rows["step"].any():
            problems.append(f"{label}: no losses on {corpus!r} after step 0; it has {log.measured}; {remedy}")
        elif given is not None and len(first) and not math.isclose(given, float(first.iloc[0]), rel_tol=SAME_LOSS):
            measured = f"but it has {first.iloc[0]:.6g} at step 0"
            problems.append(f"{label}: loss_before.{corpus}={given:g}, {measured}; leave out the wrong one")
        elif given is None and first.empty:
            problems.append(f"{label}: no loss on {corpus!r} at step 0; give loss_before.{corpus}=... {where}")
    for name in sorted({*facts.loss_before} - {settings.general, settings.domain, *table["corpus"]}):
        # Facts of several studies may name other corpora that a log has.
        if not {*loss_keys([name])} & {*log.keys}:
            allowed = f"allowed: {settings.general}, {settings.domain}"
            problems.append(f"{label}: loss_before.{name}: no such corpus; {allowed}")
    last = max(int(table["step"].max()), log.reached)
    steps = facts.steps or max(log.steps or 0, last, 1)
    if not last <= steps <= MOST_STEPS:
        allowed = f"{last} to {MOST_STEPS:,}"
        problems.append(f"{label}: steps={steps}, but it goes to step {last}; allowed: {allowed}")
    tokens, logged = facts.tokens_per_step, log.tokens_per_step
    if tokens and logged and abs(logged / tokens - 1) > SAME:
        problems.append(f"{label}: tokens_per_step={tokens}, but its log has {logged:,.0f} a step; give those")
    length = facts.sequence_length or facts.tokens_per_step or 1
    if length < 1 or (facts.tokens_per_step or length) % length:
        each = f"allowed: a divisor of tokens_per_step={facts.tokens_per_step}"
        problems.append(f"{label}: sequence_length={facts.sequence_length}; {each}")
    if not problems and (line := other_rates(facts, steps, log.rates)):
        problems.append(f"{label}: {line}")
    if problems:
        raise ConfigError(problems)
    assert facts.domain_ratio is not None
    assert facts.tokens_per_step is not None
    ratio = Fraction(str(facts.domain_ratio))
    spec = RunSpec(
        phase="continual",
        model={"model_type": "given", "non_embedding": int(facts.non_embedding or 0)},
        initial=Initial("directory", fingerprint=IMPORTED),
        corpora=dict.fromkeys(sorted((settings.general, settings.domain)), IMPORTED),
        mixture={settings.general: str(1 - ratio), settings.domain: str(ratio)},
        sequence_length=length,
        global_batch=facts.tokens_per_step // length,
        steps=steps,
        schedule=pieces_of(facts, steps),
        seed=facts.seed,
        evaluation=EvaluationPolicy("explicit", steps=tuple(sorted({*map(int, table["step"]), steps}))),
    )
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", slug).strip("-.")[-60:]
    return PlannedRun(f"{slug}-{spec.hash[:8]}", facts.role, facts.model_name, "", spec, source=log.source)


def copies_line(points: pd.DataFrame) -> str:
    """That runs have the same losses wherever both have some: one run, given twice; empty: none has."""
    table = points[points["step"] > 0].pivot(index="run", columns=["step", "corpus"], values="loss")
    names, losses, pairs = [*table.index], table.to_numpy(float), list[str]()
    for number, own in enumerate(losses):
        others = losses[number + 1 :]
        differ = (own != others) & ~np.isnan(own) & ~np.isnan(others)
        common = (own == others).sum(axis=1)
        alike = np.flatnonzero((common >= FEWEST) & ~differ.any(axis=1)).tolist()
        pairs += [f"{names[number]} and {names[number + 1 + other]}" for other in alike]
    if not pairs:
        return ""
    more = f", and so {len(pairs) - 1} more pairs" * (len(pairs) > 1)
    same = f"{pairs[0]} have the same losses at every step that both have{more}"
    return f"{same}: one run given twice makes intervals too narrow; then import all but one under another name="


def starts_line(points: pd.DataFrame) -> str:
    """That runs of one model begin at different losses, of which answers take the first; empty: none do."""
    for (model, corpus), losses in points[points["step"] == 0].groupby(["model", "corpus"], sort=False)["loss"]:
        if losses.max() > (1 + SAME) * losses.min():
            between = f"{losses.min():.4f} to {losses.max():.4f}: answers are for a run that begins at"
            line = f"runs of {model} begin at losses on {corpus} of {between} {losses.iloc[0]:.4f}"
            return f"{line}; give runs of another base model a model_name of their own"
    return ""


def with_loss_before(table: pd.DataFrame, facts: RunFacts, spec: RunSpec) -> pd.DataFrame:
    """The points of a run, its loss before CPT included."""
    measured = set(table.loc[table["step"] == 0, "corpus"])
    before = {name: loss for name, loss in facts.loss_before.items() if name not in measured}
    added = pd.DataFrame([{"step": 0, "corpus": name, "loss": loss} for name, loss in before.items()])
    rows = pd.concat([added, table]) if before else table
    rows = rows[rows["corpus"].isin(list(spec.corpora))].sort_values(["step", "corpus"], kind="stable")
    rates = learning_rates(spec.schedule, spec.steps)
    steps = rows["step"].astype("int64")
    stderr = rows["loss_stderr"].fillna(0.0) if "loss_stderr" in rows else 0.0
    return rows.assign(
        step=steps,
        tokens=steps * spec.tokens_per_step,
        loss_stderr=stderr,
        learning_rate=[float(rates[step - 1]) if step else 0.0 for step in steps],
    )


def question_of(settings: ImportSettings, runs: Sequence[PlannedRun], overrides: list[str]) -> Question:
    """The question that the runs for the fit answer: the largest model, for as long as the longest run.

    What a study that is there asks otherwise, like its laws and its tolerance, stays. ConfigError: there are no runs.
    """
    if not runs:
        raise ConfigError(["role=confirm: nothing to confirm; import runs with role=fit first"])
    longest = max(runs, key=lambda run: (run.spec.model["non_embedding"], run.spec.tokens))
    spec, peak = longest.spec, longest.peak
    ratios = sorted({run.ratio_of(settings.domain) for run in runs})
    words = [
        *(f"model.name={longest.model}", f"mixture.domain_ratio={ratios}", f"target.peak_learning_rate={peak}"),
        *(f"target.steps={spec.steps}", f"target.global_batch={spec.global_batch}"),
        f"sequence_length={spec.sequence_length}",
    ]
    folder = Path(settings.studies) / settings.name
    if (folder / "study.yaml").exists():
        question = question_of_study(folder, [*words, *overrides])
    else:
        own = ["experiment=own", f"name={settings.name}", f"studies={settings.studies}", "model=local", "ladder=[]"]
        own += [f"model.path={IMPORTED}", "continual.part=1"]
        own += [f"corpora.sources.{name}.path={IMPORTED}" for name in ("general", "domain")]
        if len({run.spec.model["non_embedding"] for run in runs}) == 1:
            # As experiment=base-model: what a single model was trained on before is not known.
            laws = "law=[transfer-open-saturating,transfer-open,transfer-open-read]"
            own += [laws] * (not any(word.startswith("law=") for word in overrides))
        question = read_question([*own, *words, *overrides])
    question.target.schedule.pieces = [
        dataclasses.replace(piece, start=_relative(piece.start, peak), end=_relative(piece.end, peak))
        for piece in spec.schedule
    ]
    question.continual = question.target_phase
    names = (settings.general, settings.domain)
    sources = dict(zip(names, question.corpora.sources.values()))
    question.corpora = dataclasses.replace(question.corpora, general=names[0], domain=names[1], sources=sources)
    return question


def _relative(rate: float | None, peak: float) -> float | None:
    return None if rate is None else float(f"{rate / peak:.12g}")


def write_study(study: Study, question: Question, plan: list[PlannedRun], tables: dict[str, pd.DataFrame]) -> None:
    """Write question, plan, and the points of runs that are imported now."""
    for name, table in tables.items():
        folder = study.runs / name
        folder.mkdir(parents=True, exist_ok=True)
        columns = ["step", "tokens", "corpus", "loss", "loss_stderr", "learning_rate"]
        write_whole(folder / "points.jsonl", table[columns].to_json(orient="records", lines=True, double_precision=15))
        write_whole(folder / "DONE", json.dumps({"points": len(table)}) + "\n")
    write_whole(study.folder / "study.yaml", question_yaml(question))
    study.write_plan(plan)
