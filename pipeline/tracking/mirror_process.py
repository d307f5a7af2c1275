"""The process that talks to wandb for others: python -m pipeline.tracking.mirror_process WORD STUDY TRACKING.

follow: what another process trains, told on stdin, until that closes. answer: fits and report. job: of a sweep.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import yaml

from pipeline.question.schema import TrackingConfig
from pipeline.study.folder import Study
from pipeline.tracking.mirror import warn
from pipeline.tracking.rows import STEP, Row, in_order, metric_rows, point_rows
from pipeline.tracking.runs import (
    JOB_TYPES,
    TrackedRun,
    attempt_config,
    attempt_identity,
    last_words,
    mode_of,
    open_run,
)
from training.durable import read_lines_whole


def main() -> None:
    """Entry; whatever goes wrong is one line on stderr."""
    # Whoever ends the training ends this one by closing its stdin, so that the last lines get through.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", choices=("follow", "answer", "job"))
    parser.add_argument("study", type=Path)
    parser.add_argument("tracking")
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--objective", type=float)
    parser.add_argument("--exit-code", type=int, default=0)
    arguments = parser.parse_args()
    study, tracking = Study(arguments.study), TrackingConfig(**json.loads(arguments.tracking))
    try:
        if arguments.word == "follow":
            follow(study, tracking)
        elif arguments.word == "answer":
            from pipeline.tracking.answer import track

            track(study, tracking)
        else:
            from pipeline.tracking.sweep_job import track

            track(study, tracking, arguments.runs, arguments.exit_code, arguments.objective)
    except Exception as error:
        warn(f"{_plain(error)}; cptlaw track sync {study.folder} makes up for it")
        sys.exit(1)


def follow(study: Study, tracking: TrackingConfig) -> None:
    """Mirror one attempt after another, as they are named on stdin."""
    mode = mode_of(tracking)
    words: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(words,), daemon=True).start()
    mirrored: _Attempt | None = None
    while True:
        try:
            word = words.get(timeout=tracking.every)
        except queue.Empty:
            if mirrored is not None:
                _guarded(mirrored.look)
            continue
        # Who trains is done with the attempt before, or is gone.
        if mirrored is not None:
            _guarded(mirrored.close)
        if word is None:
            return
        mirrored = _Attempt(study, tracking, mode, word)


class _Attempt:
    """One attempt as it goes on: its files are looked at again and again."""

    def __init__(self, study: Study, tracking: TrackingConfig, mode: str, word: dict[str, Any]) -> None:
        self._study, self._tracking, self._mode = study, tracking, mode
        self._name, self._role, self._model = word["run"], word["role"], word["model"]
        self._folder = study.runs / word["run"]
        self._record_file = self._folder / "attempts" / f"{word['attempt']:03d}.json"
        self._offset: int = word["metrics"]
        self._tracked: TrackedRun | None = None
        self._last_points, self._trains = -1, False
        self._broken = False

    def look(self, *, over: bool = False) -> None:
        """Tell wandb what is new."""
        record = self._record()
        if self._broken or not ("from_step" in record or over):
            return
        try:
            if self._tracked is None:
                self._last_points = int(record.get("from_step", 0)) - 1
                self._tracked = self._open(record)
            self._tracked.log(self._news(over))
        except Exception:
            self._broken = True
            raise

    def close(self) -> None:
        """Tell the rest, and how it ended."""
        self.look(over=True)
        if self._tracked is not None and not self._broken:
            self._tracked.end(*last_words(self._study, self._name, self._record()))

    def _record(self) -> dict[str, Any]:
        return json.loads(self._record_file.read_text())

    def _open(self, record: dict[str, Any]) -> TrackedRun:
        spec = self._folder / "spec.yaml"
        asked = yaml.safe_load(spec.read_text()) if spec.exists() else {}
        return open_run(
            self._study,
            self._tracking,
            self._mode,
            identity=attempt_identity(self._study, self._name, record),
            name=f"{self._name} {record['attempt']}",
            job_type=JOB_TYPES[self._role],
            tags=[str(asked.get("phase", "")), self._model],
            config=attempt_config(self._study, self._name, self._role, asked, record),
        )

    def _news(self, over: bool) -> list[Row]:
        points: list[Row] = []
        metrics: list[Row] = []
        while True:
            # Again until nothing came in between: else a loss could be seen before the line that went before it.
            more = metric_rows(self._added())
            self._trains = self._trains or bool(more)
            metrics += more
            # Until this attempt has written a line of its own, points.jsonl may hold steps that it will do again.
            path = self._folder / "points.jsonl"
            found = point_rows(read_lines_whole(path)) if (self._trains or over) and path.exists() else []
            points = [row for row in found if row[STEP] > self._last_points]
            if not more:
                break
        if points:
            self._last_points = int(points[-1][STEP])
        return in_order(points, metrics)

    def _added(self) -> list[Any]:
        """Whole lines of metrics.jsonl that were not read yet."""
        path = self._folder / "metrics.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _listen(words: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        words.put(json.loads(line))
    words.put(None)


def _guarded(step: Any) -> None:
    try:
        step()
    except Exception as error:
        warn(_plain(error))


def _plain(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    main()
