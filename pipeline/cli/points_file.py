"""Read points from outside a study: any table of losses."""

from __future__ import annotations

import ast
import codecs
import csv
import io
import itertools
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from fitting import LAWS, Schedule, with_areas
from fitting.points import mixture_columns
from pipeline.question.messages import ConfigError, StudyError
from training.durable import FileError, json_value, regular

COLUMNS = {
    "loss": "validation loss, nats per token (bits would go unnoticed)",
    "N": "size of the model, billions of parameters",
    "D": "tokens of the run so far, billions of tokens",
    "r": "ratio of the row's own corpus in the mixture of the run, 0 to 1",
    "rho": "ratio of the corpus in pre-training, 0 to 1",
    "k1": "validation loss before training, nats per token",
    "k2": "loss decrease of the first 5,000 steps, nats per token",
    "k3": "mean curvature of the loss over the first 11,000 steps, nats per token",
    "r_first": "ratio of the corpus in the run's first mixture, 0 to 1",
    "s1": "S1, summed learning rate of the run so far",
    "s1_first": "S1 at the end of the run's first mixture, or at the point if that is earlier",
    "s2": "S2, annealing area of the run so far, by `fitting.areas`",
    "s1_root": "S1 of (learning rate / 1e-4)^(2/3), by `fitting.areas_of_powers`",
    "s2_square": "S2 of (learning rate / 1e-4)^2, by `fitting.areas_of_powers`",
    "s1_pretrain": "S1 of the pre-training that came before",
    "s2_pretrain": "S2 of the pre-training that came before",
    "loss_before": "validation loss before the run, nats per token",
    "x": "tokens of one domain over those that it has in the base run",
    "mixture.<corpus>": "ratio of the corpus in the training tokens, 0 to 1",
}
"""Column of a law -> what it holds, and its unit."""
TEXT = ("run", "corpus", "model_name", "role", "decay")
"""Columns of a table that hold names, which stay as they are written: 001, NA, 1e3."""


