"""Every key of a question, its type, its unit and its default; Hydra checks what is given against this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class ModelConfig:
    name: str = MISSING
    """Name in run folders and tables."""
    path: str | None = None
    """A Hugging Face directory, or a hub name like Qwen/Qwen2.5-0.5B; its own config.json then gives the shape."""
    revision: str | None = None
    """Of a hub name: branch, tag or commit; plan.jsonl keeps the commit that it meant. null: the main branch."""
    model_type: str = "qwen2"
    """Architecture: qwen2 (also Qwen1.5 and 2.5), qwen3, llama, gpt2, or bert with objective=masked."""
    hidden_size: int = 0
    """Width."""
    num_hidden_layers: int = 0
    """Layers."""
    num_attention_heads: int = 0
    """Query heads."""
    num_key_value_heads: int = 0
    """Key and value heads; 0: as many as query heads."""
    head_dim: int | None = None
    """Width of a head; null: hidden_size / num_attention_heads."""
    intermediate_size: int = 0
    """Width inside the MLP."""
    rope_theta: float | None = None
    """Base of the rotary positions; null: 10,000."""
    vocab_size: int | None = None
    """Rows of the embedding; null: as many as the tokenizer has token ids."""
    tie_word_embeddings: bool = True
    """Whether the output head is the embedding."""


@dataclass
class SourceConfig:
    kind: str = "files"
    """files, hub (a data set of the Hugging Face hub, streamed), or installed-python."""
    path: str = ""
    """Of files: a file or folder of .jsonl(.gz|.zst), .parquet or .txt; from corpora.folder on, if that is given."""
    name: str = ""
    """Of hub: owner/name, or a local folder of data files that `datasets` opens."""
    subset: str | None = None
    """Of hub: its configuration; null: the only one."""
    split: str = "train"
    """Of hub: which split of it."""
    revision: str | None = None
    """Of hub: commit, branch or tag; prepare writes the commit into the manifest. null: the newest."""
    column: str = "text"
    """Of files and hub: the column that holds the text."""
    group: str | None = None
    """Of files and hub: a column whose value keeps documents, like chapters of a book, on one side of the split."""
    min_characters: int = 0
    """Shortest text that is taken, characters."""
    max_characters: int | None = None
    """Longest text that is taken, characters; null: any."""
    where: Any = None
    """Column -> list of values that are taken, or regular expression to find in it: {lang: [en], meta.url: "^http"}"""
    part: str = ""
    """Of installed-python: prose, code, math, graphs, statistics, tables or arrays."""
    exclude: list[str] = field(default_factory=list)
    """Of installed-python prose: parts to leave out (any but code)."""
    max_bytes: int | None = None
    """Most text to take, bytes; documents are drawn by a hash of their name, of hub the first. null: all."""
    validation: str | None = None
    """File or folder of validation text; it, and what nearly repeats it, stays out of training. null: a share."""


@dataclass
class TokenizerConfig:
    vocabulary: int = 2048
    """Token ids of a byte-level BPE trained on the corpora."""
    path: str | None = None
    """A Hugging Face directory with a tokenizer to use instead, or a hub name like Qwen/Qwen2.5-0.5B."""
    revision: str | None = None
    """Of a hub name: branch, tag or commit; manifest.json keeps the commit that it meant. null: the main branch."""


@dataclass
class CorporaConfig:
    general: str = MISSING
    """Which source is the general corpus, that is replayed."""
    domain: str = MISSING
    """Which source is the domain to continue on."""
    domains: list[str] = field(default_factory=list)
    """Several domains in one study, each beside general in runs of its own; fit, recommend, confirm and report are then
    about `domain`, one of them: cptlaw recommend studies/six corpora.domain=law. Empty: `domain` alone."""
    sources: dict[str, SourceConfig] = field(default_factory=dict)
    """Corpus name -> where its text comes from."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """How text becomes tokens."""
    folder: str = ""
    """Folder that the paths of the sources start from; empty: where the command is given."""
    validation_ratio: float = 0.05
    """Share of the documents kept for validation, above 0, below 1."""
    validation: str | None = None
    """Folder of validation sets, <corpus>.jsonl each; prepare validation writes them, prepare reads them. null: none"""


@dataclass
class ValidationConfig:
    models: list[str] = field(default_factory=list)
    """Of prepare validation: Hugging Face directories, hub names, or studies whose pre-trained models are meant."""
    sample: int = 5000
    """Of prepare validation: documents drawn from each corpus."""
    keep: int = 1000
    """Of prepare validation: documents kept of them."""
    worst: float = 0.1
    """Of prepare validation: noise is what is in this share of the highest perplexities under all models."""
    tokens: int = 1024
    """Of prepare validation: tokens looked at of each document."""


@dataclass
class MixtureConfig:
    domain_ratio: Any = field(default_factory=list)
    """Domain ratios to run, 0 to 1: one or a list; the replay ratio is 1 minus it."""
    replicate_at: Any = None
    """Domain ratio, or list of them, at which further seeds are run, to measure noise; null: the middle of the list."""
    replicates: int = 1
    """Seeds at those ratios, the first included; 1: no replicates."""


@dataclass
class PieceConfig:
    shape: str = MISSING
    """constant, linear, cosine, exponential, one_minus_sqrt or polynomial."""
    start: float | None = None
    """Share of the peak rate it starts from; null: where the piece before, or the run before, ended."""
    end: float | None = None
    """Share of the peak rate it ends at."""
    steps: int | None = None
    """Length in steps."""
    share: float | None = None
    """Length as a share of the phase's steps; one piece may have neither and takes the rest."""
    power: float = 1.0
    """Of polynomial: power of the way that is left."""


