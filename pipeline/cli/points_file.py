"""Read a file of points from outside a study, rename its columns, and list the assumptions about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fitting import LAWS, problems
from pipeline.question.messages import ConfigError
from pipeline.study.folder import StudyError

UNITS = {
    "N": "billions of parameters",
    "D": "billions of tokens",
    "r": "ratio of the corpus in the mixture, 0 to 1",
    "rho": "ratio of the corpus in pre-training, 0 to 1",
    "loss": "nats per token (bits or perplexities would go unnoticed)",
    "loss_before": "nats per token, before the run",
    "s1": "summed learning rate of the run so far",
    "s2": "annealing area of the run so far",
    "s1_root": "sum of (learning rate / 1e-4)^(2/3) of the run so far",
    "s2_square": "annealing area of (learning rate / 1e-4)^2 of the run so far",
    "s1_pretrain": "summed learning rate of pre-training",
    "s2_pretrain": "annealing area of pre-training",
}
"""Column of a law -> the assumed unit of its numbers."""
_SCALED = re.compile(r"(?P<column>.+?)\s*(?P<sign>[/*])\s*(?P<number>[-+.\deE]+)\s*$")


def read_table(path: Path) -> pd.DataFrame:
    """The file as it is; rows of a .csv are named by their line, as an editor shows them.

    Raises:
        StudyError: missing, of an unknown kind, or not readable.
    """
    readers = {
        ".csv": lambda: pd.read_csv(path, skipinitialspace=True),
        ".parquet": lambda: pd.read_parquet(path),
        ".jsonl": lambda: pd.read_json(path, lines=True),
    }
    if path.suffix not in readers:
        raise StudyError(f"points: {path} has an unknown file type; allowed: {', '.join(readers)}")
    try:
        table = readers[path.suffix]()
    except FileNotFoundError:
        raise StudyError(f"points: {path} does not exist") from None
    except (OSError, ValueError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise StudyError(f"points: {path} cannot be read as {path.suffix[1:]}: {line}") from None
    first = {".csv": 2, ".jsonl": 1}.get(path.suffix, 0)
    return table.set_axis(pd.RangeIndex(first, first + len(table)), axis=0)


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """The table with the column names of the laws, and a note for each renamed column.

    Raises:
        ConfigError: a column that the table does not have, for all at once.
    """
    new, notes, mistakes = {}, [], []
    for name, source in columns.items():
        scaled = None if source in table.columns else _SCALED.fullmatch(source)
        column = scaled["column"] if scaled else source
        factor = pd.to_numeric(scaled["number"], errors="coerce") if scaled else 1.0
        if column not in table.columns:
            allowed = ", ".join(map(str, table.columns))
            mistakes.append(f"columns.{name}: {column!r} is not in the file; allowed: {allowed}")
        elif not np.isfinite(factor) or factor == 0:
            allowed = f"a column, or one over or times a number, like {column} / 1e9"
            mistakes.append(f"columns.{name}: {source!r}; allowed: {allowed}")
        elif scaled and not pd.api.types.is_numeric_dtype(table[column]):
            mistakes.append(f"columns.{name}: {column!r} holds text, which cannot be scaled")
        else:
            scales = {"/": table[column].div, "*": table[column].mul}
            new[name] = scales[scaled["sign"]](factor) if scaled else table[column]
            notes.append(f"{name} is {source}")
    if mistakes:
        raise ConfigError(mistakes)
    return table.assign(**new), notes


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
                whose.setdefault(line + hint, []).append(of_law)
    everyone = len(laws) * len(parts)
    return [line if len(named) == everyone else f"{', '.join(named)}: {line}" for line, named in whose.items()]


def assumptions(
    points: pd.DataFrame, parts: Mapping[str, pd.DataFrame], laws: Iterable[str], unknown: Iterable[str]
) -> list[str]:
    """A line for each assumption about the file."""
    reads = [name for law in laws for name in LAWS[law].columns if name not in unknown]
    lines = []
    for name in dict.fromkeys([*reads, "loss"]):
        values = np.concatenate([part[name].to_numpy(float) for part in parts.values()])
        between = f"{values.min():.4g} to {values.max():.4g}" if values.min() < values.max() else f"{values.min():.4g}"
        lines.append(f"{name}: {between}, taken as {UNITS.get(name, 'it is')}")
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
