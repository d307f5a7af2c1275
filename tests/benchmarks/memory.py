"""Peak memory of our loop, with evaluation, states and kept weights, against a bare loop; a fresh process each."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import Row, row
from tests.benchmarks.peers import bare_loop, our_loop
from tests.conftest import SHAPE as BASE
from tests.conftest import write_text
from training.batches import training_batches
from training.corpora.manifest import Manifest
from training.corpora.prepare import tokenise_corpora
from training.corpora.source import Source, TokenizerChoice
from training.evaluation_steps import EvaluationPolicy
from training.schedule import Piece
from training.spec import Initial, RunSpec

SMALL = BASE | {"hidden_size": 128, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4}
SMALL |= {"intermediate_size": 352, "max_position_embeddings": 2048}
LARGE = SMALL | {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
LARGE |= {"intermediate_size": 1536, "vocab_size": 49152}


@dataclass(frozen=True)
class Setting:
    """A model and its run: steps of batch x length tokens, with a state and an evaluation in the middle."""

    shape: dict[str, Any]
    steps: int
    batch: int
    length: int
    note: str = ""


SETTINGS = {
    "1.0 M": Setting(SMALL, steps=40, batch=16, length=128, note="; bar .83"),
    # The shape of SmolLM2-135M.
    "135 M": Setting(LARGE, steps=4, batch=8, length=256),
}


def measure() -> list[Row]:
    """A row a model and precision, eager, one thread."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        write_text(base / "text", seed=0, documents=2000)
        source = {"text": Source(kind="files", path=str(base / "text"))}
        tokenise_corpora(
            source, TokenizerChoice(vocabulary=2048), base / "data", validation_ratio=0.1, progress=lambda _: None
        )
        for name, setting in SETTINGS.items():
            for precision in ("fp32", "bf16"):
                ours, bare = (_peak(which, name, precision, base) for which in ("ours", "bare"))
                meaning = f"peer: bare PyTorch loop; ours at most 1.2 times{setting.note}"
                what = f"memory of the loop, {name}, {precision}"
                rows.append(row(what, ours, "MB", meaning, bare, lower_is_better=True))
    return rows


def _peak(which: str, name: str, precision: str, base: Path) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.memory", which, name, precision, str(base)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return json.loads(output.stdout)


def _train(which: str, name: str, precision: str, base: Path) -> None:
    manifest, setting = Manifest.open(base / "data"), SETTINGS[name]
    spec = RunSpec(
        phase="pretrain",
        model={"vocab_size": manifest.vocabulary, **setting.shape},
        initial=Initial(),
        corpora={name: corpus.fingerprint for name, corpus in manifest.corpora.items()},
        mixture={"text": "1"},
        sequence_length=setting.length,
        global_batch=setting.batch,
        steps=setting.steps,
        schedule=(Piece("constant", 1e-3),),
        precision=precision,
        evaluation=EvaluationPolicy("explicit", steps=(setting.steps // 2,)),
        validation_windows=32,
    )
    if which == "bare":
        stores = {name: manifest.store(name) for name in spec.corpora}
        bare_loop(spec, training_batches(stores, spec, first_step=1), "eager", every=setting.steps // 2)
    else:
        our_loop(spec, manifest, "eager", resume_every=max(setting.steps // 4, 2))


if __name__ == "__main__":
    _train(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    # The largest resident set, in KiB on Linux.
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