@dataclass
class ScheduleConfig:
    pieces: list[PieceConfig] = field(default_factory=list)
    """Pieces in order."""


@dataclass
class EvaluationConfig:
    policy: str = "decay"
    """dense, sparse, sectional, decay or explicit."""
    every: int = 5
    """Spacing of the dense grid, steps."""
    decay: float = 0.05
    """Of decay: point x of the dense grid is kept with density exp(-decay x)."""
    bernoulli: bool = False
    """Of decay: draw each point with that probability instead of the deterministic rule."""
    seed: int = 0
    """Of decay with bernoulli."""
    steps: list[int] = field(default_factory=list)
    """Of explicit: the steps."""


@dataclass
class BranchConfig:
    step: int = MISSING
    """Step of the phase after which it leaves; weights, moments and the order of sequences go on."""
    steps: int = MISSING
    """Its length, optimizer steps."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Its learning rate, in shares of the phase's peak; it begins from the rate that it left at."""


@dataclass
class ObjectiveConfig:
    kind: str = "causal"
    """causal: each next token; masked: hidden tokens, for model_type bert."""
    mask_share: float = 0.15
    """Of masked: share of the tokens that are predicted."""


@dataclass
class PhaseConfig:
    steps: int = 0
    """Optimizer steps."""
    global_batch: int = 20
    """Sequences a step."""
    peak_learning_rate: float = 1e-3
    """Largest learning rate; the schedule is in shares of it."""
    sequence_length: int | None = None
    """Predictions a sequence in this phase, tokens; null: the question's sequence_length."""
    rope_theta: float | None = None
    """Base of the rotary positions in this phase; null: the model's."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Learning rate over the phase."""
    branches: list[BranchConfig] = field(default_factory=list)
    """Runs that leave the phase's runs at a step and end on their own, like several decays off one constant rate."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """At which steps to evaluate."""
    checkpoints: EvaluationConfig = field(default_factory=lambda: EvaluationConfig(policy="explicit"))
    """After which steps to keep the weights as a Hugging Face directory; the last step's always are."""


@dataclass
class OptimizerConfig:
    beta1: float = 0.9
    """AdamW: decay of the gradient's mean."""
    beta2: float = 0.95
    """AdamW: decay of the gradient's square."""
    epsilon: float = 1e-8
    """AdamW: added to the root of the second moment."""
    weight_decay: float = 0.1
    """AdamW: decay of matrices; norms and biases have none."""
    clip: float = 1.0
    """Largest gradient norm; 0: off."""


