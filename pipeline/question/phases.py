"""What follows from a question's phases and mixture: learning-rate pieces, branches, replicated ratios."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from pipeline.question.schema.training import (
    BranchConfig,
    CorporaConfig,
    MixtureConfig,
    MixturePhaseConfig,
    PhaseConfig,
)
from training.schedule import Piece, part_lengths, piece_lengths


def pieces(phase: PhaseConfig) -> tuple[Piece, ...]:
    """The phase's schedule with absolute learning rates, as a run spec has it."""

    def rate(relative: float | None) -> float | None:
        # Rounded to 12 digits, so that 0.1 x 3e-3 gives the same hash on every machine.
        return None if relative is None else float(f"{relative * phase.peak_learning_rate:.12g}")

    chain = phase.schedule.pieces
    if any(part.schedule.pieces for part in phase.phases):
        chain = [
            replace(piece, steps=length, share=None)
            for part, steps in zip(phase.phases, phase_lengths(phase.phases, phase.steps))
            for piece, length in zip(part.schedule.pieces, piece_lengths(part.schedule.pieces, steps))
        ]
    return tuple(replace(piece, start=rate(piece.start), end=rate(piece.end)) for piece in chain)


def phase_lengths(parts: Sequence[MixturePhaseConfig], steps: int) -> list[int]:
    """Steps of each part of the mixture along the schedule of a run.

    Raises ValueError: they do not sum to the run; one line with the key and its value.
    """
    return part_lengths([(part.steps, part.share) for part in parts], steps, "phases", "phase")


def mixtures_of(
    phase: PhaseConfig, corpora: CorporaConfig, domain_ratio: Fraction
) -> list[tuple[int, dict[str, Fraction]]]:
    """(steps before, mixture) of each part of a run that reads a mixture of its own, at the domain ratio of the run.

    Parts of no steps are left out, neighbours of one mixture are one.

    >>> halves = [MixturePhaseConfig(share=0.5), MixturePhaseConfig(domain_ratio=0.5)]
    >>> phase, corpora = PhaseConfig(steps=10, phases=halves), CorporaConfig("prose", "law")
    >>> [(first, str(mixture["law"])) for first, mixture in mixtures_of(phase, corpora, Fraction(1, 4))]
    [(0, '1/4'), (5, '1/2')]
    """
    parts = phase.phases or [MixturePhaseConfig()]
    names = dict.fromkeys([corpora.general, corpora.domain, *(name for part in parts for name in part.mixture)])
    found: list[tuple[int, dict[str, Fraction]]] = []
    first = 0
    for part, length in zip(parts, phase_lengths(parts, phase.steps), strict=True):
        ratio = domain_ratio if part.domain_ratio is None else Fraction(str(part.domain_ratio))
        own = {name: Fraction(str(value)) for name, value in part.mixture.items()}
        own = own or {corpora.general: 1 - ratio, corpora.domain: ratio}
        mixture = {name: own.get(name, Fraction(0)) for name in names}
        if length and (not found or mixture != found[-1][1]):
            found.append((first, mixture))
        first += length
    return found


def describe_phases(phase: PhaseConfig, corpora: CorporaConfig) -> str:
    """One line about the mixture along the schedule, for `cptlaw plan`.

    >>> halves = [MixturePhaseConfig(share=0.5), MixturePhaseConfig(domain_ratio=0.5)]
    >>> describe_phases(PhaseConfig(steps=10, phases=halves), CorporaConfig("prose", "law"))
    "the mixture changes: 5 steps at the run's own ratio, then 5 steps at 50% law"
    """
    # Of several domains each has runs of its own.
    domain = "domain text" if corpora.domains else corpora.domain
    spans: list[tuple[int, str]] = []
    for part, length in zip(phase.phases, phase_lengths(phase.phases, phase.steps)):
        mixture = part.mixture or ({} if part.domain_ratio is None else {domain: part.domain_ratio})
        named = [f"{100 * ratio:g}% {corpus}" for corpus, ratio in mixture.items() if ratio or len(mixture) == 1]
        text = " and ".join(named) or "the run's own ratio"
        if spans and spans[-1][1] == text:
            length += spans.pop()[0]
        if length:
            spans.append((length, text))
    line = ", then ".join(f"{length} step{'s' * (length > 1)} at {text}" for length, text in spans)
    return f"the mixture {'changes' if len(spans) > 1 else 'does not change'}: {line}"


def branch_phase(phase: PhaseConfig, branch: BranchConfig) -> PhaseConfig:
    """A branch as a phase of its own; it reads on in the mixtures of its trunk."""
    return replace(phase, steps=branch.steps, schedule=branch.schedule, phases=[], branches=[])


def replicated(mixture: MixtureConfig) -> list[float]:
    """The domain ratios that are run with several seeds."""
    if mixture.replicate_at is None:
        return [sorted(mixture.domain_ratio)[len(mixture.domain_ratio) // 2]]
    return mixture.replicate_at if isinstance(mixture.replicate_at, list) else [mixture.replicate_at]
