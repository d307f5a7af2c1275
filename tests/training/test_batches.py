"""The first token of a sequence, which is context alone."""

import dataclasses

import torch

from training.batches import training_batches, validation_windows
from training.corpora.manifest import Manifest
from training.spec import RunSpec


def test_a_sequence_may_begin_with_the_token_between_documents(spec: RunSpec, manifest: Manifest) -> None:
    """What is predicted stays the same, token by token."""
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    begun = dataclasses.replace(spec, separator_first=True)
    for store in stores.values():
        plain, beginning = (validation_windows(store, one) for one in (spec, begun))
        assert torch.equal(plain[:, 1:], beginning[:, 1:])
        assert (beginning[:, 0] == store.meta.end_of_text).all()
        assert not torch.equal(plain, beginning)
    plain, beginning = (next(training_batches(stores, one, 1)) for one in (spec, begun))
    assert torch.equal(plain[:, 1:], beginning[:, 1:])
    assert (beginning[:, 0] == next(iter(stores.values())).meta.end_of_text).all()
