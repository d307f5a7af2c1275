"""A whole study without training: points from a known law, then the real collect, fit, recommend, compare."""

import dataclasses
import functools
import json
import zlib
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fitting import areas
from pipeline.goals.ratio.confirm import Place, compare, confirmation_runs
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.runs import planned_runs
from pipeline.plan.write import add_to_plan
from pipeline.question.schema import Question
from pipeline.show.report import explorer
from pipeline.show.report.pages import write_pages
from pipeline.study.collect import collect, schedules
from pipeline.study.context import Context
from pipeline.study.fits import back_test, fit_all, keep_errors
from pipeline.study.folder import PlannedRun, Study
from training.corpora.manifest import Manifest, PreparedCorpus
from training.evaluation_steps import evaluation_steps
from training.parameters import model_size
from training.schedule import learning_rates

POSITIONS = {name: getattr(explorer, name) for name in ("_TOLERANCES", "_SIZES", "_LENGTHS")}
"""Counts of the sliders before tests/pipeline/conftest.py makes them fewer."""
BEFORE = {"general": (3.9, 0.07), "domain": (4.9, 0.06)}
"""Corpus -> loss of a model of a million parameters before, and how it falls with its size's logarithm."""


HOSTILE_NAME = '<b>study & "co"'
HOSTILE_CORPUS = "<img src=x onerror=alert(1)>"


class _Corpora(Manifest):
    """A manifest without tokens."""

    def store(self, corpus: str) -> Any:
        return SimpleNamespace(meta=SimpleNamespace(end_of_text=0))


@functools.cache
def whole_study(studies: Path) -> tuple[Study, Question]:
    """A confirmed study whose corpus and folder have names that want to be markup; made once a process."""
    return make_study(studies, name=HOSTILE_NAME, domain=HOSTILE_CORPUS, bootstrap=12)


@functools.cache
def whole_page(studies: Path) -> Path:
    """The report of that study, with sliders of as many positions as users see."""
    study, question = whole_study(studies)
    with pytest.MonkeyPatch.context() as patch:
        set_all_positions(patch)
        return write_pages(Context(question, study))[0]


def set_all_positions(patch: pytest.MonkeyPatch) -> None:
    """Give the sliders the counts that they have in other processes."""
    for name, count in POSITIONS.items():
        patch.setattr(explorer, name, count)


def make_study(
    studies: Path, name: str = "synthetic", domain: str = "code", until: str = "confirmation", **changes: Any
) -> tuple[Study, Question]:
    """A study as it lies on disk after plan, fits or confirmation, and its question."""
    question = read_question(
        [
            "experiment=quickstart",
            "mixture=ratios",
            "bootstrap=30",
            "law=[dcpt,transfer-anchored]",
            "law.dcpt.from_step=40",
            # What export writes; all of it is parsed in five seconds.
            *(f"corpora.sources.{name}.max_bytes=20000" for name in ("general", "code")),
        ]
    )
    question = dataclasses.replace(question, name=name, studies=str(studies), **changes)
    sources = dict(zip(("general", domain), question.corpora.sources.values()))
    question.corpora = dataclasses.replace(question.corpora, domain=domain, sources=sources)
    study = Study(studies / name)
    context = Context(question, study, long_corpora(study, "general", domain), "bf16")
    plan = planned_runs(context)
    study.write_plan(plan)
    if until == "plan":
        return study, question
    write_runs(study, question, plan)
    points = collect(study, "general")
    fits = fit_all(study, question, points, schedules(plan), lambda line: None)
    keep_errors(study, fits, back_test(study, question, points, schedules(plan)))
    if until == "fits":
        return study, question
    answer = goal_of(question).recommend(context.fresh(), list)
    share, target = (answer.mixture or {})[domain], answer.target
    asked = [Place(target.model, own, target.steps) for own in (share, round(share + 0.15, 3))]
    runs = confirmation_runs(context, asked)
    write_runs(study, question, add_to_plan(study, runs))
    collect(study, "general")
    compare(context.fresh(), runs, goal_of(question).outcome)
    return study, question


