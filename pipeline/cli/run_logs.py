"""Read the logs of runs: of Trainer, of wandb, or any table of losses along a run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.cli.points_file import TABLES, read_table, renamed, table_kind
from pipeline.question.messages import ConfigError, StudyError
from pipeline.show.tracking.rows import rows_of_file
from training.durable import FileError, read_json, regular
from training.keys import MOST_STEPS

STEPS = ("step", "train/global_step", "trainer/global_step", "_step", "Step")
"""Keys of a log that hold the optimizer step, the first that there is; the last two are wandb's own count."""
RATES = ("learning_rate", "train/learning_rate", "lr")
"""Keys of a log that hold the learning rate, the first that there is."""
LOSSES = ("eval_{}_loss", "eval/{}_loss", "loss/{}")
OPTIONAL = ("learning_rate", "loss_stderr")
"""Columns of a table of losses that may be empty in some rows."""
SAME = 0.02
"""Relative difference between what a log has of its run and what is given up to which they are the same."""


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
    tokens_per_step: float | None = None
    """Tokens of a step, where it is logged."""
    keys: tuple[str, ...] = ()
    """Keys of validation losses in a log, read or not; of a table of a row a step those that are read."""
    reached: int = 0
    """Last step of any row, one without a validation loss too."""
    notes: tuple[str, ...] = ()
    """What was assumed or left out, a line each."""

    @property
    def measured(self) -> str:
        """Of what it has losses: the keys of a log, the corpora of a table."""
        return ", ".join(self.keys or map(str, self.points["corpus"].unique()))


def loss_keys(corpora: Iterable[str]) -> dict[str, str]:
    """Key of a log -> corpus, as Trainer, wandb and this program name losses.

    >>> loss_keys(["law"])
    {'eval_law_loss': 'law', 'eval/law_loss': 'law', 'loss/law': 'law'}
    """
    return {key.format(name): name for name in corpora for key in LOSSES}


def read_logs(
    path: Path, losses: Mapping[str, str], columns: Mapping[str, str], otherwise: str = ""
) -> dict[str, RunLog]:
    """The logs of the runs in a file or folder, by the name of the run; '' where the file has one.

    `path` is trainer_state.json, a folder with one, or with checkpoints, of which the newest counts, a wandb offline
    run folder, a folder with points.jsonl, or a .csv, .parquet or .jsonl table, whose `columns` are given as to
    `renamed`. `losses` is key of a log -> corpus: eval_law_loss -> law, or log KEY of a perplexity. A table without a
    column corpus has such keys as columns. `otherwise` ends the message on a log without validation losses.

    Raises:
        StudyError: missing, damaged, or without such losses.
        ConfigError: a column that the table does not have.
    """
    if path.is_dir():
        kinds = ("trainer_state.json", "*.wandb", "points.jsonl")
        saved = sorted(path.glob("checkpoint-*/trainer_state.json"), key=lambda log: (len(str(log)), log))
        logs = next((found for kind in kinds if (found := [*path.glob(kind)])), saved[-1:])
        if len(logs) != 1:
            wanted = f"a folder with one of {', '.join(kinds)}"
            raise StudyError(f"{path}: {len(logs)} logs; allowed: {wanted}, or a table ({', '.join(TABLES)})")
        path = logs[0]
    if table_kind(path):
        return _table(path, columns, losses)
    try:
        state = {} if regular(path).suffix == ".wandb" else read_json(path)
        rows = list(rows_of_file(path)) if path.suffix == ".wandb" else state["log_history"]
        counter = next((key for key in STEPS if any(key in row for row in rows)), STEPS[0])
        points = [
            {"step": _step(row, counter), "corpus": losses[key], "loss": _loss(row, key, counter)}
            for row in rows
            for key in losses
            if key.removeprefix("log ") in row
        ]
        rates = [(_step(row, counter), float(row[key])) for row in rows for key in RATES[::-1] if key in row]
        end = max((_step(row, counter) for row in rows if counter in row), default=0)
        steps = int(state.get("max_steps") or 0) or None
        known = sorted({key for row in rows for key in row if re.search("loss|ppl|perplex", key) or key in losses})
        seen, reached = (float(state.get(key) or 0) for key in ("num_input_tokens_seen", "global_step"))
    except FileNotFoundError:
        raise StudyError(f"{path}: does not exist") from None
    except StudyError as error:
        raise StudyError(f"{path}: {error}") from None
    except Exception as error:  # Of JSON or of protobuf: a damaged file ends in an error of any kind.
        named = isinstance(error, FileError)
        reason = str(error).removeprefix(f"{path}: ") if named else f"{type(error).__name__}: {error}".splitlines()[0]
        table = f"; a table ends in {', '.join(TABLES)}" if path.suffix not in (".json", ".wandb") else ""
        raise StudyError(f"{path}: not a log of Trainer or wandb ({reason}){table}") from None
    of_text = [key for key in known if key not in ("loss", "train_loss", "train/loss")]
    if not points:
        remedy = f"log losses on both corpora{otherwise}"
        if of_text:
            remedy = "name the key of each corpus: losses='{KEY: general, KEY: domain}'"
        keys = f"it has {', '.join(known) or 'no losses'}; {remedy}"
        raise StudyError(f"{path}: none of {', '.join(losses)} in its log; {keys}")
    table, back = _last_written(pd.DataFrame(points))
    rates, _ = _last_written(pd.DataFrame(rates, columns=["step", "rate"]).assign(corpus=""))
    begun = re.search(r"run-(\d{8}_\d{6})-", path.resolve().parent.name)
    tokens = seen / reached if seen and reached else None
    source, begun = _name_of_log(path), begun[1] if begun else ""
    rates = dict(rates[["step", "rate"]].itertuples(index=False))
    return {"": RunLog(table, rates, steps, source, begun, tokens, (*of_text,), end, (*back, *_own_count(counter)))}


