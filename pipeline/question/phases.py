"""What follows from a question's phases and mixture: learning-rate pieces, branches, replicated ratios."""

from __future__ import annotations

from dataclasses import replace

from pipeline.question.schema.training import BranchConfig, MixtureConfig, PhaseConfig
from training.schedule import Piece


def pieces(phase: PhaseConfig) -> tuple[Piece, ...]:
    """The phase's schedule with absolute learning rates, as a run spec has it."""

    def rate(relative: float | None) -> float | None:
        # Rounded to 12 digits, so that 0.1 x 3e-3 gives the same hash on every machine.
        return None if relative is None else float(f"{relative * phase.peak_learning_rate:.12g}")

    return tuple(replace(piece, start=rate(piece.start), end=rate(piece.end)) for piece in phase.schedule.pieces)


def branch_phase(phase: PhaseConfig, branch: BranchConfig) -> PhaseConfig:
    """A branch as a phase of its own."""
    return replace(phase, steps=branch.steps, schedule=branch.schedule, branches=[])


def replicated(mixture: MixtureConfig) -> list[float]:
    """The domain ratios that are run with several seeds."""
    if mixture.replicate_at is None:
        return [sorted(mixture.domain_ratio)[len(mixture.domain_ratio) // 2]]
    return mixture.replicate_at if isinstance(mixture.replicate_at, list) else [mixture.replicate_at]
