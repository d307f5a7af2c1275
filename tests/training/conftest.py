"""A proxy and its reference, that several files of tests look at."""

import dataclasses
from pathlib import Path

import pytest

from tests.training.runs import attempt, train_run
from training.corpora.manifest import Manifest
from training.run import Exit
from training.spec import Reweighting, RunSpec


@pytest.fixture(scope="session")
def reference(spec: RunSpec, manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a run that has read code alone."""
    folder = tmp_path_factory.mktemp("reference")
    assert train_run(dataclasses.replace(spec, mixture={"general": "0", "code": "1"}), folder, manifest) == Exit.DONE
    return folder / "checkpoints" / "step-20"


@pytest.fixture(scope="session")
def proxy(spec: RunSpec) -> RunSpec:
    """A run on equal parts of both corpora that is compared with the reference."""
    return dataclasses.replace(
        spec,
        mixture={"general": "1/2", "code": "1/2"},
        reweighting=Reweighting("of code", step_size=1.0, smoothing=1e-3),
    )


@pytest.fixture(scope="session")
def proxy_run(proxy: RunSpec, manifest: Manifest, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the proxy after a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("proxy")
    assert attempt(proxy, folder, manifest, reference) == 0
    return folder