def _opened(path: Path) -> pyarrow.NativeFile:
    return pyarrow.input_stream(path, compression={".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower()))


def _csv(path: Path, names: list[str], losses: Collection[str]) -> pd.DataFrame:
    with _opened(path) as file:
        head = file.read(100_000)
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if marked else "utf-16-le" if head[1:2] == b"\0" else "utf-8-sig"
    lines = head.decode(encoding, "replace").splitlines() or [""]
    notes = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    # numpy.savetxt puts names behind a # too, then numbers.
    notes -= notes > 0 and not re.search(r"[^\W\d]{2}", lines[notes])
    first = lines[notes]
    # As spreadsheets of some languages write them, or as text pasted from one; Excel may name the separator.
    excel = re.fullmatch(r'"?sep=(.)"?', first, re.IGNORECASE)
    sep = excel[1] if excel else max(",;\t", key=first.count)
    how = {"sep": sep, "skiprows": notes + bool(excel), "skipinitialspace": sep != "\t", "encoding": encoding}

    def read(**options: Any) -> pd.DataFrame:
        with _opened(path) as file:
            return pd.read_csv(file, **how, **options).rename(columns=_stripped)

    header = read(header=None, nrows=1, dtype=str).iloc[0].map(_stripped)
    if twice := [*header[header.duplicated()].dropna()]:
        raise ValueError(f"two columns are called {twice[0]}: rename one, or remove it")
    table = read()
    if not isinstance(table.index, pd.RangeIndex):
        remedy = "remove them; where commas are decimal, put ; or a tab between columns"
        raise ValueError(f"rows have more cells than there are names of columns, by {table.index.nlevels}: {remedy}")
    for name in table.columns[[bool(re.fullmatch(_STEPS, str(name))) for name in table]]:
        if not pd.api.types.is_integer_dtype(table[name]):
            _refuse_points(name, read(dtype=str)[name])
    # pandas reads the name NA as missing, and 001 as a number.
    own = table.columns.intersection(names)
    text = read(dtype=str, keep_default_na=False)
    commas = [cell for name in table.columns.difference(own) for cell in _with_commas(table[name])]
    decimal, thousands = (all(re.fullmatch(form, cell) for cell in commas) for form in (_DECIMAL, _THOUSANDS))
    if commas and decimal and thousands:
        raise ValueError(
            f"{commas[0]} may be {commas[0].replace(',', '.')} or {commas[0].replace(',', '')}: remove the comma"
        )
    if decimal != thousands:
        table = read(**({"decimal": ","} if decimal else {"thousands": ","}))
    for name in table.columns.difference(own):
        if len(cells := table[name].dropna()) and cells.astype(str).str.fullmatch(_PERCENT).all():
            table[name] = table[name].str.strip(" %").str.replace(",", ".").astype(float) / 100
    for name in own:
        table[name] = text[name].map(_stripped, na_action="ignore")
    # A chart of wandb's page has a column `RUN - KEY` for each run.
    for name in [name for name in table if {name, str(name).rpartition(" - ")[2]} & {*losses}]:
        table[name] = _with_nan(table[name], text[name].str.fullmatch(r"(?i)\s*[-+]?nan\s*"))
    with _opened(path) as file:
        content = file.read()
    rows = np.arange(len(table)) + 2
    # A cell may hold lines, and pandas leaves out blank ones; else millions of rows need not be read again.
    if content.count(b"\n") + (content[-1:] not in (b"\n", b"")) != how["skiprows"] + 1 + len(table):
        after = itertools.islice(io.StringIO(content.decode(encoding), newline=""), how["skiprows"], None)
        records = csv.reader(after, delimiter=sep, skipinitialspace=how["skipinitialspace"])
        ends = itertools.chain(
            [(0, False)], ((records.line_num, "".join(cells).strip() or cells[1:]) for cells in records)
        )
        starts = [last + 1 for (last, _), (_, is_row) in itertools.pairwise(ends) if is_row]
        rows = np.array(starts[1:]) if len(starts) == len(table) + 1 else rows
    return table.set_axis(rows + how["skiprows"])


def _refuse_points(name: str, steps: pd.Series) -> None:
    """Raise ValueError where the points in a column of steps may all stand between thousands."""
    cells = steps.dropna().str.strip()
    pointed = cells[cells.str.fullmatch(_POINTED)]
    if len(pointed) and (cells.str.fullmatch(_POINTED) | cells.str.fullmatch(r"\d{1,3}")).all():
        first = pointed.iloc[0]
        either = f"{float(first):g} or {first.replace('.', '')}"
        raise ValueError(f"{first} in column {name} may be {either}: write it without the point")


def _with_commas(column: pd.Series) -> list[str]:
    """The cells with a comma of a column of numbers."""
    if pd.api.types.is_numeric_dtype(column):
        return []
    cells = [cell.strip() for cell in column.dropna().astype(str).unique()]
    return [cell for cell in cells if "," in cell] if all(re.fullmatch(_NUMBER, cell) for cell in cells) else []


def _jsonl(path: Path, names: list[str], losses: Collection[str]) -> pd.DataFrame:
    with _opened(path) as file:
        lines = file.read().splitlines()
    rows = {number: json_value(line) for number, line in enumerate(lines, start=1) if line.strip()}
    table = pd.DataFrame([*rows.values()], [*rows])
    for name in table.columns.intersection([*losses]):
        is_nan = [row.get(name) != row.get(name) for row in rows.values()]
        table[name] = _with_nan(table[name], pd.Series(is_nan, table.index))
    return table


def _with_nan(column: pd.Series, is_nan: pd.Series) -> pd.Series:
    """The column with the word NaN where a loss is none, which pandas reads like a cell that is empty."""
    return column.astype(object).mask(is_nan, "NaN") if is_nan.any() else column


def _parquet(path: Path, names: list[str], losses: Collection[str]) -> pd.DataFrame:
    whole = pyarrow.parquet.read_table(path)
    whole.validate(full=True)  # Bytes that are no UTF-8.
    table = whole.to_pandas()
    # What pandas had as the table's index is a column of the file.
    return table.reset_index([name for name in table.index.names if name is not None and name not in table])


def _stripped(name: object) -> object:
    return name.strip().removeprefix("#").strip() if isinstance(name, str) else name


TABLES: dict[str, Callable[[Path, list[str], Collection[str]], pd.DataFrame]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".jsonl": _jsonl,
}
"""Ending of a table, behind which .gz or .zst may stand -> what reads it, with the columns of names and of losses."""
_NUMBER = r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?|[-+]?inf"
_PERCENT = r"\s*[-+]?(?:\d+[.,]?\d*|[.,]\d+)\s*%\s*"
_DECIMAL, _THOUSANDS = r"[^.,]*,[^.,]*", r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?"
"""A number with a decimal comma, and one with commas between thousands; 2,345 may be either."""
_STEPS, _POINTED = r"(?i)(.*[/_ ])?(steps?|iter(ation)?s?)", r"[1-9]\d{0,2}\.\d{3}"
"""Names of columns of steps, and a step with a point that may stand between thousands."""
_HIGH_LOSS = 20
"""Nats per token; a model that knows nothing has 12.4 with 250,000 tokens."""
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def table_kind(path: Path) -> str | None:
    """The key of TABLES that a file is read by; None: it is no table.

    >>> table_kind(Path("runs.CSV.gz"))
    '.csv'
    """
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return next((kind for kind in TABLES if name.endswith(kind)), None)


def read_table(path: Path, columns: Mapping[str, str], losses: Collection[str] = ()) -> pd.DataFrame:
    """The file as it is; rows of a .csv are named by their line, as an editor shows them.

    Names (`TEXT`, in the `columns` of the file) are text, or missing where they are empty. In the columns `losses` of
    a text file the word NaN stays a word, unlike an empty cell.

    Raises:
        StudyError: missing, of an unknown kind, or not readable.
    """
    kind = table_kind(path)
    if kind is None:
        raise StudyError(f"{path}: unknown file type; allowed: {', '.join(TABLES)}")
    names = [columns.get(name, name) for name in TEXT]
    try:
        table = TABLES[kind](regular(path), names, losses)
    except FileNotFoundError:
        raise StudyError(f"{path}: does not exist") from None
    except FileError as error:
        raise StudyError(str(error)) from None
    except Exception as error:  # A damaged file ends in an error of any kind in the libraries that read it.
        line = next(iter(str(error).splitlines()), type(error).__name__)
        line = "it is not UTF-8; save it as UTF-8" if isinstance(error, UnicodeDecodeError) else line
        raise StudyError(f"{path}: cannot be read as {kind[1:]}: {line}") from None
    for name in table.columns.intersection(names):
        table[name] = table[name].map(str, na_action="ignore").astype(object).replace("", None)
    for name in (name for name in table if table[name].dtype == object and name not in names):
        # A list or an object in a cell is shown as a number would be that is none.
        table[name] = table[name].map(lambda cell: str(cell) if isinstance(cell, list | dict | np.ndarray) else cell)
    return table


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """The table with the column names of the laws, and a note for each renamed column.

    Raises:
        ConfigError: a column that the table does not have, for all at once.
    """
    new, notes, mistakes = {}, [], []
    for name, source in columns.items():
        try:
            new[name] = table[source] if source in table.columns else _calculated(source, table)
            notes.append(f"{name} is {source}")
        except ValueError as error:
            mistakes.append(f"columns.{name}: {error}")
    if mistakes:
        raise ConfigError(mistakes)
    return table.assign(**new), notes


def _calculated(source: str, table: pd.DataFrame) -> pd.Series | float:
    """What `source`, arithmetic of columns and numbers, comes to. Raises ValueError for anything else."""
    # Names are replaced first, since spaces and operators may be parts of them; the longest first.
    names = sorted((name for name in map(str, table.columns) if re.search(r"[^-+*/().\d\s]", name)), key=len)[::-1]
    of_names = rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?!\w)"
    known = {f"_column_{number}": name for number, name in enumerate(names)}
    code = re.sub(of_names, lambda found: f"_column_{names.index(found[0])}", source) if names else source
    allowed = f"{', '.join(map(str, table))}, log COLUMN, and + - * / ( ) of columns and numbers"

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=float() | int() as number):
                return np.float64(number)
            case ast.Name(id=name):
                column = known.get(name, name)
                if column not in table:
                    of = "" if column == source else f" of {source!r}"
                    raise ValueError(f"{column!r}{of} is not in the file; allowed: {allowed}")
                if not pd.api.types.is_numeric_dtype(table[column]):
                    raise ValueError(f"{column!r} holds text, which cannot be scaled")
                return table[column]
            case ast.UnaryOp(op=ast.USub(), operand=of):
                return -value(of)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id="log"), args=[of], keywords=[]):
                return np.log(value(of))
        raise ValueError(f"{source!r}; allowed: {allowed}")

    try:
        tree = ast.parse(re.sub(r"\blog ([^\W\d]\w*)", r"log(\1)", code).strip(), mode="eval")
        with np.errstate(all="ignore"):
            result = value(tree.body)
    except (SyntaxError, RecursionError, MemoryError, OverflowError):
        raise ValueError(f"{source!r} is not in the file; allowed: {allowed}") from None
    if not np.isfinite(result).any():
        raise ValueError(f"{source!r} is a number in no row")
    return result


