"""cptlaw fit points=FILE: fit laws to any table of validation losses, without a study."""

import functools
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from omegaconf import MISSING
from rich.console import Console
from rich.table import Table

from fitting import LAWS, Fit, PointsError, advise, compare, fit, problems, try_out
from fitting.cross_validation import SPLITS
from fitting.law_selection import error_percent, own_options
from fitting.laws import UNKNOWN
from fitting.parallel import over_cores
from fitting.schedule import LAMBDA
from pipeline.cli.points_file import (
    assumptions,
    by_corpus,
    perplexity_question,
    read_table,
    renamed,
    with_rates,
)
from pipeline.cli.verb_table import help_page
from pipeline.cli.words import names_and_keys, print_line, settings_of
from pipeline.question.messages import ConfigError, describe_keys, key_table
from pipeline.study.number_format import NOT_KNOWN, coefficient, parameter_intervals
from training.durable import write_whole
from training.keys import Allowed, Count, Seed, between, one_of
from training.run import Exit

JSON = Mapping[str, object]
"""The content of a JSON file."""
_FORMS = {
    "parameters": ("parameters", "g"),
    "r2": ("R2", ".4f"),
    "mae": ("mean error, nats", ".4f"),
    "huber_sum": ("Huber sum", ".4g"),
    "huber_mean": ("Huber mean", ".3g"),
    "aicc": ("AICc", ".1f"),
}
POOLED = {
    "N": r"n|(n_)?param(eter)?s(_.*)?|(model[ _])?size|non_embedding",
    "r": r"r|(.*_)?ratio|mix(ture)?|percent|replay",
}
"""Column of laws -> names that a table may have for it."""
MANY_ROWS = 20_000
"""With more rows than this a fit with intervals may take more than a minute."""
PAUSE = 2.0
"""Seconds between two lines of progress."""
MANY = 12
"""With more sizes or ratios than this, leaving out each of them may run for minutes without progress output."""


@dataclass
class TableFit:
    """The settings of `cptlaw fit points=FILE`."""

    points: str = MISSING
    """File of points, a validation loss per row: .csv, .tsv, .parquet or .jsonl, also .gz or .zst."""
    law: list[Annotated[str, Allowed("a name that cptlaw laws lists", choices=(*LAWS,))]] = field(default_factory=list)
    """Law to fit, or a list of them to choose from."""
    columns: dict[str, str] = field(default_factory=dict)
    """Column that a law reads -> column of the file, number, or + - * / of such: {D: tokens / 1e9, r: 1 - domain_ratio,
    loss: log perplexity}; r is of the row's own corpus."""
    corpus: str | None = None
    """Validation corpus to fit, a value of the column corpus; null: each one separately."""
    every: Count = 1
    """Fit every n-th row of each run and corpus: neighbouring losses of a run say much the same, and time and memory
    grow with the rows."""
    fix: dict[str, float] = field(default_factory=dict)
    """Parameter -> fixed value; of several laws for those that have it."""
    unknown: list[str] = field(default_factory=list)
    """Unknown columns, each fitted as one number: s1_pretrain, rho; of several laws for those that read them."""
    weights: str | None = None
    """loss_stderr: weigh points by the inverse variance in that column; null: uniform weights."""
    by: list[Annotated[str, one_of(*SPLITS)]] | None = None
    """Held-out splits to compare laws by, a list; null: those that the points allow; []: none."""
    bootstrap: Annotated[int, between(0, 10_000)] = 200
    """Bootstrap samples for the intervals; 0: no intervals, and no check which parameters are identified."""
    seed: Seed = 0
    """Seed of the starting points and of the bootstrap."""
    out: str | None = None
    """Folder to write the fits to, a JSON file per law and corpus; null: only print."""


