"""Speed and memory of the order of a run's sequences."""

import timeit
import tracemalloc
from collections.abc import Callable

import numpy as np

from tests.benchmarks import Row, row
from training.sampling import Sampler

INDICES = 1_000_000
RATIOS = {"general": 0.6, "law": 0.25, "code": 0.15}
WINDOWS = {"general": 8_000_000, "law": 120_000, "code": 35_000}


def measure() -> list[Row]:
    """Three rows.

    The peer draws the same run with numpy and keeps it: corpora by `Generator.choice`, each corpus' windows
    by `Generator.permutation`, once an epoch. Its ratios hold only on average, and to know sequence i it must
    make all before it, so that at 10^12 it has no number.
    """
    sampler = Sampler({name: str(ratio) for name, ratio in RATIOS.items()}, WINDOWS, seed=0)
    here, far = np.arange(INDICES), np.arange(10**12, 10**12 + INDICES)
    one = np.arange(10**12, 10**12 + 20)
    at_start = INDICES / _seconds(lambda: sampler.sample(here))
    at_far = INDICES / _seconds(lambda: sampler.sample(far))
    peer = INDICES / _seconds(_peer)
    memory, peer_memory = (_megabytes(run) for run in (lambda: sampler.sample(one), _peer))
    unit, better = "million indices/s", "higher is better"
    return [
        row("sample a million at 0", at_start / 1e6, unit, better, peer / 1e6),
        row("sample a million at 10^12", at_far / 1e6, unit, better),
        row("memory to know one batch", memory, "MB", "lower is better; the peer keeps its order", peer_memory),
    ]


def _peer() -> np.ndarray:
    draw = np.random.default_rng(0)
    names = list(RATIOS)
    corpus = draw.choice(len(names), INDICES, p=list(RATIOS.values()))
    position = np.empty(INDICES, np.int64)
    for place, name in enumerate(names):
        mine = np.flatnonzero(corpus == place)
        epochs = -(-mine.size // WINDOWS[name])
        order = np.concatenate([draw.permutation(WINDOWS[name]) for _ in range(epochs)])
        position[mine] = order[: mine.size]
    return position


def _seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """The fastest of some runs: on a shared machine the others measure the neighbours."""
    return min(timeit.repeat(run, repeat=repeats, number=1))


def _megabytes(run: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