def long_corpora(study: Study, *corpora: str) -> Manifest:
    """A manifest of corpora that nobody prepared, long enough for every run."""
    prepared = PreparedCorpus("x", "00" * 16, "", {"train": 10**9, "validation": 10**6}, {}, {"validation": 4 * 10**6})
    return _Corpora(study.folder, "tokenizer", "00", 2048, 0.05, dict.fromkeys(corpora, prepared))


def write_runs(study: Study, question: Question, plan: list[PlannedRun]) -> None:
    """The files of runs that nobody trained, with losses from a known law and noise; finished ones are left alone."""
    by_hash = {run.spec.hash: run for run in plan}
    for run in plan:
        folder = study.runs / run.name
        if folder.exists():
            continue
        (folder / "attempts").mkdir(parents=True)
        (folder / "attempts" / "001.json").write_text(json.dumps(ATTEMPT))
        lines = _points(run, by_hash.get(run.parent or ""), question)
        (folder / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / "DONE").write_text("{}\n")


def _points(run: PlannedRun, parent: PlannedRun | None, question: Question) -> list[dict[str, Any]]:
    spec = run.spec
    noise = np.random.default_rng(zlib.crc32(run.name.encode()))
    rates = learning_rates(spec.schedule, spec.steps, spec.learning_rate_before)
    s1, s2 = (np.concatenate([[0.0], area]) for area in areas(rates, 0.995, spec.learning_rate_before))
    past = parent and learning_rates(parent.spec.schedule, parent.spec.steps, parent.spec.learning_rate_before)
    s1_pretrain = 1.0 if past is None else float(np.sum(past))
    share = float(Fraction(spec.mixture[question.corpora.domain]))
    lines = []
    offset = {kind: noise.normal(0, 0.003) for kind in BEFORE}
    for step in evaluation_steps(spec.evaluation, spec.steps):
        for kind, r in (("general", 1 - share), ("domain", share)):
            end, slope = BEFORE[kind]
            before = end - slope * np.log(model_size(spec.model, spec.sequence_length).non_embedding / 1e6)
            if parent is None:
                loss = before + 3.0 * (1 - step / spec.steps) ** 3
            else:
                rho = 1.0 if kind == "general" else 0.0
                moved = 0.08 * np.log((rho + 0.02) / (r + 0.02)) * np.log1p(500 * s1[step])
                loss = before - 2 * s2[step] + moved - 0.4 * np.log1p(s1[step] / s1_pretrain)
                loss += (offset[kind] + noise.normal(0, 0.004)) * (step > 0)
            corpus = question.corpora.general if kind == "general" else question.corpora.domain
            rate = rates[step - 1] if step else spec.learning_rate_before
            lines.append(
                {"step": step, "tokens": step * spec.global_batch * spec.sequence_length, "corpus": corpus,
                 "loss": float(loss), "loss_stderr": 0.02, "learning_rate": float(rate)}
            )  # fmt: skip
    return lines


ATTEMPT = {
    **{"attempt": 1, "host": "machine", "exit_code": 0, "git": "abc1234", "device": "a <processor> & more"},
    **{"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T00:00:30+00:00"},
    **{"python": "3.11.7", "packages": {"torch": "2.13.0", "numpy": "2.4.6", "cptlaw": "0.1.0"}},
    **{"engine": "eager", "precision": "bf16", "threads": 1},
}


class Page(HTMLParser):
    """The elements and the visible words of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.scripts: list[str] = []
        self.held: dict[str, str] = {}
        self._inside = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append(dict(attrs).get("id") or "")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            name = self.scripts[-1]
            self.held[name] = self.held.get(name, "") + data
        elif self._inside != "style":
            self.words += data + " "

    @property
    def specs(self) -> list[dict]:
        """Data and layout of every plot."""
        return json.loads(self.held["figures"])