def perplexity_question(losses: pd.Series, source: str, keys: Mapping[str, str] | None = None) -> str:
    """The question whether values are perplexities, by their size and the name that they have in the file; '': no.

    `source` is the column of a table; of a log, or a table of a row a step, `keys` are its keys -> corpus.
    """
    names = [*(keys or (source,))]
    named = [name for name in names if re.search(r"ppl|perplex", name.lower()) and not re.match(r"log[ (]", name)]
    if named:
        reason = f"its column is {named[0]}"
    elif losses.max() > _HIGH_LOSS:
        reason = f"{losses.max():.4g} is above {_HIGH_LOSS}, more than a model without training has"
    else:
        return ""
    first = (named or names)[0]
    given = f"losses='{{log {first}: {keys[first]}, ...}}'" if keys else f"columns='{{loss: log {source}}}'"
    return f"loss: perplexities? {reason}; if so, give their logarithm: {given}"


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


def assumptions(
    points: pd.DataFrame,
    parts: Mapping[str, pd.DataFrame],
    laws: Iterable[str],
    unknown: Iterable[str],
    columns: Mapping[str, str],
) -> list[str]:
    """A line for each assumption about the file, of which `columns` names what laws read."""
    of_laws = [mixture_columns(points) if LAWS[law].for_corpora else LAWS[law].columns for law in laws]
    reads = [name for of_law in of_laws for name in of_law if name not in unknown]
    lines = []
    for name in dict.fromkeys([*reads, "loss"]):
        values = np.concatenate([part[name].to_numpy(float) for part in parts.values()])
        between = f"{values.min():.4g} to {values.max():.4g}" if values.min() < values.max() else f"{values.min():.4g}"
        what = COLUMNS.get(re.sub(r"^mixture\..*", "mixture.<corpus>", name), "it is")
        lines.append(f"{name}: {between}, taken as {what}")
    if "run" in points and "r" in reads:
        lines += _same_ratio(parts, columns.get("r", "r"))
    if "run" in points:
        lines.append(f"run: {points['run'].nunique()} runs; errors within a run are taken as correlated")
    else:
        lines.append("run: no such column, so every row counts as a run of its own; intervals come out too narrow")
    if "step" not in points:
        lines.append("step: no such column, so duplicate points go unnoticed")
    if "schedule" in points and "s1" not in points:
        named = ", ".join(points["schedule"].dropna().astype(str).unique())
        lines.append(
            f"schedule ({named}): not read; s1 and s2, or lr, the learning rate of each row, say it to the laws that "
            "read them"
        )
    one_corpus = "corpus: no such column, so all rows are taken as losses on one validation corpus"
    lines.append(one_corpus if "" in parts else f"corpus: a fit for each of {', '.join(parts)}")
    if unnamed := len(points) - sum(map(len, parts.values())):
        lines.append(f"corpus: empty or not selected in {unnamed} rows, which were left out")
    return lines