def carry_out(arguments: Sequence[str], console: Console, print_json: Callable[[JSON], object]) -> Exit:
    """Fit the laws that the arguments (key=value) ask for, and print parameters and comparison."""
    names, keys = names_and_keys(arguments)
    settings = settings_of(TableFit, keys, [f"{word}: not key=value; see cptlaw fit --help" for word in names])
    settings.law = list(dict.fromkeys(settings.law))
    table, notes = renamed(read_table(Path(settings.points), settings.columns), settings.columns)
    named, (table, rates) = {*table}, with_rates(table)
    notes, rows = [*notes, *rates], len(table)
    table = thinned(table, settings.every)
    parts = by_corpus(table, settings.corpus)
    if not settings.law:
        allowed = [law for law in LAWS if all(law in _suited(one) for one in parts.values())] or LAWS
        others = f"{', '.join(allowed)}; cptlaw laws lists what others read"
        raise ConfigError([f"law: has no value; give law=..., one or a list of {others}"])
    lines = _all_problems(parts, settings.law, settings.fix, settings.unknown)
    made = ", ".join(str(name) for name in table if name not in named)
    lines = [line.replace(f", {made}", "") if made else line for line in lines]
    if lines := [*lines, *(_one_file(parts) if settings.out else ())]:
        raise ConfigError(lines)
    fitted = f", {len(table)} of them fitted" if len(table) < rows else ""
    print_line(console, f"{settings.points}: {rows} rows{fitted}{'; ' * bool(notes)}{', '.join(notes)}")
    if len(table) > MANY_ROWS:
        minutes = f"a fit of more than {MANY_ROWS:,} rows may take minutes a law, and 1 GB a million rows"
        print_line(console, f"  {minutes}; every={settings.every * -(-len(table) // MANY_ROWS)} fits fewer of each run")
    for line in (
        *assumptions(table, parts, settings.law, settings.unknown, settings.columns),
        *pooled_lines(parts, settings.law),
    ):
        print_line(console, f"  {line}")
    if line := perplexity_question(table["loss"], settings.columns.get("loss", "loss")):
        print_line(console, f"  {line}")
    print_line(console, f"fitting {', '.join(settings.law)}")
    keys = _fit_all(_corpora(parts, settings), settings, console)
    print_json({"schema": 1, "points": settings.points, "fits": keys})
    after = "in Python fitting.fit(points, LAW).predict(frame) gives the losses of other rows"
    if len(parts) > 1 and {"step", "r"} <= {*table.columns}:
        after = "cptlaw import FILE makes a study of such a table, which recommends a domain ratio"
    print_line(console, f"next: {after}")
    return Exit.DONE


def pooled_lines(parts: Mapping[str, pd.DataFrame], laws: Sequence[str]) -> Iterator[str]:
    """A line for sizes, and one for ratios, of which a corpus has several that some of the laws do not read."""
    for reads, named in POOLED.items():
        unread = [law for law in laws if reads not in LAWS[law].columns and LAWS[law].for_corpora is None]
        ordered = ((name, part) for part in parts.values() for name in sorted(map(str, part), key=reads.__ne__))
        several = ((name, part) for name, part in ordered if re.fullmatch(named, name, re.IGNORECASE))
        name, part = next(((name, part) for name, part in several if _differs_by_run(part, name)), ("", None))
        if part is None or not unread:
            continue
        values = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in part[name].dropna().unique()]
        known = {law.name: law.columns for law in LAWS.values() if reads in law.columns}
        lacking = {law: [one for one in columns if one not in part] for law, columns in known.items()}
        fewest = min(lacking.values(), key=len)
        better = ", ".join([law for law, columns in lacking.items() if columns == fewest][:4])
        named = f", with columns= that name {', '.join(fewest)}" if fewest else ""
        yield (
            f"{name}: {len(values)} values ({', '.join(values[:6])}{', ...' * (len(values) > 6)}) in one fit, where "
            f"what it changes is error, since it is not read by {', '.join(unread)}; {better} would{named}"
        )


def _differs_by_run(part: pd.DataFrame, name: str) -> bool:
    """Whether a column has several values, and one in each run."""
    return part[name].nunique() > 1 and ("run" not in part or part.groupby("run")[name].nunique().max() == 1)


def thinned(table: pd.DataFrame, every: int) -> pd.DataFrame:
    """Every n-th row of each run and corpus; of other runs other steps, so that all steps stay."""
    if every == 1:
        return table
    runs = table.groupby([name for name in ("run", "corpus") if name in table] or np.zeros(len(table)), sort=False)
    return table[(runs.cumcount() + runs.ngroup()) % every == 0]


