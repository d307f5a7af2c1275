"""Corpora and tokenizer of a question, prepared once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pipeline.plan.model_shape import MODEL_FILES, TOKENIZER_FILES, hub_directory
from pipeline.plan.runs import data_folder
from pipeline.question.schema import Question
from training.corpora.corpus_store import Bar
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.corpora.prepare import TokenizerChoice, prepare
from training.corpora.source import Source


def prepare_corpora(question: Question, log: Callable[[str], object], console: Console | None = None) -> Manifest:
    """Tokenise the question's corpora; corpora that are prepared already are reused.

    `log` receives a line for each step; a console that is a terminal shows a progress bar.

    Raises:
        CorpusError: a corpus or the tokenizer cannot be used.
    """
    sources, choice, ratio = sources_of(question), _tokenizer(question), question.corpora.validation_ratio
    with progress_bar(console) as bar:
        return prepare(sources, choice, data_folder(question), validation_ratio=ratio, progress=log, bar=bar)


def _tokenizer(question: Question) -> TokenizerChoice:
    tokenizer, model = question.corpora.tokenizer, question.model
    if tokenizer.path:
        path, commit = hub_directory("corpora.tokenizer.path", tokenizer.path, tokenizer.revision, TOKENIZER_FILES)
    elif model.path:
        path, commit = hub_directory("model.path", model.path, model.revision, MODEL_FILES)
    else:
        return TokenizerChoice(vocabulary=tokenizer.vocabulary, separator=tokenizer.separator)
    return TokenizerChoice(path=str(path), revision=commit, separator=tokenizer.separator)


def sources_of(question: Question, with_validation: bool = True) -> dict[str, Source]:
    """The question's corpora in the form of `training`, with paths below corpora.folder.

    Without `with_validation` their validation sets are left out, and need not exist yet.

    Raises:
        CorpusError: a missing path or an impossible setting; a line for each.
    """
    corpora = question.corpora
    problems: list[str] = []
    sources = {}
    for name, given in corpora.sources.items():
        key = f"corpora.sources.{name}"
        path = str(Path(corpora.folder) / given.path) if given.path else ""
        if given.kind == "files" and path and not Path(path).exists():
            problems.append(f"{key}.path: {path!r} does not exist; give a file or folder of text")
        validation = validation_set(question, name) if with_validation else None
        if validation is not None and not validation.exists():
            where = f"{key}.validation" if given.validation else "corpora.validation"
            problems.append(f"{where}: {str(validation)!r} does not exist; run cptlaw prepare validation to make it")
        sources[name] = replace(given, path=path, validation=None if validation is None else str(validation))
        try:
            sources[name].check(key)
        except CorpusError as error:
            problems.append(str(error))
    if problems:
        raise CorpusError("\n".join(problems))
    return sources


def validation_set(question: Question, corpus: str) -> Path | None:
    """Path of a corpus' validation set, which may not exist yet; None: it has none."""
    corpora = question.corpora
    if (path := corpora.sources[corpus].validation) is not None:
        return Path(corpora.folder) / path
    return None if corpora.validation is None else Path(corpora.validation) / f"{corpus}.jsonl"


@contextlib.contextmanager
def progress_bar(console: Console | None) -> Iterator[Bar | None]:
    """Progress bars, one per corpus, on a terminal; None elsewhere, where the caller logs lines."""
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[size]}"), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {}

        def bar(corpus: str, size: int, fraction: float | None) -> None:
            if corpus not in tasks:
                tasks[corpus] = progress.add_task(corpus, total=None, size="")
            total = None if fraction is None else 1.0
            progress.update(tasks[corpus], total=total, completed=fraction or 0.0, size=f"{size / 1e6:,.0f} MB")

        yield bar
