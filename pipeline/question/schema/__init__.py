"""Every key of a question: its type, unit, default and help. Hydra checks what is given against these classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from pipeline.question.schema.answers import (
    GOAL_KINDS,
    ConfirmConfig,
    DesignConfig,
    GoalConfig,
    GoalKind,
    LargeConfig,
    LawConfig,
    TablesConfig,
    WeightsConfig,
)
from pipeline.question.schema.execution import EvaluateConfig, LauncherConfig, TrackingConfig
from pipeline.question.schema.training import (
    CorporaConfig,
    MixtureConfig,
    ModelConfig,
    PhaseConfig,
    TargetConfig,
)
from training.corpora.source import ValidationChoice
from training.keys import Name, PositiveRatio, Seed, Size, Steps, Tokens, between, one_of
from training.spec import Objective, Optimizer, Parallel

ROLES = ("pretrain", "fit", "confirm")
"""Roles of runs in a study: pre-training, points for the fit, and runs that no fit sees."""


@dataclass
class Question:
    name: Name = "study"
    """Name of the study, a folder in `studies`."""
    studies: str = "studies"
    """Folder that holds the studies."""
    data: str = "data"
    """Folder that holds prepared corpora; studies share it."""
    seed: Seed = 0
    """Seed of the initial weights and of the order of sequences; replicates count up from it."""
    precision: Annotated[str, one_of("auto", "fp32", "bf16")] = "auto"
    """fp32, bf16 (autocast over fp32 weights), or auto: the faster on this machine, measured once by prepare;
    fp32 where the processor has no instructions for products of bf16."""
    engine: Annotated[str, one_of("auto", "sdpa", "eager", "sdpa-compiled", "eager-compiled", "sdpa-chunked")] = "auto"
    """sdpa, eager, sdpa-compiled, eager-compiled, sdpa-chunked (for large vocabularies), or auto: the fastest, measured
    once per shape. Changes no run's name, and losses by rounding only."""
    sequence_length: Tokens = 128
    """Predictions per sequence, tokens."""
    validation_windows: Size = 0
    """Fixed validation sequences per corpus; a shorter corpus has fewer. 0: as many as evaluation_budget allows, 16 to
    96."""
    evaluation_budget: PositiveRatio = 0.2
    """Largest part of a run's FLOPs that its evaluations take, above 0: of the policy's steps as many are evaluated as
    it allows, first and last always. A list of steps (policy explicit) is kept, and so are the steps of runs named by
    the key `dense`. 1: no limit."""
    objective: Objective = field(default_factory=Objective)
    """Which tokens are predicted."""
    boundaries: Annotated[str, one_of("none", "documents")] = "none"
    """none: attention crosses the documents of a sequence; documents: it stays within each."""
    sequence_start: Annotated[str, one_of("auto", "text", "separator")] = "auto"
    """First token of a sequence, which is context alone. text: what precedes the rest; separator: the token between
    documents, without which models like Gemma 3 lose a nat per token; auto: that for models whose documents are
    preceded by it, <bos>, else text."""
    dense: dict[str, str] = field(default_factory=dict)
    """Domain -> model whose runs on it are evaluated on the whole grid (policy dense), to compare policies."""
    transfer_steps: list[Steps] = field(default_factory=list)
    """Pre-training steps that continual runs start from; empty: the last. Answers are for the last."""
    variants: dict[str, Any] = field(default_factory=dict)
    """Variants of the study: name -> keys that differ, of ladder, mixture, pretrain, continual and transfer_steps; with
    held_out: true no fit sees its runs. Answers are for the question itself. {slow: {continual: {steps: 900}}}"""
    allow_repeats: bool = False
    """Whether a run may read a corpus more than once."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The target model, a file of conf/model: the answer is for it, and confirmation runs train it."""
    ladder: list[str] = field(default_factory=list)
    """Models that the fit trains, usually smaller ones: files of conf/model, or base models of the
    target's tokenizer, [Qwen/Qwen1.5-0.5B]. Empty: the target model itself."""
    general_from: list[str] = field(default_factory=list)
    """Folders of earlier studies of the same base model on other domains, whose losses on general count for the fit
    too: they depend little on the domain, and tell of a run far longer than the study's own."""
    corpora: CorporaConfig = field(default_factory=CorporaConfig)
    """Which text."""
    validation: ValidationChoice = field(default_factory=ValidationChoice)
    """How validation documents are chosen."""
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    """Which domain ratios to run."""
    pretrain: PhaseConfig = field(default_factory=PhaseConfig)
    """The phase on general text, for models without a path."""
    target: TargetConfig = field(default_factory=TargetConfig)
    """The run of `model` that the answer is for, and that confirmation runs train."""
    continual: PhaseConfig = field(default_factory=PhaseConfig)
    """The runs for the fit; what is not given is as in the target."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """AdamW."""
    launcher: LauncherConfig = field(default_factory=LauncherConfig)
    """Where and how runs are executed."""
    parallel: Parallel = field(default_factory=Parallel)
    """How a run is distributed over devices; changes no run's name."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    """Where runs can be watched; changes no run's name."""
    law: dict[str, LawConfig] = field(default_factory=dict)
    """Laws to fit -> which points each is fitted to."""
    bootstrap: Annotated[int, between(0, 10_000)] = 50
    """Bootstrap samples of the runs, for the intervals; more of them take longer."""
    goal: GoalConfig = field(default_factory=GoalConfig)
    """What is asked of the fit."""
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    """How goal=weights finds and compares mixture weights of many domains."""
    design: DesignConfig = field(default_factory=DesignConfig)
    """How the runs for the fit are chosen."""
    confirm: ConfirmConfig = field(default_factory=ConfirmConfig)
    """Which runs confirm the answer."""
    large: LargeConfig = field(default_factory=LargeConfig)
    """What the advice may cost where the run that is asked about is large."""
    tables: TablesConfig = field(default_factory=TablesConfig)
    """Which of the papers' tables cptlaw tables makes, and where the papers' numbers are."""
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    """Which down-stream tasks cptlaw evaluate runs, on which checkpoints."""
    run: str | None = None
    """Hash or folder name of the only run that train or evaluate takes."""
    retry_failed: bool = False
    """Whether train trains the runs again that have failed, or with run=NAME that one."""
    remeasure: bool = False
    """Whether prepare measures the speeds of the models again, as after it found a busy machine."""
    dry_run: bool = False
    """Whether advise, or train with a launcher that queues runs elsewhere, prints what it would submit, and submits
    nothing."""
    rehearsal: bool = False
    """Whether to run this question in small, whole, on two cores in minutes: tiny models, short runs, little text, in
    studies/NAME-rehearsal. Its numbers say nothing."""
    rehearsal_corpora: str = "installed"
    """Text of a rehearsal: installed (local files that exist, else text of the installed Python), own (the first
    megabytes of each corpus, from the hub too), or a folder with a file or folder of each corpus, NAME.jsonl.gz."""
    rehearsal_changes: list[str] = field(default_factory=list)
    """What rehearsal=true has changed, a line each; cptlaw writes it."""
    experiment: Any = None
    """Complete questions, files of conf/experiment."""

    @property
    def goal_kind(self) -> GoalKind:
        """What follows from goal.kind; of an unknown one, which the preflight reports, the defaults."""
        return GOAL_KINDS.get(self.goal.kind, GoalKind())

    def marked(self, line: str) -> str:
        """A line; of a rehearsal behind a mark."""
        return f"rehearsal, no result: {line}" if self.rehearsal else line

    def with_laws(self, fits: Mapping[str, Mapping[str, object]]) -> Question:
        """The question with those of its laws that are fitted to every corpus; `fits` is corpus -> law -> fit."""
        law = {name: section for name, section in self.law.items() if all(name in of for of in fits.values())}
        return replace(self, law=law)

    def tokens_per_step(self) -> int:
        """Tokens of a step of the target."""
        return self.target.global_batch * (self.target.sequence_length or self.sequence_length)

    def is_large(self, tokens: float | None = None) -> bool:
        """Whether the run that is asked about is large, by its tokens; None: those of the target."""
        asked = self.target.steps * self.tokens_per_step() if tokens is None else tokens
        return not self.goal_kind.many_domains and asked >= self.large.tokens

    @property
    def target_phase(self) -> PhaseConfig:
        """The continual phase of the target: as that of the runs for the fit, with the target's keys."""
        return replace(self.continual, **{key.name: getattr(self.target, key.name) for key in fields(self.target)})

    def steps_of(self, phase: str) -> int:
        """Steps of a phase, pretrain or continual; weights.target where mixture weights are searched in it."""
        if self.goal_kind.many_domains and phase == self.weights.phase:
            return max(1, self.weights.target)
        return getattr(self, phase).steps
