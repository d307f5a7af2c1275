"""How far each run of a study is, and how many points it has: when it ended, and in its file now."""

import contextlib
import math
import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.question.schema import Question
from pipeline.study.artifacts import Recommendation, read_if_there
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.attempt import attempts, is_live
from training.durable import FileError, json_value, read_file, read_json, read_text

MOST = 60
"""Rows of a table; of a longer plan those that say most are shown, and the others counted."""
STATES = {"failed": "red", "interrupted": "yellow", "running": "cyan", "waiting": "dim", "done": "green"}
"""State -> its colour, in the order in which people want to see them."""


@dataclass(frozen=True)
class RunStatus:
    """A run now."""

    run: PlannedRun
    state: str
    step: int
    speed: int | None
    """Tokens a second, evaluations included, or None before the first measurement."""
    detail: str
    """Last losses, or why it failed."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Corpus -> last validation loss, nats per token."""


def statuses(study: Study, plan: list[PlannedRun], stale_after: float, brief: bool = False) -> list[RunStatus]:
    """The state of every run; one on another host is interrupted after `stale_after` seconds without a heartbeat.

    `brief`: runs that are done without speed and losses, at a third of the cost.
    """
    return [_status(study, run, stale_after, brief) for run in plan]


def status_table(rows: list[RunStatus]) -> Table:
    """A table for the terminal: every run, or of many those that failed, stand or run, and how many the others are."""
    caption = None
    if len(rows) > MOST:
        counts = Counter(row.state for row in rows)
        listed = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
        caption = f"{len(rows):,} runs: {listed}; {MOST} are shown"
        rows = sorted(rows, key=lambda row: [*STATES].index(row.state))[:MOST]
    table = Table(title=None, show_lines=False, caption=caption)
    for name in ("run", "state", "step", "tokens/s", "result"):
        table.add_column(name, justify="right" if name in ("step", "tokens/s") else "left", overflow="fold")
    for row in rows:
        state, step = Text(row.state, STATES[row.state]), f"{row.step}/{row.run.spec.steps}"
        table.add_row(Text(row.run.name), state, step, f"{row.speed:,}" if row.speed else "", Text(row.detail))
    return table


def print_failed(study: Study, runs: Sequence[PlannedRun], console: Console) -> None:
    """Print why runs failed, of ten at most."""
    for run in runs[:10]:
        path, reason = study.runs / run.name / "FAILED", "the run that it starts from has failed"
        if path.exists():
            remedy = f"cptlaw train {study.word} retry_failed=true run={run.name} tries it again"
            reason = f"{read_text(path).strip()}; {remedy}"
        console.print(f"failed {run.name}: {reason}", highlight=False, markup=False, soft_wrap=True)
    if runs[10:]:
        console.print(f"and {len(runs) - 10:,} more; see cptlaw status {study.word}", highlight=False)


def _status(study: Study, run: PlannedRun, stale_after: float, brief: bool) -> RunStatus:
    folder = study.runs / run.name
    if not folder.exists():
        return RunStatus(run, "waiting", 0, None, "")
    state = study.state(run)
    if state == "done" and brief:
        return RunStatus(run, state, run.spec.steps, None, "")
    if state == "failed":
        return RunStatus(run, state, _step(folder), None, read_text(folder / "FAILED").strip())
    if state == "open":
        records = attempts(folder)
        live = bool(records) and is_live(folder, records[-1], stale_after)
        state = "waiting" if not records else "running" if live else "interrupted"
    step = run.spec.steps if state == "done" else _step(folder)
    lines = _tail(folder / "points.jsonl", len(run.spec.corpora))
    losses = {str(line.get("corpus")): line["loss"] for line in lines if isinstance(line.get("loss"), float)}
    detail = "  ".join(f"{corpus} {loss:.4f}" for corpus, loss in losses.items())
    measured = max((_number(line, "step") for line in lines), default=step)
    detail += f" at step {measured}" if losses and measured < step else ""
    return RunStatus(run, state, step, _speed(folder), detail, losses)


def _speed(folder: Path) -> int | None:
    """Tokens a second in the last lines of metrics; of one line alone it would jump with each evaluation."""
    lines = [line for line in _tail(folder / "metrics.jsonl", 8) if isinstance(line.get("seconds"), float)]
    tokens = sum(_number(line, "tokens_per_second") * line["seconds"] for line in lines)
    seconds = sum(line["seconds"] for line in lines)
    speed = tokens / seconds if tokens and seconds else math.nan
    return round(speed) if 0 < speed < math.inf else None


