"""How far each run of a study is, read from its folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from pipeline.study import PlannedRun, Study
from training.attempt import attempts, is_live


@dataclass(frozen=True)
class RunStatus:
    """A run now."""

    run: PlannedRun
    """The run."""
    state: str
    """waiting, running, interrupted, done or failed."""
    step: int
    """Steps that are known to be done."""
    speed: int | None
    """Tokens a second, evaluations included, or None before the first measurement."""
    detail: str
    """Last losses, or why it failed."""


def statuses(study: Study, plan: list[PlannedRun]) -> list[RunStatus]:
    """The state of every planned run."""
    return [_status(study, run) for run in plan]


def status_table(rows: list[RunStatus]) -> Table:
    """A table for the terminal."""
    table = Table(title=None, show_lines=False)
    for name in ("run", "state", "step", "tokens/s", "loss"):
        table.add_column(name, justify="right" if name in ("step", "tokens/s") else "left", overflow="fold")
    colours = {"done": "green", "failed": "red", "running": "cyan", "interrupted": "yellow", "waiting": "dim"}
    for row in rows:
        table.add_row(
            row.run.name,
            f"[{colours[row.state]}]{row.state}[/]",
            f"{row.step}/{row.run.spec.steps}",
            f"{row.speed:,}" if row.speed else "",
            row.detail,
        )
    return table


def _status(study: Study, run: PlannedRun) -> RunStatus:
    folder = study.runs / run.name
    state = study.state(run)
    if state == "failed":
        return RunStatus(run, state, _step(folder), None, (folder / "FAILED").read_text().strip())
    if state == "open":
        records = attempts(folder)
        state = "waiting" if not records else "running" if is_live(folder, records[-1]) else "interrupted"
    step = run.spec.steps if state == "done" else _step(folder)
    metrics = _last_line(folder / "metrics.jsonl")
    return RunStatus(run, state, step, metrics.get("tokens_per_second"), _losses(folder, len(run.spec.corpora)))


def _step(folder: Path) -> int:
    return max(_last_line(folder / name).get("step", 0) for name in ("metrics.jsonl", "points.jsonl"))


def _losses(folder: Path, corpora: int) -> str:
    lines = _tail(folder / "points.jsonl")[-corpora:]
    return "  ".join(f"{point['corpus']} {point['loss']:.4f}" for point in lines)


def _last_line(path: Path) -> dict:
    return next(iter(_tail(path)[-1:]), {})


def _tail(path: Path) -> list[dict]:
    """The last whole JSON lines of a file, from its end."""
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            size = stream.tell()
            stream.seek(max(0, size - 4096))
            block = stream.read()
    except FileNotFoundError:
        return []
    lines = block[: block.rfind(b"\n") + 1].splitlines()
    values = []
    for line in lines[1:] if size > 4096 else lines:
        try:
            values.append(json.loads(line))
        except ValueError:
            continue
    return values
