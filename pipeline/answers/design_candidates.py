"""The runs that a design can choose among, and their points as the laws read them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from pipeline.plan.cost import run_flops, run_seconds
from pipeline.plan.duration import START_SECONDS, Speeds, speed_of
from pipeline.plan.machine import read_machine
from pipeline.plan.runs import branch_run, continual_run, planned_runs, pretraining_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import (
    candidate_peaks,
    candidate_steps,
    is_active,
    peak_of,
    rest_of_schedule,
    target_steps,
    with_peak,
)
from pipeline.question.messages import ConfigError
from pipeline.question.presets import models
from pipeline.question.schema import LawConfig, ModelConfig, Question
from pipeline.question.schema.training import BranchConfig, ScheduleConfig
from pipeline.study.collect import with_specs
from pipeline.study.design_history import ChosenRun
from pipeline.study.fits import selected
from pipeline.study.folder import PlannedRun, study_of
from training.corpora.manifest import Manifest
from training.evaluation_steps import evaluation_steps

UNKNOWN_LOSS = 3.0
"""Loss before CPT, nats per token, as long as no model is measured."""

Before = Mapping[str, Mapping[str, float]]
"""Model -> corpus -> loss before CPT, nats per token."""


@dataclass(frozen=True)
class Setting:
    """A question, with the facts that name its runs."""

    question: Question
    manifest: Manifest
    precision: str

    @functools.cached_property
    def models(self) -> dict[str, ModelConfig]:
        """Name -> model, of the ladder and of the target."""
        ladder, target = models(self.question)
        return {model.name: model for model in [*ladder, target]}

    @functools.cached_property
    def pretraining(self) -> dict[str, PlannedRun]:
        """Model -> its pre-training; none for a model with a path."""
        own = (model for model in self.models.values() if not model.path)
        return {model.name: pretraining_run(self.question, model, self.manifest, self.precision) for model in own}

    @functools.cached_property
    def budget(self) -> float:
        """`design.budget`, or the cost of the grid; the target's pre-training is in neither, as every study has it."""
        if self.question.design.budget is not None:
            return self.question.design.budget
        mixture = self.question.mixture
        ratios = dataclasses.replace(mixture, domain_ratio=mixture.domain_ratio or self.question.design.ratios)
        grid = planned_runs(dataclasses.replace(self.question, mixture=ratios), self.manifest, self.precision)
        target = self.pretraining.get(self.question.model.name)
        return sum(self.own_cost(run) for run in grid if target is None or run.spec.hash != target.spec.hash)

    @functools.cached_property
    def unit(self) -> str:
        """The unit of costs: `design.budget_unit`, or what auto stands for."""
        asked = self.question.design
        if asked.budget_unit != "auto":
            return asked.budget_unit
        return "device-hours" if asked.budget is None and self._measured else "FLOPs"

    @functools.cached_property
    def _measured(self) -> bool:
        """Whether `prepare` has measured the speed of every model."""
        machine = read_machine(study_of(self.question))
        return machine is not None and self.models.keys() <= machine.speeds.keys()

    @functools.cached_property
    def _speed(self) -> Speeds:
        """The speed of a run by what `prepare` measured, whatever machine decides and whatever has been run."""
        question = self.question
        longest = [self.run(name, 0.5, target_steps(question), question.seed) for name in self.models]
        return speed_of(study_of(question), question, [*self.pretraining.values(), *longest], engines=False)

    def own_cost(self, run: PlannedRun) -> float:
        """Cost of the steps of a run alone, in `unit`.

        Raises:
            ConfigError: device-hours, and `prepare` has not measured the speed of every model.
        """
        match self.unit:
            case "tokens":
                return float(run.spec.tokens)
            case "device-hours":
                if not self._measured:
                    problem = "design.budget_unit: 'device-hours' needs the speed of every model, and prepare has "
                    problem += "measured none; use precision=auto and prepare again, or FLOPs, or tokens"
                    raise ConfigError([problem])
                seconds = START_SECONDS + (run_seconds(run.spec, self._speed(run)) or 0.0)
                return seconds * self.question.parallel.processes / 3600
            case _:
                return run_flops(run.spec)

    def pretrained(self, models: Collection[str]) -> set[str]:
        """Models whose pre-training the study has: the target, those of a grid, and those of runs that were chosen."""
        own = self.question.ladder if not is_active(self.question) else ()
        return {self.question.model.name, *own, *models}

    def cost(self, run: PlannedRun, pretrained: Collection[str]) -> float:
        """Cost of a continual run, with the pre-training of its model where that is not one of `pretrained`."""
        parent = None if run.model in pretrained else self.pretraining.get(run.model)
        return self.own_cost(run) + (self.own_cost(parent) if parent else 0.0)

    def run(
        self,
        model: str,
        domain_ratio: float,
        steps: int,
        seed: int,
        role: str = "fit",
        peak: float | None = None,
    ) -> PlannedRun:
        """A continual run; without a peak learning rate with that of the question."""
        return continual_run(
            with_peak(self.question, peak), self.models[model], domain_ratio, steps, seed, role, self.pretraining,
            self.manifest, self.precision,
        )  # fmt: skip

    def chain(self, chosen: Candidate | ChosenRun, role: str = "fit") -> list[PlannedRun]:
        """The runs that a run continues, the first one first, and the run itself."""
        question = with_peak(self.question, chosen.peak)
        lengths = [*chosen.continues, chosen.steps]
        first = self.run(chosen.model, chosen.domain_ratio, lengths[0], chosen.seed, role, chosen.peak)
        runs, behind = [first], 0
        for shorter, steps in itertools.pairwise(lengths):
            rest = rest_of_schedule(question.continual, shorter, steps)
            if rest is None:
                raise ValueError(f"continual.schedule: a run of {steps} steps does not continue one of {shorter}")
            at, chain = rest
            branch = BranchConfig(at - behind, steps - at, ScheduleConfig(chain))
            runs.append(branch_run(runs[-1], question.continual, branch, question.evaluation_budget))
            behind = at
        return runs


