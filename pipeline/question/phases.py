"""What follows from a question's phases and mixture: pieces, branches, replicated ratios; and what is wrong there."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from pipeline.question.messages import nearest
from pipeline.question.schema import CorporaConfig, MixtureConfig, PhaseConfig, Question
from pipeline.question.schema.training import BranchConfig, MixturePhaseConfig
from training.keys import key_problems
from training.schedule import Piece, part_lengths, piece_lengths

ROUNDING = Fraction(5, 1000)
"""How far a share may be from what was meant: half a hundredth, so that 0.33 may stand for 1/3."""


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


def phase_problems(name: str, phase: PhaseConfig, question: Question) -> Iterator[str]:
    """A line for each mistake in the `phases` of the phase of that name."""
    key = f"{name}.phases"
    if not phase.phases:
        return
    if name != "continual":
        yield f"{key}: {len(phase.phases)}; allowed: none, give them in continual.phases"
        return
    if question.goal_kind.many_domains:
        yield f"{key}: {len(phase.phases)} with goal.kind={question.goal.kind}; allowed: none"
    of_lengths = [list(_length_problems(part)) for part in phase.phases]
    of_ratios = [list(_ratio_problems(part, question)) for part in phase.phases]
    # A wrong length counts as none in the sum: what the others take is wrong or right without it.
    readable = [MixturePhaseConfig() if lines else part for part, lines in zip(phase.phases, of_lengths)]
    of_sum = list(_sum_problems(name, readable, phase.steps))
    if of_sum or any(of_lengths) or sum(map(_is_open, phase.phases)) > 1:
        lengths = _asked_lengths(readable, phase.steps)
    else:
        lengths = list(phase_lengths(phase.phases, phase.steps))
    for number, part in enumerate(phase.phases):
        if part.share is not None and not of_lengths[number] and lengths[number] == 0:
            of_lengths[number] = [
                f".share: {part.share} is 0 of {phase.steps} steps; allowed: 1 step or more; "
                "give steps: 1 or a larger share"
            ]
        yield from (f"{key}[{number}]{line}" for line in of_lengths[number] + of_ratios[number])
    opened = [f"{key}[{number}]" for number, part in enumerate(phase.phases) if _is_open(part)]
    if len(opened) > 1:
        yield (
            f"{', '.join(opened)}: without steps and share; allowed: one phase that takes the rest; "
            "give the others steps or a share"
        )
    yield from of_sum
    yield from _schedule_problems(key, phase, lengths)


def _is_open(part: MixturePhaseConfig) -> bool:
    return part.steps is None and part.share is None


def _sum_problems(name: str, parts: Sequence[MixturePhaseConfig], steps: int) -> Iterator[str]:
    """A line where the given lengths are not those of the run, or leave no room for the parts without one."""
    given = [(part.steps, part.share) for part in parts if not _is_open(part)]
    has_open = len(given) < len(parts)
    advice = "change the steps or share of one" + ("" if has_open else ", or give one phase neither: it takes the rest")
    shares = [Fraction(repr(float(share))) for _, share in given if share is not None]
    taken = sum(shares) * steps + sum(length or 0 for length, _ in given)
    # Less than a step, which part_lengths lets pass, can be much of a short run: more than shares are rounded by.
    if not has_open and abs(taken - steps) > ROUNDING * len(shares) * steps:
        if len(shares) == len(given):
            yield (
                f"{name}.phases: its shares sum to {float(sum(shares)):.6g}; "
                f"allowed: 1, but for rounding ({float(ROUNDING):g} of each, less than 1 step in all); {advice}"
            )
        else:
            yield f"{name}.phases: its phases take {float(taken):.6g} steps; allowed: {steps}, the run's; {advice}"
        return
    try:
        part_lengths([*given, *[(None, None)] * has_open], steps, "phases", "phase")
    except ValueError as error:
        yield f"{name}.{error}; {advice}"


def _asked_lengths(parts: Sequence[MixturePhaseConfig], steps: int) -> list[int | None]:
    """Steps of each part where together they are not those of the run; None: unknown."""
    asked = [part.steps if part.share is None else round(part.share * steps) for part in parts]
    rest = steps - sum(length or 0 for length in asked)
    # Of two parts without a length, how they divide the rest is unknown.
    return [rest if length is None and asked.count(None) == 1 and rest > 0 else length for length in asked]


def _schedule_problems(key: str, phase: PhaseConfig, lengths: Sequence[int | None]) -> Iterator[str]:
    given = [bool(part.schedule.pieces) for part in phase.phases]
    if any(given) and not all(given):
        yield (
            f"{key}[{given.index(False)}].schedule: empty, that of {key}[{given.index(True)}] is not; "
            "give one to every phase, or to none: then target.schedule is that of the run"
        )
    for number, (part, length) in enumerate(zip(phase.phases, lengths)):
        chain = part.schedule.pieces
        if length is None and not any(piece.steps is None and piece.share is None for piece in chain):
            # Of a phase of unknown length the pieces take the run's steps at most.
            chain = [*chain, Piece("constant")]
        if part.schedule.pieces:
            try:
                piece_lengths(chain, phase.steps if length is None else length)
            except ValueError as error:
                yield f"{key}[{number}].{error}"


def _length_problems(part: MixturePhaseConfig) -> Iterator[str]:
    yield from key_problems(part, ".", without=("domain_ratio", "mixture", "schedule"))
    if part.steps is not None and part.share is not None:
        yield f": has steps {part.steps} and share {part.share}; allowed: one of them"


def _ratio_problems(part: MixturePhaseConfig, question: Question) -> Iterator[str]:
    if part.domain_ratio is not None and part.mixture:
        yield f": has domain_ratio {part.domain_ratio} and mixture {part.mixture}; allowed: one of them"
    yield from key_problems(part, ".", without=("steps", "share", "schedule"))
    known = question.corpora.sources
    for corpus in part.mixture:
        if corpus not in known:
            yield f".mixture.{corpus}: not a corpus; allowed: {', '.join(known)}{nearest(corpus, known)}"
    if part.mixture and not math.isclose(total := sum(part.mixture.values()), 1, abs_tol=1e-9):
        yield f".mixture: its ratios sum to {total:.9g}; allowed: 1"
