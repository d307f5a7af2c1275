"""From `cptlaw train` to the end of the first step, on a prepared study."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipeline.cli.main import run
from tests.benchmarks import Row, row
from tests.conftest import write_text

ROUNDS = 5
WORDS = [
    *("experiment=own", "name=startup", "model=qwen2-0.05m", "ladder=[]", "mixture.domain_ratio=[0.5]"),
    *("mixture.replicates=1", "corpora.tokenizer.vocabulary=300", "corpora.validation_ratio=0.1", "precision=fp32"),
    *("engine=eager", "sequence_length=16", "validation_windows=4", "pretrain.global_batch=4", "pretrain.steps=1"),
    *("target.steps=2", "launcher.workers=1"),
]


def measure() -> list[Row]:
    """The quickest of five starts, and of the imports alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, corpus in enumerate(("general", "domain")):
            write_text(folder / corpus, number + 1)
        words = [*WORDS, f"data={folder / 'data'}"]
        words += [f"corpora.sources.{corpus}.path={folder / corpus}" for corpus in ("general", "domain")]
        seconds = []
        for number in range(ROUNDS):
            studies = folder / str(number)
            assert run(["prepare", *words, f"studies={studies}"]) == 0
            seconds.append(_first_step([*words, f"studies={studies}"], studies))
    imports = min(_imports() for _ in range(ROUNDS))
    meaning = "from cptlaw train to the first step on disk; peer: import torch and transformers' Qwen2; bar 6 s"
    return [row("start-up", min(seconds), "s", meaning, imports, lower_is_better=True)]


def _first_step(words: list[str], studies: Path) -> float:
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "pipeline.cli.main", "train", *words], stdout=subprocess.DEVNULL)
    try:
        # The first run has one step, and a line of metrics.jsonl behind it.
        while not list(studies.glob("*/runs/*/metrics.jsonl")):
            time.sleep(0.02)
        return time.perf_counter() - start
    finally:
        process.wait()


def _imports() -> float:
    start = time.perf_counter()
    code = "import torch; from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM"
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start
