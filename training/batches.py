"""Training batches of a run in order, and its validation windows."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.corpora.store import TokenStore
from training.devices.group import ALONE, Group
from training.objectives import mask_tokens
from training.sampling import Sampler, sampler_of
from training.spec import RunSpec


def training_batches(
    stores: Mapping[str, TokenStore], spec: RunSpec, first_step: int, group: Group = ALONE
) -> Iterator[torch.Tensor]:
    """The run's batches from a step on.

    Each holds this process' part of the step's sequences: (global_batch / count, T + 1) token ids, or for a masked
    objective inputs and targets, (global_batch / count, 2, T).
    """
    sampler = _sampler(stores, spec)
    for numbers in _blocks(spec, first_step):
        local = numbers.reshape(len(numbers), group.count, -1)[:, group.rank].ravel()
        corpus, position, _ = sampler.sample(local)
        tokens = np.empty((len(position), spec.sequence_length + 1), dtype=np.int64)
        for number, name in enumerate(sampler.corpora):
            rows = np.flatnonzero(corpus == number)
            tokens[rows] = _windows(stores[name], "train", position[rows], spec)
        tokens = _objective(tokens, local, spec, next(iter(stores.values())).meta.vocabulary, spec.seed)
        yield from torch.from_numpy(tokens).split(spec.global_batch // group.count)


def training_corpora(stores: Mapping[str, TokenStore], spec: RunSpec, first_step: int) -> Iterator[np.ndarray]:
    """The corpus of each sequence of a step, from a step on: (global_batch,) indices into the sorted mixture.

    Covers all processes: rank r of n has the r-th of n equal parts.
    """
    sampler = _sampler(stores, spec)
    for numbers in _blocks(spec, first_step):
        yield from sampler.sample(numbers.ravel())[0].reshape(numbers.shape)


def store_of(manifest: Manifest, corpus: str, fingerprint: str) -> TokenStore:
    """The token store of a corpus, checked against the plan's fingerprint.

    Raises:
        CorpusError: the corpus has changed since the plan was made.
    """
    store = manifest.store(corpus)
    if store.meta.fingerprint != fingerprint:
        raise CorpusError(f"{corpus}: the corpus has changed since this run was planned; restore it, or plan again")
    return store


def validation_windows(store: TokenStore, spec: RunSpec) -> torch.Tensor:
    """Fixed validation windows of a corpus, (count, T + 1) token ids, or (count, 2, T) with fixed masks."""
    positions = store.validation_positions(spec.validation_windows, spec.sequence_length)
    tokens = _windows(store, "validation", positions, spec)
    return torch.from_numpy(_objective(tokens, np.arange(len(tokens)), spec, store.meta.vocabulary, seed=0))


def _windows(store: TokenStore, split: str, positions: np.ndarray, spec: RunSpec) -> np.ndarray:
    tokens = store.batch(split, positions, spec.sequence_length)
    if spec.separator_first:
        tokens[:, 0] = store.meta.end_of_text
    return tokens


def _sampler(stores: Mapping[str, TokenStore], spec: RunSpec) -> Sampler:
    windows = {corpus: stores[corpus].windows("train", spec.sequence_length) for corpus in spec.mixture}
    return sampler_of(spec, windows)


def _blocks(spec: RunSpec, first_step: int, block: int = 32) -> Iterator[np.ndarray]:
    """Sequence numbers of up to `block` steps at a time, (steps, global_batch)."""
    for start in range(first_step - 1, spec.steps, block):
        steps = min(block, spec.steps - start)
        numbers = np.arange(start * spec.global_batch, (start + steps) * spec.global_batch)
        yield spec.first_sequence + numbers.reshape(steps, spec.global_batch)


def _objective(tokens: np.ndarray, numbers: np.ndarray, spec: RunSpec, vocabulary: int, seed: int) -> np.ndarray:
    if spec.objective.kind == "causal":
        return tokens
    return mask_tokens(tokens[:, :-1], numbers, spec.objective, vocabulary, seed)
