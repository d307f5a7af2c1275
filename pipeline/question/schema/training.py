"""Sections of a question about its training runs: text, model, mixture, phases."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from omegaconf import MISSING

from training.corpora.source import Source, TokenizerChoice
from training.evaluation_steps import EvaluationPolicy
from training.keys import (
    LearningRate,
    Name,
    OpenRatio,
    PositiveRatio,
    Ratio,
    Repeats,
    RopeTheta,
    Size,
    Steps,
    Tokens,
    between,
    one_of,
)
from training.schedule import Piece


@dataclass
class CorporaConfig:
    general: str = MISSING
    """Name of the source that is the general corpus, which is replayed."""
    domain: str = MISSING
    """Name of the source that is the domain corpus."""
    domains: list[str] = field(default_factory=list)
    """Several domains in one study, each mixed with general in runs of its own. fit, recommend, confirm and report are
    about one of them, `domain`: cptlaw recommend studies/six corpora.domain=law. quickstart and the jobs on Slurm
    answer for each. Empty: `domain` alone."""
    sources: dict[str, Source] = field(default_factory=dict)
    """Corpus name -> where its text comes from."""
    tokenizer: TokenizerChoice = field(default_factory=TokenizerChoice)
    """How text becomes tokens."""
    folder: str = ""
    """Folder that the paths of the sources are relative to; empty: the working directory."""
    validation_ratio: OpenRatio = 0.05
    """Ratio of the documents that are kept for validation, above 0, below 1."""
    validation: str | None = None
    """Folder of validation sets, <corpus>.jsonl each; prepare validation writes them, prepare reads them. null: none"""


@dataclass
class ModelConfig:
    name: Name = MISSING
    """Name in run folders and tables."""
    path: str | None = None
    """A Hugging Face directory, or a hub name like Qwen/Qwen2.5-0.5B; the shape then comes from its config.json."""
    revision: str | None = None
    """Branch, tag or commit of a hub name; plan.jsonl keeps the commit. null: the main branch."""
    model_type: Annotated[str, one_of("qwen2", "qwen3", "llama", "gpt2", "bert")] = "qwen2"
    """Architecture: qwen2 (also Qwen1.5 and 2.5), qwen3, llama, gpt2, or bert with objective=masked."""
    hidden_size: Size = 0
    """Width."""
    num_hidden_layers: Annotated[int, between(0, 10_000)] = 0
    """Layers."""
    num_attention_heads: Size = 0
    """Query heads."""
    num_key_value_heads: Size = 0
    """Key and value heads; 0: as many as query heads."""
    head_dim: Annotated[int, between(1, 1_000_000)] | None = None
    """Width of a head; null: hidden_size / num_attention_heads."""
    intermediate_size: Annotated[int, between(0, 10_000_000)] = 0
    """Width inside the MLP."""
    rope_theta: RopeTheta | None = None
    """Base of the rotary position embedding; null: 10,000."""
    vocab_size: Tokens | None = None
    """Rows of the embedding; null: the tokenizer's number of token ids."""
    tie_word_embeddings: bool = True
    """Whether input embedding and output head share their weights."""


@dataclass
class MixtureConfig:
    domain_ratio: Any = field(default_factory=list)
    """Domain ratios to run, 0 to 1: one or a list; the replay ratio is 1 minus it."""
    replicate_at: Any = None
    """Domain ratio, or list of them, that is run with several seeds, to measure noise; null: the median of the list."""
    replicates: Repeats = 1
    """Number of seeds at those ratios; 1: no replicates."""


@dataclass
class ScheduleConfig:
    pieces: list[Piece] = field(default_factory=list)
    """Pieces in order."""


@dataclass
class MixturePhaseConfig:
    steps: Steps | None = None
    """Length, optimizer steps; null: see share."""
    share: PositiveRatio | None = None
    """Length as a ratio of the run's steps, above 0, up to 1; one phase may have neither steps nor share and takes the
    rest."""
    domain_ratio: Ratio | None = None
    """Domain ratio, 0 to 1; null: the run's, of mixture.domain_ratio."""
    mixture: dict[str, Ratio] = field(default_factory=dict)
    """In place of domain_ratio: corpus -> ratio, with sum 1; other corpora are not read."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning rate over the phase, from the last rate of the phase before on, in place of target.schedule. All
    phases have one, or none."""


@dataclass
class BranchConfig:
    step: Steps = MISSING
    """Step of the phase after which the branch starts; it continues weights, moments and the order of sequences."""
    steps: Steps = MISSING
    """Length of the branch, optimizer steps."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning rate over the branch, relative to the phase's peak; it starts from the rate at `step`."""


@dataclass
class PhaseConfig:
    steps: Steps = 0
    """Optimizer steps. Of continual: of the runs of a grid, 0: `part` of target.steps; an active design takes
    design.lengths in its place."""
    part: PositiveRatio = 0.5
    """Of continual: length of the runs of a grid as a part of target.steps, where continual.steps is 0."""
    global_batch: Annotated[int, between(1, 1_000_000)] = 20
    """Sequences per step."""
    peak_learning_rate: LearningRate = 1e-3
    """Largest learning rate; the schedule is relative to it."""
    sequence_length: Tokens | None = None
    """Predictions per sequence in this phase, tokens; null: the question's sequence_length."""
    rope_theta: RopeTheta | None = None
    """Base of the rotary position embedding in this phase; null: the model's."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning rate over the phase; of continual none: that of the target."""
    domain_ratio: Ratio = 0.0
    """Ratio of each domain of the study in pretrain, 0 to 1 in sum; general takes the rest."""
    phases: list[MixturePhaseConfig] = field(default_factory=list)
    """Mixture along the schedule of continual; empty: one mixture. [{share: 0.8}, {domain_ratio: 0.7}]"""
    branches: list[BranchConfig] = field(default_factory=list)
    """Runs that branch off the phase's runs at a step, like several decays from one constant learning rate."""
    evaluation: EvaluationPolicy = field(default_factory=lambda: EvaluationPolicy("decay", every=5, decay=0.05))
    """At which steps to evaluate."""
    checkpoints: EvaluationPolicy = field(default_factory=lambda: EvaluationPolicy("explicit", every=5, decay=0.05))
    """After which steps to keep the weights as a Hugging Face directory; those of the last step are always kept."""


@dataclass
class TargetConfig:
    steps: Steps = 600
    """Optimizer steps; of limited-data and compute the goal decides them."""
    global_batch: Annotated[int, between(1, 1_000_000)] = 20
    """Sequences per step."""
    sequence_length: Tokens | None = None
    """Predictions per sequence, tokens; null: the question's sequence_length."""
    peak_learning_rate: LearningRate = 1e-3
    """Largest learning rate; the schedule is relative to it."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning rate over the run."""
