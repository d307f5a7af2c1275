"""Snapshots of the batch scripts; WRITE_GOLDEN=1 pytest tests/slurm/test_rendered.py renews them."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from pipeline.goals.registry import read_question
from pipeline.launch.slurm.script import driver_script, prepare_script, train_script

RENDERED = Path(__file__).with_name("rendered")
STUDY = Path("/studies/law")
WORDS = [
    *("experiment=quickstart", "mixture=ratios", "launcher=slurm"),
    *("launcher.slurm.partition=short", "launcher.slurm.account=lab"),
    *("launcher.slurm.gpus=2", "launcher.slurm.time='4:00:00'", "launcher.slurm.python=/venv/bin/python"),
    *("launcher.slurm.setup=['module load cuda']", "launcher.slurm.extra=['--container-image=lab.sqsh']"),
]
SCRIPTS = {
    "one-process": lambda: train_script(STUDY, read_question(WORDS), "0123abcd"),
    # Four on each of two GPUs.
    "several-runs": lambda: train_script(STUDY, read_question([*WORDS, "launcher.runs_per_device=4"]), "0123abcd"),
    "ranks": lambda: train_script(
        STUDY, read_question([*WORDS, "parallel=ddp", "parallel.processes=4", "launcher.slurm.nodes=2"]), "0123abcd"
    ),
    "prepare": lambda: prepare_script(
        read_question([*WORDS, "launcher.slurm.prepare_tasks=40", "launcher.slurm.cpus=16"]),
        [Path("/data/general-1.unfinished"), Path("/data of law/law-2.unfinished")],
    ),
    "driver": lambda: driver_script(read_question(WORDS), "continue", STUDY),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_equals_its_snapshot(name: str) -> None:
    text, path = SCRIPTS[name](), RENDERED / f"{name}.sh"
    if os.environ.get("WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_a_container_starts_python_in_every_script() -> None:
    container = ["apptainer", "exec", "--nv", "--bind", "/data of the lab:/data", "/images/cptlaw 1.sif", "python"]
    question = read_question([*WORDS, f"launcher.slurm.python={json.dumps(shlex.join(container))}"])
    for text, module in (
        (train_script(STUDY, question, "0123abcd"), "pipeline.launch.worker"),
        (driver_script(question, "continue", STUDY), "pipeline.cli.main"),
        (prepare_script(question, [Path("/data/general-1.unfinished")]), "training.corpora.shards"),
    ):
        lines = [shlex.split(line) for line in text.splitlines() if module in line]
        assert lines
        for words in lines:
            assert words[words.index("apptainer") : words.index(module)] == [*container, "-m"]
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
