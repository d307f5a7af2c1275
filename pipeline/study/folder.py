"""A study on disk: where its files are, and the plan that says which runs belong to it."""

import dataclasses
import errno
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from pipeline.question.loading import END, START, load_question
from pipeline.question.messages import ConfigError, StudyError, shown_value, studies_beside
from pipeline.question.presets import IMPORTED
from pipeline.question.schema import ROLES, Question
from training.durable import as_counted_lines, read_counted_lines, read_text, write_whole
from training.run import state_of
from training.spec import RunSpec, SpecError

SCHEMA = 1
KEPT = r"law=|law\.|goal=|goal\.|bootstrap=|confirm\.|design\.|large\.|(schedule@)?target\.|general_from="
"""How an override of fit, recommend or confirm begins that later commands about the study need too."""


@dataclass(frozen=True)
class PlannedRun:
    """A line of plan.jsonl."""

    name: str
    """Folder below runs/: a readable slug and the first eight digits of the hash."""
    role: str
    """pretrain, fit, or confirm (which no fit may see)."""
    model: str
    start: str
    """Folder of the first weights: relative to the study for a run's checkpoint, absolute otherwise, '' for scratch."""
    spec: RunSpec
    variant: str = ""
    """The first of question.variants that it belongs to; empty: the question itself."""
    source: str = ""
    """Of an imported run: its name elsewhere, which stays as its log grows."""

    @property
    def imported(self) -> bool:
        """Whether it was trained elsewhere."""
        return self.spec.initial.fingerprint == IMPORTED

    @property
    def peak(self) -> float:
        """Its highest learning rate, which a decay from the first step on begins a little below."""
        return max(rate or 0.0 for piece in self.spec.schedule for rate in (piece.start, piece.end))

    def ratio_of(self, corpus: str) -> float:
        """Ratio of a corpus in what it reads."""
        return float(Fraction(self.spec.mixture.get(corpus, "0")))

    @property
    def parent(self) -> str | None:
        """Hash of the run that this one continues, if it is one of the study's."""
        return self.spec.initial.run or None

    @property
    def after(self) -> str | None:
        """Hash of the run to be done before this one: its parent, or its reference, which has the same parent."""
        return self.spec.reweighting.reference if self.spec.reweighting else self.parent

    def to_dict(self) -> dict[str, Any]:
        """What a line holds."""
        spec = self.spec
        optional = {key: value for key in ("variant", "source") if (value := getattr(self, key))}
        line = {"schema": SCHEMA, "run": self.name, "role": self.role, "model": self.model, "start": self.start}
        return {**line, "hash": spec.hash, "spec": spec.to_dict(), **optional}


@dataclass(frozen=True)
class Study:
    """The folder of one question."""

    folder: Path
    answers: str = ""
    """Folder below it for what depends on the domain that is asked about; empty: the study has one domain."""
    goal: str = ""
    """Folder below that for the answer to a goal; empty: that of the trade-off, or of weights."""

    @property
    def word(self) -> str:
        """The folder as a shell reads it in a command."""
        return shlex.quote(str(self.folder))

    @property
    def runs(self) -> Path:
        """Folder of the runs."""
        return self.folder / "runs"

    @property
    def memory(self) -> Path:
        """Folder of the micro-batches that fit after memory had run out, a file per shape and device."""
        return self.folder / "memory"

    @property
    def plan_file(self) -> Path:
        """One run a line, in the order in which they can start."""
        return self.folder / "plan.jsonl"

    def fitted(self, name: str) -> str:
        """Where a file of the domain's fits is, from `folder` on: all goals share them."""
        return str(Path(self.answers) / name)

    def answer(self, name: str) -> str:
        """Where the goal's recommendation, confirmation or report is, from `folder` on."""
        return str(Path(self.answers) / self.goal / name)

    def state(self, run: PlannedRun) -> str:
        """done, failed or open."""
        return state_of(self.runs / run.name)

    def read_plan(self) -> list[PlannedRun]:
        """The planned runs. Raises StudyError: no plan, or one of another schema, or a damaged line."""
        if not self.folder.is_dir():
            first = "give the folder of a study, like cptlaw fit studies/NAME, or make one with cptlaw plan"
            raise StudyError(f"{self.folder}: no study is there; {first}{studies_beside(self.folder)}")
        if not self.plan_file.exists():
            first = "run cptlaw plan with the question of this study first"
            raise StudyError(f"{self.plan_file}: missing; {first}{studies_beside(self.folder)}")
        try:
            lines = read_counted_lines(self.plan_file)
        except ValueError as error:
            raise StudyError(f"{error}; {_REMEDY}") from None
        try:
            return [_planned(line) for line in lines]
        except (KeyError, TypeError, SpecError, ValueError) as error:
            raise StudyError(f"{self.plan_file}: {error}; {_REMEDY}") from None

    def write_plan(self, runs: Iterable[PlannedRun]) -> None:
        """Replace plan.jsonl."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.plan_file, as_counted_lines(run.to_dict() for run in runs))


def refuse_read_only(study: Study) -> None:
    """Raise OSError where the study's folder is read-only, before what takes long."""
    if not os.access(study.folder, os.W_OK):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(study.folder))


