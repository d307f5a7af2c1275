"""What a run is: all that can change its losses, in plain data, and the name that follows from it."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from training.devices.group import Parallel
from training.evaluation_steps import EvaluationPolicy
from training.schedule import Piece

SCHEMA = 2
PHASES = ("pretrain", "continual")
PRECISIONS = ("fp32", "bf16")
OBJECTIVES = ("causal", "masked")


class SpecError(ValueError):
    """A run specification that cannot be read or cannot be run; the message is one line."""


# The classes that are also sections of a question are not frozen: OmegaConf would make them read-only.
@dataclass(unsafe_hash=True)
class Optimizer:
    """AdamW, with weight decay on matrices only."""

    beta1: float = 0.9
    """AdamW: decay rate of the first moment."""
    beta2: float = 0.95
    """AdamW: decay rate of the second moment."""
    epsilon: float = 1e-8
    """AdamW: added to the square root of the second moment."""
    weight_decay: float = 0.1
    """AdamW: decoupled weight decay, times the learning rate; norms and biases have none."""
    clip: float = 1.0
    """Largest gradient norm; 0: no clipping."""


@dataclass(frozen=True)
class Initial:
    """Where the first weights come from."""

    kind: str = "scratch"
    """scratch (drawn with the run's seed), run (another run's checkpoint) or directory (a Hugging Face one)."""
    run: str = ""
    """Of run: the parent's hash."""
    step: int = 0
    """Of run: the parent's step."""
    fingerprint: str = ""
    """Of directory: hash of its weights."""
    moments: bool = False
    """Of run: whether the optimizer's moments go on too, as in a decay branched off a trunk."""


@dataclass(unsafe_hash=True)
class Objective:
    """The training objective: which tokens are predicted."""

    kind: str = "causal"
    """causal: each next token; masked: hidden tokens, for model_type bert."""
    mask_share: float = 0.15
    """Of masked: ratio of the tokens that are predicted, rounded to a number per sequence."""
    mask_token: int = -1
    """Of masked: token id that replaces a hidden token; -1: the tokenizer's mask token, or a new one."""

    def predictions(self, length: int) -> int:
        """Tokens that are predicted in a sequence: all, or of masked `mask_share` of them and at least one.

        >>> Objective().predictions(128), Objective("masked").predictions(128)
        (128, 19)
        """
        return length if self.kind == "causal" else max(1, round(self.mask_share * length))


@dataclass(frozen=True)
class Reweighting:
    """Domain weights that move while the run trains: group DRO on excess loss, see `training.group_dro`."""

    reference: str
    """Hash of the run whose last weights the loss is compared with."""
    step_size: float = 1.0
    """eta: a domain's weight is multiplied by exp(eta times its excess loss) in each step."""
    smoothing: float = 1e-3
    """c: share of equal weights in every step's weights, 0 or more and below 1."""


@dataclass(frozen=True)
class RunSpec:
    """All that decides a run's losses. Paths, launcher, tracking and the number of devices stay out."""

    phase: str
    """pretrain or continual."""
    model: dict[str, Any]
    """Configuration of the architecture, as transformers names its fields, with model_type."""
    initial: Initial
    """First weights."""
    corpora: dict[str, str]
    """Corpus -> fingerprint of its tokens; every one of them is evaluated."""
    mixture: dict[str, str]
    """Corpus -> share of the training tokens, as an exact decimal or fraction; they sum to 1."""
    sequence_length: int
    """Predictions a sequence, tokens."""
    global_batch: int
    """Sequences a step, over all devices and accumulation."""
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
    """Fixed validation sequences a corpus."""
    objective: Objective = field(default_factory=Objective)
    """What is predicted."""
    boundaries: str = "none"
    """none: attention sees across the documents of a sequence; documents: only within each."""
    first_sequence: int = 0
    """Number in the run's order of sequences of the first one read: a branch goes on where its trunk was."""
    reweighting: Reweighting | None = None
    """How the corpora's losses are weighed; None: all alike. The mixture still says what is read."""

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
        """Plain dictionaries, lists, strings and numbers."""
        return json.loads(json.dumps({"schema": SCHEMA, **_fields(self)}, default=_fields))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """Read what `to_dict` gave.

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
            return cls(**values)
        except (TypeError, KeyError) as error:
            raise SpecError(f"run spec: {error}") from None


def _fields(value: Any) -> dict[str, Any]:
    # Ten times as fast as dataclasses.asdict, which copies every leaf; plans have ten thousand runs.
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    # Came later: left out where it is not used, so that all other runs keep their names.
    if fields.get("reweighting", True) is None:
        del fields["reweighting"]
    return fields


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_fields)


@dataclass(frozen=True)
class Execution:
    """How a run is carried out; none of it changes what the run means."""

    micro_batch: int = 0
    """Sequences per forward pass; see `Parallel.micro_batch`."""
    engine: str = "auto"
    """auto (measured once a shape), sdpa, eager, sdpa-compiled or eager-compiled."""
    threads: int = 1
    """CPU threads of the process."""
    resume_every: int = 200
    """Steps between resume states; 0 saves only when told to stop."""
    keep_last: int = 2
    """Resume states kept."""
    kept_states: tuple[int, ...] = ()
    """Steps whose states are kept for branches, beyond the newest."""
    metrics_every: int = 20
    """Steps between lines of metrics.jsonl."""
    checkpoints: tuple[int, ...] = ()
    """Steps whose weights are kept as Hugging Face directories; the last step always is."""
    parallel: Parallel = field(default_factory=Parallel)
    """The devices that train the run together."""
