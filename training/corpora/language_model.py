"""A language model in a Hugging Face directory that measures or writes text: its fingerprint, and how it is loaded."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from training.corpora.documents import CorpusError
from training.corpora.tokenizer import load_tokenizer
from training.spec import SpecError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def model_fingerprint(folder: Path, key: str) -> str:
    """Hash of weights, configuration and tokenizer; 32 hexadecimal digits.

    Raises:
        CorpusError: no model or no tokenizer in the directory; of a missing model the line starts with the key.
    """
    files = sorted(file for file in folder.glob("*") if file.suffix in (".json", ".safetensors"))
    return _fingerprint(folder, key, tuple((file.name, *_state(file)) for file in files))


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
            folder, dtype="auto", device_map="auto", local_files_only=True, use_safetensors=True
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
    tokenizer = load_tokenizer(folder).backend_tokenizer.to_str()
    return hashlib.blake2b((weights + tokenizer).encode(), digest_size=16).hexdigest()


def _state(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_size, state.st_mtime_ns
