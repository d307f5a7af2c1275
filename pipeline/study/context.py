"""One object that carries a study: its question, its folder, and what is read from them, each on first use."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pandas as pd

from fitting import LAWS, Fit
from fitting.schedule import AREAS, Schedule
from pipeline.question.data import data_folder
from pipeline.question.messages import ConfigError
from pipeline.question.presets import models
from pipeline.question.schema import ModelConfig, Question
from pipeline.study.artifacts import Confirmation, Machine, read_if_there
from pipeline.study.collect import last_losses, of_domain, read_points, schedules
from pipeline.study.earlier import earlier_schedules, with_earlier
from pipeline.study.fits import fits_digest, read_back_test, read_fits
from pipeline.study.fitted_points import points_digest
from pipeline.study.folder import PlannedRun, Study, StudyError, study_of
from pipeline.study.target import Target, find_target
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Context:
    """A question and its study; what is read once is kept, so make a new one after a step has written."""

    question: Question
    study: Study
    given_manifest: Manifest | None = None
    """In place of the prepared corpora, for an estimate before there are any."""
    given_precision: str | None = None
    """In place of the study's precision."""
    given_machine: Machine | None = None
    """In place of machine.json, for a dry run."""

    def fresh(self) -> Context:
        """The same question and study, with nothing read yet."""
        return dataclasses.replace(self)

    def asking(self, question: Question) -> Context:
        """The same study's context for a question that differs in a few keys."""
        own = dataclasses.replace(study_of(question), folder=self.study.folder)
        # The corpora are the same, so what was read of them is.
        read = self.__dict__.get("manifest", self.given_manifest)
        return dataclasses.replace(self, question=question, study=own, given_manifest=read)

    def once(self, compute: Callable[[Context], T]) -> T:
        """What a function makes of this context, computed on the first call and kept."""
        if compute not in self._kept:
            self._kept[compute] = compute(self)
        return self._kept[compute]

    @cached_property
    def _kept(self) -> dict[Callable[[Context], Any], Any]:
        return {}

    @cached_property
    def models(self) -> dict[str, ModelConfig]:
        """Name -> model, of the ladder and of the target."""
        ladder, target = models(self.question)
        return {model.name: model for model in [*ladder, target]}

    @property
    def is_prepared(self) -> bool:
        """Whether the corpora are prepared."""
        return (data_folder(self.question) / "manifest.json").exists()

    @property
    def unprepared(self) -> str:
        """What prepare has yet to do, in words; empty: nothing."""
        if not self.is_prepared:
            return "the corpora are not prepared"
        return "" if self.known_precision else "the precision of this study is not chosen yet"

    @cached_property
    def manifest(self) -> Manifest:
        """The prepared corpora. Raises CorpusError: they are not prepared."""
        folder, corpora = data_folder(self.question), self.question.corpora
        if not (self.given_manifest or self.is_prepared):
            names = f"{corpora.general} and {corpora.domain}" if not corpora.domains else corpora.general
            raise CorpusError(f"{folder}/manifest.json: missing; {names} are not prepared: {self._prepare} first")
        return self.given_manifest or Manifest.open(folder)

    @cached_property
    def machine(self) -> Machine | None:
        """What prepare measured of this machine; None before that. Raises StudyError: machine.json is damaged."""
        return self.given_machine or read_if_there(Machine, self.study)

    @cached_property
    def known_precision(self) -> str | None:
        """The study's precision, configured or measured; None while it is neither."""
        if self.given_precision or self.question.precision != "auto":
            return self.given_precision or self.question.precision
        if self.question.launcher.elsewhere and self.question.launcher.slurm.has_gpus:
            return "bf16"  # What this machine, which submits, is fast in says nothing of its GPUs.
        return self.machine.precision if self.machine and self.machine.chose_precision else None

    def chooses_precision(self) -> bool:
        """Whether prepare is to choose the precision. Raises ConfigError: on a node, not here."""
        launcher = self.question.launcher
        if self.known_precision is None and launcher.elsewhere and "SLURMD_NODENAME" not in os.environ:
            what = f"auto with launcher={launcher.kind} and without launcher.slurm.gpus is chosen on a node, not here"
            allowed = "fp32, bf16 if the nodes' processors have instructions for it, or auto in a job"
            raise ConfigError([f"precision: {what}; allowed: {allowed}: srun cptlaw prepare"])
        return self.known_precision is None

    @property
    def precision(self) -> str:
        """The study's precision. Raises StudyError: precision=auto, and prepare has not chosen it."""
        if self.known_precision is None:
            what = "of one precision" if self.machine else "missing"
            path = f"{self.study.folder}/machine.json"
            raise StudyError(f"{path}: {what}, and precision=auto; {self._prepare} first")
        return self.known_precision

    @property
    def _prepare(self) -> str:
        kept = (self.study.folder / "study.yaml").exists()
        return f"run cptlaw prepare {self.study.word}" if kept else "give these words to cptlaw prepare"

    @cached_property
    def plan(self) -> list[PlannedRun]:
        """The runs of plan.jsonl; none before cptlaw plan. Raises StudyError: damaged, or of another schema."""
        return self.study.read_plan() if self.study.plan_file.exists() else []

    @cached_property
    def points(self) -> pd.DataFrame:
        """Collected points of the domain that is asked about. Raises StudyError: nothing is collected."""
        return with_earlier(of_domain(read_points(self.study), self.question), self.question)

    @cached_property
    def points_digest(self) -> str:
        """`points_digest` of the points."""
        return points_digest(self.points)

    @cached_property
    def schedules(self) -> dict[Hashable, Schedule]:
        """Run -> its learning rates and those of the run that it continued."""
        return earlier_schedules(self.question) | schedules(self.study.read_plan())

    @cached_property
    def fits(self) -> dict[str, dict[str, Fit]]:
        """Corpus -> law -> fit, of the laws that are fitted to both corpora. Raises StudyError: there is none."""
        return read_fits(self.study, self.question)

    @cached_property
    def fits_digest(self) -> str:
        """`fits_digest` of the fits."""
        return fits_digest(self.study)

    @cached_property
    def tested(self) -> pd.DataFrame:
        """`fits.back_test` by the laws of the question. Raises StudyError: there is none, or of other laws."""
        tested = read_back_test(self.study)
        laws = [*tested["law"].unique()]
        of_others = [law for law in self.fits[self.corpora[0]] if law not in laws]
        if of_others and not {*laws} <= {*self.question.law}:
            again = shlex.join(["cptlaw", "fit", str(self.study.folder), f"law=[{','.join(self.question.law)}]"])
            raise StudyError(
                f"{', '.join(of_others)}: not among the laws that cptlaw fit tested last; give law=[{','.join(laws)}], "
                f"or some of them, to this command, or run {again}"
            )
        tested = tested[tested["law"].isin(self.question.law)]
        return tested[~tested["law"].isin(self.laws_without_peaks)]

    @cached_property
    def laws_without_peaks(self) -> list[str]:
        """Laws that have no part in an average, since they read no learning rates.

        They would take a difference between peaks for one between mixtures. None where the runs for the fit of each
        model have one peak, to 1%, or where no law that was fitted reads learning rates.
        """
        peaks = defaultdict[str, list[float]](list)
        for run in (run for run in self.plan if run.role == "fit"):
            peaks[run.model].append(run.peak)
        fitted = self.fits[self.corpora[0]]
        blind = [law for law in fitted if not {*AREAS} & {*LAWS[law].columns}]
        several = any(max(of_model) > 1.01 * min(of_model) for of_model in peaks.values())
        return blind if several and len(blind) < len(fitted) else []

    @cached_property
    def confirmation(self) -> Confirmation | None:
        """What confirm compared; None: nothing, or runs whose losses have changed since. Raises StudyError: damaged."""
        made = read_if_there(Confirmation, self.study)
        if made and made.losses:
            # A folder that was sent without its points shows what it holds.
            with contextlib.suppress(StudyError):
                if last_losses(self.points, made.losses) != made.losses:
                    return None
        return made

    @cached_property
    def target(self) -> Target:
        """The run that the answer is for. Raises StudyError: the loss before its continual phase is not measured."""
        return find_target(self.question, self.points)

    @property
    def corpora(self) -> tuple[str, str]:
        """General, then domain."""
        return self.question.corpora.general, self.question.corpora.domain


def context_of(question: Question) -> Context:
    """The context of a question, in the study that its name says."""
    return Context(question, study_of(question))
