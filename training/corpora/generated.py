"""Text that a base model writes itself, in place of a pre-training corpus that is not published.

Documents are sampled from the token between documents alone, without a prompt. A batch of them is one file, written
whole, whose content follows from the model, the keys and the number of the batch: a killed process goes on with the
next batch, and more tokens add batches to those that are there.
"""

import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError, json_hash
from training.corpora.language_model import model_fingerprint, start_token
from training.corpora.reader import Documents, Reader, Row, Shard
from training.corpora.source import Generation, Sample, Source
from training.corpora.tokenizer import load_tokenizer
from training.durable import read_json, read_lines_whole, write_whole

# Increased when other rules of sampling give other text.
_RULES = 1
# With fewer survivors among this many documents, sampling stops.
_TRIED, _SURVIVORS = 64, 0.1
_FIRST_REPORT, _REPORT_SECONDS, _BAR_SECONDS = 5.0, 30.0, 1.0
_NOTE = "generated.json"


class GeneratedReader(Reader):
    """The samples of a model that are kept, until they hold the tokens wanted; those that are missing are written.

    The id of a document is sample:number, from 1. A model that cannot be used, too few documents that are kept, or a
    damaged file of samples is a CorpusError.
    """

    @property
    def limit(self) -> int:
        return self.source.generated.tokens

    def fingerprint(self) -> str:
        how = self.source.generated
        generation = json_hash([sampling_fingerprint(how), how.tokens, how.max_repetition])
        return json_hash([generation, self.source.filter_description()])

    def bytes(self) -> int:
        return sum(file.stat().st_size for file in Path(self.source.generated.model or "").glob("*.safetensors"))

    def documents(self, shard: Shard | None = None, position: Any = None) -> Documents:
        self.write_missing()
        return super().documents(shard, position)

    def rows(self, shard: Shard | None, after: int, state: Any) -> Iterator[Row]:
        """The samples that are stored."""
        folder, size = samples_folder(self.source), self.source.generated.batch
        number = after
        for batch in itertools.count(after // size):
            if not (file := _file(folder, batch)).exists():
                return
            try:
                samples: list[Sample] = read_lines_whole(file)
            except ValueError:
                samples = []
            whole = all(isinstance(one, dict) and one.keys() >= {*Sample.__annotations__} for one in samples)
            if len(samples) != size or not whole:
                raise CorpusError(f"{file}: damaged; remove it, and prepare samples it again")
            for sample in samples[number - batch * size :]:
                number += 1
                name, values = f"sample:{number}", {**sample, **self.source.text_alone(sample["text"])}
                yield Row(name, values, name, None)

    def failed_rule(self, text: str | None, values: Mapping[str, Any], location: str) -> str | None:
        repeats = values["repetition"] > self.source.generated.max_repetition
        return super().failed_rule(text, values, location) or ("repetition" if repeats else None)

    def size(self, text: str, values: Mapping[str, Any]) -> int:
        """Tokens of the sample."""
        return values["tokens"]

    def write_missing(self) -> None:
        """Sample documents until those that are kept hold the tokens wanted; nothing if they do already."""
        how, name, folder = self.source.generated, self.name, samples_folder(self.source)
        kept, kept_bytes = self._stored()
        if kept.size >= how.tokens:
            return
        _check_survivors(kept)
        self.log(f"{name}: loading {how.model}, which writes {how.tokens - kept.size:,} tokens into {folder}")
        # torch is needed from here on.
        from training.corpora.text_sampler import TextSampler

        sampler = TextSampler(how, _measured(folder)[1])
        folder.mkdir(parents=True, exist_ok=True)
        start = barred = time.monotonic()
        sampled, report = 0, start + _FIRST_REPORT

        def progress(tokens: int) -> None:
            nonlocal barred, report
            now = time.monotonic()
            done = min(kept.size + tokens, how.tokens)
            if self.bar and now - barred >= _BAR_SECONDS:
                barred = now
                self.bar(f"{name}, sampling", kept_bytes, done / how.tokens)
            if now >= report:
                report = math.inf if self.bar else now + _REPORT_SECONDS
                speed = (sampled + tokens) / (now - start)
                self.log(f"{name}: {done:,} of {how.tokens:,} tokens, {_remaining(how.tokens - done, speed, kept)}")

        while kept.size < how.tokens:
            number = kept.read // how.batch
            rows = sampler.sample(number, progress)
            sampled += sum(row["tokens"] for row in rows)
            note = {"tokens_per_second": round(sampled / (time.monotonic() - start), 2), "threads": sampler.threads}
            # Before the first batch: the number of threads may change the text.
            write_whole(folder / _NOTE, json.dumps({**asdict(how), **note}, indent=2) + "\n")
            write_whole(_file(folder, number), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            kept, more = self._stored(kept.position())
            kept_bytes += more
            if kept.size < how.tokens:
                _check_survivors(kept)

    def outlook(self) -> str:
        """What is still to be sampled and how long that takes, as text; empty: nothing. Errors as `rows`."""
        kept, _ = self._stored()
        if (missing := self.limit - kept.size) <= 0:
            return ""
        speed, _ = _measured(samples_folder(self.source))
        measured = f"prepare measures the time in its first {_FIRST_REPORT:.0f} s"
        time_left = _remaining(missing, speed, kept) if speed else measured
        return f"the model has yet to write {missing:,} of {self.limit:,} tokens: {time_left}"

    def _stored(self, position: Any = None) -> tuple[Documents, int]:
        """The stored samples after a position, all read, and the bytes of those that are kept."""
        # As a shard, in which no document is no error.
        kept = Documents(self, Shard([], 0), position)
        return kept, sum(len(text.encode()) for _, text in kept)


def samples_folder(source: Source) -> Path:
    """The folder of a source's samples, below its path. Errors as `sampling_fingerprint`."""
    how = source.generated
    return Path(source.path) / f"{Path(how.model or '').name}-{sampling_fingerprint(how)[:12]}"


def sampling_fingerprint(how: Generation) -> str:
    """Hash of all that decides the samples: weights, tokenizer, separator, keys; 32 hexadecimal digits.

    Raises:
        CorpusError: no model or tokenizer in the directory, or no such separator.
    """
    folder = Path(how.model or "")
    model = model_fingerprint(folder, "generated.model")
    keys = [how.temperature, how.top_p, how.max_tokens, how.seed, how.batch]
    return json_hash([_RULES, model, start_token(how, load_tokenizer(folder)), *keys])


def _check_survivors(kept: Documents) -> None:
    survivors = kept.read - kept.dropped.total()
    if kept.read >= _TRIED and survivors < _SURVIVORS * kept.read:
        rules = ", ".join(f"{rule} dropped {count:,}" for rule, count in sorted(kept.dropped.items()))
        way = "raise generated.temperature or generated.max_repetition, or give another model"
        raise CorpusError(f"{survivors} of {kept.read:,} sampled documents are kept ({rules}); {way}")


def _remaining(tokens: int, speed: float, kept: Documents) -> str:
    ratio = 1 - kept.dropped.total() / kept.read if kept.read else 1.0
    seconds = max(tokens, 0) / max(speed * ratio, 1e-9)
    hours = f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    time_left = f"{seconds:.0f} s" if seconds < 120 else hours
    return f"{speed:,.0f} tokens/s, about {time_left} to go; safe to stop and repeat"


def _measured(folder: Path) -> tuple[float | None, int | None]:
    """Tokens a second and threads, as an earlier process noted them in the folder; None: nothing."""
    try:
        note = read_json(folder / _NOTE)
    except (OSError, ValueError):
        return None, None
    return note.get("tokens_per_second"), note.get("threads")


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.jsonl"
