"""Compiled engines: the losses of plain code, within documents and with several processes."""

import dataclasses
import os
from pathlib import Path

import pytest

from tests.training.runs import all_done, assert_close, in_process, losses_of, together, train_run
from training.devices.group import ALONE, Group, Parallel, join, leave
from training.run import Exit
from training.spec import RunSpec

# Each shape is compiled for some ten seconds.
pytestmark = pytest.mark.slow


def _train(group: Group, spec: RunSpec, folder: Path, manifest: Path, engine: str, **more: Path | None) -> None:
    parallel = Parallel("ddp" if group.count > 1 else "single", group.count, timeout=120.0)
    # One process computes in the shapes of two, so that what it compiled serves them.
    options = {"engine": engine, "resume_every": 0, "micro_batch": 2, "parallel": parallel, **more}
    assert train_run(spec, folder, manifest, group=group, **options) == Exit.DONE


def _alone(runs: list[tuple[RunSpec, Path, str]], manifest: Path, reference: Path | None = None) -> None:
    for spec, folder, engine in runs:
        # What is compiled for one test serves all.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.parent / "cache")
        _train(ALONE, spec, folder, manifest, engine, reference=reference)


def _of_two(rank: int, spec: RunSpec, folder: Path, manifest: Path, engine: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.parent / "cache")
    group = join(Parallel("ddp", 2, timeout=120.0))
    _train(group, spec, folder, manifest, engine)
    leave(group)


@pytest.fixture(scope="module")
def apart(spec) -> RunSpec:
    """Sequences of 256 tokens, about the length of a document: most hold the end of one."""
    return dataclasses.replace(spec, boundaries="documents", sequence_length=256, validation_windows=4, steps=14)


@pytest.fixture(scope="module")
def base(apart, manifest, tmp_path_factory) -> Path:
    """A folder with a run of each engine, and one that sees across documents."""
    folder = tmp_path_factory.mktemp("compiled")
    across = dataclasses.replace(apart, boundaries="none")
    runs = [(apart, folder / engine, engine) for engine in ("eager", "eager-compiled", "sdpa-compiled")]
    assert in_process(_alone, [*runs, (across, folder / "across", "eager")], manifest.folder) == 0
    return folder


@pytest.mark.parametrize("engine", ["eager-compiled", "sdpa-compiled"])
def test_compiled_engines_attend_within_documents_alone(engine, base):
    assert losses_of(base / engine) == pytest.approx(losses_of(base / "eager"), abs=1e-5)
    assert losses_of(base / engine)[-2:] != pytest.approx(losses_of(base / "across")[-2:], abs=1e-4)


def test_two_processes_of_compiled_code_give_the_losses_of_one(apart, manifest, base):
    assert all_done(together(_of_two, apart, base / "ddp", manifest.folder, "eager-compiled"))
    assert losses_of(base / "ddp") == pytest.approx(losses_of(base / "eager"), abs=1e-5)


def test_compiled_code_serves_a_proxy_and_its_reference(apart, proxy, reference, manifest, base):
    moving = dataclasses.replace(apart, mixture=proxy.mixture, reweighting=proxy.reweighting)
    engines = ("eager", "eager-compiled")
    runs = [(moving, base / f"proxy-{engine}", engine) for engine in engines]
    assert in_process(_alone, runs, manifest.folder, reference) == 0
    plain, compiled = (base / f"proxy-{engine}" for engine in engines)
    assert_close(compiled, plain, 1e-4)
    assert losses_of(compiled) != losses_of(plain)


def test_what_a_killed_compiler_left_is_compiled_again(apart, manifest, base):
    # The first are those of this engine's own code.
    libraries = sorted((base / "cache").glob("**/*.so"), key=lambda path: path.stat().st_mtime_ns)[:4]
    sizes = [library.stat().st_size for library in libraries]
    # Cut before and behind its first section: the first cannot be loaded, the second may end in a bus error.
    for library, size in zip(libraries, [0, 40, sizes[2] // 2, sizes[3] - 1], strict=True):
        os.truncate(library, size)
    assert in_process(_alone, [(apart, base / "after", "eager-compiled")], manifest.folder) == 0
    assert losses_of(base / "after") == losses_of(base / "eager-compiled")
    assert [library.stat().st_size for library in libraries] == sizes
