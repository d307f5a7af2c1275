"""The runs that a design can choose among, and their points as the laws read them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from pipeline.plan.cost import run_flops
from pipeline.plan.runs import continual_run, planned_runs, pretraining_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import candidate_peaks, candidate_steps, is_active, peak_of, target_steps, with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import pieces
from pipeline.question.presets import models
from pipeline.question.schema import LawConfig, ModelConfig, Question
from pipeline.study.collect import with_specs
from pipeline.study.design_history import ChosenRun
from pipeline.study.fits import selected
from pipeline.study.folder import PlannedRun
from training.corpora.manifest import Manifest
from training.evaluation_steps import evaluation_steps
from training.schedule import Piece

UNKNOWN_LOSS = 3.0
"""Loss before CPT, nats a token, as long as no model is measured."""

Before = Mapping[str, Mapping[str, float]]
"""Model -> corpus -> loss before CPT, nats a token."""


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
    def peaks(self) -> dict[tuple[Piece, ...], float]:
        """Schedule of a continual run -> its peak learning rate; none where all have that of the question."""
        peaks = candidate_peaks(self.question)
        if peaks == [peak_of(self.question, 1.0)]:
            return {}
        return {pieces(with_peak(self.question, peak).continual): peak for peak in peaks}

    @functools.cached_property
    def budget(self) -> float:
        """`design.budget`, or the FLOPs of the grid; the target's pre-training is in neither, as every study has it."""
        if self.question.design.budget is not None:
            return self.question.design.budget
        mixture = self.question.mixture
        ratios = dataclasses.replace(mixture, domain_ratio=mixture.domain_ratio or self.question.design.ratios)
        grid = planned_runs(dataclasses.replace(self.question, mixture=ratios), self.manifest, self.precision)
        target = self.pretraining.get(self.question.model.name)
        return sum(run_flops(run.spec) for run in grid if target is None or run.spec.hash != target.spec.hash)

    def pretrained(self, models: Collection[str]) -> set[str]:
        """Models whose pre-training the study has: the target, those of a grid, and those of runs that were chosen."""
        own = self.question.ladder if not is_active(self.question) else ()
        return {self.question.model.name, *own, *models}

    def flops(self, run: PlannedRun, pretrained: Collection[str]) -> float:
        """FLOPs of a continual run, with the pre-training of its model where that is not one of `pretrained`."""
        parent = None if run.model in pretrained else self.pretraining.get(run.model)
        return run_flops(run.spec) + (run_flops(parent.spec) if parent else 0.0)

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


def candidate_runs(setting: Setting) -> list[PlannedRun]:
    """The runs that can be chosen: each model, length, peak and ratio of `design` that the text is enough for.

    Raises:
        ConfigError: the corpora are too short for every one of them; a line for each.
    """
    question = setting.question
    names = [*question.ladder]
    if question.design.target_size and question.model.name not in names:
        names.append(question.model.name)
    runs = [
        setting.run(model, ratio, steps, question.seed, peak=peak)
        for model in names
        for steps in candidate_steps(question)
        for peak in candidate_peaks(question)
        for ratio in dict.fromkeys(question.design.ratios)
    ]
    enough = [run for run in runs if not any(supply_problems([run], setting.manifest, question))]
    if not enough:
        raise ConfigError(list(supply_problems(runs, setting.manifest, question)))
    return enough


def candidate_points(
    setting: Setting,
    runs: Sequence[PlannedRun],
    before: Before,
    corpus: str,
    section: LawConfig,
    pretrained: Collection[str],
) -> pd.DataFrame:
    """The points of planned runs on a corpus that laws would be fitted to, as `fitting.design` takes candidates.

    A row a point, with the name of its `run`, the columns of `pipeline.study.collect.COLUMNS` that follow from specs,
    and the `cost` of the run, FLOPs, with the pre-training of a model that is not in `pretrained`.
    """
    table = planned_points(setting, runs, before, corpus).assign(role="fit")
    rows = selected(table, corpus, section)
    cost = {run.name: setting.flops(run, pretrained) for run in runs}
    return rows.assign(cost=rows["run"].map(cost)).reset_index(drop=True)


def target_row(setting: Setting, before: Before, corpus: str) -> pd.DataFrame:
    """What laws of a corpus read at the end of the run that the answer is for, and what the goal asks, in one row.

    The ratio is left out.
    """
    question, goal = setting.question, setting.question.goal
    target = setting.run(question.model.name, 0.5, target_steps(question), question.seed)
    end = planned_points(setting, [target], before, corpus).iloc[[-1]].drop(columns=["r", "loss"])
    general = _loss_before(before, question.model.name, question.corpora.general)
    tokens = (goal.domain_tokens or float("nan")) / 1e9
    asked = {"tolerance": goal.tolerance, "general_before": general, "domain_tokens": tokens}
    return end.assign(**asked).reset_index(drop=True)


def planned_points(setting: Setting, runs: Sequence[PlannedRun], before: Before, corpus: str) -> pd.DataFrame:
    """The points that runs will have on a corpus, with the columns of collected ones; their losses are NaN."""
    rows = []
    for run in runs:
        first = _loss_before(before, run.model, corpus)
        for step in evaluation_steps(run.spec.evaluation, run.spec.steps):
            tokens = step * run.spec.tokens_per_step
            rows.append((run.name, step, tokens, corpus, float("nan") if step else first))
    points = pd.DataFrame(rows, columns=["run", "step", "tokens", "corpus", "loss"])
    return with_specs(points, [*setting.pretraining.values(), *runs], setting.question.corpora.general)


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
    role = "confirm" if confirmed else "fit"
    run = setting.run(chosen.model, chosen.domain_ratio, chosen.steps, chosen.seed, role, chosen.peak)
    return dataclasses.replace(run, role="fit") if run.name == chosen.run else None
