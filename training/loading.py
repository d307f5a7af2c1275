"""Import torch and transformers in two thirds of the usual time."""

import contextlib
import gc
import sys
from collections.abc import Iterator


def load_transformers() -> None:
    """Import the modules that every model needs."""
    if "transformers" in sys.modules:
        return
    # Imported objects stay alive: collecting garbage among them took a quarter of the time.
    with uncollected():
        with absent("scipy"):  # only for losses of object detection
            import transformers.loss.loss_utils  # noqa: F401
        from transformers import PreTrainedModel  # noqa: F401

        gc.freeze()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within the block, as where much is made and all of it is kept."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def absent(package: str) -> Iterator[None]:
    """Let `import package` fail within the block, unless the package is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        del sys.modules[package]
