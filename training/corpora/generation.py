"""How a base model writes a corpus: the keys, and what decides the text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.corpora.documents import json_hash
from training.corpora.language_model import model_fingerprint
from training.corpora.tokenizer import declared_separator, end_of_text_id, load_tokenizer

# Increased when other rules of sampling give other text.
_RULES = 1


@dataclass
class Generation:
    """How a model writes text, and which of it is kept."""

    model: str | None = None
    """Hugging Face directory or hub name of the model that writes; null: model.path."""
    separator: str | None = None
    """Token from which each document is sampled; null: the token between documents, see corpora.tokenizer.separator."""
    tokens: int = 1_000_000
    """Tokens wanted, in documents that are kept, for training and validation together."""
    max_tokens: int = 512
    """Length at which a document is cut, tokens."""
    temperature: float = 1.0
    """Divides the logits, above 0; 1: the model's own distribution."""
    top_p: float | None = None
    """Sample among the likeliest tokens with this total probability, above 0, at most 1; null: among all."""
    seed: int = 0
    """Another seed, another text."""
    batch: int = 16
    """Documents sampled at once; another batch, another text."""
    max_repetition: float = 0.3
    """Documents in which more than this ratio of the sequences of 8 tokens occurred before are dropped; 1: none."""

    def problems(self, key: str) -> list[str]:
        """Problems with the settings, one line each, which starts with the key."""
        problems = [
            f"{key}.{name}: {getattr(self, name)}; allowed: {least} or more"
            for name, least in (("tokens", 1), ("max_tokens", 1), ("batch", 1), ("seed", 0))
            if getattr(self, name) < least
        ]
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            problems.append(f"{key}.temperature: {self.temperature}; allowed: above 0, 1 is the model's distribution")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            problems.append(f"{key}.top_p: {self.top_p}; allowed: above 0, at most 1, or null for all tokens")
        if not 0 <= self.max_repetition <= 1:
            problems.append(f"{key}.max_repetition: {self.max_repetition}; allowed: 0 to 1, 1 drops none")
        return problems

    def sampling_fingerprint(self) -> str:
        """Hash of all that decides the samples: weights, tokenizer, separator, keys; 32 hexadecimal digits.

        Raises:
            CorpusError: no model or tokenizer in the directory, or no such separator.
        """
        folder = Path(self.model or "")
        model = model_fingerprint(folder, "generated.model")
        keys = [self.temperature, self.top_p, self.max_tokens, self.seed, self.batch]
        return json_hash([_RULES, model, self.start(load_tokenizer(folder)), *keys])

    def fingerprint(self) -> str:
        """Hash of all that decides the documents, with its errors as `sampling_fingerprint`."""
        return json_hash([self.sampling_fingerprint(), self.tokens, self.max_repetition])

    def start(self, tokenizer: Any) -> int:
        """Token id from which each document is sampled."""
        return end_of_text_id(tokenizer, self.separator or declared_separator(self.model or ""))
