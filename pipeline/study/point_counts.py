"""How many points each run of a study has: what it recorded when it ended, and what its file holds now."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from pipeline.study.folder import PlannedRun, Study, StudyError


def refuse_lost_points(study: Study, plan: Sequence[PlannedRun], present: Mapping[Hashable, int]) -> None:
    """Check that no finished run of the plan has other than the points that it ended with.

    Args:
        study, plan: the runs.
        present: run -> its points now; a run without any may be absent.

    Raises:
        StudyError: a run has lost points, or its DONE is damaged; one line with the first of them.
    """
    lines = []
    for run in plan:
        done = study.runs / run.name / "DONE"
        again = f"delete {done} and run cptlaw train again, which gives the same points"
        try:
            recorded = _recorded(done)
        except ValueError:
            lines.append(f"{done}: damaged, so whether points were lost is not known; {again}")
            continue
        if recorded is not None and recorded != (count := present.get(run.name, 0)):
            file = study.runs / run.name / "points.jsonl"
            lines.append(f"{file}: {count} points, but the run ended with {recorded}; {again}")
    if lines:
        more = f"; so do {len(lines) - 1} more runs" if lines[1:] else ""
        raise StudyError(lines[0] + more)


def ended_points(study: Study, plan: Sequence[PlannedRun]) -> dict[str, int]:
    """Run -> number of its points, of the runs of the plan that are done."""
    ended = {}
    for run in plan:
        folder = study.runs / run.name
        if not (folder / "DONE").exists():
            continue
        with contextlib.suppress(ValueError):
            if (recorded := _recorded(folder / "DONE")) is not None:
                ended[run.name] = recorded
                continue
        points = folder / "points.jsonl"
        ended[run.name] = points.read_bytes().count(b"\n") if points.exists() else 0
    return ended


def _recorded(done: Path) -> int | None:
    """The points that a run ended with; None: it has not ended, or did not record them."""
    try:
        content = json.loads(done.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise ValueError(f"{done}: {content!r:.60} is not a record")
    return content.get("points")


def is_confirmed(study: Study, plan: Sequence[PlannedRun]) -> bool:
    """Whether confirmation.json is a comparison of as many points as the runs have now."""
    try:
        known = json.loads((study.folder / study.answer("confirmation.json")).read_text()).get("points")
    except (OSError, ValueError, AttributeError):
        return False
    return known is not None and known == sum(ended_points(study, plan).values())
