"""The architecture of a configured model, as transformers builds it, and its Hugging Face directory."""

import dataclasses
import os
from pathlib import Path

from pipeline.question.messages import ConfigError
from pipeline.question.presets import HUB
from pipeline.question.schema import ModelConfig, Question
from pipeline.study.context import Context
from training.corpora.hub import hub_reason
from training.corpora.locations import first_line
from training.corpora.tokenizer import ENDS, declared_separator, declared_tokens, load_tokenizer
from training.durable import read_json
from training.parameters import model_size
from training.spec import Architecture, Objective, SpecError

TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
MODEL_FILES = (*TOKENIZER_FILES, "*.safetensors")


def configuration_of(
    model: ModelConfig, vocabulary: int, sequence_length: int, end_of_text: int, key: str = "model.path"
) -> Architecture:
    """The architecture's fields under their names in transformers, from a directory or from a configured shape.

    `vocabulary` counts the token ids of the tokenizer; `end_of_text` is the id between documents; `key` names the
    directory in messages. Raises SpecError: a directory without config.json or weights, or an unavailable hub name.
    ConfigError: an embedding smaller than the tokenizer's vocabulary.
    """
    if model.path:
        from training.model import read_model_directory

        return read_model_directory(directory_of(model, key))[0]
    if model.vocab_size is not None and model.vocab_size < vocabulary:
        allowed = f"{vocabulary} or more (the tokenizer's size), or null"
        raise ConfigError([f"model.vocab_size: {model.vocab_size}; allowed: {allowed}"])
    common = {"model_type": model.model_type, "vocab_size": model.vocab_size or vocabulary}
    common |= {"bos_token_id": None, "eos_token_id": end_of_text, "pad_token_id": None}
    if model.model_type == "gpt2":
        return common | {
            "n_embd": model.hidden_size,
            "n_layer": model.num_hidden_layers,
            "n_head": model.num_attention_heads,
            "n_inner": model.intermediate_size,
            # Learned, so each position has parameters.
            "n_positions": max(1024, sequence_length),
        }
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    shape = common | {name: getattr(model, name) for name in names}
    if model.model_type == "bert":
        return shape | {"max_position_embeddings": max(512, sequence_length)}
    shape |= {
        "num_key_value_heads": model.num_key_value_heads or model.num_attention_heads,
        "tie_word_embeddings": model.tie_word_embeddings,
        "max_position_embeddings": max(2048, sequence_length),
    }
    if model.model_type == "qwen3":
        # Whatever the others are, transformers would take 128.
        shape["head_dim"] = model.hidden_size // model.num_attention_heads
    return shape | {name: value for name in ("head_dim", "rope_theta") if (value := getattr(model, name))}


def shape_without_weights(path: str | None) -> Architecture | None:
    """The configuration of a directory without weights, which is enough for an estimate; None: another directory."""
    folder = Path(path or os.devnull)
    if not folder.is_dir() or any(folder.glob("*.safetensors")):
        return None
    try:
        config = read_json(folder / "config.json")
        model_size(config, 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # Not a configuration.
    return config


def with_rope_theta(shape: Architecture, theta: float) -> Architecture:
    """A configuration with another base of the rotary position embedding."""
    if "rope_parameters" in shape:
        # The key of transformers 5.
        return shape | {"rope_parameters": {**(shape["rope_parameters"] or {}), "rope_theta": theta}}
    return shape | {"rope_theta": theta}


def objective_of(context: Context) -> Objective:
    """The objective with its mask token: as given, else the tokenizer's, else the first id after its vocabulary."""
    question, manifest = context.question, context.manifest
    if question.objective.kind == "causal":
        return Objective()
    if question.objective.mask_token >= 0:
        return question.objective
    token = manifest.vocabulary
    if question.corpora.tokenizer.path or question.model.path:
        mask = load_tokenizer(manifest.tokenizer_path).mask_token_id if manifest.tokenizer else None
        token = mask if isinstance(mask, int) else token
    return dataclasses.replace(question.objective, mask_token=token)


def separator_is_first(context: Context) -> bool:
    """Whether sequences begin with the token between documents: as the key says, else where that is a beginning.

    So it is where the tokenizer declares another end of a document, as Gemma's <bos> and <eos>.
    """
    question, manifest = context.question, context.manifest
    if question.objective.kind != "causal" or question.sequence_start == "text":
        return False
    if question.sequence_start == "separator" or not manifest.tokenizer:
        return question.sequence_start == "separator"
    begin, end = declared_tokens(manifest.tokenizer_path, *ENDS)
    separator = question.corpora.tokenizer.separator or declared_separator(manifest.tokenizer_path)
    return separator is not None and separator == begin != end


def directory_key(model: ModelConfig, question: Question) -> str:
    """The key that gives the directory of a model of the question."""
    return "model.path" if model.path == question.model.path else "ladder"


def directory_of(model: ModelConfig, key: str = "model.path") -> Path:
    """The local Hugging Face directory of a model: its path, or the hub's snapshot, whose folder name is the commit."""
    return hub_directory(key, model.path or "", model.revision, MODEL_FILES)[0]


def is_hub_name(name: str) -> bool:
    """Whether a name may be one of the hub, owner/name."""
    return not name.startswith((".", "~", "/")) and len(Path(name).parts) == 2


def hub_directory(key: str, name: str, revision: str | None, files: tuple[str, ...]) -> tuple[Path, str | None]:
    """The local directory of a model or tokenizer, and its commit if it comes from the hub.

    A snapshot is downloaded once into Hugging Face's cache; with HF_HUB_OFFLINE=1 only the cache is read. `key` of the
    configuration is for messages, `files` are patterns. Raises SpecError: neither a folder nor a name in the hub or its
    cache.
    """
    path = Path(name)
    if path.is_dir():
        return path.resolve(), None
    if not is_hub_name(name):
        way = f"; run cptlaw model {path.name} first" if path.parent.name == "models" else ""
        raise SpecError(f"{key}: {name}: no such folder; allowed: a Hugging Face directory, or a hub name{way}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        at = f" at {revision}" if revision else ""
        why = f"neither a folder nor available from the hub{offline}: {hub_reason(error) or first_line(error)}"
        if name in HUB.values():
            why += f"; cptlaw plan experiment=base-model model=hf model.path={name} prints the cost without its weights"
        raise SpecError(f"{key}: {name}{at}: {why}") from None
    return snapshot, snapshot.name
