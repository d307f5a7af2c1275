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
    """What is here, whether it agrees (None: there is nothing to agree with), and why, a sentence."""

    here: str
    agrees: bool | None
    why: str


def domains(book: Book, claim: str) -> Fact:
    """How many, and which."""
    return Fact(", ".join(six().corpora.domains), None, SETTING)


def sizes(book: Book, claim: str) -> Fact:
    """Non-embedding parameters of the models that are continued."""
    return Fact("; ".join(f"{_size(name):.3g} million" for name in six().ladder), None, SETTING)


def tokens(book: Book, claim: str) -> Fact:
    """Tokens at the first and at the last step that are evaluated."""
    phase = six().continual
    first, last = (steps * _tokens_a_step() / 1e6 for steps in (phase.evaluation.every, phase.steps))
    return Fact(f"{first:.3g} to {last:.3g} million", None, SETTING)


def shares(book: Book, claim: str) -> Fact:
    """Shares of the domain."""
    return Fact("; ".join(f"{share:g}" for share in six().mixture.domain_ratio), None, SETTING)


def evaluations(book: Book, claim: str) -> Fact:
    """Spacing of the grid of evaluations."""
    phase = six().continual
    every, steps = phase.evaluation.every, phase.steps
    return Fact(f"every {every} of {steps} steps, a grid of {steps // every}", None, SETTING)


def steps(book: Book, claim: str) -> Fact:
    """Steps of a continual run."""
    return Fact(f"{six().continual.steps:,}", None, SETTING)


def tokens_a_step(book: Book, claim: str) -> Fact:
    """Tokens of a batch."""
    return Fact(f"{_tokens_a_step():,}", None, SETTING)


def eta(book: Book, claim: str) -> Fact:
    """The bound of eta."""
    low = next(parameter.low for parameter in fitting.LAWS["dcpt"].parameters if parameter.name == "eta")
    return Fact(f"eta at least {low:g}", None, "A constraint, kept by the fit.")


def delta(book: Book, claim: str) -> Fact:
    """The Huber loss's delta."""
    return Fact(f"{DELTA:g}", None, SETTING)


def learnability(book: Book, claim: str) -> Fact:
    """Where k1, k2 and k3 are measured."""
    return Fact(f"before training, over 5 and over 11 of {PARTS} parts of a run", None, SETTING)


def dynamics_sizes(book: Book, claim: str) -> Fact:
    """Presets of the paper's shapes."""
    shown = (f"{_size(f'llama-{name}'):,.0f} million" for name in ("106m", "594m", "1720m"))
    return Fact(f"presets: {', '.join(shown)}", None, SETTING)


def model_presets(book: Book, claim: str) -> Fact:
    """Presets of the paper's models."""
    shape = preset("gpt2-large")
    wide = f"{shape.hidden_size} wide, {shape.num_hidden_layers} layers, {shape.num_attention_heads} heads"
    totals = [f"{name} {_size(name, total=True):.0f} million" for name in ("gpt2-large", "bert-base")]
    return Fact(f"presets: {', '.join(totals)}; gpt2-large {wide}", None, SETTING)


def perturbation(book: Book, claim: str) -> Fact:
    """Factors of the perturbed runs."""
    return Fact(", ".join(weights().weights.factors), None, SETTING)


def methods(book: Book, claim: str) -> Fact:
    """What AutoScale's weights are compared with."""
    compared = [method for method in weights().weights.methods if method != "autoscale"]
    return Fact(", ".join(compared), None, SETTING)


def autoscale_scales(book: Book, claim: str) -> Fact:
    """Scales that are fitted, and the target."""
    question = weights()
    a_step = question.pretrain.global_batch * question.sequence_length / 1e6
    scales = "; ".join(f"{steps * a_step:.3g}" for steps in question.weights.scales)
    return Fact(f"{scales} million fitted, {question.weights.target * a_step:.3g} million predicted", None, SETTING)


SETTINGS: dict[str, Callable[[Book, str], Fact | None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(domains, sizes, tokens, shares, evaluations, steps, tokens_a_step, eta, delta, learnability),
        *(dynamics_sizes, model_presets, perturbation, methods, autoscale_scales),
    )
}
"""Name in claims.csv -> what finds it."""


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
    model = preset(name)
    found = model_size(configuration_of(model, model.vocab_size or 0, 1024, 0), 1024)
    return (found.total if total else found.non_embedding) / 1e6
