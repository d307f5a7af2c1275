"""Points of all runs in one table: the spec of each run joined to its validation losses."""

import contextlib
import io
import math
import shlex
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet

from fitting import with_areas
from fitting.schedule import Schedule
from pipeline.question.messages import MissingError
from pipeline.question.schema import Question
from pipeline.study.artifacts import Corpora
from pipeline.study.folder import PlannedRun, Study, StudyError
from pipeline.study.status import refuse_lost_points
from training.durable import FileError, read_file, read_lines_whole, write_whole
from training.parameters import model_size
from training.sampling import sampler_of
from training.schedule import learning_rates
from training.spec import RunSpec

SCHEMA = 3
POINT = pa.schema(
    [("step", pa.int64()), ("tokens", pa.int64()), ("corpus", pa.string())]
    + [(name, pa.float64()) for name in ("loss", "loss_stderr", "learning_rate")]
)
COLUMNS = (
    *("study", "run", "phase", "role", "model", *POINT.names, "s1_pretrain", "s2_pretrain", "s1", "s2", "ratio"),
    *("replay", "n_params", "n_params_non_embedding", "seed", "loss_before", "bits_per_byte", "N", "D", "r", "rho"),
)
"""Columns of points.parquet, and a column mixture.<corpus> for each corpus; with variants also variant, a name. Where a
mixture changes along the schedule also mixture_phase, 1 up to the last step of the first phase, and tokens.<corpus>,
the tokens of each corpus so far, counted as tokens are; ratio, replay, r and mixture.<corpus> are then those of the
point's phase, r_first is r of the first phase, and s1_first is S1 at its end, or at the point if that is earlier.

ratio: that of the domain; replay: that of general. N: non-embedding parameters in billions; D: tokens in billions;
r, rho: ratio of the row's corpus in the run's mixture and in that of the run it continued (NaN: not known). s1, s2:
areas of the continual run's learning rates up to the step; *_pretrain: those of the run that it continued, at the step
that it continued from, or of a pre-training run's own rates up to the step (`fitting.with_areas`, lambda = DECAY).
loss_before: loss of the same corpus at the run's step 0. bits_per_byte: the loss of a byte of text, which models of
different tokenizers have in common (NaN in a study planned without its corpora). role: pretrain, fit, or confirm. A
branch counts its steps and tokens from the start of the phase that it left a trunk in."""

TEXT = ("study", "run", "phase", "role", "model", "corpus", "variant")
"""Columns of points.parquet that hold text."""

POWERS = ("s1_root", "s2_square")
"""Columns that follow `COLUMNS`, which tables of before 2026-11-25 lack: areas of powers of the learning rates."""
DECAY, POWERS_DECAY = 0.999, 0.97
"""Lambda of s2, and of s2_square, which a fit replaces by its own: runs are chosen before there is a fit."""

OPEN_S1 = 1e3
"""s1_pretrain of a model brought along, whose own schedule is not known: so much longer than any continual phase that
training which simply goes on is linear in S1. Its rho is taken as 1 for the general corpus and 0 for any other; a
study of such a model fits one number for it."""


def collect(study: Study, general: str) -> pd.DataFrame:
    """Read the points of every planned run that has some and write points.parquet.

    Raises StudyError: no plan, no points at all, a damaged line in a points file, or a finished run that lost points.
    """
    table = measured_points(study, study.read_plan(), general)
    _write(table, study.folder / "points.parquet")
    return table


def measured_points(study: Study, plan: list[PlannedRun], general: str) -> pd.DataFrame:
    """The table of `collect`, which raises the same, for runs of a plan as far as they are trained; writes nothing."""
    files = [(run.name, study.runs / run.name / "points.jsonl") for run in plan]
    points = _read_points(files, is_imported=any(run.imported for run in plan))
    refuse_lost_points(study, plan, points["run"].value_counts().to_dict())
    if points.empty:
        raise StudyError(f"{study.folder}: no points yet; run cptlaw train {study.word} first")
    table, tokens_per_byte = with_specs(points, plan, general), dict[str, float]()
    with contextlib.suppress(StudyError):  # A study planned without its corpora does not know them.
        tokens_per_byte = Corpora.read(study).tokens_per_byte
    table["study"] = study.folder.name
    table["bits_per_byte"] = table["loss"] / math.log(2) * table["corpus"].map(tokens_per_byte)
    optional = ["variant"] if table["variant"].any() else []
    optional += ["mixture_phase", "r_first", "s1_first"] if "mixture_phase" in table else []
    mixtures = sorted(column for column in map(str, table.columns) if column.startswith(("mixture.", "tokens.")))
    return table[[*COLUMNS, *POWERS, *optional, *mixtures]]


