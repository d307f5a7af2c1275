"""Sample documents from a base model, a batch at a time, with Hugging Face's generate."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteriaList

from training.corpora.documents import CorpusError, document_hash
from training.corpora.language_model import open_model, start_token
from training.corpora.source import Generation, Sample
from training.corpora.tokenizer import id_count, load_tokenizer, vocabulary_problem
from training.model import non_finite_weight

NGRAM = 8
"""Tokens of a sequence that counts as repeated when it occurred before in its document."""
_TRIAL_STEPS = 4


class TextSampler:
    """A base model that writes documents from its document separator alone, on so many threads of the CPU.

    None: one or all, whichever is faster now; on a busy machine all are slower than one.

    Raises:
        CorpusError: no causal language model, weights that are not finite, a tokenizer that does not belong to it, or
            documents longer than it can read.
    """

    def __init__(self, how: Generation, threads: int | None) -> None:
        folder = Path(how.model or "")
        self._how, self._tokenizer = how, load_tokenizer(folder)
        self._network = open_model(folder, "generated.model")
        problem = non_finite_weight(self._network) or vocabulary_problem(
            id_count(self._tokenizer), self._network.get_input_embeddings().get_parameter("weight").shape[0]
        )
        if problem:
            raise CorpusError(f"generated.model: {folder}: {problem}")
        limit = getattr(self._network.config.get_text_config(), "max_position_embeddings", None)
        if limit and how.max_tokens >= limit:
            allowed = f"1 to {limit - 1}, which the model can read"
            raise CorpusError(f"generated.max_tokens: {how.max_tokens}; allowed: {allowed}")
        self._start = start_token(how, self._tokenizer)
        declared: Any = self._tokenizer.eos_token_id
        self._ends = [self._start] if declared in (None, self._start) else [self._start, declared]
        # In place of the directory's own settings, which may cut, penalise or decode greedily.
        self._network.generation_config = GenerationConfig(
            do_sample=True, temperature=how.temperature, top_k=0, top_p=1.0 if how.top_p is None else how.top_p,
            max_new_tokens=how.max_tokens, eos_token_id=self._ends, pad_token_id=self._start,
        )  # fmt: skip
        self.threads = threads or self._faster_threads()
        """Threads of the CPU; another number may round differently, and then gives other text."""

    def sample(self, number: int, progress: Callable[[int], object]) -> list[Sample]:
        """The documents of a batch, which follow from its number.

        `progress` is called with the tokens so far.
        """
        stops = torch.tensor(self._ends, device=self._network.device)

        def watch(ids: torch.Tensor, _scores: Any, **_: Any) -> torch.Tensor:
            progress(int((~torch.isin(ids[:, 1:], stops)).sum()))
            return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

        # Each batch by itself, so that a killed process goes on with the same text.
        torch.manual_seed(document_hash(f"{self._how.seed}:{number}", "generate") >> 1)
        with _threads(self.threads):
            rows = self._generate(stopping_criteria=StoppingCriteriaList([watch]))
        return [self._document(row[1:]) for row in rows.tolist()]

    def _generate(self, **settings: Any) -> torch.Tensor:
        first = torch.full((self._how.batch, 1), self._start, device=self._network.device)
        return self._network.generate(first, attention_mask=torch.ones_like(first), **settings)  # pyright: ignore

    def _document(self, ids: list[int]) -> Sample:
        length = next((index for index, token in enumerate(ids) if token in self._ends), len(ids))
        # A cut may leave a part of a character.
        text = str(self._tokenizer.decode(ids[:length], skip_special_tokens=True)).rstrip("\ufffd")
        return {"text": text, "tokens": length + 1, "repetition": round(repetition(ids[:length]), 4)}

    def _faster_threads(self) -> int:
        every = torch.get_num_threads()
        if every == 1 or self._network.device.type != "cpu":
            return every
        seconds = {}
        for threads in (1, every):
            with _threads(threads):
                self._generate(max_new_tokens=1)
                seconds[threads] = timeit(lambda: self._generate(max_new_tokens=_TRIAL_STEPS), number=1)
        return min(seconds, key=lambda threads: seconds[threads])


def repetition(tokens: Sequence[int]) -> float:
    """Ratio of the sequences of NGRAM tokens that occurred before in the document; 0 to 1.

    It is above .3 in .1% of documents of English web text (512 tokens), and near 1 in a text that loops.

    >>> repetition([1, 2] * 20), repetition(range(40))
    (0.9393939393939394, 0.0)
    """
    windows = [tuple(tokens[start : start + NGRAM]) for start in range(len(tokens) - NGRAM + 1)]
    return 1 - len(set(windows)) / len(windows) if windows else 0.0


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
