"""A small question on made-up text, its commands, and what tests wait for and expect of them."""

import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from pipeline.cli.main import run
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study

SMALL = [
    *("experiment=own", "name=small", "model=qwen2-0.15m", "ladder=[qwen2-0.05m]", "precision=fp32", "engine=eager"),
    *("mixture.domain_ratio=[0.1,0.5,0.9]", "mixture.replicates=1", "corpora.validation_ratio=0.1"),
    *("corpora.tokenizer.vocabulary=300", "sequence_length=16", "validation_windows=8", "launcher.resume_every=5"),
    # Of runs of a second most of the time is the start of a worker.
    "launcher.workers=1",
    *("law=transfer-anchored", "law.transfer-anchored.from_step=2", "goal.tolerance=0.5", "bootstrap=8"),
    *("pretrain.steps=30", "pretrain.global_batch=4", "target.steps=48", "target.global_batch=4"),
    "evaluation_budget=1",
    *("continual.evaluation.every=2", "continual.checkpoints.steps=[6,12]"),
]
CPTLAW = [sys.executable, "-m", "pipeline.cli.main"]


def small_words(texts: Path, folder: Path, *more: str, without: tuple[str, ...] = ()) -> list[str]:
    """The overrides of the question on those texts, with its study in a folder, without keys that begin with some."""
    return [
        *(word for word in SMALL if not word.startswith(without)),
        *(f"studies={folder / 'studies'}", f"data={folder / 'data'}"),
        *(f"corpora.sources.general.path={texts / 'general'}", f"corpora.sources.domain.path={texts / 'code'}"),
        *more,
    ]


def study_in(words: list[str], name: str = "small") -> Study:
    """The study of the question that those overrides ask."""
    return Study(Path(next(word for word in words if word.startswith("studies=")).removeprefix("studies=")) / name)


def write_losses(study: Study, run: PlannedRun, losses: Iterable[tuple[int, str, float]]) -> None:
    """The files of a run that nobody trained, of which these are the (step, corpus, loss)."""
    folder = study.runs / run.name
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {"step": int(step), "tokens": int(step) * run.spec.tokens_per_step, "corpus": corpus, "loss": float(loss)}
        | {"loss_stderr": 0.02, "learning_rate": 1e-3}
        for step, corpus, loss in losses
    ]
    (folder / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "DONE").write_text("{}\n")


def with_tokens(context: Context, tokens: int, *corpora: str) -> Context:
    """The context with so many tokens to train on in some corpora, or in each."""
    manifest = context.manifest
    train = {"train": tokens, "validation": 1000}
    short = {name: dataclasses.replace(manifest.corpora[name], tokens=train) for name in corpora or manifest.corpora}
    manifest = dataclasses.replace(manifest, corpora={**manifest.corpora, **short})
    return dataclasses.replace(context, given_manifest=manifest)


def worker(study: Study, *names: str) -> list[str]:
    """The command that trains one run of a study, or all."""
    return [sys.executable, "-m", "pipeline.launch.worker", str(study.folder), *(f"--only={name}" for name in names)]


def wait_until(condition: Callable[[], object], seconds: float = 120, message: Callable[[], object] = str) -> None:
    """Return once a condition holds; fails with the message after some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message()
        time.sleep(0.02)


def refused(words: list[str], capsys: pytest.CaptureFixture[str], *codes: int) -> str:
    """The one line of an error that is a mistake of the input, not of the program."""
    capsys.readouterr()
    code = run(words)
    error = capsys.readouterr().err.strip()
    assert code in (codes or (2, 3)), error
    assert len(error.splitlines()) == 1, error
    assert "--debug" not in error
    return error


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt, as Ctrl-C does, after some seconds."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
