"""torch's cache of compiled code, which a killed compiler leaves with a library cut."""

import contextlib
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import torch


def prepare_compiler() -> None:
    """Set what the compiler of this process keeps and looks for, and repair its cache."""
    # One thread compiles; the default pool of one worker per core would cost memory in every process.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch._inductor.config as inductor  # takes two seconds, which engines without compilation need not spend

    _drop_cut_libraries()
    # Autocast's arguments are constants of the graph and so part of its key, but by default they keep the traced
    # forward and backward out of the cache: each process would spend half its start tracing them again.
    inductor.unsafe_marked_cacheable_functions.update(
        {f"torch.amp.autocast_mode.{name}": torch.__version__ for name in ("_enter_autocast", "_exit_autocast")}
    )
    # Each shape is one cache entry of a compiled function; beyond the limit it would run without compilation.
    torch._dynamo.config.recompile_limit = 64


def call_compiled(compiled: Callable[[torch.Tensor], torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """Call compiled code, once more where its compiler or that of another process was killed.

    Evaluations use the training graph: compiling a second one would take 15 s per shape.
    """
    with torch.enable_grad():
        try:
            return compiled(tokens)
        except Exception as error:
            if ".so" not in str(error):
                raise
            _drop_cut_libraries()
            return compiled(tokens)


def _drop_cut_libraries() -> None:
    """Remove the libraries that a killed linker left: each later process would fail to load them."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # takes two seconds

    if sys.platform == "linux":
        for library in Path(cache_dir()).glob("**/*.so"):
            with contextlib.suppress(OSError):
                if not _is_whole(library):
                    library.unlink()


def _is_whole(library: Path) -> bool:
    """Whether a library has all of its bytes: the table of its sections is at its end."""
    with library.open("rb") as stream:
        header = stream.read(64)
        size = os.fstat(stream.fileno()).st_size
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return False
    start, entry, count = struct.unpack("<40xQ10xHH2x", header)
    return size >= start + entry * count
