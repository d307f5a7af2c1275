"""Whether the corpora have enough tokens for the runs of a plan."""

import math
from collections.abc import Iterator
from fractions import Fraction

from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun


def supply_problems(runs: list[PlannedRun], context: Context) -> Iterator[str]:
    """A message for each corpus that some run would read more than once."""
    for corpus, prepared in context.manifest.corpora.items():
        readers = (run for run in runs if corpus in run.spec.mixture)
        largest = max(readers, key=lambda run: demand_of(run, corpus), default=None)
        if largest is None:
            continue
        length = largest.spec.sequence_length
        demand = demand_of(largest, corpus)
        available = max(prepared.tokens["train"] - 1, 0) // length * length
        if available == 0:
            yield f"corpora.sources.{corpus}: {prepared.tokens['train']} tokens, less than one sequence of {length}"
        elif demand > available and not context.question.allow_repeats:
            yield (
                f"corpora.sources.{corpus}: {available:,} tokens, {largest.name} would read {demand:,}, "
                f"{demand / available:.2f} epochs; give more text, fewer steps (some "
                f"{largest.spec.steps * available // demand:,}), or allow_repeats=true"
            )


def demand_of(run: PlannedRun, corpus: str) -> int:
    """Tokens that a run reads of a corpus in all its phases, whole sequences; a branch with those of its trunk."""
    sequences = (math.ceil(Fraction(mixture[corpus]) * (end - first)) for first, end, mixture in run.spec.mixtures)
    return sum(sequences) * run.spec.sequence_length
