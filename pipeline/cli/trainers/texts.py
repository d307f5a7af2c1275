"""The text of the recommended run, in files that the loader of its trainer reads as cptlaw does."""

import dataclasses
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pyarrow
from pyarrow import json as json_lines
from pyarrow import parquet

from pipeline.cli.trainers.plan import TrainerCorpus, TrainingPlan
from pipeline.question.messages import ConfigError
from pipeline.study.folder import IMPORTED
from training.corpora.documents import in_validation
from training.corpora.files import whole
from training.corpora.locations import is_url, location, refuse_unreadable
from training.corpora.reader import check_columns
from training.corpora.readers import open_reader
from training.corpora.source import Source

FILTERS = ("min_characters", "max_characters", "where", "max_bytes")
_SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Loader:
    """Which local text the loader of a trainer reads as cptlaw does."""

    endings: tuple[str, ...] = (".jsonl", ".jsonl.gz", ".parquet")
    """Endings of files; those of one corpus are alike."""
    folders: str = "any"
    """Which folders of such files: any, those that hold nothing else (flat), or none."""
    urls: bool = False
    one_column: bool = False
    """Whether the text of all corpora must be in one column."""


def loadable(
    plan: TrainingPlan,
    loader: Loader,
    folder: Path | None,
    log: Callable[[str], object],
    without_validation: float | None = None,
) -> tuple[TrainingPlan, list[str]]:
    """The plan with text that the loader reads as cptlaw does, and a line for each corpus without.

    Documents that it would read otherwise are written into `folder` as JSON lines, if that is given.
    `without_validation`: ratio of the documents that the study set apart to validate, to leave those out.

    Raises:
        ConfigError: the folder's path is a pattern to loaders.
        CorpusError: text that cannot be read.
    """
    if folder and any(sign in str(folder.resolve()) for sign in "*?["):
        raise ConfigError([f"output: {folder} has one of *?[, which loaders take for a pattern; give another path"])
    first = next((one for one in plan.corpora if one.source.kind == "hub"), plan.corpora[0]).source.column
    corpora, missing = [], []
    for corpus in plan.corpora:
        source, path = corpus.source, corpus.source.path
        is_here = source.kind != "files" or (path != IMPORTED and location(path).exists())
        if source.kind == "files" and is_here and not is_url(path):
            source = dataclasses.replace(source, path=str(Path(path).resolve()))
        column = first if loader.one_column else source.column
        reason, ending = _difference(dataclasses.replace(corpus, source=source), loader, column, is_here)
        apart = without_validation if corpus.validates else None
        if is_split := bool(apart and not reason and source.kind != "hub"):
            reason = f"{corpus.validates:,} of its documents are the study's to validate"
        if without_validation and corpus.available is None:
            missing.append(f"{corpus.name}: not prepared here, so its validation documents are not left out")
        elif without_validation and corpus.like:
            missing.append(
                f"{corpus.name}: {corpus.like:,} of its documents are like those of its validation set, and not left "
                "out; prepare drops them from the study's own text only"
            )
        file = folder.resolve() / f"{corpus.name}.jsonl" if folder else Path(f"TEXT-OF-{corpus.name}.jsonl")
        if reason and (source.kind == "hub" or not is_here):
            missing.append(f"{corpus.name}: {reason}")
        elif reason:
            if folder:
                written = _write_documents(corpus, file, first, apart or 0.0)
                without = f", without the {corpus.validates:,} to validate" if apart and not is_split else ""
                log(f"{corpus.name}: {reason}; {written:,} documents written to {file}{without}")
                corpus = dataclasses.replace(corpus, validates=0 if apart else corpus.validates)
            else:
                remedy = (
                    "give output=FILE, and cptlaw writes its documents to a .jsonl file beside that; else write them "
                    f"yourself to {file}, which the configuration names"
                )
                missing.append(f"{corpus.name}: {reason}; {remedy}")
            source, ending = Source(path=str(file), column=first), ""
        if path == IMPORTED:
            source = dataclasses.replace(source, path=corpus.name)
        corpora.append(dataclasses.replace(corpus, source=source, ending=ending))
    return dataclasses.replace(plan, corpora=tuple(corpora)), missing


