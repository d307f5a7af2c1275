"""Corpora and tokenizer of a question, prepared once."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.plan.model_shape import MODEL_FILES, TOKENIZER_FILES, hub_directory, is_hub_name
from pipeline.question.data import below, data_folder, real_file
from pipeline.question.schema import Question
from pipeline.study.context import Context
from pipeline.study.number_format import quantity
from training.corpora.documents import CorpusError
from training.corpora.files import FileReader
from training.corpora.generated import GeneratedReader
from training.corpora.listing import list_files
from training.corpora.locations import is_url, location, refuse_unreadable
from training.corpora.manifest import Manifest
from training.corpora.prepare import begin, changed_text, tokenise_corpora
from training.corpora.reader import Bar
from training.corpora.source import Generation, Source, TokenizerChoice
from training.spec import SpecError

PLAIN, COMPRESSED, BYTES_A_TOKEN = (".txt", ".jsonl", ".ndjson"), 3, 3
"""Endings of text as it is, how much longer other files' text is, and bytes of a token: few, so as not to cry wolf."""
MOST_FILES = 100
"""So many files of a corpus are looked into before prepare: 100 small ones took .03 s."""


def prepare_corpora(question: Question, log: Callable[[str], object], console: Console | None = None) -> Manifest:
    """Tokenise the question's corpora; corpora that are prepared already are reused. Errors as `tokenise_corpora`.

    `log` receives a line for each step; a console that is a terminal shows a progress bar.
    """
    sources, choice, ratio = sources_of(question), _tokenizer(question), question.corpora.validation_ratio
    with progress_bar(console) as bar:
        return tokenise_corpora(sources, choice, data_folder(question), validation_ratio=ratio, progress=log, bar=bar)


def text_sizes(question: Question) -> dict[str, tuple[int, bool]]:
    """Corpus -> (bytes of its text by the sizes of local files, whether some are compressed, and so a guess).

    Of other sources it is `max_bytes`, where that is given: they are taken to have so much. Errors as `sources_of`.
    """
    sizes = {}
    for name, source in sources_of(question).items():
        if source.kind != "files" or is_url(source.path):
            if source.max_bytes:
                sizes[name] = source.max_bytes, False
            continue
        try:
            files = [(file.lower(), path.stat().st_size) for file, path in list_files(source.path).files]
        except (CorpusError, OSError):
            continue  # prepare refuses it, plan prints a cost all the same.
        size = sum(bytes_ * (1 if file.endswith(PLAIN) else COMPRESSED) for file, bytes_ in files)
        sizes[name] = min(size, source.max_bytes or size), not all(file.endswith(PLAIN) for file, _ in files)
    return sizes


def refused_text(question: Question) -> list[str]:
    """What prepare will refuse of the first rows of local files, a line a corpus. Errors as `sources_of`."""
    lines = []
    for name, source in sources_of(question).items():
        if source.kind == "files" and not is_url(source.path):
            try:
                FileReader(name, source).refuse_first_rows(MOST_FILES)
            except CorpusError as error:
                lines.append(str(error))
    return lines


def with_columns(words: Sequence[str], question: Question) -> list[str] | None:
    """The words of a command with the text columns that `refused_text` proposes; None: prepare refuses those too."""
    lines = refused_text(question)
    found = [re.search(r"; give corpora\.sources\.([\w-]+)\.column=([\w-]+)$", line) for line in lines]
    proposed = {match[1]: match[2] for match in found if match}
    sources = {name: replace(of, column=proposed.get(name, of.column)) for name, of in question.corpora.sources.items()}
    corrected = replace(question, corpora=replace(question.corpora, sources=sources))
    if not all(found) or (lines and refused_text(corrected)):
        return None
    columns = {f"corpora.sources.{name}.column": column for name, column in proposed.items()}
    left = [word for word in words if word.partition("=")[0] not in columns]
    return [*left, *map("=".join, columns.items())]


def estimated_tokens(sizes: Mapping[str, tuple[int, bool]]) -> dict[str, int]:
    """Corpus -> tokens of text of these `text_sizes`, two digits of them."""
    return {name: int(float(f"{size / BYTES_A_TOKEN:.2g}")) for name, (size, _) in sizes.items()}


def size_lines(question: Question, sizes: Mapping[str, tuple[int, bool]]) -> list[str]:
    """Lines on what `estimated_tokens` are, by which guess, and of which corpora nothing is known."""
    of_each = [f"{name} some {quantity(tokens)}" for name, tokens in estimated_tokens(sizes).items()]
    guessed = ", ".join(name for name, (_, guess) in sizes.items() if guess)
    line = f"tokens, estimated from file sizes or max_bytes at {BYTES_A_TOKEN} bytes each: {', '.join(of_each)}"
    if guessed:
        line += f"; compressed files of {guessed} (.gz, .zst, .parquet) are taken for {COMPRESSED} times their bytes"
    sources = question.corpora.sources.items()
    unknown = [name for name, source in sources if name not in sizes and source.kind != "generated"]
    taken = f"tokens of {', '.join(unknown)}: not known before prepare, taken for enough; give "
    taken += f"corpora.sources.{next(iter(unknown), '')}.max_bytes, which limits them, for an estimate"
    return [line] * bool(sizes) + [taken] * bool(unknown)


