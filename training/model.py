"""Language models with fp32 weights, from a configuration or a Hugging Face directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.modeling_utils import AttentionInterface
from transformers.utils.logging import disable_progress_bar, get_verbosity, set_verbosity, set_verbosity_error

from training.durable import read_json
from training.spec import Architecture, SpecError

# A progress bar per checkpoint would flood a worker's log.
disable_progress_bar()

_CLASSES = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}
_GIVEN: dict[str, bool] = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
REPORTED: dict[str, bool] = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""Arguments of from_pretrained for a report for `weights_problem`, which else draws missing weights at random."""
_UNUSED = re.compile(r"(^|\.)(pooler|cls\.seq_relationship)\.|(inv_freq|position_ids|masked_bias)$")
"""Weights that checkpoints have and a language model's loss does not use; others are listed by transformers."""


CAUSAL = "cptlaw_causal"
"""Name of `causal_attention` where transformers asks for an attention implementation."""
_BLOCK = 128
"""Tokens of which FlexAttention sees or skips the scores together."""


def causal_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    sliding_window: int | None = None,
    document_starts: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """transformers' sdpa for whole sequences without padding: no mask, so that flash kernels serve.

    Within a window, or documents by the (n, T) start of each token's, FlexAttention serves on a GPU, a mask elsewhere.
    transformers makes no mask for an implementation that has none registered. Its own code for sdpa reads a tensor on
    the host in each forward pass, and under a trace makes a (n, 1, T, T) mask, which flash kernels do not take.
    """
    length = query.shape[2]
    position, first = torch.arange(length, device=query.device), document_starts
    if sliding_window and sliding_window < length:
        of_window = (position - sliding_window + 1)[None]
        first = of_window if first is None else torch.maximum(first, of_window)
    if first is None:
        return sdpa_attention_forward(module, query, key, value, None, **options)
    if _has_blocks(query):
        # Under autocast rotated queries and keys are fp32, which sdpa casts by itself.
        query, key = query.to(value.dtype), key.to(value.dtype)
        return flex_attention_forward(module, query, key, value, _block_mask(first.expand(len(query), -1)), **options)
    mask = (position <= position[:, None]) & (position >= first[..., None])
    return sdpa_attention_forward(module, query, key, value, mask[:, None], **options)


AttentionInterface.register(CAUSAL, causal_attention)


def _has_blocks(query: torch.Tensor) -> bool:
    """Whether FlexAttention computes a gradient of such queries."""
    return query.device.type == "cuda" and query.shape[-1] >= 16


