"""Read points from outside a study: any table of losses, or the log of a run by Trainer or wandb."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fitting import LAWS, problems
from fitting.points import mixture_columns
from pipeline.question.messages import ConfigError, StudyError
from training.durable import json_value, read_file, read_json
from training.keys import MOST_STEPS

UNITS = {
    "N": "billions of parameters",
    "D": "billions of tokens",
    "r": "ratio of the corpus in the mixture, 0 to 1",
    "rho": "ratio of the corpus in pre-training, 0 to 1",
    "loss": "nats per token (bits would go unnoticed)",
    "mixture": "ratio of the corpus in the training tokens, 0 to 1",
    "loss_before": "nats per token, before the run",
    "s1": "summed learning rate of the run so far",
    "s2": "annealing area of the run so far",
    "s1_root": "sum of (learning rate / 1e-4)^(2/3) of the run so far",
    "s2_square": "annealing area of (learning rate / 1e-4)^2 of the run so far",
    "s1_pretrain": "summed learning rate of pre-training",
    "s2_pretrain": "annealing area of pre-training",
}
"""Column of a law -> the assumed unit of its numbers."""
STEPS = ("step", "train/global_step", "trainer/global_step", "_step")
"""Keys of a log that hold the optimizer step, the first that there is."""
RATES = ("learning_rate", "train/learning_rate")
"""Keys of a log that hold the learning rate."""
TEXT = ("run", "corpus", "model_name", "role", "decay")
"""Columns of a table that hold names, which stay as they are written: 001, NA, 1e3."""


def _csv(path: Path, names: list[str]) -> pd.DataFrame:
    table = pd.read_csv(path, skipinitialspace=True)
    # pandas reads the name NA as missing, and 001 as a number.
    if present := [name for name in names if name in table.columns]:
        text = pd.read_csv(path, skipinitialspace=True, usecols=present, dtype=str, keep_default_na=False)
        table[present] = text[present]
    return table


TABLES: dict[str, Callable[[Path, list[str]], pd.DataFrame]] = {
    ".csv": _csv,
    ".parquet": lambda path, names: pd.read_parquet(path),
    ".jsonl": lambda path, names: pd.read_json(path, lines=True, dtype=dict.fromkeys(names, object)),
}
"""Suffix of a table -> what reads it, with the columns that hold names."""
OPTIONAL = ("learning_rate", "loss_stderr")
"""Columns of a table of losses that may be empty in some rows."""
_HIGH_LOSS = 20
"""Nats per token; a model that knows nothing has 12.4 with 250,000 tokens."""
_SCALED = re.compile(r"(?P<column>.+?)\s*(?P<sign>[/*])\s*(?P<number>[-+.\deE]+)\s*$")


def read_table(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """The file as it is; rows of a .csv are named by their line, as an editor shows them.

    Names (`TEXT`, in the `columns` of the file) are text, or missing where they are empty.

    Raises:
        StudyError: missing, of an unknown kind, or not readable.
    """
    if path.suffix not in TABLES:
        raise StudyError(f"points: {path} has an unknown file type; allowed: {', '.join(TABLES)}")
    names = [columns.get(name, name) for name in TEXT]
    try:
        table = TABLES[path.suffix](_regular(path), names)
    except FileNotFoundError:
        raise StudyError(f"points: {path} does not exist") from None
    except Exception as error:  # A damaged file ends in an error of any kind in the libraries that read it.
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise StudyError(f"points: {path} cannot be read as {path.suffix[1:]}: {line}") from None
    for name in table.columns.intersection(names):
        table[name] = table[name].map(str, na_action="ignore").astype(object).replace("", None)
    first = {".csv": 2, ".jsonl": 1}.get(path.suffix, 0)
    return table.set_axis(pd.RangeIndex(first, first + len(table)), axis=0)


def _regular(path: Path) -> Path:
    """The path, if reading it ends. Raises OSError: a pipe, a device or a folder."""
    if path.exists() and not path.is_file():
        raise OSError("not a regular file")
    return path


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """The table with the column names of the laws, and a note for each renamed column.

    Raises:
        ConfigError: a column that the table does not have, for all at once.
    """
    new, notes, mistakes = {}, [], []
    for name, source in columns.items():
        scaled = None if source in table.columns else _SCALED.fullmatch(source)
        logarithm = None if source in table.columns else re.fullmatch(r"log (.+)", source)
        column = scaled["column"] if scaled else logarithm[1] if logarithm else source
        factor = pd.to_numeric(scaled["number"], errors="coerce") if scaled else 1.0
        if column not in table.columns:
            allowed = ", ".join(map(str, table.columns))
            mistakes.append(f"columns.{name}: {column!r} is not in the file; allowed: {allowed}")
        elif not np.isfinite(factor) or factor == 0:
            allowed = f"a column, log COLUMN, or one over or times a number, like {column} / 1e9"
            mistakes.append(f"columns.{name}: {source!r}; allowed: {allowed}")
        elif (scaled or logarithm) and not pd.api.types.is_numeric_dtype(table[column]):
            mistakes.append(f"columns.{name}: {column!r} holds text, which cannot be scaled")
        else:
            scales = {"/": table[column].div, "*": table[column].mul}
            new[name] = scales[scaled["sign"]](factor) if scaled else table[column]
            if logarithm:
                new[name] = np.log(table[column].where(table[column] > 0))
            notes.append(f"{name} is {source}")
    if mistakes:
        raise ConfigError(mistakes)
    return table.assign(**new), notes


def perplexity_question(losses: pd.Series, source: str) -> str:
    """The question whether values are perplexities, by their size and the name that they have in the file; '': no."""
    if re.search(r"ppl|perplex", source.lower()) and not source.startswith("log "):
        reason = f"its column is {source}"
    elif losses.max() > _HIGH_LOSS:
        reason = f"{losses.max():.4g} is above {_HIGH_LOSS}, more than a model without training has"
    else:
        return ""
    return f"loss: perplexities? {reason}; if so, give their logarithm: columns='{{loss: log {source}}}'"


def by_corpus(points: pd.DataFrame, corpus: str | None) -> dict[str, pd.DataFrame]:
    """Name of each validation corpus -> its points; "" for points of a file without the column.

    Raises:
        ConfigError: a corpus that the file does not have.
    """
    if "corpus" not in points.columns:
        if corpus is not None:
            raise ConfigError([f"corpus: {corpus!r}, but the file has no column corpus; name it with columns="])
        return {"": points}
    names = [str(name) for name in points["corpus"].dropna().unique()]
    if corpus is not None and corpus not in names:
        raise ConfigError([f"corpus: {corpus!r} is not in the file; allowed: {', '.join(names)}"])
    return {name: points[points["corpus"].astype(str) == name] for name in ([corpus] if corpus else names)}


def all_problems(
    parts: Mapping[str, pd.DataFrame], laws: Iterable[str], fix: Mapping[str, float], unknown: list[str]
) -> list[str]:
    """A line for each reason why a law cannot be fitted, with the laws and corpora concerned if not all."""
    laws, whose = list(laws), {}
    for corpus, points in parts.items():
        for law in laws:
            of_law = f"{law} on {corpus}" if corpus else law
            for line in problems(points, law, fix=fix, unknown=unknown):
                hint = "; name it with columns=" if line.startswith("missing column") else ""
                hint += " Perplexities: columns='{loss: log COLUMN}'" * line.startswith("loss = ")
                whose.setdefault(line + hint, []).append(of_law)
    everyone = len(laws) * len(parts)
    return [line if len(named) == everyone else f"{', '.join(named)}: {line}" for line, named in whose.items()]


def assumptions(
    points: pd.DataFrame, parts: Mapping[str, pd.DataFrame], laws: Iterable[str], unknown: Iterable[str]
) -> list[str]:
    """A line for each assumption about the file."""
    of_laws = [mixture_columns(points) if LAWS[law].for_corpora else LAWS[law].columns for law in laws]
    reads = [name for columns in of_laws for name in columns if name not in unknown]
    lines = []
    for name in dict.fromkeys([*reads, "loss"]):
        values = np.concatenate([part[name].to_numpy(float) for part in parts.values()])
        between = f"{values.min():.4g} to {values.max():.4g}" if values.min() < values.max() else f"{values.min():.4g}"
        lines.append(f"{name}: {between}, taken as {UNITS.get(name.split('.')[0], 'it is')}")
    if "run" in points:
        lines.append(f"run: {points['run'].nunique()} runs; errors within a run are taken as correlated")
    else:
        lines.append("run: no such column, so every row counts as a run of its own; intervals come out too narrow")
    if "step" not in points:
        lines.append("step: no such column, so duplicate points go unnoticed")
    one_corpus = "corpus: no such column, so all rows are taken as losses on one validation corpus"
    lines.append(one_corpus if "" in parts else f"corpus: a fit for each of {', '.join(parts)}")
    if unnamed := len(points) - sum(map(len, parts.values())):
        lines.append(f"corpus: empty or not selected in {unnamed} rows, which were left out")
    return lines


@dataclass(frozen=True, eq=False)
class RunLog:
    """What is logged of a run."""

    points: pd.DataFrame
    """step, corpus and loss, and a table's other columns."""
    rates: dict[int, float]
    """Step -> learning rate, where it is logged."""
    steps: int | None = None
    """Length of the learning-rate schedule, where it is logged."""
    source: str = ""
    """Names the run, whichever of its logs this is."""
    begun: str = ""
    """Date and time in the name of wandb's folder."""