def with_specs(points: pd.DataFrame, plan: list[PlannedRun], general: str) -> pd.DataFrame:
    """Points (run, step, tokens, corpus, loss) with those of `COLUMNS` that follow from the specs of their runs."""
    by_hash = {run.spec.hash: run for run in plan}
    trunks = {run.name: _trunk(run, by_hash) for run in plan}
    facts = pd.DataFrame([_facts(run, trunks[run.name], general) for run in plan])
    table = points.merge(facts, on="run", how="left", sort=False)
    table = _with_ratios(table, plan, by_hash, general)
    behind = {run.name: _behind(run, by_hash) for run in plan if run.spec.initial.moments}
    table["step"] += table["run"].map({name: steps for name, (steps, _) in behind.items()}).fillna(0).astype(int)
    table["tokens"] += table["run"].map({name: tokens for name, (_, tokens) in behind.items()}).fillna(0).astype(int)
    changes = {run.name: run.spec.phases[0].first_sequence // run.spec.global_batch for run in plan if run.spec.phases}
    if changes:
        table = _with_phases(table, plan, general)
    table = with_areas(table, rates := schedules(plan), DECAY)
    table["s2_square"] = with_areas(table, rates, POWERS_DECAY)["s2_square"]
    if changes:
        at_change = {name: float(np.sum(rates[name].rates[:step])) for name, step in changes.items()}
        table["s1_first"] = np.where(table["mixture_phase"] > 1, table["run"].map(at_change), table["s1"])
    before = table[table["step"] == 0].drop_duplicates(["run", "corpus"]).set_index(["run", "corpus"])["loss"]
    firsts = {name: trunk.name for name, trunk in trunks.items()}
    keys = pd.MultiIndex.from_arrays([table["run"].map(firsts), table["corpus"]])
    table["loss_before"] = before.reindex(keys).to_numpy()
    table["N"] = table["n_params_non_embedding"] / 1e9
    table["D"] = table["tokens"] / 1e9
    return table


def read_points(study: Study) -> pd.DataFrame:
    """The collected table; raises as `points_of`."""
    return points_of(study.folder / "points.parquet")


def points_of(path: Path) -> pd.DataFrame:
    """A table of `collect`, wherever it lies now. Raises StudyError: missing, of another schema, or lacking columns."""
    again = shlex.join(["cptlaw", "collect", str(path.parent)])
    try:
        table, metadata = read_parquet(path, TEXT)
    except FileNotFoundError:
        raise MissingError(path, "collect", path.parent) from None
    except FileError as error:
        raise StudyError(f"{error}; run {again} again") from None
    schema = metadata.get(b"cptlaw.points")
    missing = [column for column in COLUMNS if column not in table.columns]
    if schema != str(SCHEMA).encode() or missing:
        lacks = f", lacks {', '.join(missing)}" if missing else ""
        present = schema.decode(errors="replace") if schema else "none"
        raise StudyError(f"{path}: points of schema {present}{lacks}; this version reads {SCHEMA}: run {again}")
    return table


def read_parquet(path: Path, text: Sequence[str]) -> tuple[pd.DataFrame, dict[bytes, bytes]]:
    """A table that this program wrote, and its metadata; columns of the names in `text` hold text, others numbers.

    Raises FileNotFoundError, and FileError: not a parquet table, damaged, or with a column of another type.
    """
    data = read_file(path)
    try:
        arrow = parquet.read_table(pa.BufferReader(data), page_checksum_verification=True)
        table, metadata = arrow.to_pandas(), arrow.schema.metadata or {}
    except Exception as error:  # A damaged file ends in an error of any kind.
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise FileError(f"{path}: not a parquet table any more ({line})") from None
    kinds = {name: pd.api.types.infer_dtype(table[name]) if name in text else table[name].dtype.kind for name in table}
    wrong = [name for name, kind in kinds.items() if len(table) and kind not in (*"ifub", "string", "empty")]
    if wrong:
        raise FileError(f"{path}: column {wrong[0]} holds {table[wrong[0]].dtype}")
    return table, metadata


def of_domain(points: pd.DataFrame, question: Question) -> pd.DataFrame:
    """The points on general and on `corpora.domain`, of runs that read no other domain of `corpora.domains`.

    Pre-training and runs on general text alone are every domain's. A study of one domain keeps all its points.
    """
    corpora = question.corpora
    columns = [f"mixture.{domain}" for domain in corpora.domains if domain != corpora.domain]
    if not columns:
        return points
    elsewhere = (points.reindex(columns=columns).fillna(0.0) > 0.0).any(axis=1)
    own = ~elsewhere | (points["phase"] == "pretrain")
    return points[own & points["corpus"].isin([corpora.general, corpora.domain])]


def last_losses(points: pd.DataFrame, runs: Iterable[str]) -> dict[str, dict[str, float]]:
    """Run -> corpus -> its last loss, of those of some runs that have points."""
    ends = points[points["run"].isin([*runs])].sort_values("step").groupby(["run", "corpus"])["loss"].last()
    return {str(run): dict(zip(of["corpus"], of["loss"])) for run, of in ends.reset_index().groupby("run")}


def schedules(plan: Sequence[PlannedRun]) -> dict[Hashable, Schedule]:
    """Run -> its learning rates and those of the run that it continued, as `fitting.fit` takes them."""
    known: dict[tuple[Any, ...], np.ndarray] = {}

    def rates(spec: RunSpec) -> np.ndarray:
        # Thousands of runs share a handful of schedules.
        key = (spec.schedule, spec.steps, spec.learning_rate_before)
        if key not in known:
            known[key] = learning_rates(*key)
        return known[key]

    ends = {run.parent[:8] for run in plan if run.parent}
    # A name ends in its hash's first digits: most runs need not be hashed again to know that nobody continues them.
    by_hash = {run.spec.hash: run for run in plan if run.name[-8:] in ends}

    def in_phase(run: PlannedRun) -> np.ndarray:
        if not run.spec.initial.moments:
            return rates(run.spec)
        past = in_phase(by_hash[run.spec.initial.run])[: _behind(run, by_hash)[0]]
        return np.concatenate([past, rates(run.spec)])

    by_run: dict[Hashable, Schedule] = {}
    for run in plan:
        trunk = _trunk(run, by_hash)
        parent = by_hash.get(trunk.parent or "")
        pretrain = in_phase(parent)[: _behind(trunk, by_hash)[0]] if parent else None
        is_pretraining = run.spec.phase == "pretrain"
        by_run[run.name] = Schedule(in_phase(run), trunk.spec.learning_rate_before, pretrain, is_pretraining)
    return by_run


def _trunk(run: PlannedRun, by_hash: Mapping[str, PlannedRun]) -> PlannedRun:
    """The run that began the phase: the run itself, or what it branched off."""
    while run.spec.initial.moments:
        run = by_hash[run.spec.initial.run]
    return run


def _behind(run: PlannedRun, by_hash: Mapping[str, PlannedRun]) -> tuple[int, int]:
    """Steps and tokens of its parent's phase before the run's own first."""
    steps, tokens = 0, 0
    while True:
        parent = by_hash[run.spec.initial.run]
        steps += run.spec.initial.step
        tokens += run.spec.initial.step * parent.spec.tokens_per_step
        if not parent.spec.initial.moments:
            return steps, tokens
        run = parent


def _read_points(files: list[tuple[str, Path]], is_imported: bool) -> pd.DataFrame:
    buffer, names, counts = io.BytesIO(), [], []
    for name, path in files:
        try:
            data = read_file(path)
        except FileNotFoundError:
            continue
        # A run that was killed while writing ends in half a line, which it will write again.
        whole = data[: data.rfind(b"\n") + 1]
        buffer.write(whole)
        names.append(name)
        counts.append(whole.count(b"\n"))
    if not sum(counts):
        return pd.DataFrame(columns=["run", *POINT.names])
    options = arrow_json.ParseOptions(explicit_schema=POINT, unexpected_field_behavior="error")
    try:
        # One parse for all files: opening a parser for each of thousands costs more than the reading.
        table = arrow_json.read_json(pa.BufferReader(buffer.getvalue()), parse_options=options)
        table.validate(full=True)  # Bytes that are no UTF-8.
        whole = table.num_rows == sum(counts) and not any(column.null_count for column in table.columns)
    except pa.ArrowInvalid:
        table, whole = None, False
    frame = table.to_pandas() if table is not None and whole else None
    if frame is None or (frame[["step", "tokens"]] < 0).any(axis=None) or np.isinf(frame["loss"]).any():
        raise StudyError(_damage(files, is_imported))
    frame.insert(0, "run", np.repeat(names, counts))
    return frame


def _damage(files: list[tuple[str, Path]], is_imported: bool) -> str:
    for name, path in files:
        if not path.exists():
            continue
        again = "import it again with cptlaw import" if is_imported else f"delete runs/{name} to train it again"
        try:
            for number, point in enumerate(read_lines_whole(path), start=1):
                if not _is_point(point):
                    return f"{path} line {number}: not a point ({', '.join(POINT.names)}); {again}"
        except ValueError as error:
            return f"{error}; {again}"
    return "points.jsonl: a value of the wrong type in one of the runs"


def _is_point(point: Any) -> bool:
    if not isinstance(point, dict) or set(point) != set(POINT.names):
        return False
    counts = all(type(point[key]) is int and 0 <= point[key] < 2**63 for key in ("step", "tokens"))
    numbers = (point[key] for key in ("loss", "loss_stderr", "learning_rate"))
    # A number of hundreds of digits is no float.
    right = all(type(value) is float or (type(value) is int and abs(value) < 2**63) for value in numbers)
    return counts and right and isinstance(point["corpus"], str) and not math.isinf(point["loss"])


def _facts(run: PlannedRun, trunk: PlannedRun, general: str) -> dict[str, str | float]:
    spec = run.spec
    size = model_size(spec.model, spec.sequence_length)
    replay = Fraction(spec.mixture.get(general, "0"))
    s1, s2 = (OPEN_S1, 0.0) if trunk.spec.initial.kind == "directory" else (np.nan, np.nan)
    return {
        **{"run": run.name, "phase": spec.phase, "role": run.role, "model": run.model},
        **{"variant": run.variant, "seed": spec.seed, "s1_pretrain": s1, "s2_pretrain": s2},
        # Exact until here: 1 - 0.338 in binary is not the 0.662 that was asked for.
        **{"ratio": float(1 - replay), "replay": float(replay)},
        **{"n_params": size.total, "n_params_non_embedding": size.non_embedding},
        **{f"mixture.{corpus}": float(Fraction(ratio)) for corpus, ratio in spec.mixture.items()},
    }


def _with_ratios(
    table: pd.DataFrame, plan: list[PlannedRun], by_hash: Mapping[str, PlannedRun], general: str
) -> pd.DataFrame:
    rows = []
    for run in plan:
        trunk = _trunk(run, by_hash)
        parent = by_hash.get(trunk.parent or "")
        for corpus in run.spec.corpora:
            if parent:
                rho = parent.ratio_of(corpus)
            else:
                rho = float(corpus == general) if trunk.spec.initial.kind == "directory" else np.nan
            rows.append((run.name, corpus, run.ratio_of(corpus), rho))
    return table.merge(pd.DataFrame(rows, columns=["run", "corpus", "r", "rho"]), on=["run", "corpus"], how="left")


def _with_phases(table: pd.DataFrame, plan: list[PlannedRun], general: str) -> pd.DataFrame:
    """The table with the mixture of each point's phase, and the tokens of each corpus so far."""
    by_name = {run.name: run.spec for run in plan}
    corpora = sorted({corpus for spec in by_name.values() for corpus in spec.mixture})
    table = table.assign(mixture_phase=1, r_first=table["r"], **{f"tokens.{corpus}": 0 for corpus in corpora})
    # As arrays, written run by run: an assignment to a part of a table takes a millisecond.
    mixtures = [name for name in map(str, table) if name.startswith("mixture.")]
    written = ["mixture_phase", "ratio", "replay", "r", *mixtures, *(f"tokens.{corpus}" for corpus in corpora)]
    columns = {name: table[name].to_numpy(copy=True) for name in written}
    tokens, measured_on = table["tokens"].to_numpy(), table["corpus"].to_numpy()
    for name, rows in table.groupby("run").indices.items():
        spec = by_name[str(name)]
        # A branch's tokens count from the start of the phase, as the indices of its sequences do.
        read = tokens[rows] // spec.sequence_length
        sampler = sampler_of(spec, dict.fromkeys(spec.mixture, 1))
        counts = [sampler.counts(sequences) for sequences in read.tolist()]
        for corpus in counts[0]:
            columns[f"tokens.{corpus}"][rows] = [of[corpus] * spec.sequence_length for of in counts]
        for number, phase in enumerate(spec.phases, start=2):
            # A point belongs to the phase of the last sequence that was read.
            later = rows[read > phase.first_sequence]
            ratios = {corpus: float(Fraction(ratio)) for corpus, ratio in phase.mixture.items()}
            columns["mixture_phase"][later] = number
            columns["ratio"][later] = float(1 - Fraction(phase.mixture.get(general, "0")))
            columns["replay"][later] = ratios.get(general, 0.0)
            columns["r"][later] = [ratios.get(corpus, np.nan) for corpus in measured_on[later]]
            for corpus, ratio in ratios.items():
                columns[f"mixture.{corpus}"][later] = ratio
    return table.assign(**columns)


def _write(table: pd.DataFrame, path: Path) -> None:
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    points = {b"cptlaw.points": str(SCHEMA).encode(), b"cptlaw.decay": repr(DECAY).encode()}
    metadata = {**(arrow.schema.metadata or {}), **points}
    sink = io.BytesIO()
    parquet.write_table(arrow.replace_schema_metadata(metadata), sink, write_page_checksum=True)
    write_whole(path, sink.getvalue())
