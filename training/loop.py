"""The training loop: one flat function, read from top to bottom."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from training.batches import store_of, training_batches, training_corpora, validation_windows
from training.checkpoints import states, weights
from training.checkpoints.states import StateWriter, resumable_state, step_of
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group
from training.devices.placement import place_model
from training.devices.single import Devices
from training.durable import append_flushed, cut_lines, regular
from training.evaluation import Validation, evaluate
from training.evaluation_steps import evaluation_steps
from training.group_dro import GroupDro
from training.model import NOT_CAUSAL, build_model, kept_buffers, model_from_directory, sees_later_tokens
from training.objectives import Losses
from training.schedule import learning_rates
from training.spec import Execution, Parallel, RunSpec, SpecError
from training.stop import StopRequestedError, answer_signal, answering
from training.telemetry import NonFiniteLossError, Telemetry

LONG_STEPS = 2**25
"""Parameters above which a step may take seconds."""
METRICS_MINUTES = 0.5
"""Minutes after which a line of metrics is written whatever the steps, so that a large model is seen to go on."""


def train(
    spec: RunSpec,
    folder: Path,
    *,
    manifest: Manifest,
    start: Path | None,
    network: PreTrainedModel,
    losses: Losses,
    reference: Losses | None = None,
    execution: Execution,
    check: Callable[..., list[bool]],
    group: Group = ALONE,
    log: Callable[[str], object] = print,
) -> None:
    """Train a run to its end, starting from its newest state with all points before it, if there is one.

    Args:
        spec, folder: the run, and its folder: points.jsonl, metrics.jsonl, resume/ and checkpoints/.
        manifest: the prepared corpora.
        start: folder of the first weights for initial.kind run or directory; with initial.moments a state.
        network, losses: from `engines.shared_engine`; the weights are replaced, the losses by token with a reweighting.
        reference: with a reweighting, the loss function by token of the reference model.
        execution: micro-batch, devices, saving and logging.
        check: `RunClaim.check`, called before each step, each forward pass of an evaluation and each file; raises
            StopRequestedError or LeaseLostError in all processes of the group.
        group: the processes that train the run together; each calls this, only the first writes.
        log: called with warnings and progress.

    Raises:
        StopRequestedError: a stop was requested; the state is saved.
        NonFiniteLossError: a loss is not finite; names the step.
        CorpusError, SpecError: input missing or not fitting.
        FileError: something else is where the run writes its lines; no file is changed.
    """
    rates = learning_rates(spec.schedule, spec.steps, spec.learning_rate_before)
    evaluated, kept = {*evaluation_steps(spec.evaluation, spec.steps)}, {*execution.checkpoints, spec.steps}
    micro_batch = execution.parallel.micro_batch(spec.global_batch, execution.micro_batch)
    predictions = spec.objective.predictions(spec.sequence_length)
    stores = {corpus: store_of(manifest, corpus, fingerprint) for corpus, fingerprint in spec.corpora.items()}
    validation = {corpus: validation_windows(store, spec) for corpus, store in stores.items()}
    # Before a file is changed, and not when the first weights are saved or the first metrics written.
    tokenizer = manifest.tokenizer_files()
    group.broadcast(regular, folder / "metrics.jsonl")

    devices, saved = _restored(spec, folder, start, network, losses, execution.parallel, group)
    finished = in_state = done = step_of(saved) if saved is not None else 0
    domains = None
    if reference is not None:
        read = training_corpora(stores, spec, done + 1)
        domains = GroupDro(spec, folder, reference, read, group, done, states.load_state_extra(saved))
    weigh = domains and domains.weighed
    # A gradient that was not finished is dropped; other processes and weights of domains have counted it.
    alone = group.count == 1 and domains is None
    at_once, passing = partial(answering, at_once=alone), partial(check, at_once=False)
    telemetry = Telemetry(folder, spec, log, group)
    batches = telemetry.timed(training_batches(stores, spec, done + 1, group))
    gradient_norm, last_save, metrics_due, state_due = 0.0, time.monotonic(), False, False
    with (
        _in_use(devices, group, alone) as writers,
        StateWriter(folder, execution.keep_last, execution.kept_states, writers) as writer,
    ):
        save_state = partial(_save_state, writer, telemetry, devices, domains, group)
        try:
            for step in range(done, spec.steps + 1):
                if step > done:
                    state_due = 0 < 60 * execution.resume_minutes <= time.monotonic() - last_save
                    metrics_due, state_due = passing(telemetry.minutes >= METRICS_MINUTES, state_due)
                    micros, local_loss = next(batches).split(micro_batch), 0.0
                    for number, micro in enumerate(micros, start=1):
                        with devices.accumulate(number == len(micros)), at_once():
                            local_loss += devices.gradient(micro, spec.global_batch * predictions, weigh)
                    gradient_norm = devices.update(rates[step - 1])
                    # Read when the next step is queued, so that a GPU does not wait for it.
                    telemetry.step(step, local_loss, rates[step - 1])
                    if domains is not None:
                        telemetry.read_losses()
                        domains.step(step)
                    finished = step

                if step in evaluated:
                    telemetry.read_losses()
                    results: dict[str, Validation] = {}
                    for corpus, windows in validation.items():
                        with at_once():
                            result = evaluate(devices.evaluation, windows, predictions, micro_batch, passing, group)
                        results[corpus], telemetry.validation[corpus] = result, result.loss
                    lines = _points(spec, step, results, rates)
                    check()
                    group.broadcast(append_flushed, folder / "points.jsonl", lines)

                if step > done and (metrics_due or step % execution.metrics_every == 0 or step == spec.steps):
                    telemetry.write(step, rates[step - 1], float(gradient_norm))

                if step in kept:
                    telemetry.read_losses()
                    check()
                    group.broadcast(writer.wait)
                    full = None if devices.whole else weights.full_weights(devices, group.first)
                    group.broadcast(weights.save_weights, folder, step, network, tokenizer, full)

                periodic = state_due or (execution.resume_every and step % execution.resume_every == 0)
                if step > done and (step in execution.kept_states or (periodic and step < spec.steps)):
                    check()
                    save_state(step)
                    in_state, last_save = step, time.monotonic()
        except StopRequestedError:
            answer_signal()
            if finished > in_state:
                save_state(finished)
            group.broadcast(writer.wait)
            raise


def _restored(
    spec: RunSpec,
    folder: Path,
    start: Path | None,
    network: PreTrainedModel,
    losses: Losses,
    parallel: Parallel,
    group: Group,
) -> tuple[Devices, Path | None]:
    """Place the model on its devices with the weights to go on from, and drop what was written after them.

    Returns also the run's newest state, if there is one.
    """
    saved = group.broadcast(resumable_state, spec, folder)
    state = saved
    if saved is None and start is not None and spec.initial.moments:
        state = group.broadcast(states.whole_state, start)

    def fill(devices: Devices | None = None) -> dict[str, torch.Tensor]:
        if state is not None:
            states.load_state_weights(state, network, devices)
        elif spec.initial.kind == "scratch":
            weights.take_weights(build_model(spec.model, "eager", spec.seed), network, devices)
        elif spec.initial.kind == "run":
            assert start is not None
            weights.load_weights(start, network, devices)
        else:
            assert start is not None
            source = model_from_directory(start, "eager")
            if spec.objective.kind == "causal" and sees_later_tokens(source):
                raise SpecError(f"{start}: {NOT_CAUSAL.format(source.config.model_type)}")
            weights.take_weights(source, network, devices)
        return kept_buffers(network)

    network.train()
    # The model is shared: a run that failed during a step left its gradient there.
    network.zero_grad(set_to_none=True)
    if parallel.kind == "zero3":
        # DeepSpeed sends the weights of the first process, but no buffers.
        for own, value in zip(kept_buffers(network).values(), group.broadcast(fill).values(), strict=True):
            own.copy_(value)
    elif parallel.kind != "fsdp2":
        fill()
    devices = place_model(network, losses, spec, parallel, group)
    if parallel.kind == "fsdp2":
        # A device never holds the whole model.
        fill(devices)
    if state is not None:
        states.load_state_moments(state, devices)
    done = step_of(saved) if saved is not None else 0
    group.broadcast(states.drop_later_states, folder, done)
    # The evaluation at the step of the state may be incomplete: it is repeated, and gives the same bytes.
    group.broadcast(cut_lines, folder / "points.jsonl", done)
    return devices, saved


@contextlib.contextmanager
def _in_use(devices: Devices, group: Group, alone: bool) -> Iterator[Group]:
    """Answer signals within steps, where a process is `alone`; release the devices at the end.

    Yields the processes that write a state together.
    """
    with contextlib.ExitStack() as at_end:
        at_end.enter_context(answering(patient=not alone))
        if alone and sum(value.numel() for value in devices.parameters.values()) > LONG_STEPS:
            # The backward pass may be one call for a minute, and handlers run between instructions of Python: one for
            # each gradient.
            for value in devices.parameters.values():
                at_end.callback(value.register_post_accumulate_grad_hook(lambda _: None).remove)
        at_end.callback(devices.release)
        yield at_end.enter_context(group.apart()) if devices.sharded else ALONE


def _save_state(
    writer: StateWriter, telemetry: Telemetry, devices: Devices, domains: GroupDro | None, group: Group, step: int
) -> None:
    telemetry.read_losses()  # No state of a bad step is saved.
    # The first process waits for the files of all, and its error is that of all.
    group.broadcast(writer.wait)
    writer.write(step, states.held_state(devices, group, domains and domains.tensors()))
    if group.device.type == "cpu":
        # The copies would lie beside the activations of the next step, in the same memory.
        group.broadcast(writer.wait)


def _points(spec: RunSpec, step: int, results: Mapping[str, Validation], rates: np.ndarray) -> str:
    """A line for each corpus; raises NonFiniteLossError."""
    rate = float(rates[step - 1] if step else spec.learning_rate_before)
    lines = ""
    for corpus, result in results.items():
        if not math.isfinite(result.loss):
            raise NonFiniteLossError(f"validation loss on {corpus} is {result.loss} at step {step}")
        point = {"step": step, "tokens": step * spec.tokens_per_step, "corpus": corpus, "loss": result.loss}
        lines += json.dumps(point | {"loss_stderr": result.stderr, "learning_rate": rate}) + "\n"
    return lines
