"""The whole of training: one flat function, read from top to bottom."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from training.checkpoint import copy_weights, load_state, load_weights, save_state, save_weights
from training.corpus_error import CorpusError
from training.durable import append_flushed, read_lines_whole, write_whole
from training.engine import Losses
from training.evaluation import evaluate
from training.evaluation_steps import evaluation_steps
from training.manifest import Manifest
from training.model import build_model, model_from_directory
from training.sampling import Sampler
from training.schedule import learning_rates
from training.spec import Execution, RunSpec
from training.stop import StopRequestedError
from training.store import TokenStore


class NonFiniteLossError(RuntimeError):
    """The training loss became infinite or not a number; the message names the step."""


def train(
    spec: RunSpec,
    folder: Path,
    *,
    manifest: Manifest,
    start: Path | None,
    network: PreTrainedModel,
    losses: Losses,
    execution: Execution,
    check: Callable[[], None],
) -> None:
    """Train a run to its end, from its newest state if there is one.

    Args:
        spec: what to train.
        folder: the run's folder; points.jsonl, metrics.jsonl, resume/ and checkpoints/ are written there.
        manifest: the prepared corpora.
        start: folder of the first weights, of initial.kind run or directory.
        network: a model of the spec's shape; its weights are replaced.
        losses: its loss by sequence, perhaps compiled; see `engine.ready`.
        execution: micro-batch, saving and logging.
        check: called before each step and each forward pass of an evaluation; raises StopRequestedError or
            LeaseLostError to stop.

    Raises:
        StopRequestedError: the run was asked to stop; its state is saved.
        NonFiniteLossError: with the step.
        CorpusError, SpecError: input missing or not fitting.
    """
    rates = learning_rates(spec.schedule, spec.steps, spec.learning_rate_before)
    evaluated = set(evaluation_steps(spec.evaluation, spec.steps))
    kept = {*execution.checkpoints, spec.steps}
    micro_batch = execution.micro_batch or spec.global_batch
    stores = {corpus: _store(manifest, corpus, fingerprint) for corpus, fingerprint in spec.corpora.items()}
    validation = {corpus: _validation_windows(store, spec) for corpus, store in stores.items()}

    _first_weights(spec, start, network)
    network.train()
    # A run before this one that failed in the middle of a step leaves its gradient in a shared model.
    network.zero_grad(set_to_none=True)
    optimizer = adamw(network, spec)
    done = load_state(folder, network, optimizer) or 0
    # The evaluation at the step of the state may have been cut off: it is made again, and gives the same bytes.
    points = folder / "points.jsonl"
    _cut_points(points, before_step=done)

    batches = training_batches(stores, spec, first_step=done + 1)
    logged, log_start, waited = done, time.perf_counter(), 0.0
    loss_sum, gradient_norm = 0.0, 0.0
    finished = saved = done
    try:
        for step in range(done, spec.steps + 1):
            if step > done:
                check()
                for group in optimizer.param_groups:
                    group["lr"] = rates[step - 1]
                wait_start = time.perf_counter()
                tokens = next(batches)
                waited += time.perf_counter() - wait_start
                step_loss = 0.0
                for micro in tokens.split(micro_batch):
                    # Over the tokens of the whole step, so that the way it is cut up does not weigh sequences.
                    loss = losses(micro).sum() / spec.tokens_per_step
                    loss.backward()
                    step_loss += loss.item()
                if not math.isfinite(step_loss):
                    raise NonFiniteLossError(
                        f"training loss is {step_loss} at step {step}, learning rate {rates[step - 1]:g}"
                    )
                gradient_norm = clip(network, spec.optimizer.clip)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                finished = step
                loss_sum += step_loss

            if step in evaluated:
                lines = []
                for corpus, windows in validation.items():
                    result = evaluate(losses, windows, micro_batch, check)
                    if not math.isfinite(result.loss):
                        raise NonFiniteLossError(f"validation loss on {corpus} is {result.loss} at step {step}")
                    lines.append(_point(spec, step, corpus, result.loss, result.stderr, rates))
                check()
                append_flushed(points, "".join(lines))

            if step > done and (step % execution.metrics_every == 0 or step == spec.steps):
                seconds = time.perf_counter() - log_start
                _append_metrics(folder, spec, step, step - logged, loss_sum, gradient_norm, rates, seconds, waited)
                logged, log_start, waited, loss_sum = step, time.perf_counter(), 0.0, 0.0

            if step in kept:
                check()
                save_weights(folder, step, network, manifest.tokenizer_path)
            if execution.resume_every and step % execution.resume_every == 0 and done < step < spec.steps:
                check()
                save_state(folder, step, network, optimizer, execution.keep_last)
                saved = step
    except StopRequestedError:
        if finished > saved:
            save_state(folder, finished, network, optimizer, execution.keep_last)
        raise


def training_batches(stores: Mapping[str, TokenStore], spec: RunSpec, first_step: int) -> Iterator[torch.Tensor]:
    """The run's batches from a step on, each (global_batch, T + 1) of token ids, in the order that the spec decides."""
    windows = {corpus: stores[corpus].windows("train", spec.sequence_length) for corpus in spec.mixture}
    sampler = Sampler(spec.mixture, windows, spec.seed)
    block = 32
    for block_start in range(first_step - 1, spec.steps, block):
        steps = min(block, spec.steps - block_start)
        first = block_start * spec.global_batch
        corpus, position, _ = sampler.sample(np.arange(first, first + steps * spec.global_batch))
        tokens = np.empty((len(position), spec.sequence_length + 1), dtype=np.int64)
        for number, name in enumerate(sampler.corpora):
            rows = np.flatnonzero(corpus == number)
            tokens[rows] = stores[name].batch("train", position[rows], spec.sequence_length)
        yield from torch.from_numpy(tokens).split(spec.global_batch)


