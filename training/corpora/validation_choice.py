"""Choose validation documents of a corpus by the perplexity of given models (Que et al., 2024, appendix F.1)."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from training.corpora.documents import CorpusError, json_hash, sampled
from training.corpora.language_model import model_fingerprint, perplexities
from training.corpora.reader import Bar, Reader
from training.corpora.source import ValidationChoice
from training.durable import read_json, write_whole


def write_validation_set(
    file: Path, reader: Reader, models: Sequence[Path], choice: ValidationChoice, bar: Bar | None = None
) -> None:
    """Choose a corpus' validation documents and write them, with a record beside them.

    Safe to repeat and to kill: a set of the same source, models and choice is kept, and so are perplexities, in
    perplexity/ next to it.

    Args:
        file: <corpus>.jsonl with lines {"text", "id", "perplexity"} in the order of the sample; the record is
            <corpus>.json.
        reader: of the corpus; its log is called with messages.
        models, choice: Hugging Face directories, those of `choice.models`, and how many documents.
        bar: called with the current task instead of a corpus.

    Raises:
        CorpusError: a model cannot be used, or the file holds another set.
    """
    corpus, source, progress = file.name.removesuffix(".jsonl"), reader.fingerprint(), reader.log
    prints = [model_fingerprint(model, "validation.models") for model in models]
    made_of = {"source": source, **asdict(choice), "models": prints}
    record_file = file.with_suffix(".json")
    if file.exists():
        record = read_json(record_file) if record_file.exists() else {}
        if {key: record.get(key) for key in made_of} != made_of:
            raise CorpusError(
                f"{file}: a validation set of another source, other models or another choice; remove it, or give "
                "another corpora.validation"
            )
        progress(f"{corpus}: chosen already, {record['kept']:,} validation documents")
        return
    sample = sampled(reader.documents(), choice.sample)
    perplexity, size = np.empty((len(models), len(sample))), sum(len(text.encode()) for _, text in sample)
    for row, (model, print_) in enumerate(zip(models, prints, strict=True)):
        key = json_hash([source, print_, choice.sample, choice.tokens], digest_size=8)
        cache, known = file.parent / "perplexity" / f"{corpus}-{key}.npy", None
        with contextlib.suppress(OSError, ValueError, EOFError):
            known = np.load(cache)
        if known is None or known.shape != (len(sample),):
            task = f"{corpus}, {model.name}"
            on_part = None if bar is None else lambda part, task=task: bar(task, int(part * size), part)
            known = perplexities([text for _, text in sample], model, choice.tokens, on_part)
            cache.parent.mkdir(parents=True, exist_ok=True)
            partial = cache.with_suffix(".part.npy")
            np.save(partial, known)
            partial.replace(cache)
        perplexity[row] = known
        progress(
            f"{corpus}: median perplexity {np.median(perplexity[row]):,.1f} of {len(sample):,} documents under {model}"
        )
    noise = worst_under_all(perplexity, choice.worst)
    kept = np.flatnonzero(~noise)[: choice.keep].tolist()
    record = {
        "corpus": corpus,
        **made_of,
        "drawn": len(sample),
        "noise": int(noise.sum()),
        "kept": len(kept),
        "paths": [str(model) for model in models],
        "median_perplexity": _plain(np.median(perplexity, axis=1)),
    }
    rows = [(*sample[row], _plain(perplexity[:, row])) for row in kept]
    lines = [json.dumps({"text": text, "id": name, "perplexity": values}) for name, text, values in rows]
    write_whole(record_file, json.dumps(record, indent=2) + "\n")
    write_whole(file, "\n".join(lines) + "\n")
    progress(
        f"{corpus}: {record['drawn']:,} documents sampled, {record['noise']:,} noise, {len(kept):,} kept in {file}"
    )


def worst_under_all(perplexity: np.ndarray, ratio: float) -> np.ndarray:
    """Which documents, (documents,) of bool, are in this ratio of the highest perplexities under every model.

    `perplexity` is (models, documents); `ratio`, 0 to 1, is rounded down to a number of documents. Of equal
    perplexities the later counts as higher.

    >>> worst_under_all(np.array([[1.0, 9.0, 8.0, 2.0], [1.0, 9.0, 2.0, 8.0]]), 0.5)
    array([False,  True, False, False])
    """
    order = np.argsort(perplexity, axis=1, kind="stable")
    worst = np.zeros(perplexity.shape, dtype=bool)
    count = int(ratio * perplexity.shape[1])
    np.put_along_axis(worst, order[:, perplexity.shape[1] - count :], True, axis=1)
    return np.logical_and.reduce(worst, axis=0)


def _plain(values: np.ndarray) -> list[float | None]:
    # JSON has no infinity.
    return [float(value) if np.isfinite(value) else None for value in values]