@dataclass
class SlurmConfig:
    partition: str | None = None
    """Partition; null, here and below: the cluster's default."""
    account: str | None = None
    """Account that pays."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Features that a node must have, like h100."""
    nodes: int = 1
    """Nodes a run; parallel.processes are spread over them evenly."""
    gpus: int = 0
    """GPUs a node; 0: none."""
    cpus: int | None = None
    """Cores a process; null: launcher.threads."""
    mem: str | None = None
    """Memory a node, like 64G."""
    time: str | None = None
    """Time limit of a job, as 30 (minutes), 4:00:00 or 2-00:00:00. A run that needs longer goes on in the next job."""
    limit: int = 0
    """Most runs of an array at once; 0: any number."""
    signal: int = 120
    """Seconds before the time limit at which a run is told to save."""
    setup: list[str] = field(default_factory=list)
    """Shell lines before the run, like module load cuda, or . venv/bin/activate."""
    python: str | None = None
    """Words that start Python in a job, like apptainer exec --nv image.sif python; null: this Python."""
    extra: list[str] = field(default_factory=list)
    """More options of sbatch, like --exclusive or --gres=gpu:h100:4."""
    driver: list[str] = field(default_factory=list)
    """Options of sbatch for the small jobs that fit, recommend and report, after partition, account and qos."""
    patience: float = 60.0
    """Seconds after which a command of Slurm that gives no answer is given up."""


@dataclass
class LauncherConfig:
    kind: str = "local"
    """local: worker processes on this machine; slurm: arrays of jobs, see docs/cluster.md."""
    workers: int = 0
    """Runs side by side; 0: one for every `threads` cores."""
    threads: int = 1
    """CPU threads a run."""
    micro_batch: int = 0
    """Sequences a forward pass; 0: all that a process has of a step. Must divide them."""
    resume_every: int = 200
    """Steps between states to resume from; 0: only when told to stop."""
    retries: int = 2
    """How often a run whose process died is started again, without getting further, before it counts as failed."""
    stale_after: float = 60.0
    """Seconds without a heartbeat after which a process on another host is taken for dead."""
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    """Of kind slurm: what is asked of the cluster."""


@dataclass
class ParallelConfig:
    kind: str = "single"
    """single, ddp, fsdp2, or DeepSpeed's zero1, zero2 or zero3; see docs/devices.md."""
    processes: int = 1
    """Processes that train a run together, one a GPU; divides the global batch."""
    activation_checkpointing: bool = False
    """Whether activations are computed again in the backward pass instead of kept: a forward pass more, less memory."""
    timeout: float = 600.0
    """Seconds without a word from another process of the run after which all of them give up."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """Of zero1 to zero3: DeepSpeed's configuration; auto: what follows from the run."""


@dataclass
class TrackingConfig:
    kind: str = "none"
    """none, or wandb: a group a study, a wandb run an attempt; see docs/tracking.md."""
    project: str = "cptlaw"
    """Of wandb: project."""
    entity: str | None = None
    """Of wandb: user or team; null: the one that the key belongs to."""
    mode: str = "auto"
    """Of wandb: online, offline, or auto: WANDB_MODE, else online where a key is known (wandb login)."""
    tags: list[str] = field(default_factory=list)
    """Of wandb: tags beside phase and model."""
    every: float = 5.0
    """Of wandb: seconds between two looks at the files of a run."""
    wait: float = 30.0
    """Of wandb: most seconds to wait for it at the end of a process; what is left, cptlaw track sync makes up for."""


@dataclass
class LawConfig:
    from_step: int = 0
    """First step whose points are fitted."""
    min_ratio: float = 0.0
    """Least share of the validation corpus in the mixture whose runs are fitted."""


@dataclass
class GoalConfig:
    kind: str = "trade-off"
    """trade-off: the largest domain share within a tolerated rise of the general loss; limited-data: the share with the
    least domain loss when the domain has few tokens, each read once; compute: the model, of ladder and `model`, that
    has the least domain loss for so many FLOPs; weights: shares of many domains with the least average loss, see
    docs/many-domains.md. For the first three see docs/usages.md."""
    tolerance: float = 0.03
    """Relative rise of the general loss over the loss before, 0.03 is 3%."""
    domain_tokens: float | None = None
    """Of limited-data: tokens of the domain; at a share r of the domain the run has domain_tokens / r tokens."""
    most_tokens: float | None = None
    """Of limited-data: tokens of the longest run that may be answered; null: 20 times domain_tokens."""
    flops: float | None = None
    """Of compute: operations of the continual phase, 6 N D with N non-embedding parameters, like 5e19."""
    domain_ratio: float | None = None
    """Of compute: the domain ratio; null: of each model the largest within the tolerance."""