def _block_mask(first: torch.Tensor) -> BlockMask:
    """Attention from `first`, (n, T) and not decreasing, up to each token; no scores are looked at to make it."""
    length = first.shape[1]
    block = torch.arange(-(-length // _BLOCK), device=first.device)
    rows = functional.pad(first, (0, len(block) * _BLOCK - length), value=length).unflatten(1, (-1, _BLOCK))
    low, high = rows.aminmax(dim=-1, keepdim=True)
    whole = (block < block[:, None]) & (high <= block * _BLOCK)
    cut = (block <= block[:, None]) & (low // _BLOCK <= block) & ~whole

    def listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        order = blocks.int().argsort(dim=-1, descending=True, stable=True)
        return blocks.sum(-1, dtype=torch.int32)[:, None], order.int()[:, None]

    def sees(sequence: torch.Tensor, _: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (key >= first[sequence, query])

    sizes = {"BLOCK_SIZE": _BLOCK, "seq_lengths": (length, length)}
    return BlockMask.from_kv_blocks(*listed(cut), *listed(whole), mask_mod=sees, **sizes)


def build_model(
    model: Mapping[str, Any], attention: str, seed: int | None, *, objective: str = "causal"
) -> PreTrainedModel:
    """A new model with random weights.

    Args:
        model: the architecture's transformers configuration fields, with model_type.
        attention, objective: sdpa, eager or `CAUSAL`, where the architecture has that, else what it has; causal or
            masked, which decides the head.
        seed: of the weights, which are the same on every machine and for either attention; None: weights without
            values, which take neither time nor memory before they are set.

    Raises:
        SpecError: transformers has no such model_type, field, or head for it, or its losses are random.
    """
    fields = dict(model)
    if problem := random_problem(fields.get("model_type")):
        raise SpecError(f"model: {problem}")
    try:
        config = AutoConfig.for_model(fields.pop("model_type", ""), **fields)
    except (ValueError, TypeError) as error:
        raise SpecError(f"model: {str(error).splitlines()[0]}") from None
    for name, value in config.to_dict().items():
        if ("drop" in name or "jitter" in name) and isinstance(value, float):
            # Dropout would make the loss random; GPT-2 and BERT have 0.1 by default. So would noise of routers.
            setattr(config, name, 0.0)
    if seed is not None:
        torch.manual_seed(seed)
    try:
        kind = _CLASSES[objective]._model_mapping.get(type(config), PreTrainedModel)
        if not kind._supports_sdpa or getattr(config.get_text_config(), "attn_logit_softcapping", None):
            attention = "eager"
        elif attention == CAUSAL and not kind._supports_attention_backend:
            attention = "sdpa"  # It would get no mask, and its own code would see the tokens to come.
        with contextlib.nullcontext() if seed is not None else no_init_weights():
            # Without dtype, transformers 5 creates bf16 weights where the configuration names bf16.
            network = _CLASSES[objective].from_config(
                config, attn_implementation=attention, dtype=torch.float32, trust_remote_code=False
            )
        if seed is None:
            network.tie_weights()  # A part of the initialisation.
        return network
    except ValueError as error:
        raise SpecError(f"model: no {objective} head for {config.model_type}: {str(error).splitlines()[0]}") from None


def model_from_directory(path: str | Path, attention: str) -> PreTrainedModel:
    """A model with the weights of a local Hugging Face directory, in fp32.

    Raises:
        SpecError: as `read_model_directory`; or a head that should be the embedding (tie_word_embeddings) and is not.
    """
    _check_directory(Path(path))
    given = _GIVEN | {"attn_implementation": attention, "dtype": torch.float32}
    try:
        with _silent():
            model = AutoModelForCausalLM.from_pretrained(path, **given)
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: {str(error).splitlines()[0]}") from None
    head = model.get_output_embeddings()
    embedding = model.get_input_embeddings().get_parameter("weight")
    # transformers keeps both where they differ; a model by config.json would have one.
    apart = head is not None and (weight := head.get_parameter("weight")) is not embedding
    if apart and getattr(model.config, "tie_word_embeddings", False) and not torch.equal(weight, embedding):
        way = "set tie_word_embeddings to false, or save the model again"
        raise SpecError(f"{path}: the head's weights are not the embedding's, to which config.json ties them; {way}")
    return model


def read_model_directory(path: str | Path) -> tuple[Architecture, str]:
    """Configuration of a Hugging Face directory, and the fingerprint of its configuration and weights.

    Raises:
        SpecError: no config.json, a number in it that is not finite, no *.safetensors, or weights that do not fit the
            configuration.
    """
    path = Path(path)
    digest = hashlib.blake2b(digest_size=16)
    for file in [path / "config.json", *_check_directory(path)]:
        with open(file, "rb") as stream:
            hashlib.file_digest(stream, lambda: digest)
    config = read_json(path / "config.json")
    for key, value in config.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            file = path / "config.json"
            raise SpecError(f"{file}: {key}: NaN or Infinity, which no plan can hold; give finite numbers") from None
    return config, digest.hexdigest()


def _check_directory(path: Path) -> list[Path]:
    """The files with the weights of a Hugging Face directory; raises as `read_model_directory`."""
    if not (path / "config.json").is_file() and (path / "adapter_config.json").is_file():
        raise SpecError(f"{path}: an adapter (LoRA); merge it into its base model (merge_and_unload), and save that")
    if not (path / "config.json").is_file():
        raise SpecError(f"{path}: no config.json; a model directory holds config.json and model.safetensors")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise SpecError(f"{path}: no *.safetensors; save the model with model.save_pretrained(...)")
    if odd := [file.name for file in weights if not file.is_file()]:  # A pipe would be waited for.
        raise SpecError(f"{path}: {odd[0]} is no file; save or download it again")
    try:
        with _silent():
            # On the device meta no value is read.
            loaded: Any = AutoModelForCausalLM.from_pretrained(path, device_map="meta", **_GIVEN, **REPORTED)
    except Exception as error:  # what transformers raises here differs from version to version
        raise SpecError(f"{path}: {loading_error(error)}") from None
    if problem := random_problem(loaded[0].config.model_type):
        raise SpecError(f"{path}: {problem}")
    if problem := weights_problem(loaded[1]):
        raise SpecError(f"{path}: {problem}; save or download the model again, with its config.json")
    return weights


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without warnings of transformers, which are errors here."""
    verbosity = get_verbosity()
    set_verbosity_error()
    try:
        yield
    finally:
        set_verbosity(verbosity)


def loading_error(error: Exception) -> str:
    """One line of an error with which transformers refuses a model or a tokenizer."""
    if "trust_remote_code" in str(error):
        return "needs code of its own, which is not run; give one of an architecture that transformers has"
    name, text = type(error).__name__, " ".join(str(error).split())
    if other := re.match(r"Unrecognized configuration class <class '.*?(\w+)Config'>", text):
        return NOT_CAUSAL.format(other[1])  # The text goes on with some hundred classes.
    if "header" in text and "deserializ" in text:
        text += "; damaged, or a pointer of Git LFS: git lfs pull fetches the file"
    return f"{name}: {text}" if isinstance(error, KeyError) or not text else text[:400]


def weights_problem(report: Mapping[str, Any]) -> str:
    """How weights differ from those of the architecture, by the loading report of transformers; empty: they do not."""
    shapes = [f"{name} {list(given)}, not {list(right)}" for name, given, right in report["mismatched_keys"]]
    kinds = {
        "missing": report["missing_keys"],
        "of another shape": shapes,
        "unknown to the architecture": [name for name in report["unexpected_keys"] if not _UNUSED.search(name)],
        "not read": report["error_msgs"],
    }
    parts = [f"{len(names)} {kind} ({first_names(names)})" for kind, names in kinds.items() if names]
    return f"weights do not fit the architecture: {'; '.join(parts)}" if parts else ""


def first_names(names: Iterable[str]) -> str:
    """The first three names in order, for a message."""
    first, *rest = sorted(names)
    return ", ".join([first, *rest[:2], *(["..."] if rest[2:] else [])])


def non_finite_weight(model: PreTrainedModel) -> str:
    """What is wrong with the first weight that holds NaN or infinity; empty: nothing."""
    for name, weight in model.named_parameters():
        if wrong := int((~torch.isfinite(weight)).sum()):
            return f"{name}: {wrong:,} of {weight.numel():,} values are NaN or infinite; give an undamaged model"
    return ""


NOT_CAUSAL = "{}: no causal language model, which predicts a token from those before it alone; give one"
"""Message about a model of a kind."""


def is_encoder(model_type: str) -> bool:
    """Whether models of a type see the tokens that follow, as BERT and its kind do without is_decoder."""
    config = AutoConfig.for_model(model_type)
    return type(config) in AutoModelForMaskedLM._model_mapping and not config.is_encoder_decoder


def sees_later_tokens(model: PreTrainedModel) -> bool:
    """Whether other tokens at the end change the logits before them, so that the loss of a token says nothing."""
    with torch.no_grad():
        first, second = (
            model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :3] for ids in ([2, 3, 4, 5], [2, 3, 4, 6])
        )
    # By their standard deviation 92 causal types of transformers 5.23, tiny and with random weights, change by 4e-7 at
    # most, 17 others by 8e-4 or more.
    return bool((first - second).abs().max() > 1e-4 * first.std())


_WITHOUT_DOCUMENTS = frozenset(
    ["biogpt", "bloom", "falcon", "gpt_oss", "minimax", "mpt", "nemotron", "openai-gpt", "opt", "qwen3_next", "xglm"]
)
"""model_type whose attention does not heed that positions start again, measured with transformers 5.23."""


def documents_problem(model_type: str) -> str:
    """Why attention cannot end with a document in models of a type: by a state or by their mask they see those before.

    Empty: it can. Raises ValueError: transformers has no such type.
    """
    kind = _CLASSES["causal"]._model_mapping.get(type(AutoConfig.for_model(model_type)), None)
    if not getattr(kind, "_is_stateful", False) and model_type not in _WITHOUT_DOCUMENTS:
        return ""
    return f"boundaries: 'documents' with model_type {model_type}, which sees the documents before; allowed: none"


def random_problem(model_type: str | None) -> str:
    """Why a run of a model of a type cannot be repeated; empty: it can."""
    if model_type != "phimoe":
        return ""
    return "model_type phimoe draws experts at random while it is trained, so that no run repeats; give another model"


def kept_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors by name that a model keeps beside its weights and no step changes, like the bias of a router."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


class _HiddenStates(BaseModelOutputWithPast):
    """An output of layers in which a model finds None of all that it may look for beside the hidden states."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


def has_linear_head(model: PreTrainedModel) -> bool:
    """Whether the logits are the last hidden states times the head's weight, without bias, scale or cap."""
    head, body = model.get_output_embeddings(), model.base_model
    if head is None or getattr(head, "bias", None) is not None:
        return False
    # Neither the layers nor the values of the weights matter: hidden states and rows of the head are made up.
    weight, width = head.weight, head.weight.shape[1]
    hidden = torch.linspace(-1, 1, 8 * width, device=weight.device).view(1, 8, width)
    rows = torch.linspace(-0.9, 1, 64 * width, device=weight.device).view(64, width)
    body.forward = lambda *_, **__: _HiddenStates(last_hidden_state=hidden)  # pyright: ignore
    head.weight = torch.nn.Parameter(rows)
    try:
        with torch.no_grad():
            logits = model(input_ids=torch.zeros((1, 8), dtype=torch.int64, device=weight.device)).logits
        return logits.shape[-1] == 64 and torch.allclose(logits, functional.linear(hidden, rows), atol=1e-6)
    finally:
        head.weight = weight
        del body.forward
