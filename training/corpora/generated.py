"""Text that a base model writes itself, in place of a pre-training corpus that is not published.

Documents are sampled from the token between documents alone, without a prompt. A batch of them is one file, written
whole, whose content follows from the model, the keys and the number of the batch: a killed process goes on with the
next batch, and more tokens add batches to those that are there.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError
from training.corpora.filters import Chooser, Filters, Reading
from training.corpora.generation import Generation
from training.durable import read_lines_whole, write_whole

# With fewer survivors among this many documents, sampling stops.
_TRIED, _SURVIVORS = 64, 0.1
_FIRST_REPORT, _REPORT_SECONDS, _BAR_SECONDS = 5.0, 30.0, 1.0
_NOTE = "generated.json"


class GeneratedReading(Reading):
    """The stored samples of a folder that are kept, until they hold the tokens wanted.

    The id of a document is sample:number, from 1. A dropped document counts for the rule `repetition`, or for that of
    the chooser which it fails.

    Raises:
        CorpusError: a file of samples is damaged.
    """

    def __init__(self, folder: Path, how: Generation, chooser: Chooser | None = None, position: Any = None) -> None:
        super().__init__(chooser)
        self._folder, self._how = folder, how
        self.samples, self.tokens = position or (0, 0)
        self.bytes = 0
        """Bytes of the kept text that this object has seen, UTF-8."""

    @property
    def position(self) -> Any:
        """[samples read, tokens of the kept ones]; JSON."""
        return [self.samples, self.tokens]

    def progress(self) -> float:
        """Fraction of the tokens wanted, 0 to 1."""
        return min(self.tokens / self._how.tokens, 1.0)

    def keeps(self, sample: dict[str, Any]) -> bool:
        """Whether the next sample is kept; counts it."""
        self.samples += 1
        if not self.chooser.takes(sample["text"], {}, f"sample:{self.samples}"):
            return False
        if sample["repetition"] > self._how.max_repetition:
            self.chooser.dropped["repetition"] += 1
            return False
        self.tokens += sample["tokens"]
        self.bytes += len(sample["text"].encode())
        return True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = self._how.batch
        for number in itertools.count(self.samples // size):
            if not (file := _file(self._folder, number)).exists():
                return
            for sample in _read(file, size)[self.samples - number * size :]:
                if self.tokens >= self._how.tokens:
                    return
                if self.keeps(sample):
                    yield f"sample:{self.samples}", sample["text"]


def sample_missing(
    name: str,
    folder: Path,
    how: Generation,
    filters: Filters,
    log: Callable[[str], object],
    bar: Callable[[str, int, float | None], object] | None = None,
) -> None:
    """Sample documents into a folder until those that are kept hold the tokens wanted; nothing if they do already.

    Args:
        name: of the corpus, for messages.
        folder: of the samples, one for each sampling fingerprint.
        how, filters: how to sample, and which documents are kept.
        log, bar: called with messages, and as `corpus_store.Bar`.

    Raises:
        CorpusError: the model cannot be used, or too few documents are kept.
    """
    kept = _stored(folder, how, filters)
    if kept.tokens >= how.tokens:
        return
    _check_survivors(kept)
    log(f"{name}: loading {how.model}, which writes {how.tokens - kept.tokens:,} tokens into {folder}")
    # torch is needed from here on.
    from training.corpora.text_sampler import TextSampler

    sampler = TextSampler(how, _note(folder).get("threads"))
    folder.mkdir(parents=True, exist_ok=True)
    start = barred = time.monotonic()
    sampled, report = 0, start + _FIRST_REPORT

    def progress(tokens: int) -> None:
        nonlocal barred, report
        now = time.monotonic()
        done = min(kept.tokens + tokens, how.tokens)
        if bar and now - barred >= _BAR_SECONDS:
            barred = now
            bar(f"{name}, sampling", kept.bytes, done / how.tokens)
        if now >= report:
            report = math.inf if bar else now + _REPORT_SECONDS
            speed = (sampled + tokens) / (now - start)
            log(f"{name}: {done:,} of {how.tokens:,} tokens, {_remaining(how.tokens - done, speed, kept)}")

    while kept.tokens < how.tokens:
        number = kept.samples // how.batch
        rows = sampler.sample(number, progress)
        sampled += sum(row["tokens"] for row in rows)
        note = {"tokens_per_second": round(sampled / (time.monotonic() - start), 2), "threads": sampler.threads}
        # Before the first batch: the number of threads may change the text.
        write_whole(folder / _NOTE, json.dumps({**asdict(how), **note}, indent=2) + "\n")
        write_whole(_file(folder, number), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        for row in rows:
            kept.keeps(row)
        _check_survivors(kept)


def outlook(folder: Path, how: Generation, filters: Filters) -> str:
    """What is still to be sampled and how long that takes, as text; empty: nothing. Errors as `GeneratedReading`."""
    kept = _stored(folder, how, filters)
    if (missing := how.tokens - kept.tokens) <= 0:
        return ""
    speed = _note(folder).get("tokens_per_second")
    measured = f"prepare measures the time in its first {_FIRST_REPORT:.0f} s"
    time_left = _remaining(missing, speed, kept) if speed else measured
    return f"the model has yet to write {missing:,} of {how.tokens:,} tokens: {time_left}"


def _stored(folder: Path, how: Generation, filters: Filters) -> GeneratedReading:
    """A reading that has read all stored samples that are wanted."""
    kept = GeneratedReading(folder, how, Chooser(filters))
    for _ in kept:
        pass
    return kept


def _check_survivors(kept: GeneratedReading) -> None:
    survivors = kept.samples - kept.chooser.dropped.total()
    if kept.samples >= _TRIED and survivors < _SURVIVORS * kept.samples:
        rules = ", ".join(f"{rule} dropped {count:,}" for rule, count in sorted(kept.chooser.dropped.items()))
        way = "raise generated.temperature or generated.max_repetition, or give another model"
        raise CorpusError(f"{survivors} of {kept.samples:,} sampled documents are kept ({rules}); {way}")


def _remaining(tokens: int, speed: float, kept: GeneratedReading) -> str:
    ratio = 1 - kept.chooser.dropped.total() / kept.samples if kept.samples else 1.0
    seconds = max(tokens, 0) / max(speed * ratio, 1e-9)
    hours = f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    time_left = f"{seconds:.0f} s" if seconds < 120 else hours
    return f"{speed:,.0f} tokens/s, about {time_left} to go; safe to stop and repeat"


def _note(folder: Path) -> dict[str, Any]:
    """What an earlier process noted in the folder: speed and threads; empty: nothing."""
    try:
        note = json.loads((folder / _NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.jsonl"


def _read(file: Path, size: int) -> list[dict[str, Any]]:
    try:
        rows = read_lines_whole(file)
    except ValueError:
        rows = []
    fields = {"text", "tokens", "repetition"}
    if len(rows) != size or not all(isinstance(row, dict) and row.keys() >= fields for row in rows):
        raise CorpusError(f"{file}: damaged; remove it, and prepare samples it again")
    return rows
