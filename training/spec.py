"""The specification of a run: all that can change its losses, as plain data, and its hash."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import Annotated, Any

from training.evaluation_steps import EvaluationPolicy
from training.keys import OpenRatio, RatioBelowOne, Seconds, between, one_of, up_to
from training.schedule import Piece

SCHEMA = 2
OBJECTIVES = ("causal", "masked")

Architecture = dict[str, Any]
"""The configuration of a model: model_type, and the fields that transformers has for it."""


class SpecError(ValueError):
    """A run specification that cannot be read or cannot be run; the message is one line."""


# The classes that are also sections of a question are not frozen: OmegaConf would make them read-only.
@dataclass(unsafe_hash=True)
class Optimizer:
    """AdamW, with weight decay on matrices only."""

    beta1: RatioBelowOne = 0.9
    """AdamW: decay rate of the first moment."""
    beta2: RatioBelowOne = 0.95
    """AdamW: decay rate of the second moment."""
    epsilon: Annotated[float, up_to(1)] = 1e-8
    """AdamW: added to the square root of the second moment."""
    weight_decay: Annotated[float, between(0, 1000)] = 0.1
    """AdamW: decoupled weight decay, times the learning rate; norms and biases have none."""
    clip: Annotated[float, between(0, 10**9)] = 1.0
    """Largest gradient norm; 0: no clipping."""


@dataclass(frozen=True)
class Initial:
    """Where the first weights come from."""

    kind: str = "scratch"
    """scratch (drawn with the run's seed), run (another run's checkpoint) or directory (a Hugging Face one)."""
    run: str = ""
    """Kind run: the parent's hash."""
    step: int = 0
    """Kind run: the parent's step."""
    fingerprint: str = ""
    """Kind directory: hash of its weights."""
    moments: bool = False
    """Kind run: whether the optimizer's moments are loaded too, as for a decay phase that continues a constant one."""


@dataclass(unsafe_hash=True)
class Objective:
    """The training objective: which tokens are predicted."""

    kind: Annotated[str, one_of(*OBJECTIVES)] = "causal"
    """causal: each next token; masked: hidden tokens, for model_type bert."""
    mask_share: OpenRatio = 0.15
    """Kind masked: ratio of the tokens that are predicted, rounded to a number per sequence."""
    mask_token: Annotated[int, between(-1, 10_000_000)] = -1
    """Kind masked: token id that replaces a hidden token; -1: the tokenizer's mask token, or a new one."""

    def predictions(self, length: int) -> int:
        """Tokens that are predicted in a sequence: all, or of masked `mask_share` of them and at least one.

        >>> Objective().predictions(128), Objective("masked").predictions(128)
        (128, 19)
        """
        return length if self.kind == "causal" else max(1, round(self.mask_share * length))


@dataclass(frozen=True)
class Reweighting:
    """Domain weights that change during the run: group DRO on excess loss, see `training.group_dro`."""

    reference: str
    """Hash of the reference run, whose last weights define the excess loss."""
    step_size: float = 1.0
    """eta: a domain's weight is multiplied by exp(eta times its excess loss) in each step."""
    smoothing: float = 1e-3
    """c: ratio of uniform weights mixed into every step's weights, 0 or more and below 1."""


@dataclass(frozen=True)
class MixturePhase:
    """A part of a run with a mixture of its own, up to the next one's first sequence."""

    first_sequence: int
    """Index of its first sequence, counted as `RunSpec.first_sequence` is: a branch keeps the phases of its trunk."""
    mixture: dict[str, str]
    """Corpus -> ratio of the training tokens, as an exact decimal or fraction; the corpora of the run's mixture."""


