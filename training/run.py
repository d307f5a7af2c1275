"""A run from claim to last word: who may train it, how it ended, and what remains."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path

import yaml

from training.attempt import LeaseLostError, claim
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, SHARDED, Group, spread_problem
from training.durable import write_whole
from training.loading import load_transformers
from training.spec import Execution, RunSpec, SpecError
from training.stop import StopRequest, StopRequestedError


class Exit(IntEnum):
    """Exit codes of a process that trains."""

    DONE = 0
    CRASH = 1
    BAD_CONFIGURATION = 2
    INPUT_MISSING = 3
    UNEXPECTED = 70
    """An error of the program; the run is tried again."""
    RUN_ME_AGAIN = 75


@dataclass(frozen=True)
class Places:
    """Where a run finds what it needs and keeps what it makes."""

    folder: Path
    """The run's own folder."""
    manifest: Manifest
    """The prepared corpora."""
    engines: Path
    """Engines measured on this machine."""
    start: Path | None = None
    """Folder of the first weights, unless from scratch."""
    reference: Path | None = None
    """Of a reweighting: folder of the weights that the loss is compared with."""


def state_of(folder: Path) -> str:
    """done, failed, or open: the last word in a run's folder."""
    if (folder / "DONE").exists():
        return "done"
    return "failed" if (folder / "FAILED").exists() else "open"


def run_once(
    spec: RunSpec,
    places: Places,
    execution: Execution,
    *,
    tokens_ahead: int = 0,
    stale_after: float = 60.0,
    log: Callable[[str], None] = print,
    group: Group = ALONE,
    stop: StopRequest | None = None,
    claimed_as: Callable[[int], None] = lambda attempt: None,
) -> Exit | None:
    """Train a run unless it is done or another process has it.

    Args:
        spec: the run.
        places: its folders.
        execution: how to carry it out; engine "auto" is measured once a shape and kept under places.engines.
        tokens_ahead: tokens still to be trained at this shape by all runs, which decides whether compiling pays.
        stale_after: seconds after which a silent holder on another host is given up.
        log: called with lines about what happens.
        group: the processes that train the run together; each calls this and gets the same answer.
        claimed_as: called with the attempt's number once this process has the run.
        stop: the caller's, so that what is heard between two runs is heard by the next; None: signals stop this run.

    Returns:
        DONE; CRASH with a FAILED file for a loss that is not finite; RUN_ME_AGAIN when it was asked to stop and has
        saved; None when another process works on it.

    Raises:
        CorpusError, SpecError: input missing or not fitting; nothing is marked.
        OSError: the disk is full or not writable; the run goes on from its last state when that is mended.
        LeaseLostError: another process took the run over.
    """
    # Imported late, so that looking at runs does not load torch.
    load_transformers()
    from training.checkpoint import newest_state, step_of
    from training.engine import choose_engine, forget, ready
    from training.group_dro import frozen
    from training.loop import NonFiniteLossError, train

    folder, parallel = places.folder, execution.parallel
    if group.share(lambda: state_of(folder)) == "done":
        return Exit.DONE
    attempt = None

    def claimed() -> bool:
        nonlocal attempt
        folder.mkdir(parents=True, exist_ok=True)
        attempt = claim(folder, stale_after=stale_after)
        return attempt is not None

    if not group.share(claimed):
        return None
    if attempt is not None:
        claimed_as(attempt.number)

    def end(code: Exit, reason: str = "") -> Exit:
        if attempt is not None:
            attempt.end(code, reason)
        return code

    try:
        with nullcontext(stop) if stop else StopRequest() as stop:
            if group.share(lambda: state_of(folder)) == "done":
                return end(Exit.DONE, "was done already")
            if problem := spread_problem(parallel, execution.engine, spec.global_batch, execution.micro_batch):
                raise SpecError(problem)
            as_yaml = yaml.safe_dump(spec.to_dict(), sort_keys=False)
            group.share(lambda: write_whole(folder / "spec.yaml", as_yaml))

            def check() -> None:
                word = int(stop.requested)
                try:
                    if attempt is not None:
                        attempt.check()
                except LeaseLostError:
                    word = 2
                # Of one mind, since a process that went on alone would wait for the others for ever.
                word = group.largest(word)
                if word == 2:
                    raise LeaseLostError(f"{folder.name}: taken over by another process")
                if word == 1:
                    raise StopRequestedError

            chosen = {"engine": execution.engine}
            if execution.engine == "auto":
                plain = parallel.kind in SHARDED
                chosen = group.share(
                    lambda: choose_engine(
                        spec.model,
                        spec.precision,
                        execution.micro_batch or spec.global_batch // group.count,
                        spec.sequence_length,
                        execution.threads,
                        0 if plain else max(tokens_ahead, spec.tokens),
                        places.engines / "plain" if plain else places.engines,
                        objective=spec.objective.kind,
                    )
                )
            if attempt is not None:
                spread = {"parallel": parallel.kind, "processes": group.count, "threads": execution.threads}
                spread["from_step"] = step_of(saved) if (saved := newest_state(folder)) else 0
                attempt.note(**{**chosen, **spread, "precision": spec.precision})
            end_of_text = None
            if spec.boundaries == "documents":
                end_of_text = places.manifest.store(next(iter(spec.corpora))).meta.end_of_text
            model = partial(
                ready,
                spec.model,
                chosen["engine"],
                spec.precision,
                execution.threads,
                objective=spec.objective.kind,
                end_of_text=end_of_text,
                by_token=spec.reweighting is not None,
            )
            network, losses = model()
            reference = None
            if spec.reweighting is not None:
                if places.reference is None:
                    raise SpecError(f"{folder.name}: its reference {spec.reweighting.reference} is not in the plan")
                reference = frozen(*model(beside=True), places.reference, group.device)
            try:
                train(
                    spec,
                    folder,
                    manifest=places.manifest,
                    start=places.start,
                    network=network,
                    losses=losses,
                    reference=reference,
                    execution=execution,
                    check=check,
                    group=group,
                    log=log,
                )
            finally:
                if parallel.kind != "single":
                    forget()
            if attempt is not None:
                write_whole(folder / "DONE", json.dumps({"attempt": attempt.number, "steps": spec.steps}) + "\n")
            return end(Exit.DONE)
    except StopRequestedError:
        return end(Exit.RUN_ME_AGAIN, "asked to stop; saved")
    except NonFiniteLossError as error:
        if group.first:
            write_whole(folder / "FAILED", f"{error}\n")
            log(f"{folder.name}: {error}")
        return end(Exit.CRASH, str(error))
    except LeaseLostError:
        raise
    except BaseException as error:
        end(Exit.CRASH, f"{type(error).__name__}: {error}")
        raise