def _difference(corpus: TrainerCorpus, loader: Loader, column: str, is_here: bool) -> tuple[str, str]:
    """(why the loader does not read the documents that cptlaw reads, or '', ending of the files of a folder or '')."""
    source, path = corpus.source, corpus.source.path
    if used := [name for name in FILTERS if getattr(source, name)]:
        return f"the filters {', '.join(used)} are cptlaw's", ""
    # A .txt has no column.
    is_text = source.kind == "files" and is_here and all(name.endswith(".txt") for name, _ in whole(path).files)
    if source.column != column and not is_text:
        return f"its text is in column {source.column}, that of other corpora in {column}", ""
    if source.kind != "files":
        reasons = {"installed-python": "text of the installed Python is no file", "generated": "a model wrote its text"}
        return reasons.get(source.kind, ""), ""
    if not is_here:
        whole_path = is_url(path) or Path(path).is_absolute()
        where = "not on this machine" if whole_path else "neither here nor in a folder around the study"
        return "" if path == IMPORTED else f"{path} is {where}, so its files were not checked", ""
    if corpus.dropped:
        return f"prepare left out {corpus.dropped:,} of its documents", ""
    folder = location(path).is_dir()
    files = {f"{path.rstrip('/')}/{name}" if folder else path for name, _ in whole(path).files}
    ending = next((one for one in loader.endings if all(file.endswith(one) for file in files)), "")
    if not ending or (folder and loader.folders == "none"):
        kinds = " or ".join(loader.endings)
        only = f"one {kinds} file only" if loader.folders == "none" else f"files of one kind only, {kinds}"
        return f"the trainer reads {only}", ""
    ending *= folder
    if _seen(dataclasses.replace(corpus, ending=ending), loader) != files:
        return f"the trainer's loader finds other files in {path}", ""
    unlike = _unlike_columns(sorted(files), source.column, corpus.name)
    return unlike, "" if unlike else ending


def _seen(corpus: TrainerCorpus, loader: Loader) -> set[str]:
    """The files that the loader finds."""
    # datasets takes 1.3 s to load.
    from datasets.data_files import resolve_pattern

    path = corpus.source.path
    if is_url(path) and not loader.urls:
        return set()
    flat = corpus.ending and loader.folders == "flat"
    patterns = [str(file) for file in Path(path).iterdir()] if flat else [corpus.text]
    with refuse_unreadable(path):
        try:
            return {file for pattern in patterns for file in resolve_pattern(pattern, "")}
        except FileNotFoundError:
            return set()


def _unlike_columns(files: list[str], column: str, corpus: str) -> str:
    """Why the library datasets refuses the files, which it reads with the columns of the first; '': it does not."""
    columns: dict[str, pyarrow.DataType] = {}
    for file in files:
        try:
            fields = {one.name: one.type for one in _schema(location(file))}
        except (pyarrow.ArrowException, OSError, EOFError) as error:
            return f"rows of {file} differ in their columns ({str(error).splitlines()[0]})"
        check_columns(file, [column], [*fields], corpus)
        if not str(fields[column]).endswith("string"):
            return f"column {column} of {file} is read as {fields[column]}"
        if columns and fields != columns:
            return f"the columns of {file} are not those of {files[0]}"
        columns = fields
    return ""


def _schema(file: Path) -> pyarrow.Schema:
    """The columns of a parquet file, or of the beginning of JSON lines."""
    with file.open("rb") as raw:
        if file.name.endswith(".parquet"):
            return parquet.read_schema(raw)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if file.name.endswith(".gz") else raw
        lines = b"".join(stream.readlines(_SAMPLE_BYTES)).removeprefix(b"\xef\xbb\xbf")
        return json_lines.read_json(io.BytesIO(lines)).schema


def _write_documents(corpus: TrainerCorpus, file: Path, column: str, apart: float) -> int:
    """Write the documents of a corpus as JSON lines but the ratio `apart`, which validates; returns their number.

    A kill leaves a hidden file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    part, count = file.with_name(f".{file.name}.part"), 0
    with part.open("w", encoding="utf-8") as stream:
        for name, text in open_reader(corpus.name, corpus.source).documents():
            if in_validation(name, apart):
                continue
            stream.write(json.dumps({column: text}, ensure_ascii=False) + "\n")
            count += 1
    part.replace(file)
    return count
