"""Our loop, and what people would write instead: a bare PyTorch loop, and transformers.Trainer."""

import itertools
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from training.corpora.manifest import Manifest
from training.devices.single import adamw
from training.durable import read_lines_whole
from training.engines import build_engine
from training.loop import train
from training.model import build_model
from training.schedule import learning_rates
from training.spec import Execution, RunSpec


def our_loop(spec: RunSpec, manifest: Manifest, engine: str, **execution: Any) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl of a run in a temporary folder, on one thread."""
    network, losses = build_engine(spec, engine, 1)
    inputs = {"manifest": manifest, "start": None, "network": network, "losses": losses}
    with tempfile.TemporaryDirectory() as folder:
        train(spec, Path(folder), **inputs, execution=Execution(**execution), check=lambda *due, **_: [*due])
        return read_lines_whole(Path(folder) / "metrics.jsonl")


def bare_loop(spec: RunSpec, batches: Iterable[torch.Tensor], engine: str, every: int) -> list[float]:
    """Tokens a second of each block of `every` steps of a loop with nothing in it but training, on one thread."""
    network, losses = build_engine(spec, engine, 1)
    network.train()
    optimizer = adamw(network, spec)
    rates = learning_rates(spec.schedule, spec.steps)
    speeds, start = [], time.perf_counter()
    for step, tokens in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = rates[step - 1]
        loss = losses(tokens).sum() / spec.tokens_per_step
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), spec.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % every == 0:
            now = time.perf_counter()
            speeds.append(every * spec.tokens_per_step / (now - start))
            start = now
    return speeds


def trainer(
    spec: RunSpec,
    rows: torch.Tensor,
    validation: dict[str, torch.Tensor],
    folder: Path,
    *,
    threads: int,
    attention: str = "sdpa",
    start: Path | None = None,
    evaluate_every: int | None = None,
    compiled: bool = False,
    callbacks: Sequence[Any] = (),
) -> float:
    """Seconds that transformers.Trainer takes for a run, bf16, its other settings as they come.

    Args:
        rows: (n, T + 1) token ids, in order.
        validation: corpus -> (n, T + 1) token ids, evaluated at the end and every `evaluate_every` steps.
        start: a Hugging Face directory to start from.
        evaluate_every: steps between evaluations; None evaluates nothing.
    """
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    torch.set_num_threads(threads)
    model = (
        AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32, attn_implementation=attention)
        if start
        else build_model(spec.model, attention, spec.seed)
    )
    # torch_compile leaves a word in the environment, which the next Trainer would follow.
    with warnings.catch_warnings(), patch.dict("os.environ"):
        warnings.simplefilter("ignore")
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=spec.steps,
            per_device_train_batch_size=spec.global_batch,
            per_device_eval_batch_size=spec.global_batch,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            weight_decay=spec.optimizer.weight_decay,
            bf16=spec.precision == "bf16",
            use_cpu=True,
            eval_strategy="steps" if evaluate_every else "no",
            eval_steps=evaluate_every,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            prediction_loss_only=True,
            torch_compile=compiled,
        )
        hands = Trainer(
            model=model,
            args=arguments,
            train_dataset=_rows(rows),
            eval_dataset={name: _rows(windows) for name, windows in validation.items()} if evaluate_every else None,
            callbacks=list(callbacks),
        )
        begin = time.perf_counter()
        hands.train()
        return time.perf_counter() - begin


def trainer_blocks(spec: RunSpec, rows: torch.Tensor, folder: Path, every: int, *, compiled: bool) -> list[float]:
    """Tokens a second of each block of `every` steps of transformers.Trainer, as `bare_loop`: eager attention, one
    thread."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times = [time.perf_counter()]

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                self.times.append(time.perf_counter())

    clock = Clock()
    trainer(spec, rows, {}, folder, threads=1, attention="eager", compiled=compiled, callbacks=[clock])
    return [every * spec.tokens_per_step / (end - start) for start, end in itertools.pairwise(clock.times)]


def _rows(tokens: torch.Tensor) -> torch.utils.data.Dataset:
    # Inputs and labels as Trainer wants them; the model shifts by itself, so T + 1 tokens give T predictions.
    return [{"input_ids": row, "labels": row} for row in tokens]  # pyright: ignore[reportReturnType]