def adamw(network: torch.nn.Module, spec: RunSpec) -> torch.optim.AdamW:
    """Fused AdamW; weight decay on matrices, none on norms and biases."""
    settings = spec.optimizer
    parameters = list(network.parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=0.0,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )


def clip(network: torch.nn.Module, largest: float) -> float:
    """Scale the gradient down to a norm of `largest` (0: leave it); returns the norm before."""
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), largest or math.inf)
    return float(norm)


def _first_weights(spec: RunSpec, start: Path | None, network: PreTrainedModel) -> None:
    if spec.initial.kind == "scratch":
        copy_weights(build_model(spec.model, "eager", spec.seed), network)
    elif spec.initial.kind == "run":
        assert start is not None
        load_weights(start, network)
    else:
        assert start is not None
        copy_weights(model_from_directory(start, "eager"), network)


def _store(manifest: Manifest, corpus: str, fingerprint: str) -> TokenStore:
    store = manifest.store(corpus)
    if store.fingerprint != fingerprint:
        raise CorpusError(f"{corpus}: its tokens are not those of the plan; plan again, or prepare the corpus of then")
    return store


def _validation_windows(store: TokenStore, spec: RunSpec) -> torch.Tensor:
    positions = store.validation_positions(spec.validation_windows, spec.sequence_length)
    return torch.from_numpy(store.batch("validation", positions, spec.sequence_length))


def _cut_points(path: Path, before_step: int) -> None:
    """Drop the points of steps that will be trained again, and a last line that was cut off."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    known = read_lines_whole(path)
    kept = b"".join(line for line, point in zip(lines, known, strict=False) if point["step"] < before_step)
    write_whole(path, kept)


def _point(spec: RunSpec, step: int, corpus: str, loss: float, stderr: float, rates: np.ndarray) -> str:
    rate = rates[step - 1] if step else spec.learning_rate_before
    point: dict[str, Any] = {
        "step": step,
        "tokens": step * spec.tokens_per_step,
        "corpus": corpus,
        "loss": loss,
        "loss_stderr": stderr,
        "learning_rate": float(rate),
    }
    return json.dumps(point) + "\n"


def _append_metrics(
    folder: Path,
    spec: RunSpec,
    step: int,
    steps: int,
    loss_sum: float,
    gradient_norm: float,
    rates: np.ndarray,
    seconds: float,
    waited: float,
) -> None:
    line = {
        "step": step,
        "loss": loss_sum / steps,
        "gradient_norm": gradient_norm,
        "learning_rate": float(rates[step - 1]),
        # Evaluations and saving are in the seconds: this is the speed that a plan should count on.
        "tokens_per_second": round(steps * spec.tokens_per_step / seconds),
        "data_wait": round(waited / seconds, 5),
        "seconds": round(seconds, 3),
    }
    with open(folder / "metrics.jsonl", "a") as stream:
        stream.write(json.dumps(line) + "\n")
