"""Validation sets that corpora bring along: their documents, and a screen that keeps them out of training."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from training.corpora.near_duplicates import RULES, Screen
from training.corpora.source import Source
from training.corpora.text_files import file_documents, file_fingerprint


def validation_documents(source: Source) -> Iterator[tuple[str, str]] | None:
    """(document id, text) pairs of a corpus' validation set, in the order of its file; None: it has none.

    Raises:
        CorpusError: the set cannot be read.
    """
    return None if source.validation is None else file_documents(source.validation)


def held_out_fingerprint(sources: Mapping[str, Source]) -> str | None:
    """Hash of all validation sets, by corpus, and of the rules of the screen; None: there is none.

    Every corpus is screened against all of them: a page of law in a general corpus gives law away too.

    Raises:
        CorpusError: a set cannot be read.
    """
    sets = {name: file_fingerprint(source.validation) for name, source in sources.items() if source.validation}
    if not sets:
        return None
    return hashlib.blake2b(json.dumps([RULES, sets], sort_keys=True).encode(), digest_size=16).hexdigest()


@contextlib.contextmanager
def saved_screen(sources: Mapping[str, Source], folder: Path) -> Iterator[Path | None]:
    """A folder with the screen of all validation sets, for the time of the block; None: there are no sets.

    Raises:
        CorpusError: a set cannot be read.
    """
    sets = [documents for source in sources.values() if (documents := validation_documents(source))]
    if not sets:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=".screen.", suffix=".part", dir=folder) as place:
        Screen.of(text for documents in sets for _, text in documents).save(Path(place))
        yield Path(place)
