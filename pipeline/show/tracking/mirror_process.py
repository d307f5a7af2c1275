"""The process that uses wandb for others: python -m pipeline.show.tracking.mirror_process TASK STUDY TRACKING.

follow: copy the attempts that are named on stdin, until it closes. answer: fits and report. job: of a sweep.
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

import wandb
import yaml

from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.mirror import reason, warn
from pipeline.show.tracking.rows import STEP, Row, in_order, metric_rows, point_rows
from pipeline.show.tracking.runs import TrackedRun, mode_of, open_attempt, outcome, settings
from pipeline.study.folder import Study
from training.durable import read_lines_whole
from training.run import Exit

OBJECTIVE = "objective"
"""Minimised by the sweeps of conf/wandb_sweeps: mean domain loss at the end of the CPT runs of a job."""


def main() -> None:
    """Entry; an error is one line on stderr."""
    # The training process ends this one by closing its stdin, so that the last rows are copied.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("follow", "answer", "job"))
    parser.add_argument("study", type=Path)
    parser.add_argument("tracking")
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--objective", type=float)
    parser.add_argument("--exit-code", type=int, default=0)
    arguments = parser.parse_args()
    study, tracking = Study(arguments.study), TrackingConfig(**json.loads(arguments.tracking))
    try:
        if arguments.task == "follow":
            follow(study, tracking)
        elif arguments.task == "answer":
            from pipeline.show.tracking.answer import track

            track(study, tracking)
        else:
            _track_job(study, tracking, arguments.runs, arguments.exit_code, arguments.objective)
    except Exception as error:
        warn(f"{reason(error)}; copy the rest with cptlaw track sync {study.folder}")
        sys.exit(1)


def follow(study: Study, tracking: TrackingConfig) -> None:
    """Copy one attempt after another, as they are named on stdin."""
    mode = mode_of(tracking)
    begun: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(begun,), daemon=True).start()
    mirrored: _Attempt | None = None
    while True:
        try:
            started = begun.get(timeout=tracking.every)
        except queue.Empty:
            if mirrored is not None:
                _guarded(mirrored.look)
            continue
        # The training process has ended the attempt before, or is gone.
        if mirrored is not None:
            _guarded(mirrored.close)
        if started is None:
            return
        mirrored = _Attempt(study, tracking, mode, started)


class _Attempt:
    """An attempt in progress, whose files are read repeatedly."""

    def __init__(self, study: Study, tracking: TrackingConfig, mode: str, started: dict[str, Any]) -> None:
        self._study, self._tracking, self._mode, self._planned = study, tracking, mode, started
        self._folder = study.runs / started["run"]
        self._offset: int = started["metrics"]
        self._tracked: TrackedRun | None = None
        self._last_points, self._trains, self._broken = -1, False, False

    def look(self, *, over: bool = False) -> None:
        """Log the new rows."""
        record = self._record()
        if self._broken or not ("from_step" in record or over):
            return
        try:
            if self._tracked is None:
                self._last_points = int(record.get("from_step", 0)) - 1
                spec = self._folder / "spec.yaml"
                content: Any = yaml.safe_load(spec.read_text()) if spec.exists() else {}
                where = self._study, self._tracking, self._mode
                self._tracked = open_attempt(*where, self._planned, content, record)
            self._tracked.log(self._news(over))
        except Exception:
            self._broken = True
            raise

    def close(self) -> None:
        """Log the rest, and how it ended."""
        self.look(over=True)
        if self._tracked is not None and not self._broken:
            self._tracked.end(*outcome(self._study, self._planned["run"], self._record()))

    def _record(self) -> dict[str, Any]:
        return json.loads((self._folder / "attempts" / f"{self._planned['attempt']:03d}.json").read_text())

    def _news(self, over: bool) -> list[Row]:
        points, metrics = [], []
        while True:
            # Read again until nothing is new: else a loss could be logged before the metrics of earlier steps.
            more = metric_rows(self._added())
            self._trains = self._trains or bool(more)
            metrics += more
            # Until this attempt has written metrics, points.jsonl may hold steps that it will repeat.
            path = self._folder / "points.jsonl"
            rows = point_rows(read_lines_whole(path)) if (self._trains or over) and path.exists() else []
            points = [row for row in rows if row[STEP] > self._last_points]
            if not more:
                break
        if points:
            self._last_points = int(points[-1][STEP])
        return in_order(points, metrics)

    def _added(self) -> list[Any]:
        """New complete lines of metrics.jsonl."""
        path = self._folder / "metrics.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _listen(begun: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        begun.put(json.loads(line))
    begun.put(None)


def _guarded(step: Any) -> None:
    try:
        step()
    except Exception as error:
        warn(reason(error))


def _track_job(
    study: Study, tracking: TrackingConfig, runs: list[str], exit_code: int, objective: float | None
) -> None:
    """Log the objective into the agent's run, whose id is in the environment.

    A job that was stopped is marked as preempted, so that the sweep gives it to the next agent.
    """
    group = study.folder.resolve().name
    run = wandb.init(dir=str(study.folder), group=group, job_type="sweep", settings=settings(tracking))
    run.config.update({"study": group, "runs": runs})
    if objective is not None:
        run.log({OBJECTIVE: objective})
    if exit_code == Exit.RUN_ME_AGAIN:
        run.mark_preempting()
    run.finish(exit_code=exit_code)


if __name__ == "__main__":
    main()