def changed_corpora(context: Context) -> list[str]:
    """A line for each prepared corpus whose text is no longer what was prepared. Errors as `changed_text`."""
    question = context.question
    if context.given_manifest is not None or not context.is_prepared:
        return []
    sources = {
        name: replace(given, path=_path(question, given), validation=validation_path(question, name))
        for name, given in question.corpora.sources.items()
        if given.kind != "generated"
    }
    kept = (context.study.folder / "study.yaml").exists()
    again = f"cptlaw prepare {context.study.word if kept else 'with the same overrides'}"
    remedy = f"run {again} again, or restore it"
    changed = changed_text(sources, context.manifest)
    return [f"corpora.sources.{line} is not the text that was prepared; {remedy}" for line in changed]


def begin_corpora(question: Question, log: Callable[[str], object]) -> list[Path]:
    """Plan the shards of corpora that are not prepared, and return their folders. Errors as `tokenise_corpora`."""
    sources, ratio = sources_of(question), question.corpora.validation_ratio
    return begin(sources, _tokenizer(question), data_folder(question), validation_ratio=ratio, progress=log)


def _tokenizer(question: Question) -> TokenizerChoice:
    tokenizer, model = question.corpora.tokenizer, question.model
    if tokenizer.path:
        path, commit = hub_directory("corpora.tokenizer.path", tokenizer.path, tokenizer.revision, TOKENIZER_FILES)
    elif model.path:
        path, commit = hub_directory("model.path", model.path, model.revision, MODEL_FILES)
    else:
        return replace(tokenizer, revision=None)
    return replace(tokenizer, path=str(path), revision=commit)


def sources_of(question: Question, with_validation: bool = True) -> dict[str, Source]:
    """The question's corpora in the form of `training`, with paths below corpora.folder.

    Without `with_validation` their validation sets are left out, and need not exist yet. Raises CorpusError: a missing
    path or an impossible setting; a line for each.
    """
    corpora, problems, sources = question.corpora, list[str](), {}
    for name, given in corpora.sources.items():
        key, path, generated = f"corpora.sources.{name}", _path(question, given), given.generated
        if given.kind == "generated":
            path = path or str(Path(question.data) / "generated")
            try:
                generated = _writer(question, given.generated, f"{key}.generated.model")
            except SpecError as error:
                problems.append(str(error))
        text = "give a file or folder of text"
        if given.kind == "files" and path:
            problems += [f"{key}.path: {line}" for line in _unreadable(path, text)]
        validation = validation_path(question, name) if with_validation else None
        if validation is not None and given.validation is not None:
            problems += [f"{key}.validation: {line}" for line in _unreadable(validation, text)]
        elif validation is not None:
            url = f"give the URL of a folder with {name}.jsonl"
            make = url if is_url(validation) else "run cptlaw prepare validation to make it"
            problems += [f"corpora.validation: {line}" for line in _unreadable(validation, make)]
        sources[name] = replace(given, path=path, validation=validation, generated=generated)
        problems += sources[name].problems(key)
    tokenizer = corpora.tokenizer.path
    if tokenizer and not Path(tokenizer).is_dir() and not is_hub_name(tokenizer):
        problems.append(f"corpora.tokenizer.path: {tokenizer!r} does not exist; give a directory, or a hub name")
    if problems:
        raise CorpusError("\n".join(problems))
    return sources


def _path(question: Question, source: Source) -> str:
    return real_file(below(question.corpora.folder, source.path)) if source.path else ""


def _unreadable(path: str, remedy: str) -> list[str]:
    """Why a file or folder cannot be read, a line; `remedy` is what to do if it is missing."""
    try:
        with refuse_unreadable(path):
            missing = "does not exist, or cannot be reached" if is_url(path) else "does not exist"
            return [] if location(path).exists() else [f"{path!r} {missing}; {remedy}"]
    except CorpusError as error:
        return [str(error)]


def _writer(question: Question, given: Generation, key: str) -> Generation:
    """How text is generated, with the directory of the model that writes it. Raises SpecError: it is not available.

    Without a model of its own it is the question's, with the question's token between documents.
    """
    name, revision, separator = given.model, None, given.separator
    if name is None:
        name, revision = question.model.path, question.model.revision
        separator = separator or (None if question.corpora.tokenizer.path else question.corpora.tokenizer.separator)
    if not name:
        raise SpecError(f"{key}: null, and model.path too; give the base model, model=local model.path=DIRECTORY")
    folder = hub_directory(key if given.model else "model.path", name, revision, MODEL_FILES)[0]
    return replace(given, model=str(folder), separator=separator)


def generation_lines(question: Question) -> list[str]:
    """What models have yet to write for the question's generated corpora, and how long that takes; a line each.

    Raises CorpusError: a model or a file of samples cannot be used.
    """
    if all(source.kind != "generated" for source in question.corpora.sources.values()):
        return []
    generated = [(name, source) for name, source in sources_of(question).items() if source.kind == "generated"]
    return [f"{name}: {line}" for name, source in generated if (line := GeneratedReader(name, source).outlook())]


def validation_path(question: Question, corpus: str) -> str | None:
    """Path or URL of a corpus' validation set, which may not exist yet; None: it has none."""
    corpora = question.corpora
    if (path := corpora.sources[corpus].validation) is not None:
        return below(corpora.folder, path)
    return None if corpora.validation is None else below(corpora.validation, f"{corpus}.jsonl")


@contextlib.contextmanager
def progress_bar(console: Console | None) -> Iterator[Bar | None]:
    """Progress bars, one per corpus, on a terminal; None elsewhere, where the caller logs lines."""
    if console is None or not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[size]}"), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {}

        def bar(corpus: str, size: int, fraction: float | None) -> None:
            if corpus not in tasks:
                tasks[corpus] = progress.add_task(corpus, total=None, size="")
            total = None if fraction is None else 1.0
            progress.update(tasks[corpus], total=total, completed=fraction or 0.0, size=f"{size / 1e6:,.0f} MB")

        yield bar
