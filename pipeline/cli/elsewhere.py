"""Read the validation losses and learning rates that a run made elsewhere has logged: Trainer, wandb, or a table."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.cli.points_file import read_table, renamed
from pipeline.question.messages import ConfigError
from pipeline.study.folder import StudyError

STEPS = ("step", "train/global_step", "trainer/global_step", "_step")
"""Keys of a log that hold the optimizer step, the first that there is."""
RATES = ("learning_rate", "train/learning_rate")
"""Keys of a log that hold the learning rate."""
TABLES = (".csv", ".parquet", ".jsonl")


@dataclass(frozen=True, eq=False)
class RunLog:
    """What is logged of a run."""

    points: pd.DataFrame
    """step, corpus and loss, and a table's other columns."""
    rates: dict[int, float]
    """Step -> learning rate, where it is logged."""
    steps: int | None = None
    """Length of the learning-rate schedule, where it is logged."""


def read_logs(path: Path, losses: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, RunLog]:
    """The logs of the runs in a file or folder, by the name of the run; '' where the file has one.

    `path` is trainer_state.json or a folder with one, a wandb offline run folder, or a .csv, .parquet or .jsonl table,
    whose `columns` are given as to `points_file.renamed`. `losses` is key of a log -> corpus: eval_law_loss -> law.

    Raises:
        StudyError: missing, damaged, or without such losses.
        ConfigError: a column that the table does not have.
    """
    if path.suffix in TABLES:
        return _table(path, columns)
    if path.is_dir():
        logs = list(path.glob("trainer_state.json")) or sorted(path.glob("*.wandb"))
        if len(logs) != 1:
            wanted = "a folder with one trainer_state.json or *.wandb"
            raise StudyError(f"{path}: {len(logs)} logs; allowed: {wanted}, or a table ({', '.join(TABLES)})")
        path = logs[0]
    try:
        state = {} if path.suffix == ".wandb" else json.loads(path.read_bytes())
        rows = list(wandb_rows(path)) if path.suffix == ".wandb" else state["log_history"]
        points = [
            {"step": _step(row), "corpus": losses[key], "loss": float(row[key])}
            for row in rows
            for key in losses
            if key in row
        ]
        rates = {_step(row): float(row[key]) for row in rows for key in RATES if key in row}
        steps = int(state.get("max_steps") or 0) or None
    except FileNotFoundError:
        raise StudyError(f"{path}: does not exist") from None
    except (OSError, ValueError, KeyError, TypeError, StopIteration, struct.error) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StudyError(f"{path}: not a log of Trainer or wandb ({reason})") from None
    if not points:
        known = sorted({key for row in rows for key in row if "loss" in key})
        keys = f"it has {', '.join(known) or 'no losses'}; name them with losses='{{eval_loss: general}}'"
        raise StudyError(f"{path}: none of {', '.join(losses)} in its log; {keys}")
    # A Trainer that was resumed logs a step twice; the later one counts.
    return {"": RunLog(pd.DataFrame(points).drop_duplicates(["step", "corpus"], keep="last"), rates, steps)}


def _step(row: Mapping[str, Any]) -> int:
    return int(next(row[key] for key in STEPS if key in row))


def wandb_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The history of a .wandb file, a dict a row; a last row that was not written whole is left out.

    The file is a log of 32 KiB blocks as LevelDB writes it, behind seven bytes of wandb's own.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    data, at, parts = path.read_bytes(), 7, b""
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
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _table(path: Path, columns: Mapping[str, str]) -> dict[str, RunLog]:
    table, _ = renamed(read_table(path), columns)
    if lacking := [name for name in ("step", "corpus", "loss") if name not in table.columns]:
        raise ConfigError([f"{path}: no column {name}; name it with columns='{{{name}: ...}}'" for name in lacking])
    logs = {}
    for run, rows in table.groupby("run", sort=False) if "run" in table.columns else [("", table)]:
        rated = rows[rows["step"] > 0].reindex(columns=["step", "learning_rate"]).dropna()
        logs[str(run)] = RunLog(rows, {int(step): float(rate) for step, rate in rated.itertuples(index=False)})
    return logs
