"""Whether the corpora have enough tokens for the runs of a plan."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from fitting import effective_tokens
from pipeline.question.design import is_active
from pipeline.question.schema import Question
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun
from pipeline.study.number_format import percent, quantity
from training.corpora.manifest import PreparedCorpus

FEW = 0.1
"""A choice: part of the steps that were asked below which fewer steps are another question, and not proposed."""


def supply_problems(runs: Sequence[PlannedRun], context: Context) -> Iterator[str]:
    """A message for each corpus that some run would read more than once, and for each key that sets such a length."""
    for corpus, prepared in context.manifest.corpora.items():
        for largest in largest_readers(runs, corpus, context.question):
            length = largest.spec.sequence_length
            demand = demand_of(largest, corpus)
            available = _available(prepared, length)
            if available == 0:
                yield f"corpora.sources.{corpus}: {prepared.tokens['train']} tokens, less than one sequence of {length}"
                break
            if demand > available and not context.question.allow_repeats:
                yield (
                    f"corpora.sources.{corpus}: {available:,} tokens, {largest.name} would read {demand:,}, "
                    f"{demand / available:.2f} epochs; give {remedies(largest, corpus, available, context.question)}"
                )


def short_ratios(context: Context) -> Iterator[str]:
    """A line for each corpus that the run asked about would read more than once at some domain ratios.

    With `allow_repeats`, how often at most, and what that is worth.
    """
    question, general = context.question, context.question.corpora.general
    if question.continual.phases:
        return
    batch, steps = question.target.global_batch, question.target.steps
    length = question.tokens_per_step() // batch
    names = [*(question.corpora.domains or [question.corpora.domain]), general]
    sequences = {name: _available(context.manifest.corpora[name], length) // length for name in names}
    fewer = min(sequences.values()) // batch
    remedy = f"fewer steps (target.steps={fewer} is enough at any ratio), " if fewer else ""
    elsewhere = question.is_large() and not question.large.confirm
    other = "at another answer its text is read again" if elsewhere else "confirm refuses another answer"
    for name in names:
        part = 1000 * sequences[name] // (batch * steps)
        if part < 1000 and question.allow_repeats:
            tokens, passes = sequences[name] * length, batch * steps / max(sequences[name], 1)
            worth = quantity(float(effective_tokens(passes, 1.0)) * tokens)
            yield (
                f"corpora.sources.{name}: {tokens:,} tokens; with target.steps={steps} a run of {name} alone reads "
                f"them {passes:,.{passes < 10:d}f} times, worth some {worth} new ones (Muennighoff et al. 2023); the "
                "laws take every token as new"
            )
        elif part < 1000:
            ratios = f"from {percent(1 - part / 1000)} on" if name == general else f"up to {percent(part / 1000)}"
            yield (
                f"corpora.sources.{name}: {sequences[name] * length:,} tokens, enough for target.steps={steps} at "
                f"domain ratios {ratios}; {other}: give more text, {remedy}or allow_repeats=true"
            )


def repeat_lines(runs: Sequence[PlannedRun], context: Context) -> Iterator[str]:
    """A line for each corpus that a run before confirmation reads more than once: the one that does most often."""
    for corpus, prepared in context.manifest.corpora.items():
        epochs = {
            run.name: demand_of(run, corpus) / max(_available(prepared, run.spec.sequence_length), 1)
            for run in runs
            if run.role != "confirm" and corpus in run.spec.mixture
        }
        most = max(epochs, key=epochs.__getitem__, default="")
        if most and epochs[most] > 1:
            yield f"corpora.sources.{corpus}: {most} reads it {epochs[most]:,.1f} times, most often of the planned runs"


def _available(corpus: PreparedCorpus, length: int) -> int:
    """Tokens of a corpus in whole training sequences of a length."""
    return max(corpus.tokens["train"] - 1, 0) // length * length


def largest_readers(runs: Sequence[PlannedRun], corpus: str, question: Question) -> list[PlannedRun]:
    """The run that reads most of a corpus, among those whose lengths one key sets; one for each key."""
    readers = defaultdict[str, list[PlannedRun]](list)
    for run in runs:
        if corpus in run.spec.mixture:
            readers[length_key(run, question)].append(run)
    return [max(of_key, key=lambda run: demand_of(run, corpus)) for of_key in readers.values()]


def remedies(run: PlannedRun, corpus: str, available: int, question: Question) -> str:
    """What to give where a run would read more than a corpus' available tokens, with the key that makes it so long."""
    key, spec = length_key(run, question), run.spec
    # The runs for the fit are parts of target.steps.
    steps = question.target.steps if key == "target.steps" else spec.end_step
    fewer, why = steps * available / demand_of(run, corpus), ""
    if key == "target.steps" and not (question.is_large() and not question.large.confirm):
        # Runs as long confirm the answer, which may be any ratio.
        fewer, why = available / question.tokens_per_step(), f" (for {steps} steps that confirm any ratio)"
    if fewer < FEW * steps:
        return f"{steps / max(fewer, 1 / steps):,.0f} times the text{why}, or allow_repeats=true"
    fewer = max(1, int(fewer))
    of_key = f"{key}={fewer}" if key.endswith(".steps") else f"some {fewer:,}{f', in {key}' if key else ''}"
    return f"more text, fewer steps ({of_key}), or allow_repeats=true"


def with_fewer_steps(words: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The words of a command with the fewer steps that lines of `supply_problems` propose, or with repeats.

    >>> with_fewer_steps(["pretrain.steps=400", "seed=1"], ["...; give fewer steps (pretrain.steps=327), or ..."])
    ['seed=1', 'pretrain.steps=327']
    >>> with_fewer_steps(["seed=1"], ["...; give 75 times the text, or allow_repeats=true"])
    ['seed=1', 'allow_repeats=true']
    """
    if any(" times the text" in line for line in lines):
        return [*words, "allow_repeats=true"]
    proposed: dict[str, int] = {}
    for line in lines:
        if found := re.search(r"fewer steps \(([\w.]+)=(\d+)\)", line):
            proposed[found[1]] = min(int(found[2]), proposed.get(found[1], int(found[2])))
    left = [word for word in words if word.partition("=")[0] not in proposed]
    return [*left, *(f"{key}={steps}" for key, steps in proposed.items())]


def length_key(run: PlannedRun, question: Question) -> str:
    """The key that sets how many steps a run has; empty: a goal chooses them, or a method of weights."""
    phase, variant = run.spec.phase, question.variants.get(run.variant)
    if question.goal_kind.many_domains and phase == question.weights.phase:
        return ""
    if run.role == "confirm" and not run.variant:
        return "target.steps" if run.spec.steps == question.target.steps else ""
    if phase == "continual" and not run.variant and is_active(question):
        return "target.steps"
    own = variant.get(phase) if isinstance(variant, dict) else None
    section = f"variants.{run.variant}.{phase}" if isinstance(own, dict) else phase
    return f"{section}.branches" if run.spec.initial.moments else f"{section}.steps"


def demand_of(run: PlannedRun, corpus: str) -> int:
    """Tokens that a run reads of a corpus in all its phases, whole sequences; a branch with those of its trunk."""
    sequences = (math.ceil(Fraction(mixture[corpus]) * (end - first)) for first, end, mixture in run.spec.mixtures)
    return sum(sequences) * run.spec.sequence_length
