"""Loading torch and transformers in two thirds of the time that their imports take by themselves."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


def load_transformers() -> None:
    """Import what every model needs, unless it is there already."""
    if "transformers" in sys.modules:
        return
    collecting = gc.isenabled()
    # All that imports make stays: looking through it for garbage, again and again, took a quarter of the time.
    gc.disable()
    try:
        with absent("scipy"):  # its optimisers, for losses of object detection
            import transformers.loss.loss_utils  # noqa: F401
        from transformers import PreTrainedModel  # noqa: F401
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


@contextlib.contextmanager
def absent(package: str) -> Iterator[None]:
    """Have `import package` fail, unless it is there already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        del sys.modules[package]
