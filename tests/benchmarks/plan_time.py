"""Is the time that `plan` says the time that `train` takes? After `prepare`, and again after a first training."""

import io
import os
import shutil
import tempfile
import time
from unittest import mock

from rich.console import Console

from pipeline.cli import verbs
from pipeline.goals.registry import read_question
from pipeline.launch.launcher import launch
from pipeline.plan.duration import wall_seconds
from pipeline.study.context import context_of
from pipeline.study.folder import study_of
from tests.benchmarks import Row, row
from training.run import Exit

MODELS = {
    "0.05M": (["model=qwen2-0.05m"], 1200),
    "0.7M": (["model=qwen2-0.7m"], 400),
    "12M": (
        ["model=qwen2-0.7m", "model.hidden_size=384", "model.intermediate_size=1024", "model.num_hidden_layers=8"],
        30,
    ),
    "106M": (["model=llama-106m"], 6),
}
"""Name -> overrides of the model, and steps of its pre-training."""
MEANING = "what plan said of pre-training and four continual runs; peer: what it took; bar .7 to 1.4, then .8 to 1.25"


def measure() -> list[Row]:
    """Pre-training and four continual runs of each model, on all workers."""
    console, rows = Console(stderr=True), []
    with tempfile.TemporaryDirectory() as folder:
        for name, (overrides, steps) in MODELS.items():
            question = read_question([
                "experiment=quickstart", *overrides, "ladder=[]", "mixture.domain_ratio=[0.25,0.5,0.75,1]",
                "mixture.replicates=1", f"pretrain.steps={steps}", f"target.steps={steps}",
                f"studies={folder}/studies", f"name=plan-{name}",
            ])  # fmt: skip
            study = study_of(question)
            with mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/compiled"}):
                start = time.perf_counter()
                verbs.carry_out("prepare", question, Console(file=io.StringIO()))
                console.print(f"{name}: prepared in {time.perf_counter() - start:.0f} s", highlight=False)
                verbs.carry_out("plan", question, Console(file=io.StringIO()))
                for training in ("first", "second"):
                    # Before the second one by the speeds of the runs of the first.
                    said = wall_seconds(context_of(question), study.read_plan()) or 0.0
                    shutil.rmtree(study.runs, ignore_errors=True)
                    start = time.perf_counter()
                    assert launch(context_of(question), console) == Exit.DONE
                    took = time.perf_counter() - start
                    console.print(f"{name}, {training} training: {took:.0f} s, planned {said:.0f} s", highlight=False)
                    rows.append(row(f"plan-time-{name}-{training}", said, "s", MEANING, took))
    return rows
