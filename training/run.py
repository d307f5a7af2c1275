"""Train one run: claim it, choose an engine, build the model, train, and record the outcome."""

from __future__ import annotations

import errno
import gc
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from training.attempt import Attempt, LeaseLostError, attempts, claim, forgive_attempts
from training.corpora.documents import CorpusError, json_hash
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group, parallel_problem
from training.durable import FileError, read_file, write_whole
from training.loading import load_transformers
from training.spec import Execution, RunSpec, SpecError
from training.stop import StopRequest, StopRequestedError, answering

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from training.objectives import Losses

    Built = tuple[PreTrainedModel, Losses, Losses | None]


class Exit(IntEnum):
    """Exit codes of a process that trains; `cptlaw` has the same, and 1 for an error of the program."""

    DONE = 0
    """All that was asked for is done."""
    CRASH = 1
    """A run failed: `cptlaw train retry_failed=true` tries it again. Or its lease went to a process that goes on."""
    BAD_CONFIGURATION = 2
    """A key has a value that is not allowed."""
    INPUT_MISSING = 3
    """A file, a corpus or a checkpoint is missing or damaged, or the disk is full."""
    UNEXPECTED = 70
    """An error of the program; start it again, as after a signal."""
    RUN_ME_AGAIN = 75
    """Stopped, with its state saved; the same command goes on."""


class StartAgainError(RuntimeError):
    """The processes of a run have to be started again, and then do something else."""


DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors that the user corrects at the disk: no space, or no right to write."""
PATH_ERRORS = (
    *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV, errno.ENOTEMPTY),
)
"""Errors that the user corrects at a path: something else is there, or without the right."""


@dataclass(frozen=True)
class RunFolders:
    """Where a run finds its input and writes its output."""

    folder: Path
    """The run's own folder."""
    manifest: Manifest
    """The prepared corpora."""
    memory: Path
    """Where the micro-batch of a shape is kept that memory has run out of."""
    start: Path | None = None
    """Folder of the first weights; None: from scratch."""
    reference: Path | None = None
    """Folder of the reference model's weights; None: no reweighting."""


@dataclass(frozen=True)
class RunClaim:
    """The right of a group of processes to train a run."""

    folder: Path
    """The run's folder."""
    group: Group
    """The processes; each has its own claim."""
    attempt: Attempt | None
    """The lease; None in all processes but the first."""

    def check(self, stop: StopRequest, *due: bool, at_once: bool = True) -> list[bool]:
        """Raise StopRequestedError or LeaseLostError in all processes if any process has to stop.

        Returns what is due by the first process, in all of them; a step has one collective for all of this. `at_once`:
        look at the lease now, before a file is written, and not once a second.
        """
        decision = int(stop.requested)
        try:
            if self.attempt is not None:
                self.attempt.check(at_once=at_once)
        except LeaseLostError:
            decision = 2
        # Agreed on by all: a process that continued alone would wait for the others forever.
        own = np.array([[decision, *(self.group.first and one for one in due)]])
        decision, *agreed = self.group.gather(own).max(axis=0).tolist()
        if decision == 2:
            raise LeaseLostError(f"{self.folder.name}: taken over by another process")
        if decision == 1:
            raise StopRequestedError
        return [bool(one) for one in agreed]

    def note(self, **facts: Any) -> None:
        """Add facts to the attempt's file."""
        if self.attempt is not None:
            self.attempt.note(**facts)

    def end(self, code: Exit, reason: str = "") -> Exit:
        """Write how the attempt ended and release the run; returns the code."""
        if self.attempt is not None:
            self.attempt.end(code, reason)
        return code


def state_of(folder: Path) -> str:
    """State of a run's folder: done, failed or open."""
    if (folder / "DONE").exists():
        return "done"
    return "failed" if (folder / "FAILED").exists() else "open"


def build_run(spec: RunSpec, folders: RunFolders, engine: str, threads: int, group: Group = ALONE) -> Built:
    """The model of a run without its first weights, its loss function, and with a reweighting that of the reference.

    Raises:
        CorpusError, SpecError: input missing or not fitting.
    """
    from training.engines import build_engine, shared_engine
    from training.group_dro import reference_losses

    end_of_text = None
    if spec.boundaries == "documents":
        end_of_text = folders.manifest.store(next(iter(spec.corpora))).meta.end_of_text
    network, losses = shared_engine(spec, engine, threads, end_of_text)
    if spec.reweighting is None:
        return network, losses, None
    if folders.reference is None:
        raise SpecError(f"{folders.folder.name}: its reference {spec.reweighting.reference} is not in the plan")
    reference = build_engine(spec, engine, threads, end_of_text)
    return network, losses, reference_losses(*reference, folders.reference, group.device)


