"""Small real corpora and runs that tests share."""

import gc
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

# Read when numpy is loaded. Where more threads than cores run, those of one decomposition wait for each other: with two
# of them those of a 2,000 x 30 matrix took 90 times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Else every load of a local file counts itself on the network, where a name server may take five seconds.
os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")

from training.corpora.manifest import Manifest
from training.corpora.prepare import tokenise_corpora
from training.corpora.source import Source, TokenizerChoice
from training.evaluation_steps import EvaluationPolicy
from training.schedule import Piece
from training.spec import Initial, RunSpec

# What is flushed outlives a loss of power, which no test makes; a kill needs no flush. Processes that fork have it from
# the preload of tests/processes.py. A third of a run of a second was waiting for the disk.
os.fsync = lambda descriptor: None

SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "tie_word_embeddings": True,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests, so that no process is left with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip slow tests once a run of CI, on a slow machine, has time for the fast ones alone; it prints which."""
    if item.get_closest_marker("slow") and time.time() > float(os.environ.get("CI_SLOW_UNTIL", "inf")):
        pytest.skip(f"{item.nodeid}: this run of CI has no time left for slow tests; make test-all runs it")


def pytest_collection_finish() -> None:
    """Keep garbage collections short: what collecting has loaded stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def write_text(path: Path, seed: int, documents: int = 120) -> None:
    """Text files of made-up words: another seed, another language."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 6))) for _ in range(60)]
    path.mkdir(parents=True)
    for number in range(documents):
        text = " ".join(draw.choices(words, weights=range(60, 0, -1), k=draw.randint(40, 120)))
        (path / f"{number:03d}.txt").write_text(text)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with general/ and code/, text files each."""
    folder = tmp_path_factory.mktemp("texts")
    write_text(folder / "general", 1)
    write_text(folder / "code", 2)
    return folder


@pytest.fixture(scope="session")
def manifest(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Both corpora, tokenised."""
    sources = {name: Source(kind="files", path=str(texts / name)) for name in ("general", "code")}
    folder = tmp_path_factory.mktemp("data")
    return tokenise_corpora(
        sources, TokenizerChoice(vocabulary=300), folder, validation_ratio=0.1, progress=lambda _: None
    )


def tiny_spec(**changes: Any) -> RunSpec:
    """Twenty steps of a model of some thousand parameters."""
    given = {
        **{"phase": "pretrain", "model": {**SHAPE, "vocab_size": 300}, "initial": Initial()},
        **{"corpora": {"general": "a", "code": "b"}, "mixture": {"general": "1/2", "code": "1/2"}},
        **{"sequence_length": 16, "global_batch": 4, "steps": 20, "schedule": (Piece("constant", 1e-3),)},
    }
    return RunSpec(**given | changes)


@pytest.fixture(scope="session")
def spec(manifest: Manifest) -> RunSpec:
    """A pre-training run with four evaluations."""
    return tiny_spec(
        model={**SHAPE, "vocab_size": manifest.vocabulary},
        corpora={name: corpus.fingerprint for name, corpus in manifest.corpora.items()},
        mixture={"general": "3/4", "code": "1/4"},
        schedule=(Piece("linear", 0.0, 3e-3, share=0.1), Piece("cosine", end=3e-4)),
        evaluation=EvaluationPolicy("explicit", steps=(1, 7, 14)),
        validation_windows=6,
    )