def _last_written(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a log without those that a restart from an earlier step replaced, of each corpus; and a note on it.

    A Trainer that was resumed, and one that evaluates once more at its end, logs a step twice: the later one counts.
    """
    of_corpus = rows.groupby([name for name in ("run", "corpus") if name in rows])["step"]
    later = of_corpus.transform(lambda steps: steps[::-1].cummin().shift(fill_value=MOST_STEPS + 1)[::-1])
    back = rows.loc[of_corpus.diff() < 0, "step"].tolist()[:1]
    counts = "what is later in the log counts from there on"
    return rows[rows["step"] < later], [f"goes back to step {step}, as after a restart: {counts}" for step in back]


def _own_count(counter: str) -> list[str]:
    """A note where the steps are those of wandb's own count."""
    assumed = f"steps are those of {counter}, wandb's own count, taken for the optimizer's"
    return [f"{assumed}; if it counts calls, log or export train/global_step"] if counter in STEPS[-2:] else []


def join_logs(logs: Iterable[RunLog]) -> RunLog:
    """The log of a run that was resumed: of each corpus, a later log counts from its first step on."""
    first, *rest = sorted(logs, key=lambda log: (log.begun, log.points["step"].max()))
    points, rates, steps = first.points, first.rates, first.steps
    keys = dict.fromkeys(key for log in (first, *rest) for key in log.keys)
    for log in rest:
        begin = points["corpus"].map(log.points.groupby("corpus")["step"].min())
        points = pd.concat([points[~(points["step"] >= begin)], log.points], ignore_index=True)
        rates = {step: rate for step, rate in rates.items() if step < min(log.rates, default=np.inf)} | log.rates
        steps = log.steps or steps
    reached = max(log.reached for log in (first, *rest))
    return RunLog(points, rates, steps, first.source, "", first.tokens_per_step, (*keys,), reached)


def _step(row: Mapping[str, Any], counter: str) -> int:
    if counter not in row:
        raise StudyError(f"a row with {', '.join([*row][:3])} has no {counter}; log {counter} with every loss")
    step = row[counter]
    if not 0 <= step <= MOST_STEPS or step != int(step):
        raise StudyError(f"step {step}; allowed: whole numbers, 0 to {MOST_STEPS:,}")
    return int(step)


def _loss(row: Mapping[str, Any], key: str, counter: str) -> float:
    loss = float(row[key.removeprefix("log ")])
    if key.startswith("log ") and loss > 0:
        loss = float(np.log(loss))
    if not 0 < loss < np.inf:
        raise StudyError(f"{key}={loss} at step {_step(row, counter)}; allowed: a finite loss above 0")
    return loss


def _name_of_log(path: Path) -> str:
    """What all logs of a run share: the id of wandb (run-ID.wandb), or the folder in which a Trainer saves it."""
    if path.suffix == ".wandb":
        return f"wandb {path.stem.removeprefix('run-')}"
    folder = path.resolve().parent
    return str(folder.parent if re.fullmatch(r"checkpoint-\d+", folder.name) else folder)


def _table(path: Path, columns: Mapping[str, str], losses: Mapping[str, str]) -> dict[str, RunLog]:
    named = [key.removeprefix("log ") for key in losses]
    table, _ = renamed(_of_chart(read_table(path, columns, named), named), columns)
    has, wide = ", ".join(map(str, table.columns[:20])), dict[str, str]()
    if rate := next((key for key in RATES if key in table), None):
        table = table.assign(learning_rate=table[rate])
    along, notes = table, list[str]()
    if "corpus" not in table and (wide := {key: losses[key] for key in losses if key.removeprefix("log ") in table}):
        counter = next((key for key in STEPS if key in table), "")
        along = table.assign(step=table[counter]) if counter else table
        table, notes = _long(along, wide), _own_count(counter)
    if lacking := [name for name in ("step", "corpus", "loss") if name not in table.columns]:
        named = f"name it with columns='{{{', '.join(f'{name}: ...' for name in lacking)}}}'"
        if "loss" in lacking and any(re.search("loss|ppl|perplex", str(name)) for name in table):
            named = "name the key of each corpus: losses='{KEY: general, KEY: domain}'"
        named += "; losses on one corpus alone are for cptlaw fit points=FILE" * (lacking == ["corpus"])
        raise ConfigError([f"{path}: no column {', '.join(lacking)}; it has {has}; {named}"])
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
    # Where it has wandb's own count its rows are in the order in which wandb was given them.
    is_log = bool(wide and {*STEPS[-2:]} & {*table} and not notes)
    if is_log:
        table, notes = _last_written(table)
    if (twice := table.duplicated(keys)).any():
        later = table[twice].iloc[0]
        first = table.index[(table[keys] == later[keys]).all(axis=1)][0]
        values = ", ".join(f"{key} {later[key]}" for key in keys)
        raise ConfigError(
            [f"{path}: rows {first} and {later.name} are both of {values}; keep one, or name the runs apart"]
        )
    logs = {}
    for run, rows in table.groupby("run", sort=False) if "run" in table.columns else [("", table)]:
        # A trainer logs learning rates in rows of their own, without a validation loss.
        own = along[along["run"] == run] if "run" in along.columns else along
        own = own.reindex(columns=["step", "learning_rate"]).apply(_numbers)
        own = own[own["step"].between(1, MOST_STEPS) & (own["step"] % 1 == 0)]
        rated = own[own["learning_rate"].between(0, np.inf, inclusive="left")].assign(corpus="")
        rated = _last_written(rated)[0] if is_log else rated
        rates = {int(step): rate for step, rate in zip(rated["step"], rated["learning_rate"])}
        tokens = _numbers(rows["tokens"])[rows["step"] > 0] / rows["step"] if "tokens" in rows else pd.Series()
        # What does not grow with the steps is another count.
        each = float(tokens.median()) if (tokens / tokens.median() - 1).abs().max() <= SAME else None
        # One file may have the losses of several runs side by side.
        unnamed = " ".join([str(path.resolve()), *(key.removeprefix("log ") for key in wide)])
        source, reached = str(run) or unnamed, int(own["step"].max()) if len(own) else 0
        logs[str(run)] = RunLog(
            rows, rates, source=source, tokens_per_step=each, keys=(*wide,), reached=reached, notes=(*notes,)
        )
    return logs


def _of_chart(table: pd.DataFrame, losses: Sequence[str]) -> pd.DataFrame:
    """A chart that wandb's web page exports, with a column `RUN - KEY` for each run, as a row a run and step.

    Bounds of what the page averaged, KEY__MIN and KEY__MAX, are left out. Where `losses` has whole names of columns,
    only those are read.
    """
    step, runs = next((key for key in STEPS if key in table), None), defaultdict[str, dict[str, pd.Series]](dict)
    whole = [name for name in losses if name in table]
    for name in whole or map(str, table):
        run, of, key = name.rpartition(" - ")
        if of and not key.endswith(("__MIN", "__MAX")):
            runs[run][name if whole else key] = table[name]
    if step is None or not runs or "run" in table or any(" - " not in name for name in whole):
        return table
    parts = [pd.DataFrame(keys).dropna(how="all").assign(run=run) for run, keys in runs.items()]
    return pd.concat(parts).join(table[[step]])


def _long(table: pd.DataFrame, losses: Mapping[str, str]) -> pd.DataFrame:
    """A table of a row a step, as wandb exports a history, as one of a row a loss."""
    parts = []
    for key, corpus in losses.items():
        values = table[key.removeprefix("log ")]
        if key.startswith("log "):
            # What has no logarithm stays as it is, and is refused with its row.
            numbers = _numbers(values)
            values = pd.Series(np.log(numbers.where(numbers > 0)), dtype=object).where(numbers > 0, values)
        parts.append(table.assign(corpus=corpus, loss=values))
    return pd.concat(parts).dropna(subset=["loss"])


def _numbers(values: pd.Series) -> pd.Series:
    """The column as floats, NaN where it holds no number."""
    if not pd.api.types.is_float_dtype(values):
        values = values.where(~values.map(lambda value: isinstance(value, bool | np.bool_)))
    return pd.to_numeric(values, errors="coerce").astype(float)
