"""Settings of ours beside those that the papers state, read from the experiments and the code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import fitting
from docs.reproduction.book import Book
from fitting.solver.problem import DELTA
from pipeline.paper_tables.dcpt.fits import PARTS
from pipeline.plan.model_shape import configuration_of
from pipeline.question.loading import read_question
from pipeline.question.presets import preset
from pipeline.question.schema import Question
from training.parameters import model_size

SETTING = "A setting, not a finding; ours is beside it."


@dataclass(frozen=True)
class Fact:
    """Our value, whether it agrees with the paper's (None: no comparison is possible), and the reason, a sentence."""

    here: str
    agrees: bool | None
    why: str


@functools.cache
def six() -> Question:
    """The question of the six-domain study."""
    return read_question(["experiment=dcpt-six-small", "corpora.folder=."])


@functools.cache
def weights() -> Question:
    """The question of the study of weights."""
    return read_question(["experiment=autoscale-small"])


@functools.cache
def seven() -> Question:
    """The question modelled on AutoScale's own: seven domains, one seed."""
    return read_question(["experiment=autoscale-redpajama", "corpora.folder=.", "weights.seeds=1"])


def _tokens_a_step() -> int:
    return six().continual.global_batch * six().sequence_length


@functools.cache
def _size(name: str, total: bool = False) -> float:
    """Millions of parameters of a preset, without embeddings unless `total`."""
    model = preset(name)
    size = model_size(configuration_of(model, model.vocab_size or 0, 1024, 0), 1024)
    return (size.total if total else size.non_embedding) / 1e6


def _tokens() -> str:
    phase = six().continual
    first, last = (steps * _tokens_a_step() / 1e6 for steps in (phase.evaluation.every, phase.steps))
    return f"{first:.3g} to {last:.3g} million"


def _evaluations() -> str:
    every, steps = six().continual.evaluation.every, six().continual.steps
    return f"every {every} of {steps} steps, a grid of {steps // every}"


def _model_presets() -> str:
    shape = preset("gpt2-large")
    wide = f"{shape.hidden_size} wide, {shape.num_hidden_layers} layers, {shape.num_attention_heads} heads"
    totals = [f"{name} {_size(name, total=True):.0f} million" for name in ("gpt2-large", "bert-base")]
    return f"presets: {', '.join(totals)}; gpt2-large {wide}"


def _autoscale_scales() -> str:
    question = weights()
    a_step = question.pretrain.global_batch * question.sequence_length / 1e6
    scales = "; ".join(f"{steps * a_step:.3g}" for steps in question.weights.scales)
    return f"{scales} million fitted, {question.weights.target * a_step:.3g} million predicted"


_OURS: dict[str, Callable[[], str]] = {
    "domains": lambda: ", ".join(six().corpora.domains),
    "sizes": lambda: "; ".join(f"{_size(name):.3g} million" for name in six().ladder),
    "tokens": _tokens,
    "shares": lambda: "; ".join(f"{ratio:g}" for ratio in six().mixture.domain_ratio),
    "evaluations": _evaluations,
    "steps": lambda: f"{six().continual.steps:,}",
    "tokens-a-step": lambda: f"{_tokens_a_step():,}",
    "delta": lambda: f"{DELTA:g}",
    "learnability": lambda: f"before training, over 5 and over 11 of {PARTS} parts of a run",
    "dynamics-sizes": lambda: (
        f"presets: {', '.join(f'{_size(name):,.0f} million' for name in ('llama-106m', 'llama-594m', 'llama-1720m'))}"
    ),
    "model-presets": _model_presets,
    "perturbation": lambda: ", ".join(weights().weights.factors),
    "methods": lambda: ", ".join(method for method in weights().weights.methods if method != "autoscale"),
    "autoscale-scales": _autoscale_scales,
}
"""Name in claims.csv -> our setting."""


def _eta(book: Book, claim: str) -> Fact:
    low = next(parameter.low for parameter in fitting.LAWS["dcpt"].parameters if parameter.name == "eta")
    return Fact(f"eta at least {low:g}", None, "A constraint, kept by the fit.")


def _setting(ours: Callable[[], str]) -> Callable[[Book, str], Fact]:
    return lambda book, claim: Fact(ours(), None, SETTING)


SETTINGS: dict[str, Callable[[Book, str], Fact | None]] = {"eta": _eta}
SETTINGS |= {name: _setting(ours) for name, ours in _OURS.items()}
"""Name in claims.csv -> its function."""