@dataclass
class ConfirmConfig:
    tokens_factor: float = 2.0
    """Length of the confirmation runs and of the recommendation, in lengths of the continual phase; of limited-data and
    compute the goal gives the length."""
    neighbour: float = 0.15
    """Distance of the second confirmation run's domain share from the recommended one; 0: no second run."""
    around: list[float] = field(default_factory=list)
    """Distances of the shares that are run beside the recommended one, with their signs, like [-0.3,-0.1,0.1]; those
    that lead out of 0 to 1 are left out. Empty: neighbour. Of compute every model is run, whatever stands here."""
    seeds: int = 1
    """Seeds of every confirmation run, paired between the shares; with two or more, what they say has intervals."""


@dataclass
class DoReMiConfig:
    step_size: float = 1.0
    """eta: by exp(eta times its excess loss, nats a token) a domain's weight grows in a step; 1 in Xie et al. 2023."""
    smoothing: float = 1e-3
    """c: share of equal weights in the weights of every step; 0.001 in Xie et al. 2023."""


@dataclass
class WeightsConfig:
    methods: list[str] = field(default_factory=lambda: ["autoscale", "uniform"])
    """Ways to find weights: uniform, given, ddo, autoscale, doremi, regmix, data-mixing, continual. The answer is that
    of autoscale if it is one of them, else that of the first."""
    phase: str = "pretrain"
    """pretrain: weights of a training from scratch; continual: of the phase after a pre-training on general."""
    base: dict[str, float] = field(default_factory=dict)
    """Domain -> weight of the base run, sum 1; empty: equal weights."""
    given: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of given: name -> (domain -> weight, sum 1), compared as they are, like weights that others have published."""
    factors: list[str] = field(default_factory=lambda: ["1/3", "1", "3"])
    """Of ddo: by what the tokens of one domain are multiplied in the runs around the base run; one is 1, three or more
    in all. Fractions as text."""
    scales: list[int] = field(default_factory=lambda: [150, 300])
    """Steps of the base run: ddo runs at the first, autoscale at the first and the last. The other methods search at
    the first."""
    target: int = 1200
    """Steps of the runs that the weights are for, and that confirm compares."""
    rounds: int = 1
    """Of ddo, autoscale and doremi: how often the optimum becomes the base of the next runs; 1: never."""
    seeds: int = 1
    """Seeds of every run that searches; intervals of ddo and autoscale need two or more."""
    confirm_seeds: int = 3
    """Seeds of every run of confirm, paired between the methods."""
    passes: float = 1.0
    """How often the tokens of a domain may be read in a run at the target; weights stay below what that allows."""
    mixtures: int = 20
    """Of regmix, data-mixing and continual: random mixtures around the base weights that are run."""
    concentration: list[float] = field(default_factory=lambda: [0.1, 5.0])
    """Of the random mixtures: least and greatest concentration; far below the number of domains almost all of a mixture
    is one domain, far above it all are near the base weights. RegMix's: [0.1, 5]."""
    value: dict[str, float] = field(default_factory=dict)
    """Domain -> weight of its loss in the average that is made small, 0 for those left out; empty: 1 for all, or of
    continual for all but general, whose loss may rise by goal.tolerance."""
    doremi: DoReMiConfig = field(default_factory=DoReMiConfig)
    """Of doremi: how the weights of its proxy move."""
    average: str = "loss"
    """What is averaged over domains and made small: loss (nats a token), or perplexity."""


@dataclass
class TablesConfig:
    papers: str | None = None
    """Folder with the papers' numbers, dcpt_table01_effectiveness.csv and so on; null: the environment's
    CPTLAW_PAPER_TABLES; without either ours are shown alone."""
    names: list[str] = field(default_factory=list)
    """Which tables, like dcpt-1; empty: all."""
    from_step: int = 1
    """First step whose points are fitted; the paper begins with its first evaluation, a 200th of a run."""
    min_ratio: float = 0.0
    """Least share of the validation corpus in the mixture whose runs are fitted."""
    run: bool = False
    """Whether a study that is missing or unfinished is prepared, planned and trained first, going on where it stopped;
    false: its price is told, and tables are made from what there is."""
    points: str | None = None
    """Collected points to read in place of the study's own points.parquet; points=FILE for short."""


