"""Perplexity of texts under a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from training.corpora.language_model import open_model
from training.corpora.tokenizer import load_tokenizer

# Logits of a forward pass: 512 MB as fp32.
_LOGITS = 2**27
_TEXTS_AT_ONCE = 64


def perplexities(
    texts: Sequence[str], model: Path, tokens: int, progress: Callable[[float], object] | None = None
) -> np.ndarray:
    """exp of the mean cross-entropy of each text, in the model's own tokens, including its start token if it has one.

    Perplexities of two tokenizers are not comparable, only ranks within one. With GPUs the weights keep their stored
    type and are distributed over all of them.

    Args:
        texts, model: (n,) texts, and a Hugging Face directory with weights and tokenizer.
        tokens: length of the start of each text that is used, at least 2.
        progress: called with the fraction that is done.

    Returns:
        (n,) float64; infinite for a text of fewer than two tokens.

    Raises:
        CorpusError: the directory holds no causal language model, or no tokenizer.
    """
    import torch
    from torch.nn import functional
    from torch.nn.utils.rnn import pad_sequence

    tokenizer = load_tokenizer(model)
    network = open_model(model, "validation.models")
    rows = [tokenizer(text, truncation=True, max_length=tokens)["input_ids"] for text in texts]
    limit = _LOGITS // network.config.get_text_config().vocab_size
    found = np.full(len(rows), np.inf)
    # By length, for little padding, which does not change the tokens before it.
    waiting = sorted((row for row in range(len(rows)) if len(rows[row]) > 1), key=lambda row: len(rows[row]))
    done = 0
    while done < len(waiting):
        count = max(1, min(_TEXTS_AT_ONCE, limit // len(rows[waiting[min(done + _TEXTS_AT_ONCE, len(waiting)) - 1]])))
        batch = waiting[done : done + count]
        unpadded = [torch.tensor(rows[row]) for row in batch]
        inputs = pad_sequence(unpadded, batch_first=True)
        targets = pad_sequence(unpadded, batch_first=True, padding_value=-100)[:, 1:]
        with torch.inference_mode():
            logits = network(input_ids=inputs[:, :-1].to(network.device)).logits.float()
            losses = functional.cross_entropy(logits.transpose(1, 2), targets.to(logits.device), reduction="none")
        means = losses.double().sum(1).cpu().numpy() / np.array([len(rows[row]) - 1 for row in batch])
        with np.errstate(over="ignore"):
            found[batch] = np.exp(means)
        done += len(batch)
        if progress:
            progress(done / len(waiting))
    return found