def print_help(console: Console, laws: bool) -> None:
    """Print the part of `cptlaw fit --help` about points=FILE, also with the columns of all `laws`."""
    print_line(console, help_page("fit"))
    console.print(key_table(describe_keys(TableFit), "meaning"), highlight=False, markup=False)
    reads = Table("law", "columns that it reads, with loss", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for law in LAWS.values():
        reads.add_row(law.name, ", ".join(law.columns) if law.for_corpora is None else "mixture.<corpus>, one a corpus")
    console.print(reads if laws else f"laws: {', '.join(LAWS)}; cptlaw laws lists their columns", highlight=False)
    print_line(console, "run names the runs, step their points, corpus the validation sets; all three are optional.\n")


def fit_keys(fitted: Fit) -> JSON:
    """What `--json` prints of a fit; null where a number is not known."""
    intervals, known = (fitted.intervals(), fitted.identified) if len(fitted.draws) else ({}, {})
    parameters, ends = {}, parameter_intervals(fitted) if intervals else {}
    for name, value in fitted.params.items():
        sides = intervals[name] if ends.get(name, NOT_KNOWN) != NOT_KNOWN else (math.nan, math.nan)
        low, high = (side if math.isfinite(side) else None for side in sides)
        parameters[name] = {"value": value, "low": low, "high": high, "identified": known.get(name)}
    metrics = {name: float(value) if math.isfinite(value) else None for name, value in fitted.metrics.items()}
    counts = {"points": fitted.n_points, "runs": fitted.n_runs}
    return {"parameters": parameters, "metrics": metrics, **counts, "warnings": list(fitted.warnings)}


def _one_file(corpora: Iterable[str]) -> Iterator[str]:
    """A line for each corpus whose fits would be written over those of another one, also where case is not told."""
    first: dict[str, str] = {}
    for corpus in corpora:
        if (other := first.setdefault(_prefix(corpus).lower(), corpus)) != corpus:
            yield f"out: {corpus!r} and {other!r} would be written to one file: rename one, or choose it with corpus="


def _prefix(corpus: str) -> str:
    """What names of files begin with that are of a corpus."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", corpus) + "-" * bool(corpus)


@dataclass(frozen=True, eq=False)
class _Corpus:
    """A corpus of the table: its name, its points, and the splits that laws are compared by, none for one law."""

    name: str
    points: pd.DataFrame
    splits: list[str]


def _corpora(parts: Mapping[str, pd.DataFrame], settings: TableFit) -> list[_Corpus]:
    named = {name: one if "run" in one else one.assign(run=np.arange(len(one))) for name, one in parts.items()}
    by, several = settings.by, len(settings.law) > 1
    splits = {name: (possible_splits(one) if by is None else by) if several else [] for name, one in named.items()}
    return [_Corpus(name, one, splits[name]) for name, one in named.items()]


def _how(settings: TableFit) -> dict[str, Any]:
    """The options of fits that are those of several laws."""
    return {"fix": settings.fix, "unknown": settings.unknown, "point_weights": settings.weights}


def _fit_all(corpora: Sequence[_Corpus], settings: TableFit, console: Console) -> dict[str, object]:
    """Fit the laws to each corpus and show it as soon as it is done: corpus -> law -> what `--json` prints."""
    # Law by law and split by split: of whole corpora one process would have the last, while the others wait.
    items = [(one, *part) for one in corpora for part in (*product(settings.law, [""]), *product([""], one.splits))]
    log, keys, made = _progress(), dict[str, object](), list[Fit | pd.DataFrame]()

    def work(item: tuple[_Corpus, str, str]) -> Fit | pd.DataFrame:
        corpus, law, split = item
        how = _how(settings)
        if split:
            return try_out(corpus.points, settings.law, [split], log=lambda line: log(corpus.name, line), **how)
        own = own_options(corpus.points, settings.law, how)[law]
        fitted = fit(corpus.points, law, bootstrap=settings.bootstrap, seed=settings.seed, **own)
        log(corpus.name, f"{law} is fitted")
        return replace(fitted, optimum=None)

    def show(result: Fit | pd.DataFrame) -> None:
        made.append(result)
        corpus = corpora[len(keys)]
        if len(made) == len(settings.law) + len(corpus.splits):
            fits = {one.law: one for one in made if isinstance(one, Fit)}
            shown = _written(corpus, fits, settings.out)
            if len(fits) > 1:
                shown += _compared(corpus, fits, [one for one in made if isinstance(one, pd.DataFrame)], settings)
            keys[corpus.name] = {law: fit_keys(fitted) for law, fitted in fits.items()}
            made.clear()
            for one in shown:
                print_line(console, one) if isinstance(one, str) else console.print(one)

    # Without a spinner: a process with its thread is not forked.
    over_cores(work, items, each=show)
    return keys


def _written(corpus: _Corpus, fits: Mapping[str, Fit], out: str | None) -> list[Table | str]:
    """Write the fits of a corpus, where there is a folder for them: the tables and lines to print."""
    shown: list[Table | str] = []
    for law, fitted in fits.items():
        shown += [parameter_table(fitted, f"{law} on {corpus.name}" if corpus.name else law), fitted.explain()]
        if out:
            path = Path(out) / f"{_prefix(corpus.name)}{law}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, fitted.to_json() + "\n")
            shown.append(f"written to {path}")
    return shown


def _compared(
    corpus: _Corpus, fits: Mapping[str, Fit], of_splits: Sequence[pd.DataFrame], settings: TableFit
) -> list[Table | str]:
    """The comparison of the laws on a corpus, from what `try_out` returned for each split."""
    tables = of_splits or [try_out(corpus.points, fits, [], **_how(settings))]
    tried = pd.concat([one for one in tables if len(one)] or tables[:1], ignore_index=True)
    tried.attrs = {**tables[0].attrs, "reasons": [line for one in tables for line in one.attrs["reasons"]]}
    chosen = compare(corpus.points, fits, corpus.splits, tried=tried, fits=fits, **_how(settings))
    return [selection_table(chosen, corpus.splits, corpus.name), *advise(tried)]


def _progress() -> Callable[[str, str], None]:
    """Prints a line of progress on a corpus to stderr where the last one is a while ago."""
    last = time.monotonic()

    def log(corpus: str, line: str) -> None:
        nonlocal last
        if time.monotonic() - last > PAUSE:
            last = time.monotonic()
            print(": ".join(filter(None, [corpus, line])), file=sys.stderr, flush=True)

    return log


def possible_splits(points: pd.DataFrame) -> list[str]:
    """What can be held out of these points: sizes, steps, ratios, and a larger model for longer."""
    sizes, tokens, ratios, steps = (points[n].nunique() if n in points else 0 for n in ("N", "D", "r", "step"))
    possible = {
        "each-size" if sizes <= MANY else "size": sizes > 2,
        "step-thirds": max(steps, tokens) > 2,
        "ratio-pairs" if ratios <= MANY else "ratio": ratios > 3,
        "size-and-tokens": sizes > 2 and tokens > 2,
    }
    return [split for split, enough in possible.items() if enough]


def parameter_table(fitted: Fit, named: str) -> Table:
    """The parameters with their intervals, and whether each is identified."""
    m = fitted.metrics
    table = Table(title=f"{named}: R2 {m['r2']:.4f}, mean error {m['mae']:.4f} nats, Huber sum {m['huber']:.4g}")
    for name in ("parameter", "unit", "value", "90% interval", "identified"):
        table.add_column(name, justify="left" if name in ("parameter", "unit") else "right")
    units = {one.name: one.unit for one in (*fitted.equation.parameters, LAMBDA)}
    intervals, known = (parameter_intervals(fitted), fitted.identified) if len(fitted.draws) else ({}, {})
    for name, value in fitted.params.items():
        pinned = "given" if name in fitted.fixed else {True: "yes", False: "no", None: NOT_KNOWN}[known.get(name)]
        table.add_row(name, units.get(name, ""), coefficient(value), intervals.get(name, ""), pinned)
    return table


def selection_table(chosen: pd.DataFrame, by: list[str], corpus: str) -> Table:
    """`fitting.compare` as a table for the terminal."""
    # A column a law: with the measures across, a terminal of 80 columns cuts every number short.
    table = Table("", title=f"laws compared{f' on {corpus}' if corpus else ''}")
    for law in chosen.index:
        table.add_column(str(law), justify="right")
    for name, (label, form) in _FORMS.items():
        table.add_row(label, *("" if row["reason"] else f"{row[name]:{form}}" for _, row in chosen.iterrows()))
    for split in by:
        table.add_row(
            f"held out: {split}", *("" if pd.isna(error) else error_percent(error) for error in chosen[split])
        )
    return table


def _all_problems(
    parts: Mapping[str, pd.DataFrame], laws: Iterable[str], fix: Mapping[str, float], unknown: list[str]
) -> list[str]:
    """A line for each reason why a law cannot be fitted, with the laws and corpora concerned if not all."""
    laws, whose, suited = list(laws), {}, functools.cache(lambda corpus: _suited(parts[corpus]))
    for corpus, points in parts.items():
        try:
            own_options(points, laws, {"fix": fix, "unknown": unknown})
        except PointsError as error:
            whose.setdefault(str(error), []).extend(laws)
        for law in laws:
            of_law = f"{law} on {corpus}" if corpus else law
            for line in problems(points, law, fix=fix, unknown=unknown):
                hint = ""
                if line.startswith("missing column"):
                    others = f", or fit {', '.join(names)}" if (names := suited(corpus)) else ""
                    lacking = [one for one in UNKNOWN if one in LAWS[law].columns and one not in (*points, *unknown)]
                    asked = f", fit one number for all with unknown=[{','.join(lacking)}]" * bool(lacking)
                    absent = "D" in LAWS[law].columns and "D" not in points and "step" in points
                    tokens = ", D like '{D: step * 65536 / 1e9}' of 65,536 tokens a step" * absent
                    hint = f"; name it with columns={tokens}{asked}{others}"
                hint += " Perplexities: columns='{loss: log COLUMN}'" * line.startswith("loss = ")
                whose.setdefault(line + hint, []).append(of_law)
    everyone = len(laws) * len(parts)
    return [line if len(named) == everyone else f"{', '.join(named)}: {line}" for line, named in whose.items()]


def _suited(points: pd.DataFrame) -> list[str]:
    """The laws that points have the columns of, but for those that read a whole schedule."""
    return [name for name, law in LAWS.items() if not law.whole_schedule and not problems(points, name)]