def import_words(question: Question, ratio: str = "RATIO", logs: Iterable[str] = ("LOG",)) -> tuple[str, ...]:
    """The command that brings another run to a study of imported ones, with the facts that they were given by."""
    of_study = f"name={question.name}", f"studies={question.studies}"
    return "import", *logs, *of_study, "runs=FACTS.yaml", f"domain_ratio={ratio}"


def study_of(question: Question) -> Study:
    """The study's folder of a question, with the folders of its goal's answer."""
    kind, corpora = question.goal_kind, question.corpora
    answers = f"answers/{corpora.domain}" if corpora.domains and not kind.many_domains else ""
    # Of several domains the folder of an answer is below that of the domain.
    goal = kind.folder if corpora.domains or not kind.folder else f"answers/{kind.folder}"
    return Study(Path(question.studies) / question.name, answers, goal)


def question_yaml(question: Question) -> str:
    """The question as study.yaml holds it, a YAML document, without what one command alone was asked for."""
    kept = dataclasses.replace(question, run=None, retry_failed=False, remeasure=False, dry_run=False)
    return f"{START}{OmegaConf.to_yaml(dataclasses.asdict(kept))}{END}"


def keep_overrides(folder: Path, overrides: Sequence[str]) -> list[str]:
    """Change study.yaml by those overrides that later commands need too, if it stays a question.

    Returns them, each with what study.yaml had before where that was another value.
    """
    file, kept = folder / "study.yaml", [word for word in overrides if re.match(KEPT, word)]
    if not kept or not file.exists():
        return []
    try:
        before, after = load_question(file, again=False), load_question(file, kept)
    except ConfigError:
        return []
    if (text := question_yaml(after)) == read_text(file):
        return []
    write_whole(file, text)
    sides = [OmegaConf.create(dataclasses.asdict(question)) for question in (before, after)]
    return [word + _changed_from(*(_value_of(side, word) for side in sides)) for word in kept]


def _value_of(question: DictConfig, word: str) -> Any:
    """What a question has for the key of an override: of a kind its name, of laws their names."""
    value = OmegaConf.select(question, word.partition("=")[0].rpartition("@")[2])
    if isinstance(value, DictConfig):
        return value.get("kind", [*value])
    return [*value] if isinstance(value, ListConfig) else value


def _changed_from(before: Any, after: Any) -> str:
    return "" if before == after else f" (before: {shown_value(before)})"


def _planned(line: dict[str, Any]) -> PlannedRun:
    if line["schema"] != SCHEMA:
        raise StudyError(f"schema {line['schema']!r}; this version reads {SCHEMA}")
    spec = RunSpec.from_dict(line["spec"])
    name, start = line["run"], line["start"]
    if line["role"] not in ROLES or not isinstance(line["model"], str):
        raise StudyError(f"role {line['role']!r:.60} of model {line['model']!r:.60}; allowed: {', '.join(ROLES)}")
    # A name from a file becomes a path: it must be one folder, and the one that its spec asks for.
    if Path(name).name != name or not name.endswith(f"-{spec.hash[:8]}") or not name.isprintable():
        raise StudyError(f"run {name!r} does not belong to its spec {spec.hash[:8]}")
    # So does where its weights come from: another run's are in this study.
    if spec.initial.kind == "run" and (Path(start).is_absolute() or ".." in Path(start).parts):
        raise StudyError(f"{name} starts from {start!r}, which is no run of this study")
    variant, source = (str(line.get(key, "")) for key in ("variant", "source"))
    return PlannedRun(name, line["role"], line["model"], start, spec, variant, source)


_REMEDY = "delete it and run cptlaw plan again, with the question of this study; the finished runs are kept"
