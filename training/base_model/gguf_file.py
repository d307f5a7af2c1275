"""A GGUF file as a Hugging Face directory: weights dequantised to fp32, with the tokenizer."""

from __future__ import annotations

import contextlib
import copy
import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from training.loading import absent
from training.spec import SpecError


class GGUFHeader(NamedTuple):
    """What a GGUF file says about itself; empty where it says nothing."""

    name: str
    """Name of the model."""
    licence: str
    """Its licence, like apache-2.0."""
    quantisation: str
    """Type of most of its weights, like Q4_1, where they are quantised."""


def read_gguf_header(path: Path) -> GGUFHeader:
    """Name, licence and quantisation of a GGUF file; all of its tensors must be there.

    Raises:
        SpecError: the package gguf is missing; no such file, not GGUF, or cut short.
    """
    try:
        import gguf
    except ImportError:
        raise SpecError(f"{path}: reading GGUF needs the package gguf: pip install 'cptlaw[gguf]'") from None
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise SpecError(f"{path}: not a GGUF file; allowed: a .gguf file, or a Hugging Face directory")
        reader = gguf.GGUFReader(path)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        reason = f"cut short or damaged at {path.stat().st_size:,} bytes ({str(error).splitlines()[0]})"
        raise SpecError(f"{path}: {reason}; download it again") from None

    def text(key: str) -> str:
        field = reader.fields.get(f"general.{key}")
        return str(field.contents()) if field else ""

    weights: Counter[str] = Counter()
    for tensor in reader.tensors:
        weights[tensor.tensor_type.name] += int(tensor.n_elements)
    most = weights.most_common(1)[0][0] if weights else ""
    return GGUFHeader(text("name"), text("license"), "" if most in ("F32", "F16", "BF16") else most)


def convert_gguf(path: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file to a Hugging Face directory, in fp32, with equal logits.

    A minute for 135 M parameters; memory: 4 bytes a parameter, and the largest tensor.

    Raises:
        SpecError: transformers cannot read its architecture or its tokenizer.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        with _quiet():
            quantised = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **given)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **given)
    except Exception as error:  # what transformers raises here differs from version to version
        raise SpecError(f"{path}: transformers cannot read it ({str(error).splitlines()[0]})") from error
    config = copy.deepcopy(quantised.config)
    # With this key transformers refuses to save, and would look for the GGUF file when it loads.
    del config.quantization_config  # pyright: ignore[reportAttributeAccessIssue]
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(quantised.state_dict(), assign=True)
    plain.tie_weights()
    # transformers lets accelerate unwrap the model, which would import deepspeed.
    with _quiet(), absent("deepspeed"):
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _quiet() -> contextlib.AbstractContextManager[object]:
    """Without a terminal, no progress bars of transformers, which draws them in either case."""
    return contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO())
