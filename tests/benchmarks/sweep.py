"""Fourteen continual runs: launcher=local against transformers.Trainer, one run after another with all threads."""

import dataclasses
import os
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from pipeline.cli import verbs
from pipeline.goals.registry import read_question
from pipeline.launch.launcher import launch
from pipeline.question.data import data_folder
from pipeline.study.context import context_of
from pipeline.study.folder import study_of
from tests.benchmarks import Row, row
from tests.benchmarks.peers import trainer
from training.batches import training_batches, validation_windows
from training.corpora.manifest import Manifest
from training.evaluation_steps import evaluation_steps
from training.run import Exit

QUESTION = [
    *("experiment=quickstart", "mixture=ratios", "mixture.replicates=1"),
    *("ladder=[qwen2-0.05m,qwen2-0.15m]", "model=qwen2-0.15m"),
]


def measure() -> list[Row]:
    """Both from the same pre-trained weights, with the same steps, batch, precision and number of evaluations."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        question = read_question([*QUESTION, f"studies={folder}", "precision=bf16"])
        study = study_of(question)
        verbs.carry_out("prepare", question, console)
        verbs.carry_out("plan", question, console)
        plan = study.read_plan()
        runs = [run for run in plan if run.role == "fit"]
        assert len(runs) == 14
        # Pre-training is the same for both and belongs to neither: done first, it also leaves compiled code in
        # inductor's cache, as any earlier study of these shapes does.
        for run in plan:
            if run.role == "pretrain":
                assert launch(context_of(dataclasses.replace(question, run=run.name)), console) == Exit.DONE

        start = time.perf_counter()
        assert launch(context_of(question), console) == Exit.DONE
        ours = time.perf_counter() - start

        manifest = Manifest.open(data_folder(question))
        threads = len(os.sched_getaffinity(0))
        start = time.perf_counter()
        for run in runs:
            stores = {corpus: manifest.store(corpus) for corpus in run.spec.corpora}
            validation = {corpus: validation_windows(store, run.spec) for corpus, store in stores.items()}
            evaluations = len(evaluation_steps(run.spec.evaluation, run.spec.steps))
            trainer(
                run.spec,
                torch.cat(list(training_batches(stores, run.spec, first_step=1))),
                validation,
                Path(folder) / "trainer",
                threads=threads,
                start=study.folder / run.start,
                evaluate_every=max(1, run.spec.steps // evaluations),
            )
            console.print(f"Trainer: {run.name}, {time.perf_counter() - start:.0f} s so far", highlight=False)
        peer = time.perf_counter() - start
    meaning = "wall time of 14 continual runs; peer: transformers.Trainer, bf16, all threads, one by one; bar 3.0"
    return [row("sweep", ours, "s", meaning, peer, lower_is_better=True)]