def run_once(
    spec: RunSpec,
    folders: RunFolders,
    execution: Execution,
    *,
    tokens_of_shape: int = 0,
    stale_after: float = 60.0,
    log: Callable[[str], None] = print,
    group: Group = ALONE,
    stop: StopRequest | None = None,
    claimed_as: Callable[[int], None] = lambda attempt: None,
) -> Exit | None:
    """Train a run unless it is done or another process works on it.

    Args:
        spec, folders, execution: the run, its folders, and how to execute it.
        tokens_of_shape: tokens of all runs of this shape, which decide whether compiling pays.
        stale_after: seconds without a heartbeat after which a holder on another host counts as dead.
        log, group: called with messages; the processes that train the run, each of which gets the same result.
        stop: of the caller, for signals between two runs; None: signals stop this run only.
        claimed_as: called with the attempt's number.

    Returns:
        DONE; CRASH with a FAILED file for a loss that is not finite; RUN_ME_AGAIN, saved, after a stop; or None.

    Raises:
        CorpusError, SpecError: input missing or not fitting; the run is not marked as failed.
        OSError: the disk is full or not writable; a later call continues from the last state.
        LeaseLostError: another process took the run over.
    """
    load_transformers()  # late imports: reading the state of runs must not load torch
    from training.checkpoints.states import drop_states
    from training.telemetry import NonFiniteLossError

    folder = folders.folder
    if group.broadcast(state_of, folder) == "done":
        return Exit.DONE
    attempt: Attempt | None = None

    def claimed() -> bool:
        nonlocal attempt
        attempt = claim(folder, stale_after=stale_after)
        return attempt is not None

    if not group.broadcast(claimed):
        return None
    run = RunClaim(folder, group, attempt)
    if run.attempt:
        claimed_as(run.attempt.number)
    try:
        stopped = partial(run.end, Exit.RUN_ME_AGAIN, "asked to stop in the middle of a step or a measurement")
        with nullcontext(stop) if stop else StopRequest() as stop, answering(last_act=stopped):
            if group.broadcast(state_of, folder) == "done":
                return run.end(Exit.DONE, "was done already")
            group.broadcast(write_whole, folder / "spec.yaml", yaml.safe_dump(spec.to_dict(), sort_keys=False))
            parallel = execution.parallel
            if problem := parallel_problem(parallel, execution.engine, spec.global_batch, execution.micro_batch):
                raise SpecError(problem)
            _train_within_memory(spec, folders, execution, run, stop, tokens_of_shape, log)
            if run.attempt is not None:
                # So that a file which loses lines later is not taken for the whole of the run.
                points = read_file(folder / "points.jsonl").count(b"\n")
                done = {"attempt": run.attempt.number, "steps": spec.steps, "points": points}
                write_whole(folder / "DONE", json.dumps(done) + "\n")
                drop_states(folder, execution.kept_states)
            return run.end(Exit.DONE)
    except StopRequestedError:
        return run.end(Exit.RUN_ME_AGAIN, "asked to stop; saved")
    except NonFiniteLossError as error:
        if group.first:
            write_whole(folder / "FAILED", f"{error}\n")
            log(f"{folder.name}: {error}")
        return run.end(Exit.CRASH, str(error))
    except BaseException as error:
        if not isinstance(error, LeaseLostError):
            # Only a CRASH counts as an attempt that failed.
            of_path = getattr(error, "errno", None) in (*DISK_ERRORS, *PATH_ERRORS)
            corrected = of_path or isinstance(error, (CorpusError, SpecError, FileError))
            run.end(Exit.INPUT_MISSING if corrected else Exit.CRASH, f"{type(error).__name__}: {error}")
        raise


def _train_within_memory(
    spec: RunSpec,
    folders: RunFolders,
    execution: Execution,
    run: RunClaim,
    stop: StopRequest,
    tokens_of_shape: int,
    log: Callable[[str], None],
) -> None:
    """Train a claimed run to its end, in smaller micro-batches where memory runs out; arguments as of `run_once`."""
    from training.checkpoints.states import resumable_state, step_of
    from training.devices.out_of_memory import is_out_of_memory, keep_smaller, within_memory
    from training.devices.processor import device_name
    from training.engines import choose_engine, drop_shared_engines
    from training.loop import train

    folder, group, parallel = folders.folder, run.group, execution.parallel
    # Where others wait for this process it must not leave by itself.
    alone = group.count == 1
    key = [spec.model, spec.precision, spec.sequence_length, spec.global_batch, execution.engine]
    key += [parallel.kind, parallel.processes, device_name()]
    kept = folders.memory / f"{json_hash(key, digest_size=8)}.json"
    while True:
        fitting = group.broadcast(within_memory, spec, execution, kept)
        state = resumable_state(spec, folder) if group.first else None
        with answering(at_once=alone):
            here = (record for record in reversed(attempts(folder)) if record.get("device") == device_name())
            begun = next((record["engine"] for record in here if "engine" in record), None) if state else None
            engine = group.broadcast(choose_engine, spec, fitting, tokens_of_shape, begun)
        facts = {"engine": engine, "parallel": parallel.kind, "processes": group.count, "threads": execution.threads}
        facts |= {"micro_batch": fitting.micro_batch, "from_step": step_of(state) if state else 0}
        run.note(**facts | {"precision": spec.precision, "device": device_name()})
        built = None
        try:
            with answering(at_once=alone):
                built = build_run(spec, folders, engine, execution.threads, group)
            train(
                spec, folder, manifest=folders.manifest, start=folders.start, network=built[0], losses=built[1],
                reference=built[2], execution=fitting, check=partial(run.check, stop), group=group, log=log,
            )  # fmt: skip
            break
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if group.count > 1:
                # The others wait in a collective: all are started again, by which no attempt has failed.
                line = keep_smaller(spec, fitting, kept, parallel.activation_checkpointing)
                forgive_attempts(folder)
                raise StartAgainError(f"{folder.name}: {line}") from None
        finally:
            if parallel.kind != "single":
                drop_shared_engines()
        # Behind the handler, whose traceback holds the tensors of the step.
        del built
        drop_shared_engines()
        gc.collect()
        log(f"{folder.name}: {keep_smaller(spec, fitting, kept, parallel.activation_checkpointing)}")