def _same_ratio(parts: Mapping[str, pd.DataFrame], source: str) -> Iterator[str]:
    """A warning of two corpora that have one r in each run, where of a mixture of both it is r and 1 - r."""
    for one, other in itertools.combinations(parts, 2):
        ratios = pd.DataFrame({name: parts[name].groupby("run")["r"].first() for name in (one, other)}).dropna()
        if len(ratios) and (ratios[one] == ratios[other]).all() and (ratios[one] != 0.5).any():
            given = f"corpus=NAME columns='{{r: 1 - {f'({source})' if re.search('[-+]', source) else source}}}'"
            yield (
                f"r: the same for {one} and {other} in each run; if these are mixed, of one of them it is 1 - r: fit "
                f"that one by itself, {given}"
            )
            return


def with_rates(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table with s1, s2 and areas of powers, if it has the learning rate along its runs and not its areas.

    Between two rows of a run the rate goes in a line. The second: a note on that.
    """
    rate = next((name for name in ("lr", "learning_rate") if name in table), None)
    if rate is None or not {"step", "loss"} <= {*table} or {"s1", "s2"} & {*table}:
        return table, []
    if "run" not in table:
        if table.duplicated([name for name in ("step", "corpus") if name in table]).any():
            return table, [f"{rate}: several rows of a step and no column run, so s1 and s2 stay unknown"]
        table = table.assign(run="1")
    schedules = {}
    for run, rows in table.dropna(subset=[rate]).drop_duplicates(["run", "step"]).groupby("run"):
        rows = rows.sort_values("step")
        steps = np.arange(1, int(table.loc[table["run"] == run, "step"].max()) + 1)
        rates = np.interp(steps, rows["step"], rows[rate])
        # What was before the first row is not known: S2 begins there.
        schedules[run] = Schedule(rates, rates[0])
    return with_areas(table, schedules), [f"s1, s2: from {rate} of each run, in a line between its rows"]