def _step(folder: Path) -> int:
    lines = [line for name in ("metrics.jsonl", "points.jsonl") for line in _tail(folder / name, 1)]
    return max((_number(line, "step") for line in lines), default=0)


def _number(line: dict, key: str) -> int:
    return value if isinstance(value := line.get(key), int) and abs(value) < 10**18 else 0


def _tail(path: Path, count: int) -> list[dict]:
    """The last whole JSON lines of a file, from its end; of those, the ones that can be read."""
    if not path.is_file():
        return []
    with open(path, "rb") as stream:
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        stream.seek(max(0, size - 4096))
        block = stream.read()
    lines = block[: block.rfind(b"\n") + 1].splitlines()
    values = []
    for line in (lines[1:] if size > 4096 else lines)[-count:]:
        try:
            value = json_value(line)
        except ValueError:
            continue
        # A line may hold anything: looking at a study must not end in a traceback.
        if isinstance(value, dict):
            values.append(value)
    return values


def refuse_lost_points(study: Study, plan: Sequence[PlannedRun], present: Mapping[Hashable, int]) -> None:
    """Check that finished runs have as many points now (`present`, run -> count) as they ended with.

    Raises StudyError: a run has lost points, or its DONE is damaged; one line with the first of them.
    """
    lines = []
    for run in plan:
        done = study.runs / run.name / "DONE"
        trained = f"delete {done} and run cptlaw train {study.word} again, which gives the same points"
        again = "import it again with cptlaw import" if run.imported else trained
        try:
            recorded = _recorded(done)
        except ValueError:
            lines.append(f"{done}: damaged, so whether points were lost is not known; {again}")
            continue
        if recorded is not None and recorded != (count := present.get(run.name, 0)):
            file = study.runs / run.name / "points.jsonl"
            lines.append(f"{file}: {count} points, but the run ended with {recorded}; {again}")
    if lines:
        raise StudyError(lines[0] + (f"; so do {len(lines) - 1} more runs" if lines[1:] else ""))


def ended_points(study: Study, plan: Sequence[PlannedRun]) -> dict[str, int]:
    """Run -> number of its points, of the runs of the plan that are done."""
    ended = {}
    for folder in (folder for run in plan if ((folder := study.runs / run.name) / "DONE").exists()):
        recorded, points = None, folder / "points.jsonl"
        with contextlib.suppress(ValueError):
            recorded = _recorded(folder / "DONE")
        if recorded is None:
            recorded = read_file(points).count(b"\n") if points.exists() else 0
        ended[folder.name] = recorded
    return ended


def _recorded(done: Path) -> int | None:
    """The points that a run ended with; None: it has not ended, or did not record them."""
    try:
        points = read_json(done).get("points")
    except FileNotFoundError:
        return None
    if points is not None and type(points) is not int:
        raise FileError(f"{done}: points = {points!r:.60}")
    return points


def is_confirmed(study: Study, plan: Sequence[PlannedRun]) -> bool:
    """Whether confirmation.json is a comparison of as many points as the runs have now."""
    try:
        known = read_json(study.folder / study.answer("confirmation.json")).get("points")
    except (OSError, FileError):
        return False
    return known is not None and known == sum(ended_points(study, plan).values())


def is_reported(study: Study) -> bool:
    """Whether report.html is as new as points, question, answer, confirmation, and the followed run that it links."""
    report = study.folder / study.answer("report.html")
    read = [report.with_name(name) for name in ("recommendation.json", "confirmation.json", "follow.html")]
    read += [study.folder / name for name in ("points.parquet", "study.yaml")]
    times = [path.stat().st_mtime for path in read if path.exists()]
    return report.exists() and report.stat().st_mtime >= max(times, default=0.0)


def is_followed(study: Study, question: Question) -> bool:
    """Whether the run itself takes the place of confirmation runs, unless they are asked for: it is large."""
    answer = None if question.goal_kind.many_domains else read_if_there(Recommendation, study)
    return question.is_large(1e9 * answer.target.D if answer else None) and not question.large.confirm