def read_logs(path: Path, losses: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, RunLog]:
    """The logs of the runs in a file or folder, by the name of the run; '' where the file has one.

    `path` is trainer_state.json or a folder with one, a wandb offline run folder, or a .csv, .parquet or .jsonl table,
    whose `columns` are given as to `renamed`. `losses` is key of a log -> corpus: eval_law_loss -> law.

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
        state = {} if _regular(path).suffix == ".wandb" else read_json(path)
        rows = list(wandb_rows(path)) if path.suffix == ".wandb" else state["log_history"]
        points = [
            {"step": _step(row), "corpus": losses[key], "loss": _loss(row, key)}
            for row in rows
            for key in losses
            if key in row
        ]
        rates = {_step(row): float(row[key]) for row in rows for key in RATES if key in row}
        steps = int(state.get("max_steps") or 0) or None
        known = sorted({key for row in rows for key in row if "loss" in key})
    except FileNotFoundError:
        raise StudyError(f"{path}: does not exist") from None
    except Exception as error:  # Of JSON or of protobuf: a damaged file ends in an error of any kind.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StudyError(f"{path}: not a log of Trainer or wandb ({reason})") from None
    if not points:
        keys = f"it has {', '.join(known) or 'no losses'}; name them with losses='{{eval_loss: general}}'"
        raise StudyError(f"{path}: none of {', '.join(losses)} in its log; {keys}")
    # A Trainer that was resumed logs a step twice; the later one counts.
    table = pd.DataFrame(points).drop_duplicates(["step", "corpus"], keep="last")
    begun = re.search(r"run-(\d{8}_\d{6})-", path.resolve().parent.name)
    return {"": RunLog(table, rates, steps, _name_of_log(path), begun[1] if begun else "")}


def join_logs(logs: Iterable[RunLog]) -> RunLog:
    """The log of a run that was resumed: of each corpus, a later log counts from its first step on."""
    first, *rest = sorted(logs, key=lambda log: (log.begun, log.points["step"].max()))
    points, rates, steps = first.points, first.rates, first.steps
    for log in rest:
        begin = points["corpus"].map(log.points.groupby("corpus")["step"].min())
        points = pd.concat([points[~(points["step"] >= begin)], log.points], ignore_index=True)
        rates = {step: rate for step, rate in rates.items() if step < min(log.rates, default=np.inf)} | log.rates
        steps = log.steps or steps
    return RunLog(points, rates, steps, first.source)


def _step(row: Mapping[str, Any]) -> int:
    step = next(row[key] for key in STEPS if key in row)
    if not 0 <= step <= MOST_STEPS or step != int(step):
        raise ValueError(f"step {step}; allowed: whole numbers, 0 to {MOST_STEPS:,}")
    return int(step)


def _loss(row: Mapping[str, Any], key: str) -> float:
    loss = float(row[key])
    if not 0 < loss < np.inf:
        raise ValueError(f"{key}={loss} at step {_step(row)}; allowed: a finite loss above 0")
    return loss


def _name_of_log(path: Path) -> str:
    """What all logs of a run share: the id of wandb (run-ID.wandb), or the folder in which a Trainer saves it."""
    if path.suffix == ".wandb":
        return f"wandb {path.stem.removeprefix('run-')}"
    folder = path.resolve().parent
    return str(folder.parent if re.fullmatch(r"checkpoint-\d+", folder.name) else folder)


def wandb_rows(path: Path) -> Iterator[dict[str, Any]]:
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


def _table(path: Path, columns: Mapping[str, str]) -> dict[str, RunLog]:
    table, _ = renamed(read_table(path, columns), columns)
    if lacking := [name for name in ("step", "corpus", "loss") if name not in table.columns]:
        named = ", ".join(f"{name}: ..." for name in lacking)
        raise ConfigError([f"{path}: no column {', '.join(lacking)}; name it with columns='{{{named}}}'"])
    if table.empty:
        raise StudyError(f"{path}: no rows")
    keys = [name for name in ("run", "step", "corpus") if name in table.columns]
    numbers = {name: _numbers(table[name]) for name in ("loss", *OPTIONAL) if name in table.columns}
    step = _numbers(table["step"])
    wrong = {
        "step": (~step.between(0, MOST_STEPS) | (step % 1 != 0), f"a whole number, 0 to {MOST_STEPS:,}"),
        "loss": (~numbers["loss"].between(0, np.inf, inclusive="neither"), "a finite loss above 0"),
        **{name: (table[name].isna(), "a name") for name in ("run", "corpus") if name in table.columns},
        **{
            name: (table[name].notna() & ~numbers[name].between(0, np.inf, inclusive="left"), "0 or more, or empty")
            for name in OPTIONAL
            if name in table.columns
        },
    }
    problems = []
    for name, (rows, allowed) in wrong.items():
        if rows.any():
            value = table[name][rows].tolist()[0]
            value = "is empty" if pd.isna(value) else f"is {value!s:.60}"
            more = f"; rows like it: {rows.sum():,}" if rows.sum() > 1 else ""
            cell = f"row {table.index[rows][0]}, column {columns.get(name, name)}"
            problems.append(f"{path}: {cell} {value}; allowed: {allowed}{more}")
    if problems:
        raise ConfigError(problems)
    table = table.assign(**numbers, step=step.astype("int64"))
    if (twice := table.duplicated(keys)).any():
        later = table[twice].iloc[0]
        first = table.index[(table[keys] == later[keys]).all(axis=1)][0]
        values = ", ".join(f"{key} {later[key]}" for key in keys)
        raise ConfigError(
            [f"{path}: rows {first} and {later.name} are both of {values}; keep one, or name the runs apart"]
        )
    logs = {}
    for run, rows in table.groupby("run", sort=False) if "run" in table.columns else [("", table)]:
        rated = rows[rows["step"] > 0].reindex(columns=["step", "learning_rate"]).dropna()
        rates = {int(step): float(rate) for step, rate in rated.itertuples(index=False)}
        logs[str(run)] = RunLog(rows, rates, source=str(run) or str(path.resolve()))
    return logs


def constants(label: str, table: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Column -> the value that the rows of a run have there, of those columns that the table has.

    Raises:
        ConfigError: rows that differ; the line begins with `label`.
    """
    found = {}
    for name in (name for name in names if name in table):
        values = table[name].dropna().drop_duplicates()
        if len(values) > 1:
            rows, (one, other) = " and ".join(map(str, values.index[:2])), values.tolist()[:2]
            raise ConfigError([f"{label}: rows {rows} have {name} {one} and {other}; allowed: one value for a run"])
        if len(values):
            found[name] = values.tolist()[0]
    return found


def _numbers(values: pd.Series) -> pd.Series:
    """The column as floats, NaN where it holds no number."""
    if not pd.api.types.is_float_dtype(values):
        values = values.where(~values.map(lambda value: isinstance(value, bool | np.bool_)))
    return pd.to_numeric(values, errors="coerce").astype(float)
