"""Choosing a corpus' validation documents: those that no given model finds strange (Que et al., 2024, appendix F.1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.corpora.documents import CorpusError, sampled
from training.corpora.perplexity import perplexities
from training.corpora.tokenizer import load_tokenizer
from training.durable import write_whole
from training.model import read_model_directory
from training.spec import SpecError


@dataclass(frozen=True)
class Choice:
    """How many documents are drawn, judged and kept."""

    sample: int = 5000
    """Documents drawn from a corpus."""
    keep: int = 1000
    """Documents drawn from those that are not noise."""
    worst: float = 0.1
    """A document is noise if it is in this share of the highest perplexities under every model."""
    tokens: int = 1024
    """Tokens looked at of each document, from its beginning."""

    def problems(self, key: str) -> list[str]:
        """What is wrong with it, a line each that begins with the key."""
        found = []
        if self.sample < 1:
            found.append(f"{key}.sample: {self.sample}; allowed: 1 or more")
        if not 1 <= self.keep <= max(self.sample, 1):
            found.append(f"{key}.keep: {self.keep}; allowed: 1 to {key}.sample, {self.sample}")
        if not 0 <= self.worst < 1:
            found.append(f"{key}.worst: {self.worst}; allowed: 0 to below 1, 0.1 is the worst tenth")
        if self.tokens < 2:
            found.append(f"{key}.tokens: {self.tokens}; allowed: 2 or more")
        return found


def write_validation_set(
    file: Path,
    documents: Iterable[tuple[str, str]],
    source: str,
    models: Sequence[Path],
    choice: Choice,
    progress: Callable[[str], object],
    bar: Callable[[str, int, float | None], object] | None = None,
) -> dict[str, Any]:
    """Choose a corpus' validation documents and write them, with a record beside them.

    Safe to repeat and to kill: a set made of the same source, models and choice is left alone, and perplexities that
    were found are kept in perplexity/ beside it.

    Args:
        file: <corpus>.jsonl, a line {"text", "id", "perplexity"} each, in the order of the draw; the record is
            <corpus>.json.
        documents: (document id, text) pairs of the corpus.
        source: fingerprint of them.
        models: Hugging Face directories.
        choice: how many.
        progress: gets a line for each thing done.
        bar: gets what is being done, bytes of text, and the share that is done.

    Returns:
        The record.

    Raises:
        CorpusError: a model cannot be used, or there is another set under that name.
    """
    corpus = file.name.removesuffix(".jsonl")
    prints = [_model_fingerprint(model) for model in models]
    made_of = {"source": source, "models": prints, **asdict(choice)}
    record_file = file.with_suffix(".json")
    if file.exists():
        record = json.loads(record_file.read_bytes()) if record_file.exists() else {}
        if {key: record.get(key) for key in made_of} != made_of:
            raise CorpusError(
                f"{file}: a validation set of another source, other models or another choice; remove it, or give "
                "another corpora.validation"
            )
        progress(f"{corpus}: chosen already, {record['kept']:,} validation documents")
        return record
    drawn = sampled(documents, choice.sample)
    found = np.empty((len(models), len(drawn)))
    for row, (model, print_) in enumerate(zip(models, prints, strict=True)):
        key = hashlib.blake2b(json.dumps([source, print_, choice.sample, choice.tokens]).encode(), digest_size=8)
        found[row] = _remembered(
            file.parent / "perplexity" / f"{corpus}-{key.hexdigest()}.npy", drawn, model, choice, bar
        )
        progress(f"{corpus}: median perplexity {np.median(found[row]):,.1f} of {len(drawn):,} documents under {model}")
    noise = worst_under_all(found, choice.worst)
    kept = np.flatnonzero(~noise)[: choice.keep]
    record = {
        "corpus": corpus,
        **made_of,
        "drawn": len(drawn),
        "noise": int(noise.sum()),
        "kept": len(kept),
        "paths": [str(model) for model in models],
        "median_perplexity": _plain(np.median(found, axis=1)),
    }
    lines = [
        json.dumps({"text": drawn[place][1], "id": drawn[place][0], "perplexity": _plain(found[:, place])})
        for place in kept
    ]
    write_whole(record_file, json.dumps(record, indent=2) + "\n")
    write_whole(file, "\n".join(lines) + "\n")
    progress(f"{corpus}: {record['drawn']:,} documents drawn, {record['noise']:,} noise, {len(kept):,} kept in {file}")
    return record


def worst_under_all(perplexity: np.ndarray, share: float) -> np.ndarray:
    """Which documents are in the share of the highest perplexities under every model.

    Args:
        perplexity: (models, documents).
        share: 0 to 1; of 25 documents a tenth are the 2 highest. Of equal ones the later is the higher.

    Returns:
        (documents,) of bool.

    >>> worst_under_all(np.array([[1.0, 9.0, 8.0, 2.0], [1.0, 9.0, 2.0, 8.0]]), 0.5)
    array([False,  True, False, False])
    """
    order = np.argsort(perplexity, axis=1, kind="stable")
    worst = np.zeros(perplexity.shape, dtype=bool)
    count = int(share * perplexity.shape[1])
    np.put_along_axis(worst, order[:, perplexity.shape[1] - count :], True, axis=1)
    return np.logical_and.reduce(worst, axis=0)


def _model_fingerprint(model: Path) -> str:
    try:
        weights = read_model_directory(model)[1]
    except SpecError as error:
        raise CorpusError(f"validation.models: {error}") from error
    tokenizer = load_tokenizer(model).backend_tokenizer.to_str()
    return hashlib.blake2b((weights + tokenizer).encode(), digest_size=16).hexdigest()


def _remembered(
    file: Path,
    drawn: list[tuple[str, str]],
    model: Path,
    choice: Choice,
    bar: Callable[[str, int, float | None], object] | None,
) -> np.ndarray:
    """Perplexities of the documents under a model, from the file if they are there, else put there."""
    try:
        before = np.load(file)
        if before.shape == (len(drawn),):
            return before
    except (OSError, ValueError, EOFError):
        pass
    size = sum(len(text.encode()) for _, text in drawn)
    told = f"{file.name.split('-')[0]}, {model.name}"
    progress = None if bar is None else lambda share: bar(told, int(share * size), share)
    found = perplexities([text for _, text in drawn], model, choice.tokens, progress)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part.npy")
    np.save(partial, found)
    partial.replace(file)
    return found


def _plain(values: np.ndarray) -> list[float | None]:
    # JSON has no infinity.
    return [float(value) if np.isfinite(value) else None for value in values]
