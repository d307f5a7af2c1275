"""A GGUF file as a Hugging Face directory: weights dequantised to fp32, with the tokenizer."""

import contextlib
import copy
import io
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers import modeling_gguf_pytorch_utils as conversion

from training.corpora.locations import first_line
from training.durable import FileError, regular
from training.loading import absent
from training.model import REPORTED, first_names, loading_error, weights_problem
from training.spec import SpecError

_DECIDES_NOTHING = (
    *("context_length", "vocab_size", "feed_forward_length", "use_parallel_residual", "tensor_data_layout"),
    *("rope.scaling.finetuned", "rope.scaling.original_context_length", "leading_dense_block_count"),
)
"""Ends of keys without effect on the logits, or whose effect the names and shapes of the weights show."""

_LONGEST_ARRAY = 1 << 21
"""Values of a key: more than any vocabulary has."""


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
        SpecError: no such file, not GGUF, cut short, or a part.
    """
    try:
        with regular(path).open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise SpecError(f"{path}: not a GGUF file; allowed: a .gguf file, or a Hugging Face directory")
        return _read_header(path)
    except SpecError:
        raise
    except FileError as error:
        raise SpecError(f"{error}; allowed: a .gguf file, or a Hugging Face directory") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    # What the package raises for a damaged file is of any kind.
    except Exception as error:
        reason = f"cut short or damaged at {path.stat().st_size:,} bytes ({first_line(error)})"
        raise SpecError(f"{path}: {reason}; download it again") from None


def _read_header(path: Path) -> GGUFHeader:
    class Bounded(gguf.GGUFReader):
        """Reads no more values than the file has, whatever number is in it."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            values = np.frombuffer(self.data, dtype, int(count), int(offset))
            return values.view(values.dtype.newbyteorder(override_order or self.byte_order))

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != gguf.GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            kind, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            if kind[0] == gguf.GGUFValueType.ARRAY or length[0] > _LONGEST_ARRAY:
                raise ValueError(f"an array of {length[0]:,} values of type {kind[0]}; allowed: {_LONGEST_ARRAY:,}")
            if (of_value := self.gguf_scalar_to_np.get(kind[0])) is None:
                return super()._get_field_parts(orig_offs, raw_type)
            # At once, since the package takes 40 microseconds a value.
            values = self._get(orig_offs + 12, of_value, length[0])
            types = [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(kind[0])]
            return 12 + values.nbytes, [kind, length, *values.reshape(-1, 1)], [*range(2, 2 + len(values))], types

    reader = Bounded(path)

    def text(key: str) -> str:
        field = reader.fields.get(f"general.{key}")
        return str(field.contents()) if field else ""

    parts = reader.fields.get("split.count")
    if parts and parts.contents() > 1:
        way = "join the parts with llama-gguf-split --merge"
        raise SpecError(f"{path}: is one of {parts.contents()} parts of a model (split.count); {way}")
    weights: Counter[str] = Counter()
    for tensor in reader.tensors:
        weights[tensor.tensor_type.name] += int(tensor.n_elements)
    most = weights.most_common(1)[0][0] if weights else ""
    return GGUFHeader(text("name"), text("license"), "" if most in ("F32", "F16", "BF16") else most)


def convert_gguf(path: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file to a Hugging Face directory, in fp32, with equal logits.

    A minute for 135 M parameters; memory: 4 bytes a parameter, and the largest tensor.

    Raises:
        SpecError: transformers cannot read its architecture or its tokenizer, weights are missing or of another shape,
            or the conversion would lose weights or keys, like a scaling of the rotary position embedding.
    """
    given: dict[str, str | bool] = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **REPORTED, **given)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **given)
    except Exception as error:  # what transformers raises here differs from version to version
        raise SpecError(f"{path}: transformers cannot read it ({loading_error(error)})") from error
    quantised, report = loaded
    if problem := weights_problem(report):
        raise SpecError(f"{path}: {problem}; download it again, or give the model's Hugging Face directory")
    if lost := lost_in_conversion(path, quantised):
        way = "give the model's Hugging Face directory instead"
        raise SpecError(f"{path}: {len(lost)} keys or weights would be lost ({first_names(lost)}); {way}")
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


def lost_in_conversion(path: Path, model: PreTrainedModel) -> list[str]:
    """Keys, with their values, and weights of a GGUF file that the model made of it by transformers does not have."""
    reader, config = gguf.GGUFReader(path), model.config
    architecture = str(reader.fields["general.architecture"].contents())
    rope = getattr(config, "rope_parameters", None) or {}
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    partial = rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1
    carried = {
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        "attention.layer_norm_epsilon": getattr(config, "norm_eps", getattr(config, "layer_norm_epsilon", None)),
        "attention.causal": True,
        "rope.dimension_count": int(head * partial),
        "rope.freq_base": rope.get("rope_theta"),
    }
    read = conversion.GGUF_TO_TRANSFORMERS_MAPPING["config"].get(config.model_type.removesuffix("_text"), {})
    lost = []
    for name, field in reader.fields.items():
        key, value = name.removeprefix(f"{architecture}."), field.contents()
        if key == name or read.get(key) is not None or key.endswith(_DECIDES_NOTHING):
            continue
        ours = carried.get(key, getattr(config, key.rpartition(".")[2], None))
        without = key not in carried and value is not True and value in (0, 1, "", "none")
        if isinstance(value, int | float) and isinstance(ours, int | float):
            same = math.isclose(value, ours, rel_tol=1e-6)
        else:
            same = value == ours
        if not without and not same:
            lost.append(f"{name}={str(value)[:40]}")
    processor = conversion.TENSOR_PROCESSORS.get(architecture, conversion.TensorProcessor)(config=config.to_dict())
    names = conversion.get_gguf_hf_weights_map(model, processor)
    for tensor in reader.tensors:
        # Frequencies of the rotary position embedding are divided by these.
        unscaled = tensor.name == "rope_freqs.weight" and bool((tensor.data == 1).all())
        if not (unscaled or tensor.name in names or tensor.name.removesuffix(".weight") in names):
            lost.append(tensor.name)
    return lost


def _quiet() -> contextlib.AbstractContextManager[object]:
    """Without a terminal, no progress bars of transformers, which draws them in either case."""
    return contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO())
