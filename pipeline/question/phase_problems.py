"""What is wrong with the mixture along the schedule: a line each, with numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from pipeline.question.data import data_folder
from pipeline.question.goal import GOALS, goal_of
from pipeline.question.messages import nearest
from pipeline.question.phases import mixtures_of, phase_lengths
from pipeline.question.schema import PhaseConfig, Question
from pipeline.question.schema.training import MixturePhaseConfig
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.schedule import piece_lengths


def phase_problems(name: str, phase: PhaseConfig, question: Question) -> Iterator[str]:
    """A line for each mistake in the `phases` of the phase of that name."""
    key = f"{name}.phases"
    if not phase.phases:
        return
    if name != "continual":
        yield f"{key}: {len(phase.phases)}; allowed: none, give them in continual.phases"
        return
    if question.goal.kind in GOALS and goal_of(question).many_domains:
        yield f"{key}: {len(phase.phases)} with goal.kind={question.goal.kind}; allowed: none"
    unreadable = False
    for number, part in enumerate(phase.phases):
        lines = list(_length_problems(part))
        unreadable |= bool(lines)
        yield from (f"{key}[{number}]{line}" for line in [*lines, *_ratio_problems(part, question)])
    lengths = _asked_lengths(phase)
    try:
        lengths = phase_lengths(phase.phases, phase.steps)
    except ValueError as error:
        if not unreadable:
            yield f"{name}.{error}; change the steps or share of one"
    yield from _schedule_problems(key, phase, lengths)
    ratios = [ratio for part in phase.phases for ratio in [part.domain_ratio or 0.0, *part.mixture.values()]]
    if not question.allow_repeats and all(map(math.isfinite, ratios)):
        yield from _supply_problems(phase, lengths, question)


def _asked_lengths(phase: PhaseConfig) -> list[int]:
    """Steps of each part as far as they can be read, where together they are not those of the run."""
    shares = [part.share or 0.0 for part in phase.phases]
    asked = [
        part.steps or (round(share * phase.steps) if 0 < share <= 1 else 0) for part, share in zip(phase.phases, shares)
    ]
    rest = max(0, phase.steps - sum(asked))
    opened = [part.steps is None and part.share is None for part in phase.phases]
    return [rest if is_open else max(0, length) for is_open, length in zip(opened, asked)]


def _schedule_problems(key: str, phase: PhaseConfig, lengths: Sequence[int]) -> Iterator[str]:
    given = [bool(part.schedule.pieces) for part in phase.phases]
    if any(given) and not all(given):
        yield (
            f"{key}[{given.index(False)}].schedule: empty, that of {key}[{given.index(True)}] is not; "
            "give one to every phase, or to none: then continual.schedule is that of the run"
        )
    for number, (part, length) in enumerate(zip(phase.phases, lengths)):
        if part.schedule.pieces:
            try:
                piece_lengths(part.schedule.pieces, length)
            except ValueError as error:
                yield f"{key}[{number}].{error}"


def _length_problems(part: MixturePhaseConfig) -> Iterator[str]:
    if part.steps is not None and part.share is not None:
        yield f": has steps {part.steps} and share {part.share}; allowed: one of them"
    if part.steps is not None and part.steps < 1:
        yield f".steps: {part.steps}; allowed: 1 or more"
    if part.share is not None and not 0 < part.share <= 1:
        yield f".share: {part.share}; allowed: above 0, up to 1, a ratio of the run's steps"


def _ratio_problems(part: MixturePhaseConfig, question: Question) -> Iterator[str]:
    if part.domain_ratio is not None and part.mixture:
        yield f": has domain_ratio {part.domain_ratio} and mixture {part.mixture}; allowed: one of them"
    if part.domain_ratio is not None and not 0 <= part.domain_ratio <= 1:
        yield f".domain_ratio: {part.domain_ratio}; allowed: 0 to 1, or null: the run's"
    known = question.corpora.sources
    for corpus, ratio in part.mixture.items():
        if corpus not in known:
            yield f".mixture.{corpus}: not a corpus; allowed: {', '.join(known)}{nearest(corpus, known)}"
        if not 0 <= ratio <= 1:
            yield f".mixture.{corpus}: {ratio}; allowed: 0 to 1"
    if part.mixture and not math.isclose(total := sum(part.mixture.values()), 1, abs_tol=1e-9):
        yield f".mixture: its ratios sum to {total:.9g}; allowed: 1"


def _supply_problems(phase: PhaseConfig, lengths: Sequence[int], question: Question) -> Iterator[str]:
    """A line for each prepared corpus that the phases, of these lengths, would read more than once at some ratio."""
    try:
        manifest = Manifest.open(data_folder(question))
    except CorpusError:
        return  # Not prepared yet: the plan asks again.
    width = phase.sequence_length or question.sequence_length
    demand: dict[str, int] = {}
    for ratio in question.mixture.domain_ratio:
        if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
            continue  # Said elsewhere.
        mixtures = mixtures_of(phase, question.corpora, Fraction(str(ratio)), lengths)
        ends = [*(first for first, _ in mixtures[1:]), sum(lengths)]
        for corpus in manifest.corpora:
            steps = (mixture.get(corpus, 0) * (end - first) for (first, mixture), end in zip(mixtures, ends))
            sequences = sum(math.ceil(of_phase * phase.global_batch) for of_phase in steps)
            demand[corpus] = max(demand.get(corpus, 0), sequences * width)
    for corpus, tokens in demand.items():
        available = max(manifest.corpora[corpus].tokens["train"] - 1, 0) // width * width
        if tokens > available:
            yield (
                f"continual.phases: {corpus} has {available:,} tokens, they read {tokens:,}; "
                "give more text, fewer steps, or allow_repeats=true"
            )
