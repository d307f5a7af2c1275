"""A directory that is given by its path or by its name on the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path

from training.spec import SpecError

TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
MODEL_FILES = (*TOKENIZER_FILES, "*.safetensors")


def hub_directory(key: str, given: str, revision: str | None, files: tuple[str, ...]) -> tuple[Path, str | None]:
    """The local directory that is meant, and its commit where it came from the hub.

    A snapshot is downloaded once into Hugging Face's cache; its folder is named by the commit. HF_HUB_OFFLINE=1 takes
    what is in the cache.

    Args:
        key: of the configuration, for messages.
        given: a folder, or a name like Qwen/Qwen2.5-0.5B.
        revision: of a name: branch, tag or commit; None: the main branch.
        files: patterns of what is downloaded.

    Raises:
        SpecError: neither a folder nor a name that the hub, or its cache, has.
    """
    path = Path(given)
    if path.is_dir():
        return path.resolve(), None
    if path.is_absolute() or len(path.parts) != 2 or given.startswith((".", "~")):
        raise SpecError(f"{key}: {given}: no such folder; allowed: a Hugging Face directory, or a hub name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(given, revision=revision, allow_patterns=list(files)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        at = f" at {revision}" if revision else ""
        reason = str(error).strip().splitlines()[0]
        raise SpecError(
            f"{key}: {given}{at}: no folder here, and not to be had from the hub{offline}: {reason}"
        ) from None
    return snapshot, snapshot.name
