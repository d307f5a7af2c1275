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

    Args:
        path: trainer_state.json or a folder with one, a wandb offline run folder, or a .csv, .parquet or .jsonl table.
        losses: key of a log -> corpus, like eval_law_loss -> law.
        columns: of a table, as `points_file.renamed` takes them.

    Raises:
        StudyError: missing, damaged, or without such losses.
        ConfigError: a column that the table does not have.
    """
    if path.suffix in TABLES:
        return _table(path, columns)
    if path.is_dir():
        states = [path / "trainer_state.json"] if (path / "trainer_state.json").exists() else []
        logs = states or sorted(path.glob("*.wandb"))
        if len(logs) != 1:
            wanted = "a folder with one trainer_state.json or *.wandb"
            raise StudyError(f"{path}: {len(logs)} logs; allowed: {wanted}, or a table ({', '.join(TABLES)})")
        path = logs[0]
    try:
        state = {} if path.suffix == ".wandb" else json.loads(path.read_bytes())
        rows = list(wandb_rows(path)) if path.suffix == ".wandb" else state["log_history"]
        found = [
            {"step": _step(row), "corpus": corpus, "loss": float(row[key])}
            for row in rows
            for key, corpus in losses.items()
            if key in row
        ]
        rates = {_step(row): float(row[key]) for row in rows for key in RATES if key in row}
        steps = int(state.get("max_steps") or 0) or None
    except FileNotFoundError:
        raise StudyError(f"{path}: does not exist") from None
    except (OSError, ValueError, KeyError, TypeError, StopIteration, struct.error) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StudyError(f"{path}: not a log of Trainer or wandb ({reason})") from None
    if not found:
        known = sorted({key for row in rows for key in row if "loss" in key})
        keys = f"it has {', '.join(known) or 'no losses'}; name them with losses='{{eval_loss: general}}'"
        raise StudyError(f"{path}: none of {', '.join(losses)} in its log; {keys}")
    # A Trainer that was resumed logs a step twice; the later one counts.
    return {"": RunLog(pd.DataFrame(found).drop_duplicates(["step", "corpus"], keep="last"), rates, steps)}


def _step(row: Mapping[str, Any]) -> int:
    return int(next(row[key] for key in STEPS if key in row))


def wandb_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The history of a .wandb file, a dict a row; a last row that was not written whole is left out.

    The file is a log of 32 KiB blocks as LevelDB writes it, behind seven bytes of wandb's own.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    data, place, parts = path.read_bytes(), 7, b""
    if data[:4] != b":W&B":
        raise ValueError("no wandb file")
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        if place + 7 + length > len(data):
            return
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
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
    runs = table.groupby("run", sort=False) if "run" in table.columns else [("", table)]
    return {str(run): RunLog(rows, _rates(rows)) for run, rows in runs}


def _rates(table: pd.DataFrame) -> dict[int, float]:
    if "learning_rate" not in table.columns:
        return {}
    logged = table[(table["step"] > 0) & table["learning_rate"].notna()]
    return {int(step): float(rate) for step, rate in zip(logged["step"], logged["learning_rate"], strict=True)}