@dataclass(frozen=True)
class Candidate:
    """A run that can be chosen; `chain` are the runs that it continues, and the run."""

    model: str
    domain_ratio: float
    steps: int
    seed: int
    peak: float | None
    continues: list[int]
    chain: list[PlannedRun] = dataclasses.field(default_factory=list)

    @property
    def run(self) -> PlannedRun:
        """The run itself."""
        return self.chain[-1]


def candidate_runs(setting: Setting, chosen: Sequence[ChosenRun] = ()) -> list[Candidate]:
    """The runs that can be chosen: each model, length, peak and ratio of `design` that the text is enough for.

    With `design.extend` a run continues the longest shorter one of its kind among those `chosen` before, if there is
    one.

    Raises:
        ConfigError: the corpora are too short for every one of them; a line for each.
    """
    question = setting.question
    names = [*question.ladder]
    if question.design.target_size and question.model.name not in names:
        names.append(question.model.name)
    peaks = candidate_peaks(question)
    # Where there is one peak, that of the question, a choice does not name it.
    peaks = [None] if peaks == [peak_of(question, 1.0)] else peaks
    found = []
    for model, steps, peak, ratio in itertools.product(
        names, candidate_steps(question), peaks, dict.fromkeys(question.design.ratios)
    ):
        own = Candidate(model, ratio, steps, question.seed, peak, [])
        own = dataclasses.replace(own, continues=_continued(question, own, chosen))
        found.append(dataclasses.replace(own, chain=setting.chain(own)))
    enough = [one for one in found if not any(supply_problems(one.chain, setting.manifest, question))]
    if not enough:
        raise ConfigError(list(supply_problems([one.run for one in found], setting.manifest, question)))
    return enough


def _continued(question: Question, own: Candidate, chosen: Sequence[ChosenRun]) -> list[int]:
    """Steps of the runs that a candidate continues, the first one first; none where it begins anew."""
    if not question.design.extend:
        return []
    shorter = [
        one
        for one in chosen
        if (one.model, one.domain_ratio, one.seed, one.peak) == (own.model, own.domain_ratio, own.seed, own.peak)
        and one.steps < own.steps
        and rest_of_schedule(question.continual, one.steps, own.steps)
    ]
    longest = max(shorter, key=lambda one: one.steps, default=None)
    return [*longest.continues, longest.steps] if longest else []


