"""Peak memory of our loop, with evaluation, states and kept weights, against a bare loop; a fresh process each."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import Row, row
from tests.benchmarks.peers import bare_loop, our_loop
from tests.conftest import SHAPE as BASE
from tests.conftest import write_text
from training.batches import training_batches
from training.corpora.manifest import Manifest
from training.corpora.prepare import Source, TokenizerChoice, prepare
from training.evaluation_steps import EvaluationPolicy
from training.schedule import Piece
from training.spec import Initial, RunSpec

SHAPE = BASE | {"hidden_size": 128, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4}
SHAPE |= {"intermediate_size": 352, "max_position_embeddings": 2048}


def measure() -> list[Row]:
    """One row: 1.0 M non-embedding parameters, 40 steps of 16 x 128 tokens, eager, bf16 and fp32, one thread."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        write_text(base / "text", seed=0, documents=2000)
        source = {"text": Source(kind="files", path=str(base / "text"))}
        prepare(source, TokenizerChoice(vocabulary=2048), base / "data", validation_ratio=0.1, progress=lambda _: None)
        for precision in ("fp32", "bf16"):
            ours, bare = (_peak(which, precision, base) for which in ("ours", "bare"))
            meaning = "peer: bare PyTorch loop; bar .83, ours at most 1.2 times"
            rows.append(row(f"memory of the loop, 1.0 M, {precision}", ours, "MB", meaning, bare, lower_is_better=True))
    return rows


def _peak(which: str, precision: str, base: Path) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.memory", which, precision, str(base)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return json.loads(output.stdout)


def _train(which: str, precision: str, base: Path) -> None:
    manifest = Manifest.open(base / "data")
    spec = RunSpec(
        phase="pretrain",
        model={**SHAPE, "vocab_size": manifest.vocabulary},
        initial=Initial(),
        corpora={name: corpus.fingerprint for name, corpus in manifest.corpora.items()},
        mixture={"text": "1"},
        sequence_length=128,
        global_batch=16,
        steps=40,
        schedule=(Piece("constant", 1e-3),),
        precision=precision,
        evaluation=EvaluationPolicy("explicit", steps=(20,)),
        validation_windows=32,
    )
    if which == "bare":
        stores = {name: manifest.store(name) for name in spec.corpora}
        bare_loop(spec, training_batches(stores, spec, first_step=1), "eager", every=20)
    else:
        our_loop(spec, manifest, "eager", resume_every=10)


if __name__ == "__main__":
    _train(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    # The largest resident set, in KiB on Linux.
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
