"""Hugging Face directories, given by a path or a name on the hub."""

from __future__ import annotations

import os
from pathlib import Path

from training.spec import SpecError

TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
MODEL_FILES = (*TOKENIZER_FILES, "*.safetensors")


def hub_directory(key: str, name: str, revision: str | None, files: tuple[str, ...]) -> tuple[Path, str | None]:
    """The local directory of a model or tokenizer, and its commit if it comes from the hub.

    A snapshot is downloaded once into Hugging Face's cache. With HF_HUB_OFFLINE=1 only the cache is read.

    `key` of the configuration is for messages, `files` are patterns; revision: branch, tag or commit, None: the main
    branch.

    Raises:
        SpecError: neither a folder nor a name in the hub or its cache.
    """
    path = Path(name)
    if path.is_dir():
        return path.resolve(), None
    if path.is_absolute() or len(path.parts) != 2 or name.startswith((".", "~")):
        raise SpecError(f"{key}: {name}: no such folder; allowed: a Hugging Face directory, or a hub name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        at = f" at {revision}" if revision else ""
        reason = str(error).strip().splitlines()[0]
        raise SpecError(f"{key}: {name}{at}: neither a folder nor available from the hub{offline}: {reason}") from None
    return snapshot, snapshot.name
