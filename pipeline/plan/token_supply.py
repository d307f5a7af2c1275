"""Whether the corpora suffice for the runs of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun
from training.corpora.manifest import Manifest


def supply_problems(runs: list[PlannedRun], manifest: Manifest, question: Question) -> Iterator[str]:
    """A line for each corpus that its most demanding run would read more than once."""
    for corpus, prepared in manifest.corpora.items():
        need = max(
            (run for run in runs if corpus in run.spec.mixture),
            key=lambda run: _demand(run, corpus),
            default=None,
        )
        if need is None:
            continue
        length = need.spec.sequence_length
        have = max(prepared.tokens["train"] - 1, 0) // length * length
        if have == 0:
            yield f"corpora.sources.{corpus}: {prepared.tokens['train']} tokens, less than one sequence of {length}"
        elif _demand(need, corpus) > have and not question.allow_repeats:
            epochs = _demand(need, corpus) / have
            yield (
                f"corpora.sources.{corpus}: {have:,} tokens, {need.name} would read {_demand(need, corpus):,}, "
                f"{epochs:.2f} epochs; give more text, fewer steps, or allow_repeats=true"
            )


def _demand(run: PlannedRun, corpus: str) -> int:
    return math.ceil(Fraction(run.spec.mixture[corpus]) * run.spec.tokens)
