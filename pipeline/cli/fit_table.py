"""cptlaw fit points=FILE: laws fitted to a table from anywhere, outside any study."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from fitting import LAWS, Fit, PointsError, advise, compare, fit, try_out
from fitting.cross_validation import SPLITS
from fitting.points import law_named
from fitting.schedule import LAMBDA
from pipeline.cli.points_file import all_problems, assumptions, by_corpus, read_table, renamed
from pipeline.question.messages import ConfigError, describe_keys, one_line
from training.durable import write_whole
from training.run import Exit

HELP = """A table from anywhere, a row a validation loss, outside any study:
  cptlaw fit points=runs.csv law=dcpt
  cptlaw fit points=runs.csv 'law=[dcpt,chinchilla]' out=fits \\
      columns='{N: params / 1e9, D: tokens / 1e9, r: percent / 100, loss: val_loss, run: name}'
"""
MANY = 12
"""Sizes or ratios from which on leaving out each, or each pair, takes longer than it tells."""


@dataclass
class TableFit:
    """What `cptlaw fit points=FILE` is told."""

    points: str = MISSING
    """File of points, one row a validation loss: .csv, .parquet or .jsonl."""
    law: Any = field(default_factory=list)
    """Law to fit, or a list of them to choose from."""
    columns: dict[str, str] = field(default_factory=dict)
    """Name that a law reads -> column of the file, which may be scaled: {D: tokens / 1e9, r: percent / 100}."""
    corpus: str | None = None
    """Validation corpus to fit, a value of the column corpus; null: each one by itself."""
    fix: dict[str, float] = field(default_factory=dict)
    """Parameter -> value that it keeps."""
    unknown: list[str] = field(default_factory=list)
    """Columns that nobody knows and that are fitted as one number: s1_pretrain, rho."""
    weights: str | None = None
    """loss_stderr: weigh points by the inverse variance in that column; null: all alike."""
    by: Any = None
    """What to hold out when laws are compared, a list of splits; null: those that the points allow; []: nothing."""
    bootstrap: int = 200
    """Refits for the intervals; 0: none, without them it is not known which parameters are identified."""
    seed: int = 0
    """Of first guesses and bootstrap."""
    out: str | None = None
    """Folder to write the fits to, one JSON a law and corpus; null: only print."""


def fit_table(words: Sequence[str], console: Console) -> Exit:
    """Carry out the command line's words (key=value).

    Raises:
        ConfigError: all that is wrong with the words or with the points, a line each.
        StudyError: the file cannot be read.
    """
    asked = read_words(words)
    table, told = renamed(read_table(Path(asked.points)), asked.columns)
    parts = by_corpus(table, asked.corpus)
    if wrong := all_problems(parts, asked.law, asked.fix, asked.unknown):
        raise ConfigError(wrong)
    _say(console, f"{asked.points}: {len(table)} rows{'; ' * bool(told)}{', '.join(told)}")
    for line in assumptions(table, parts, asked.law, asked.unknown):
        _say(console, f"  {line}")
    for corpus, points in parts.items():
        _fit_corpus(corpus, points, asked, console)
    return Exit.DONE


def read_words(words: Sequence[str]) -> TableFit:
    """The checked settings.

    Raises:
        ConfigError: an unknown key, a value of the wrong kind, an unknown law or split; all at once where possible.
    """
    asked = OmegaConf.structured(TableFit)
    wrong = [f"{word}: not key=value; see cptlaw fit --help" for word in words if "=" not in word]
    for word in (word for word in words if "=" in word):
        try:
            (override,) = OverridesParser.create().parse_overrides([word])
            OmegaConf.update(asked, override.get_key_element(), override.value(), merge=True, force_add=False)
        except (HydraException, OmegaConfBaseException, AttributeError) as error:
            wrong.append(one_line(error, TableFit))
    for key in ("law", "by"):
        if isinstance(asked[key], str):
            asked[key] = [asked[key]]
    for law in asked.law:
        try:
            law_named(str(law), LAWS)
        except PointsError as error:
            wrong.append(f"law: {error}")
    if not asked.law:
        wrong.append(f"law: has no value; give law=..., one or a list of {', '.join(LAWS)}")
    wrong += [
        f"by: {split!r} is no split; allowed: {', '.join(SPLITS)}" for split in asked.by or () if split not in SPLITS
    ]
    if asked.bootstrap < 0:
        wrong.append(f"bootstrap: {asked.bootstrap}; allowed: 0 or more")
    if wrong:
        raise ConfigError(wrong)
    settings = OmegaConf.to_object(asked)
    assert isinstance(settings, TableFit)
    settings.law = list(dict.fromkeys(settings.law))
    return settings


def print_help(console: Console) -> None:
    """What `cptlaw fit --help` says of points=."""
    _say(console, HELP)
    keys = Table("key", "default", "what it is", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in describe_keys(TableFit):
        keys.add_row(*row)
    console.print(keys, highlight=False, markup=False)
    reads = Table("law", "columns that it reads, with loss", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for law in LAWS.values():
        reads.add_row(law.name, ", ".join(law.columns) if law.among is None else "mixture.<corpus>, one a corpus")
    console.print(reads, highlight=False, markup=False)
    _say(console, "run tells runs apart, step their points, corpus the validation sets; all three may be absent.\n")


def _fit_corpus(corpus: str, points: pd.DataFrame, asked: TableFit, console: Console) -> None:
    if "run" not in points.columns:
        points = points.assign(run=np.arange(len(points)))
    how = {"fix": asked.fix, "unknown": asked.unknown, "weights": asked.weights}
    for law in asked.law:
        with console.status(f"fitting {law}"):
            fitted = fit(points, law, bootstrap=asked.bootstrap, seed=asked.seed, **how)
        named = f"{law} on {corpus}" if corpus else law
        console.print(parameter_table(fitted, named))
        _say(console, fitted.explain())
        if asked.out:
            path = Path(asked.out) / f"{_file_name(corpus)}{law}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, fitted.to_json() + "\n")
            _say(console, f"written to {path}")
    if len(asked.law) > 1:
        by = possible_splits(points) if asked.by is None else list(asked.by)
        with console.status("holding out") as status:
            tried = try_out(points, asked.law, by, seed=asked.seed, log=status.update, **how)
            chosen = compare(points, asked.law, by, seed=asked.seed, tried=tried, **how)
        console.print(selection_table(chosen, by, corpus))
        for line in advise(tried):
            _say(console, line)


def possible_splits(points: pd.DataFrame) -> list[str]:
    """What can be held out of these points: sizes, steps, ratios, and a larger model for longer."""
    several = {name: points[name].nunique() for name in ("N", "D", "r", "step") if name in points.columns}
    by = []
    if several.get("N", 0) > 2:
        by.append("each-size" if several["N"] <= MANY else "size")
    if max(several.get("step", 0), several.get("D", 0)) > 2:
        by.append("step-thirds")
    if several.get("r", 0) > 3:
        by.append("ratio-pairs" if several["r"] <= MANY else "ratio")
    if several.get("N", 0) > 2 and several.get("D", 0) > 2:
        by.append("size-and-tokens")
    return by


def parameter_table(fitted: Fit, named: str) -> Table:
    """Every parameter with its interval, and whether the points pin it down."""
    m = fitted.metrics
    table = Table(title=f"{named}: R2 {m['r2']:.4f}, mean error {m['mae']:.4f} nats, Huber sum {m['huber']:.4g}")
    for name in ("parameter", "unit", "value", "90% interval", "identified"):
        table.add_column(name, justify="left" if name in ("parameter", "unit") else "right")
    units = {one.name: one.unit for one in (*fitted.equation.parameters, LAMBDA)}
    intervals, known = (fitted.intervals(), fitted.identified) if len(fitted.draws) else ({}, {})
    for name, value in fitted.params.items():
        between = " to ".join(f"{side:.4g}" for side in intervals.get(name, ()))
        pinned = "given" if name in fitted.fixed else {True: "yes", False: "no", None: "not known"}[known.get(name)]
        table.add_row(name, units.get(name, ""), f"{value:.4g}", between, pinned)
    return table


def selection_table(chosen: pd.DataFrame, by: list[str], corpus: str) -> Table:
    """`fitting.compare` for the terminal."""
    table = Table(title=f"laws compared{f' on {corpus}' if corpus else ''}")
    table.add_column("")
    # A column a law: with the measures across, a terminal of 80 columns cuts every number short.
    for law in chosen.index:
        table.add_column(str(law), justify="right")
    for name, (label, form) in _FORMS.items():
        values = ("" if row["reason"] else f"{row[name]:{form}}" for _, row in chosen.iterrows())
        table.add_row(label, *values)
    for split in by:
        values = ("" if pd.isna(error) else f"{error:.2%}" for error in chosen[split])
        table.add_row(f"held out: {split}", *values)
    return table


def _say(console: Console, line: str) -> None:
    """A line as it is: brackets are no markup, and long lines are the terminal's business."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _file_name(corpus: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", corpus) + "-" * bool(corpus)


_FORMS = {
    "parameters": ("parameters", "g"),
    "r2": ("R2", ".4f"),
    "mae": ("mean error, nats", ".4f"),
    "huber_sum": ("Huber sum", ".4g"),
    "huber_mean": ("Huber mean", ".3g"),
    "aicc": ("AICc", ".1f"),
}
