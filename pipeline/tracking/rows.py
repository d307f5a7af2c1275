"""What wandb is told of an attempt, from the run's files alone: a row for each evaluated step and each metrics line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.durable import read_lines_whole

STEP = "step"
"""The axis of every curve; wandb's own step only counts rows."""
_LARGEST_STEP = 2**53
Row = dict[str, float]


def point_rows(lines: Iterable[Any]) -> list[Row]:
    """Validation losses, a row a step, in the order of steps; lines that are no points are passed over.

    >>> point_rows([{"step": 5, "tokens": 80, "corpus": "code", "loss": 2.5, "loss_stderr": 0.1}])
    [{'step': 5, 'tokens': 80.0, 'loss/code': 2.5, 'loss_stderr/code': 0.1}]
    """
    rows: dict[int, Row] = {}
    for line in lines:
        if (step := _step(line)) is None or not isinstance(corpus := line.get("corpus"), str):
            continue
        row = rows.setdefault(step, {STEP: step})
        for key in ("tokens", "learning_rate"):
            _set(row, key, line.get(key))
        for key in ("loss", "loss_stderr"):
            _set(row, f"{key}/{corpus}", line.get(key))
    return [rows[step] for step in sorted(rows)]


def metric_rows(lines: Iterable[Any]) -> list[Row]:
    """Training loss, speed and so on, a row a line, as they come.

    >>> metric_rows([{"step": 20, "loss": 3.0, "learning_rate": 1e-3, "mfu": None}])
    [{'step': 20, 'train/loss': 3.0, 'learning_rate': 0.001}]
    """
    rows = []
    for line in lines:
        if (step := _step(line)) is None:
            continue
        row: Row = {STEP: step}
        for key, value in line.items():
            if key != STEP:
                _set(row, key if key == "learning_rate" else f"train/{key}", value)
        rows.append(row)
    return rows


def in_order(points: Iterable[Row], metrics: Iterable[Row]) -> list[Row]:
    """Both by step; at the same step the losses come first, as they were measured."""
    return sorted([*points, *metrics], key=lambda row: row[STEP])


def rows_by_attempt(folder: Path, records: list[dict[str, Any]]) -> dict[int, list[Row]]:
    """The history of a run shared out among its attempts: each has the steps that it trained and no other did again.

    An attempt goes on from the step of a state (`from_step`), and evaluates at that step anew.

    Raises:
        ValueError: a line that is not JSON.
    """
    points = point_rows(_lines(folder / "points.jsonl"))
    metrics: list[Row] = []
    for row in metric_rows(_lines(folder / "metrics.jsonl")):
        # metrics.jsonl is only added to: what was trained again stands there twice, and the later is what counts.
        while metrics and metrics[-1][STEP] >= row[STEP]:
            metrics.pop()
        metrics.append(row)
    shared: dict[int, list[Row]] = {}
    # The last first: an attempt took the place of those before it from its own first step on.
    for record in reversed(records):
        first = int(record.get("from_step", 0))
        own_points = [row for row in points if row[STEP] >= first]
        own_metrics = [row for row in metrics if row[STEP] > first]
        points, metrics = points[: len(points) - len(own_points)], metrics[: len(metrics) - len(own_metrics)]
        shared[record["attempt"]] = in_order(own_points, own_metrics)
    return dict(sorted(shared.items()))


def _lines(path: Path) -> list[Any]:
    return read_lines_whole(path) if path.exists() else []


def _step(line: Any) -> int | None:
    step = line.get(STEP) if isinstance(line, dict) else None
    right = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < _LARGEST_STEP
    return step if right else None


def _set(row: Row, key: str, value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return
        if math.isfinite(number):
            row[key] = number