@dataclass
class EvaluateConfig:
    tasks: list[str] = field(default_factory=list)
    """Names of lm-eval tasks; next: of each corpus' validation text, which of four passages comes next (offline)."""
    role: str = ""
    """Only runs of this role: pretrain, fit or confirm; empty: all."""
    folder: str | None = None
    """Folder of YAML files with tasks of your own, beside lm-eval's."""
    checkpoints: str = "last"
    """last, or all: which kept weights of each run."""
    limit: int | None = None
    """First documents of each task; null: all."""
    batch: int = 8
    """Sequences a forward pass."""


@dataclass
class Question:
    name: str = "study"
    """Folder of the study under `studies`."""
    studies: str = "studies"
    """Folder that holds the studies."""
    data: str = "data"
    """Folder that holds prepared corpora, shared by studies."""
    seed: int = 0
    """Of the first weights and the order of sequences; replicates count up from it."""
    precision: str = "auto"
    """fp32, bf16 (autocast over fp32 weights), or auto: the faster here, measured once by prepare."""
    engine: str = "auto"
    """sdpa, eager, sdpa-compiled, eager-compiled, sdpa-chunked (for large vocabularies), or auto: the fastest, measured
    once a shape."""
    sequence_length: int = 128
    """Predictions a sequence, tokens."""
    validation_windows: int = 96
    """Fixed validation sequences a corpus."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """What is predicted."""
    boundaries: str = "none"
    """none: attention sees across the documents of a sequence; documents: it stays within each."""
    dense: dict[str, str] = field(default_factory=dict)
    """Domain -> model whose runs on it are evaluated on the whole grid (policy dense), to compare policies."""
    transfer_steps: list[int] = field(default_factory=list)
    """Steps of the pre-training that continual runs are started from; empty: its last. Answers are for the last."""
    variants: dict[str, Any] = field(default_factory=dict)
    """Further parts of the study: name -> keys that differ, of ladder, mixture, pretrain, continual and transfer_steps;
    with held_out: true no fit sees its runs. Answers are for the question itself. {slow: {continual: {steps: 900}}}"""
    allow_repeats: bool = False
    """Whether a corpus may be read more than once in a run."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The model that the answer is for: it is confirmed on this one."""
    ladder: list[str] = field(default_factory=list)
    """Smaller models (files of conf/model) that are continued for the fit; empty: the model itself."""
    corpora: CorporaConfig = field(default_factory=CorporaConfig)
    """What to read."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """How validation documents are chosen."""
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    """Which shares to run."""
    pretrain: PhaseConfig = field(default_factory=PhaseConfig)
    """The phase on general text, for models without a path."""
    continual: PhaseConfig = field(default_factory=PhaseConfig)
    """The phase on the mixture."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """AdamW."""
    launcher: LauncherConfig = field(default_factory=LauncherConfig)
    """How runs are carried out."""
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    """How a run is spread over devices; changes no run's name."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    """Where runs can be watched; changes no run's name."""
    law: dict[str, LawConfig] = field(default_factory=dict)
    """Laws to fit -> which points each reads."""
    bootstrap: int = 200
    """Resamples of the runs, for the intervals."""
    goal: GoalConfig = field(default_factory=GoalConfig)
    """What is asked of the fit."""
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    """Of goal=weights: how weights of many domains are sought, and compared."""
    confirm: ConfirmConfig = field(default_factory=ConfirmConfig)
    """How the answer is proven."""
    tables: TablesConfig = field(default_factory=TablesConfig)
    """Of tables: which of the papers' tables, and where the papers' numbers are."""
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    """Of evaluate: which down-stream tasks, on which checkpoints."""
    run: str | None = None
    """Of train and evaluate: only the run with this hash or folder name."""
    retry_failed: bool = False
    """Of train: take up runs that are marked FAILED again."""
    dry_run: bool = False
    """Of train with launcher=slurm: print scripts and commands, submit nothing."""
    experiment: Any = None
    """Whole questions, files of conf/experiment."""
