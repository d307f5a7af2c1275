"""A run from claim to last word: who may train it, how it ended, and what remains."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import yaml

from training.attempt import LeaseLostError, claim
from training.durable import write_whole
from training.manifest import Manifest
from training.spec import Execution, RunSpec
from training.stop import StopRequest, StopRequestedError


class Exit(IntEnum):
    """Exit codes of a process that trains."""

    DONE = 0
    CRASH = 1
    BAD_CONFIGURATION = 2
    INPUT_MISSING = 3
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
    stop_file: Path | None = None
    """A file whose appearance asks the run to stop."""


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
    tell: Callable[[str], None] = print,
) -> Exit | None:
    """Train a run unless it is done or another process has it.

    Args:
        spec: the run.
        places: its folders.
        execution: how to carry it out; engine "auto" is measured once a shape and kept under places.engines.
        tokens_ahead: tokens still to be trained at this shape by all runs, which decides whether compiling pays.
        stale_after: seconds after which a silent holder on another host is given up.
        tell: called with lines about what happens.

    Returns:
        DONE; CRASH with a FAILED file for a loss that is not finite; RUN_ME_AGAIN when it was asked to stop and has
        saved; None when another process works on it.

    Raises:
        CorpusError, SpecError: input missing or not fitting; nothing is marked.
        OSError: the disk is full or not writable; the run goes on from its last state when that is mended.
        LeaseLostError: another process took the run over.
    """
    # Imported late, so that looking at runs does not load torch.
    from training.engine import choose_engine, ready
    from training.loop import NonFiniteLossError, train

    folder = places.folder
    if state_of(folder) == "done":
        return Exit.DONE
    folder.mkdir(parents=True, exist_ok=True)
    attempt = claim(folder, stale_after=stale_after)
    if attempt is None:
        return None
    try:
        with StopRequest(places.stop_file) as stop:
            if state_of(folder) == "done":
                attempt.end(Exit.DONE, "was done already")
                return Exit.DONE
            write_whole(folder / "spec.yaml", yaml.safe_dump(spec.to_dict(), sort_keys=False))

            def check() -> None:
                attempt.check()
                stop.check()

            batch = execution.micro_batch or spec.global_batch
            chosen = {"engine": execution.engine}
            if execution.engine == "auto":
                chosen = choose_engine(
                    spec.model,
                    spec.precision,
                    batch,
                    spec.sequence_length,
                    execution.threads,
                    max(tokens_ahead, spec.tokens),
                    places.engines,
                )
            attempt.note(**{**chosen, "threads": execution.threads, "precision": spec.precision})
            network, losses = ready(spec.model, chosen["engine"], spec.precision, execution.threads)
            train(
                spec,
                folder,
                manifest=places.manifest,
                start=places.start,
                network=network,
                losses=losses,
                execution=execution,
                check=check,
            )
            write_whole(folder / "DONE", json.dumps({"attempt": attempt.number, "steps": spec.steps}) + "\n")
            attempt.end(Exit.DONE)
            return Exit.DONE
    except StopRequestedError:
        attempt.end(Exit.RUN_ME_AGAIN, "asked to stop; saved")
        return Exit.RUN_ME_AGAIN
    except NonFiniteLossError as error:
        write_whole(folder / "FAILED", f"{error}\n")
        attempt.end(Exit.CRASH, str(error))
        tell(f"{folder.name}: {error}")
        return Exit.CRASH
    except LeaseLostError:
        raise
    except BaseException as error:
        attempt.end(Exit.CRASH, f"{type(error).__name__}: {error}")
        raise