def candidate_points(
    setting: Setting,
    candidates: Sequence[Candidate],
    before: Before,
    corpus: str,
    section: LawConfig,
    pretrained: Collection[str],
) -> pd.DataFrame:
    """The points of planned runs on a corpus that laws would be fitted to, as `fitting.design` takes candidates.

    A row a point, with the name of its `run`, the columns of `pipeline.study.collect.COLUMNS` that follow from specs,
    and the `cost` of the run, with the pre-training of a model that is not in `pretrained`.
    """
    table = planned_points(setting, [one.chain for one in candidates], before, corpus).assign(role="fit")
    rows = selected(table, corpus, section)
    cost = {one.run.name: setting.cost(one.run, pretrained) for one in candidates}
    return rows.assign(cost=rows["run"].map(cost)).reset_index(drop=True)


def target_row(setting: Setting, before: Before, corpus: str) -> pd.DataFrame:
    """What laws of a corpus read at the end of the run that the answer is for, and what the goal asks, in one row.

    The ratio is left out.
    """
    question, goal = setting.question, setting.question.goal
    target = setting.run(question.model.name, 0.5, target_steps(question), question.seed)
    end = planned_points(setting, [[target]], before, corpus).iloc[[-1]].drop(columns=["r", "loss"])
    general = _loss_before(before, question.model.name, question.corpora.general)
    tokens = (goal.domain_tokens or float("nan")) / 1e9
    asked = {"tolerance": goal.tolerance, "general_before": general, "domain_tokens": tokens}
    return end.assign(**asked).reset_index(drop=True)


def planned_points(
    setting: Setting, chains: Sequence[Sequence[PlannedRun]], before: Before, corpus: str
) -> pd.DataFrame:
    """The points that the last run of each chain will have on a corpus, with the columns of collected ones.

    Each run of a chain continues the one before it. Losses after step 0 are NaN.
    """
    rows = []
    for trunk, *_, run in ([chain[0], *chain] for chain in chains):
        first = _loss_before(before, run.model, corpus)
        if trunk is not run:
            rows.append((trunk.name, 0, 0, corpus, first))
        for step in evaluation_steps(run.spec.evaluation, run.spec.steps):
            tokens = step * run.spec.tokens_per_step
            rows.append((run.name, step, tokens, corpus, float("nan") if step or trunk is not run else first))
    points = pd.DataFrame(rows, columns=["run", "step", "tokens", "corpus", "loss"]).drop_duplicates(["run", "step"])
    plan = {run.name: run for chain in chains for run in chain}
    table = with_specs(points, [*setting.pretraining.values(), *plan.values()], setting.question.corpora.general)
    return table[table["run"].isin([chain[-1].name for chain in chains])]


def _loss_before(before: Before, model: str, corpus: str) -> float:
    """The loss before CPT; of a model that is not trained yet, the mean of the others."""
    known = [losses[corpus] for name, losses in before.items() if corpus in losses and name == model]
    known = known or [losses[corpus] for losses in before.values() if corpus in losses]
    return fmean(known) if known else UNKNOWN_LOSS


def losses_before(points: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Model -> corpus -> loss before CPT, of the models that it is collected of."""
    points = points[points["variant"] == ""] if "variant" in points else points
    pretrained = points[points["phase"] == "pretrain"]
    ends = pretrained[pretrained["step"] == pretrained.groupby("run")["step"].transform("max")]
    starts = points[(points["phase"] == "continual") & (points["step"] == 0)]
    found: dict[str, dict[str, float]] = {}
    for rows in (starts, ends):
        for model, corpus, loss in rows[["model", "corpus", "loss"]].itertuples(index=False):
            found.setdefault(model, {})[corpus] = float(loss)
    return found


def planned_again(setting: Setting, chosen: ChosenRun, confirmed: bool) -> PlannedRun | None:
    """A run that was chosen before, for the fit; None where it is not a run of the question any more.

    `confirmed`: whether it was planned to confirm an answer.
    """
    if chosen.model not in setting.models:
        return None
    try:
        run = setting.chain(chosen, "confirm" if confirmed else "fit")[-1]
    except ValueError:
        return None
    return dataclasses.replace(run, role="fit") if run.name == chosen.run else None
