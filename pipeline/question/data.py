"""Where the text and the prepared corpora of a question are."""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.question.schema import Question
from training.corpora.listing import ENDINGS
from training.corpora.locations import is_url
from training.corpora.source import Source


def below(folder: str, path: str) -> str:
    """A path below a folder, both local or URLs."""
    if is_url(path):
        return path
    return f"{folder.rstrip('/')}/{path}" if is_url(folder) else str(Path(folder) / path)


def real_file(path: str) -> str:
    """A path; in place of a link to a file that file, since the names of its documents begin with its name.

    A file without a known ending, as in the hub's cache, keeps the name of the link.
    """
    real = os.path.realpath(path)
    is_link = not is_url(path) and Path(path).is_symlink() and Path(path).is_file()
    return real if is_link and real.lower().endswith(ENDINGS) else path


def same_texts(question: Question) -> Iterator[str]:
    """A note for each two corpora that are the same text, so that no ratio of them changes what a run reads."""
    corpora, base = question.corpora, Path(question.data).parent.resolve()

    def text_of(name: str) -> Source:
        source = corpora.sources[name]
        path = source.path and _spelled(below(corpora.folder, source.path), base)
        return dataclasses.replace(source, path=path or "", max_bytes=None, validation=None)

    for one, other in itertools.combinations(corpora.sources, 2):
        text = text_of(one)
        has_text = text.path or text.name or text.kind == "installed-python"
        if text.kind != "generated" and has_text and text == text_of(other):
            where = f", {corpora.sources[one].path}" if text.path else ""
            yield (
                f"note: corpora.sources.{one} and corpora.sources.{other} are the same text{where}: no ratio of them "
                "changes what a run learns; give another text for one of them"
            )


def data_folder(question: Question) -> Path:
    """Folder of the prepared corpora of a question; questions with the same corpora share it, however spelled."""
    parts = dataclasses.asdict(question.corpora)
    if domains := parts.pop("domains"):
        # The text is the same whichever of several domains the question is about.
        parts["domain"] = domains[0]
    base = Path(question.data).parent.resolve()
    folder, parts["folder"] = parts["folder"], ""
    for key in ("revision", "separator"):
        # Folders of questions without this key keep their names.
        if parts["tokenizer"][key] is None:
            del parts["tokenizer"][key]
    for source in parts["sources"].values():
        source["name"] = _spelled(source["name"], base, maybe=True)
        for key in ("path", "validation"):
            source[key] = source[key] and _spelled(below(folder, source[key]), base)
        source["generated"]["model"] = _spelled(source["generated"]["model"], base, maybe=True)
        if source["kind"] != "generated":
            del source["generated"]
    parts["validation"] = _spelled(parts["validation"], base)
    parts["tokenizer"]["path"] = _spelled(parts["tokenizer"]["path"], base, maybe=True)
    generated = any(source["kind"] == "generated" for source in parts["sources"].values())
    if question.model.path and (generated or not question.corpora.tokenizer.path):
        # The model's tokenizer gives other tokens, and the model may write text.
        parts |= {"model": [_spelled(question.model.path, base, maybe=True), question.model.revision]}
    corpora = json.dumps(parts, sort_keys=True)
    digest = hashlib.blake2b(corpora.encode(), digest_size=4).hexdigest()
    return Path(question.data) / f"{parts['general']}-{parts['domain']}-{digest}"


def _spelled(path: str | None, base: Path, maybe: bool = False) -> str | None:
    """The one spelling of a path: from a base, so that both can be moved, or from the root if it is elsewhere.

    `maybe`: it may be a name of the hub, which stays as it is.
    """
    if not path or is_url(path) or (maybe and not Path(path).is_dir()):
        return path and path.rstrip("/")
    file = Path(real_file(path))
    real = Path(os.path.realpath(file)) if file.is_dir() else Path(os.path.realpath(file.parent), file.name)
    return str(real.relative_to(base)) if real.is_relative_to(base) else str(real)
