"""Logs of runs that were made elsewhere, and what is to be said of them."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.cli.main import run
from pipeline.study.folder import Study
from training.schedule import Piece, learning_rates

STEPS = (10, 20, 30, 40)
BEFORE = {"general": 3.0, "domain": 4.0}
FACTS = ["tokens_per_step=2048", "non_embedding=1e8", "peak=2e-4", "warmup=4"]
LOSS_BEFORE = [f"loss_before.{corpus}={loss}" for corpus, loss in BEFORE.items()]


def losses(ratio: float, step: int) -> dict[str, float]:
    """General rises with the domain ratio, domain falls with it."""
    way = np.log1p(step / 10)
    return {"general": 3.0 + 0.08 * (ratio - 0.3) * way, "domain": 4.0 - (0.1 + 0.3 * ratio) * way}


def trainer_state(folder: Path, ratio: float, peak: float = 2e-4) -> Path:
    """A checkpoint folder of transformers' Trainer with two evaluation sets."""
    rates = learning_rates([Piece("linear", 0.0, peak, steps=4), Piece("cosine", end=peak / 10)], 40)
    log = [{"step": step, "epoch": 0.1, "loss": 3.3, "learning_rate": rates[step - 1]} for step in STEPS]
    # As a run that was resumed from step 15 logs them.
    log += [{"step": 20, f"eval_{corpus}_loss": 9.0} for corpus in BEFORE]
    for step in STEPS:
        log += [{"step": step, f"eval_{corpus}_loss": loss} for corpus, loss in losses(ratio, step).items()]
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"max_steps": 40, "log_history": log}))
    return folder


def facts_file(tmp_path: Path, states: Mapping[float, Path]) -> str:
    lines = "".join(f"  {path}: {{domain_ratio: {ratio}}}\n" for ratio, path in states.items())
    (tmp_path / "facts.yaml").write_text(f"loss_before: {json.dumps(BEFORE)}\nruns:\n{lines}")
    return f"runs={tmp_path / 'facts.yaml'}"


@functools.cache
def fitted_study(folder: Path) -> Study:
    """A fitted study of four runs of 40 steps, whose general loss may rise by 1.5%; made once a process, to copy."""
    states = {ratio: trainer_state(folder / f"r{ratio}", ratio) for ratio in (0.0, 0.3, 0.6, 0.9)}
    words = [f"studies={folder / 'studies'}", "name=made", *FACTS, "goal.tolerance=0.015", "law=transfer-open"]
    assert run(["import", *map(str, states.values()), *words, facts_file(folder, states)]) == 0
    study = Study(folder / "studies" / "made")
    for verb in ("fit", "recommend"):
        assert run([verb, str(study.folder), "bootstrap=2"]) == 0
    return study
