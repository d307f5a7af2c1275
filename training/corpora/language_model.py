"""A language model in a Hugging Face directory that measures or writes text: its fingerprint, and how it is loaded."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.corpora.documents import CorpusError
from training.corpora.source import Generation
from training.corpora.tokenizer import PIECE_CHARACTERS, declared_separator, end_of_text_id, load_tokenizer, text_pieces
from training.spec import SpecError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Logits of a forward pass: 512 MB as fp32.
_LOGITS = 2**27
_TEXTS_AT_ONCE = 64


def model_fingerprint(folder: Path, key: str) -> str:
    """Hash of weights, configuration and tokenizer; 32 hexadecimal digits.

    Raises:
        CorpusError: no model or no tokenizer in the directory; of a missing model the line starts with the key.
    """
    files = sorted(file for file in folder.glob("*") if file.suffix in (".json", ".safetensors"))
    states = [(file.name, file.stat()) for file in files]
    return _fingerprint(folder, key, tuple((name, state.st_size, state.st_mtime_ns) for name, state in states))


def open_model(folder: Path, key: str) -> PreTrainedModel:
    """The causal language model for inference: fp32 on a CPU; on GPUs the stored type, distributed over all of them.

    Raises:
        CorpusError: the directory holds no causal language model; the line starts with the key.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from training.model import model_from_directory, read_model_directory

    try:
        if not torch.cuda.is_available():
            return model_from_directory(folder, "sdpa").eval()
        read_model_directory(folder)
        return AutoModelForCausalLM.from_pretrained(
            folder,
            dtype="auto",
            device_map="auto",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        ).eval()
    except (SpecError, OSError, ValueError) as error:
        raise CorpusError(f"{key}: {str(error).splitlines()[0]}") from error


@functools.lru_cache(maxsize=8)
def _fingerprint(folder: Path, key: str, _state: tuple[object, ...]) -> str:
    # Cached while the files are the same: tens of gigabytes take a minute.
    from training.model import read_model_directory

    try:
        weights = read_model_directory(folder)[1]
    except SpecError as error:
        raise CorpusError(f"{key}: {error}") from error
    # So are the names of the samples that there are, whose text it does not change.
    tokenizer = load_tokenizer(folder, by_model_type=True).backend_tokenizer.to_str()
    return hashlib.blake2b((weights + tokenizer).encode(), digest_size=16).hexdigest()


def start_token(how: Generation, tokenizer: Any) -> int:
    """Token id from which each document is sampled."""
    return end_of_text_id(tokenizer, how.separator or declared_separator(Path(how.model or "")))


def perplexities(
    texts: Sequence[str], model: Path, tokens: int, progress: Callable[[float], object] | None = None
) -> np.ndarray:
    """exp of the mean cross-entropy of (n,) texts, in the model's own tokens, with its start token if it has one.

    Of each text at most `tokens`, 2 or more, are read. Perplexities of two tokenizers are not comparable, only ranks
    within one. `progress` is called with the fraction that is done.

    Returns:
        (n,) float64; infinite for a text of fewer than two tokens.

    Raises:
        CorpusError: the Hugging Face directory `model` holds no causal language model, or no tokenizer.
    """
    import torch
    from torch.nn import functional
    from torch.nn.utils.rnn import pad_sequence

    tokenizer = load_tokenizer(model)
    network = open_model(model, "validation.models")
    # Of a long text the first piece, which has more tokens than are read.
    starts = (next(text_pieces(text, PIECE_CHARACTERS)) for text in texts)
    rows = [tokenizer(start, truncation=True, max_length=tokens)["input_ids"] for start in starts]
    limit = _LOGITS // network.config.get_text_config().vocab_size
    values = np.full(len(rows), np.inf)
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
            values[batch] = np.exp(means)
        done += len(batch)
        if progress:
            progress(done / len(waiting))
    return values
