"""Writes resume states in the background, a file per process that has one."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from training.checkpoints.folder import flushed_digest, new_part, publish
from training.checkpoints.pieces import StateFile
from training.checkpoints.states import saved_states, step_of
from training.devices.group import ALONE, Group


class StateWriter:
    """Writes resume states in the background, one at a time; keeps the newest `keep` and those of the steps in `kept`.

    An error of a write, of any process, is raised by the first process' next call, or when the context ends.

    Args:
        folder: of the run.
        keep, kept: see above.
        group: those that write together, each its file, with no other call of theirs at the same time; ALONE in a
            process that writes alone.
    """

    def __init__(self, folder: Path, keep: int, kept: Collection[int] = (), group: Group = ALONE) -> None:
        self._folder, self._keep, self._kept, self._group = folder, keep, kept, group
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def write(self, step: int, file: StateFile) -> None:
        """Start to write the state after a step: what `held_state` returned."""
        self.wait()
        if file.name:
            self._writing = self._thread.submit(self._write, step, file)

    def wait(self) -> None:
        """Wait until the last state is on disk, with the files of all processes in the first one."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, step: int, file: StateFile) -> None:
        group, folder = self._group, self._folder / "resume"
        part = group.broadcast(partial(new_part, folder, step))
        try:
            digests = dict(group.collect(lambda: (file.name, flushed_digest(file.save(part, step)))))
            if group.first:
                publish(part, folder / f"step-{step}", digests)
        except BaseException:
            if group.first:
                shutil.rmtree(part, ignore_errors=True)
            raise
        if group.first:
            states = [state for state in saved_states(self._folder) if step_of(state) not in self._kept]
            for old in states[self._keep :]:
                shutil.rmtree(old)
