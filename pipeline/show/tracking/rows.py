"""Rows for wandb from the files of a run: one for each evaluated step and each line of metrics; and those it wrote."""

import struct
import sys
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any

from training.attempt import AttemptRecord
from training.durable import json_value, read_file, read_lines_whole

STEP = "step"
"""Axis of every curve; wandb's own step counts rows."""
Row = dict[str, float]


def point_rows(lines: Iterable[Any]) -> list[Row]:
    """Validation losses, a row a step, in the order of steps; lines that are no points are skipped.

    >>> point_rows([{"step": 5, "tokens": 80, "corpus": "code", "loss": 2.5, "loss_stderr": 0.1}])
    [{'step': 5, 'tokens': 80.0, 'loss/code': 2.5, 'loss_stderr/code': 0.1}]
    """
    rows: dict[int, Row] = {}
    for line in lines:
        if _has_step(line) and isinstance(corpus := line.get("corpus"), str):
            values = {key: line.get(key) for key in ("tokens", "learning_rate")}
            values |= {f"{key}/{corpus}": line.get(key) for key in ("loss", "loss_stderr")}
            rows.setdefault(line[STEP], {STEP: line[STEP]}).update(_finite(values))
    return [rows[step] for step in sorted(rows)]


def metric_rows(lines: Iterable[Any]) -> list[Row]:
    """Training loss, speed and so on, a row a line, in the order of the lines.

    >>> metric_rows([{"step": 20, "loss": 3.0, "learning_rate": 1e-3, "mfu": None}])
    [{'step': 20, 'train/loss': 3.0, 'learning_rate': 0.001}]
    """
    names = {STEP: STEP, "learning_rate": "learning_rate"}
    return [
        _finite({names.get(key, f"train/{key}"): value for key, value in line.items()}) | {STEP: line[STEP]}
        for line in lines
        if _has_step(line)
    ]


def rows_by_attempt(folder: Path, records: list[AttemptRecord]) -> dict[int, list[Row]]:
    """Attempt -> its rows of the history of a run: the steps that it trained and no later attempt repeated.

    An attempt goes on from the step of a state (`from_step`), and evaluates at that step anew; without one it ended
    before it trained.

    Raises ValueError: a line that is not JSON.
    """
    points = point_rows(_lines(folder / "points.jsonl"))
    metrics: list[Row] = []
    for row in metric_rows(_lines(folder / "metrics.jsonl")):
        # metrics.jsonl is append-only: a step that was trained again is there twice, and the later one counts.
        while metrics and metrics[-1][STEP] >= row[STEP]:
            metrics.pop()
        metrics.append(row)
    rows: dict[int, list[Row]] = {}
    trained = [record["attempt"] for record in records if "from_step" in record]
    # The last first: an attempt replaces earlier ones from its first step on.
    for record in reversed(records):
        # After memory ran out the first one too has noted the step of a state.
        first = 0 if record["attempt"] in trained[:1] else record.get("from_step", inf)
        rows[record["attempt"]] = _in_order(points, metrics, first)
        points = [row for row in points if row[STEP] < first]
        metrics = [row for row in metrics if row[STEP] <= first]
    return dict(sorted(rows.items()))


def rows_so_far(folder: Path, first: float, metrics_before: int, over: bool) -> list[Row]:
    """The rows of an attempt in progress, which began at step `first` with that many bytes in metrics.jsonl."""
    metrics = _lines(folder / "metrics.jsonl", metrics_before)
    while True:
        # Until the attempt has written metrics, points.jsonl may hold steps that it will repeat.
        points = _lines(folder / "points.jsonl") if metrics or over else []
        # Read again until nothing is new: else a loss could be logged before the metrics of earlier steps.
        if len(more := _lines(folder / "metrics.jsonl", metrics_before)) == len(metrics):
            return _in_order(point_rows(points), metric_rows(metrics), first)
        metrics = more


def rows_of_file(path: Path) -> Iterator[dict[str, Any]]:
    """The history of a .wandb file, a dict a row; a last row that was not written whole is left out.

    The file is a log of 32 KiB blocks as LevelDB writes it, behind seven bytes of wandb's own.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    data, at, parts = read_file(path), 7, b""
    if data[:4] != b":W&B":
        raise ValueError("no wandb file")
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        at += 7 + length
        if at > len(data):
            return
        parts += data[at - length : at]
        # 1: whole, 2: first, 3: middle, 4: last part.
        if kind in (1, 4):
            record, parts = Record.FromString(parts), b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or "/".join(item.nested_key): json_value(item.value_json) for item in items}


def _in_order(points: Iterable[Row], metrics: Iterable[Row], first: float) -> list[Row]:
    """The rows of an attempt from a first step, by step; at the same step the validation losses come first."""
    own = [row for row in points if row[STEP] >= first] + [row for row in metrics if row[STEP] > first]
    return sorted(own, key=lambda row: row[STEP])


def _lines(path: Path, offset: int = 0) -> list[Any]:
    """The whole lines of a JSON file behind an offset."""
    if not path.exists():
        return []
    if not offset:
        return read_lines_whole(path)
    data = read_file(path)[offset:]
    return [json_value(line) for line in data[: data.rfind(b"\n") + 1].splitlines() if line.strip()]


def _has_step(line: Any) -> bool:
    return isinstance(line, dict) and type(line.get(STEP)) is int and 0 <= line[STEP] < 2**53


def _finite(values: dict[str, float | None]) -> Row:
    numbers = {key: value for key, value in values.items() if value is not None and type(value) in (int, float)}
    return {key: float(value) for key, value in numbers.items() if abs(value) <= sys.float_info.max}
