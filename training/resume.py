"""The state that a run resumes from: the newest one before which no line of its files is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training import domain_weights
from training.checkpoints.folder import is_whole
from training.checkpoints.states import saved_states, step_of
from training.durable import leading_lines
from training.evaluation_steps import evaluation_steps
from training.spec import RunSpec


def resumable_state(spec: RunSpec, folder: Path) -> Path | None:
    """The newest complete state of a run whose earlier lines are all in its files; None: there is none.

    A state knows nothing of the points before it. If a disk error or a person shortened points.jsonl, the steps of the
    missing lines are trained again, and give the same bytes.
    """
    evaluated = evaluation_steps(spec.evaluation, spec.steps)
    points = [{"step": step, "corpus": corpus} for step in evaluated for corpus in spec.corpora]
    # The evaluation at the step of a state is repeated.
    last = _first_missing(folder / "points.jsonl", points, spec.steps)
    if spec.reweighting is not None:
        weights = [{"step": step} for step in domain_weights.logged_steps(spec.steps)]
        # The line of a step is on disk before its state.
        last = min(last, _first_missing(folder / domain_weights.PATH, weights, spec.steps + 1) - 1)
    states = (state for state in saved_states(folder) if step_of(state) <= last)
    return next(filter(is_whole, states), None)


def _first_missing(path: Path, lines: Sequence[Mapping[str, Any]], none: int) -> int:
    """Step of the first expected line that a file lacks; `none` where it has all."""
    known = leading_lines(path, lines)
    return lines[known]["step"] if known < len(lines) else none