@dataclass(frozen=True)
class RunSpec:
    """All that decides a run's losses but for rounding: paths, launcher, tracking, engine and devices stay out."""

    phase: str
    """pretrain or continual."""
    model: Architecture
    """Configuration of the architecture: the fields of transformers, with model_type."""
    initial: Initial
    """First weights."""
    corpora: dict[str, str]
    """Corpus -> fingerprint of its tokens; every one of them is evaluated."""
    mixture: dict[str, str]
    """Corpus -> ratio of the training tokens, as an exact decimal or fraction; they sum to 1."""
    sequence_length: int
    """Predictions per sequence, tokens."""
    global_batch: int
    """Sequences per step, over all devices and accumulation steps."""
    steps: int
    """Optimizer steps."""
    schedule: tuple[Piece, ...]
    """Learning-rate pieces in order."""
    learning_rate_before: float = 0.0
    """Rate of the step before the first: the parent's last, 0 from scratch."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """AdamW's settings."""
    precision: str = "fp32"
    """Arithmetic of forward and backward: fp32, or bf16 by autocast. Master weights are fp32 either way."""
    seed: int = 0
    """Decides first weights and the order of sequences."""
    evaluation: EvaluationPolicy = field(default_factory=EvaluationPolicy)
    """At which steps to evaluate."""
    validation_windows: int = 96
    """Fixed validation sequences per corpus."""
    objective: Objective = field(default_factory=Objective)
    """What is predicted."""
    boundaries: str = "none"
    """none: attention crosses the documents of a sequence; documents: it stays within each."""
    first_sequence: int = 0
    """Index of the first sequence read: a run that continues another starts at the next one."""
    reweighting: Reweighting | None = None
    """How the losses of the corpora are weighted; None: equally. The mixture decides what is read."""
    phases: tuple[MixturePhase, ...] = ()
    """The mixtures that follow `mixture`, in order."""
    separator_first: bool = False
    """Whether the first token of a sequence, which is context alone, is replaced by the token between documents."""

    @property
    def end_step(self) -> int:
        """Its last step, counted from the first one of the runs that it continues as a branch."""
        return self.first_sequence // self.global_batch + self.steps

    @property
    def mixtures(self) -> list[tuple[int, int, dict[str, str]]]:
        """(index of the first sequence, that behind the last one, mixture) of each phase, from 0 to the run's end."""
        end = self.first_sequence + self.steps * self.global_batch
        starts = [0, *(min(phase.first_sequence, end) for phase in self.phases), end]
        return list(
            zip(starts[:-1], starts[1:], [self.mixture, *(phase.mixture for phase in self.phases)], strict=True)
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step trains on."""
        return self.global_batch * self.sequence_length

    @property
    def tokens(self) -> int:
        """Tokens that the run trains on."""
        return self.steps * self.tokens_per_step

    @functools.cached_property
    def hash(self) -> str:
        """16 hexadecimal digits of the canonical JSON: equal specs, equal runs."""
        return hashlib.blake2b(self.canonical().encode(), digest_size=8).hexdigest()

    def canonical(self) -> str:
        """The spec as JSON with sorted keys, no spaces and its schema version."""
        return _CANONICAL.encode({"schema": SCHEMA, **_fields(self)})

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain dictionaries, lists, strings and numbers."""
        return json.loads(json.dumps({"schema": SCHEMA, **_fields(self)}, default=_fields))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The spec from the result of `to_dict`.

        Raises:
            SpecError: another schema version, a missing or unknown field.
        """
        values = dict(values)
        if (schema := values.pop("schema", None)) != SCHEMA:
            raise SpecError(f"run spec of schema {schema!r}; this version reads schema {SCHEMA}")
        try:
            values["initial"] = Initial(**values["initial"])
            values["schedule"] = tuple(Piece(**piece) for piece in values["schedule"])
            values["optimizer"] = Optimizer(**values["optimizer"])
            values["objective"] = Objective(**values["objective"])
            values["evaluation"] = EvaluationPolicy(**values["evaluation"])
            if values.get("reweighting") is not None:
                values["reweighting"] = Reweighting(**values["reweighting"])
            values["phases"] = tuple(MixturePhase(**phase) for phase in values.get("phases", ()))
            return cls(**values)
        except (TypeError, KeyError) as error:
            raise SpecError(f"run spec: {error}") from None


_OMITTED = {"reweighting": None, "phases": (), "separator_first": False}
"""Fields that were added later -> the value at which they are left out, so that the hashes of other runs stay."""


def _fields(value: Any) -> dict[str, Any]:
    # Ten times as fast as dataclasses.asdict, which copies every leaf; plans have ten thousand runs.
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {name: own for name, own in fields.items() if name not in _OMITTED or own != _OMITTED[name]}


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields)


# Not frozen: OmegaConf would make it read-only in a question.
@dataclass
class Parallel:
    """How a run is distributed over devices; none of it changes the run's hash."""

    kind: Annotated[str, one_of("single", "ddp", "fsdp2", "zero1", "zero2", "zero3")] = "single"
    """single, ddp, fsdp2, or DeepSpeed's zero1, zero2 or zero3; see docs/at-scale.md."""
    processes: Annotated[int, between(1, 100_000)] = 1
    """Processes that train a run together, one per GPU; must divide the global batch."""
    activation_checkpointing: bool | None = None
    """Recompute activations in the backward pass instead of storing them: one forward pass more, less memory; null:
    where not even a micro-batch of one sequence fits without."""
    timeout: Seconds = 600.0
    """Seconds without an answer from another process of the run after which all processes stop."""
    replicas: Annotated[int, between(1, 100_000)] = 1
    """Kind fsdp2: copies of the model, each spread over processes / replicas neighbours. With as many as nodes only
    gradients cross the network (hybrid sharding)."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """Kinds zero1 to zero3: DeepSpeed's configuration; auto: derived from the run."""

    @property
    def shards(self) -> int:
        """Processes over which one copy of the model is spread."""
        return self.processes // self.replicas

    def micro_batch(self, global_batch: int, given: int) -> int:
        """Sequences per forward pass of a process: `given`, or with 0 all that it has of a step.

        >>> Parallel("ddp", 4).micro_batch(20, 0), Parallel("ddp", 4).micro_batch(20, 1)
        (5, 1)
        """
        return given or global_batch // self.processes


@dataclass(frozen=True)
class Execution:
    """How a run is executed; none of it changes the run's hash."""

    micro_batch: int = 0
    """Sequences per forward pass; see `Parallel.micro_batch`."""
    engine: str = "auto"
    """auto (measured once per shape), sdpa, eager, sdpa-compiled, eager-compiled or sdpa-chunked."""
    threads: int = 1
    """CPU threads of the process."""
    device_memory: float | None = None
    """Bytes that the process may take of its device; None: not known."""
    resume_every: int = 200
    """Steps between resume states; 0: none by steps."""
    resume_minutes: float = 10.0
    """Minutes after which a resume state is written whatever the steps; 0: none by time."""
    keep_last: int = 2
    """Number of resume states kept."""
    kept_states: tuple[int, ...] = ()
    """Steps whose resume states are kept for runs that continue there."""
    metrics_every: int = 20
    """Steps between lines of metrics.jsonl."""
    checkpoints: tuple[int, ...] = ()
    """Steps whose weights are saved as Hugging Face directories, beside the last step."""
    parallel: Parallel = field(default_factory=Parallel)
    """How the run is distributed over devices."""
