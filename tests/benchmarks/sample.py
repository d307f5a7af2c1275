"""How fast, and in how much memory, the order of a run's sequences is had.

Run: python -m tests.benchmarks.sample
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from training.sampling import Sampler

INDICES = 1_000_000
SHARES = {"general": 0.6, "law": 0.25, "code": 0.15}
WINDOWS = {"general": 8_000_000, "law": 120_000, "code": 35_000}


def measure() -> list[dict]:
    """Rows of name, ours, peer, ratio (ours to peer), unit and meaning.

    The peer draws the same run with numpy and keeps it: corpora by `Generator.choice`, each corpus' windows
    by `Generator.permutation`, once an epoch. Its shares hold only on average, and to know sequence i it must
    make all before it, so that at 10^12 it has no number.
    """
    sampler = Sampler(SHARES, WINDOWS, seed=0)
    here, far = np.arange(INDICES), np.arange(10**12, 10**12 + INDICES)
    one = np.arange(10**12, 10**12 + 20)
    at_start = INDICES / _seconds(lambda: sampler.sample(here))
    at_far = INDICES / _seconds(lambda: sampler.sample(far))
    peer = INDICES / _seconds(_peer)
    batch = _seconds(lambda: sampler.sample(one)) * 1e6
    memory, peer_memory = (_megabytes(run) for run in (lambda: sampler.sample(one), _peer))
    return [
        _row("sample a million at 0", at_start / 1e6, peer / 1e6, "million indices/s", "higher is better"),
        _row("sample a million at 10^12", at_far / 1e6, None, "million indices/s", "higher is better"),
        _row("sample a batch of 20 at 10^12", batch, None, "microseconds", "lower is better"),
        _row("memory to know one batch", memory, peer_memory, "MB", "lower is better; the peer keeps its order"),
    ]


def _peer() -> np.ndarray:
    draw = np.random.default_rng(0)
    names = list(SHARES)
    corpus = draw.choice(len(names), INDICES, p=list(SHARES.values()))
    position = np.empty(INDICES, np.int64)
    for place, name in enumerate(names):
        mine = np.flatnonzero(corpus == place)
        epochs = -(-mine.size // WINDOWS[name])
        order = np.concatenate([draw.permutation(WINDOWS[name]) for _ in range(epochs)])
        position[mine] = order[: mine.size]
    return position


def _seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """The fastest of some runs: on a shared machine the others measure the neighbours."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _megabytes(run: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def _row(name: str, ours: float, peer: float | None, unit: str, meaning: str) -> dict:
    ratio = None if peer is None else ours / peer
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit, "meaning": meaning}


def main() -> None:
    for row in measure():
        peer, ratio = ("-" if row[key] is None else f"{row[key]:.4g}" for key in ("peer", "ratio"))
        numbers = f"{row['ours']:10.4g} {peer:>10} {ratio:>10}"
        print(f"{row['name']:32} {numbers}  {row['unit']} ({row['meaning']})")


if __name__ == "__main__":
    main()
