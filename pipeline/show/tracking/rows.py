"""Rows for wandb from the files of a run: one for each evaluated step and each line of metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.durable import read_lines_whole

STEP = "step"
"""Axis of every curve; wandb's own step counts rows."""
_LARGEST_STEP = 2**53
Row = dict[str, float]


def point_rows(lines: Iterable[Any]) -> list[Row]:
    """Validation losses, a row a step, in the order of steps; lines that are no points are skipped.

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
    """Training loss, speed and so on, a row a line, in the order of the lines.

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
    """Both by step; at the same step the validation losses come first."""
    return sorted([*points, *metrics], key=lambda row: row[STEP])


def rows_by_attempt(folder: Path, records: list[dict[str, Any]]) -> dict[int, list[Row]]:
    """Attempt -> its rows of the history of a run: the steps that it trained and no later attempt repeated.

    An attempt goes on from the step of a state (`from_step`), and evaluates at that step anew.

    Raises:
        ValueError: a line that is not JSON.
    """
    points = point_rows(_lines(folder / "points.jsonl"))
    metrics: list[Row] = []
    for row in metric_rows(_lines(folder / "metrics.jsonl")):
        # metrics.jsonl is append-only: a step that was trained again is there twice, and the later one counts.
        while metrics and metrics[-1][STEP] >= row[STEP]:
            metrics.pop()
        metrics.append(row)
    shared: dict[int, list[Row]] = {}
    # The last first: an attempt replaces earlier ones from its first step on.
    for record in reversed(records):
        first = int(record.get("from_step", 0))
        own_points = [row for row in points if row[STEP] >= first]
        own_metrics = [row for row in metrics if row[STEP] > first]
        points, metrics = points[: len(points) - len(own_points)], metrics[: len(metrics) - len(own_metrics)]
        shared[record["attempt"]] = in_order(own_points, own_metrics)
    return dict(sorted(shared.items()))


def rows_so_far(folder: Path, first: int, metrics_before: int, over: bool) -> list[Row]:
    """The rows of an attempt in progress, which began at step `first` with that many bytes in metrics.jsonl.

    Raises:
        ValueError: a line that is not JSON.
    """
    metrics = _lines(folder / "metrics.jsonl", metrics_before)
    while True:
        # Until the attempt has written metrics, points.jsonl may hold steps that it will repeat.
        points = _lines(folder / "points.jsonl") if metrics or over else []
        # Read again until nothing is new: else a loss could be logged before the metrics of earlier steps.
        more = _lines(folder / "metrics.jsonl", metrics_before)
        if len(more) == len(metrics):
            return in_order([row for row in point_rows(points) if row[STEP] >= first], metric_rows(metrics))
        metrics = more


def _lines(path: Path, offset: int = 0) -> list[Any]:
    """The whole lines of a JSON file behind an offset."""
    if not path.exists():
        return []
    if not offset:
        return read_lines_whole(path)
    with path.open("rb") as stream:
        stream.seek(offset)
        data = stream.read()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines() if line.strip()]


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
