"""Validation losses of a Hugging Face directory, on the windows that the runs of a study are validated on."""

from pathlib import Path

import torch

from training.batches import store_of, validation_windows
from training.checkpoints.weights import take_weights
from training.corpora.manifest import Manifest
from training.devices.group import ALONE
from training.devices.memory import plain_engine
from training.devices.placement import place_model
from training.engines import shared_engine
from training.evaluation import Validation, evaluate
from training.model import model_from_directory
from training.spec import Parallel, RunSpec, SpecError


def directory_losses(
    spec: RunSpec, directory: Path, manifest: Manifest, *, micro_batch: int, threads: int
) -> dict[str, Validation]:
    """Corpus -> loss of the weights in a directory, as a run of `spec` measures it.

    Args:
        spec: the run that the weights are of; its length, schedule and mixture do not count.
        micro_batch, threads: sequences of a forward pass; CPU threads.

    Raises:
        SpecError: no such model, or weights of other names or shapes than the spec's.
        CorpusError: the prepared corpora are not those of the spec.
    """
    stores = {corpus: store_of(manifest, corpus, fingerprint) for corpus, fingerprint in spec.corpora.items()}
    end_of_text = next(iter(stores.values())).meta.end_of_text if spec.boundaries == "documents" else None
    engine = plain_engine(spec, micro_batch, gpu=torch.cuda.is_available())
    network, losses = shared_engine(spec, engine, threads, end_of_text)
    source = model_from_directory(directory, "eager")
    names, own = ({name for name, _ in of.named_parameters()} for of in (source, network))
    if others := sorted(names ^ own):
        raise SpecError(f"{directory}: another architecture than that of the run: {others[0]} is in one of them only")
    take_weights(source, network)
    devices = place_model(network, losses, spec, Parallel(), ALONE)
    predictions = spec.objective.predictions(spec.sequence_length)
    return {
        corpus: evaluate(devices.evaluation, validation_windows(store, spec), predictions, micro_batch)
        for corpus, store in stores.items()
    }
