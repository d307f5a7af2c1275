"""wandb runs: open, log rows, close. wandb is loaded on the first use: by the mirror's process and by track sync."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.mirror import reason, warn
from pipeline.show.tracking.rows import STEP, Row, rows_by_attempt, rows_so_far
from pipeline.study.folder import Study
from training.attempt import AttemptRecord, attempts
from training.durable import write_whole
from training.run import state_of

JOB_TYPES = {"pretrain": "pretrain", "fit": "continual", "confirm": "confirm"}
"""Role of a run in the plan -> job type; the wandb run of the fits and the answer has job type fit."""


class TrackedRun:
    """A wandb run that is open."""

    def __init__(self, study: Study, identity: str, run: Any, mode: str) -> None:
        self._marker, self._mode, self.run = marker(study, identity), mode, run
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP)
        self._logged: set[tuple[float, bool]] = set()

    def log(self, rows: Iterable[Row]) -> None:
        """Add the rows that are not there yet; wandb's own step counts them, and so always rises."""
        for row in rows:
            key = row[STEP], any(name.startswith("train/") for name in row)
            if key not in self._logged:
                self.run.log(row, step=len(self._logged))
                self._logged.add(key)

    def end(self, exit_code: int, summary: dict[str, str | int]) -> None:
        """Close it, and write the marker of a complete copy; wandb's error where it did not finish in time."""
        self.run.summary.update(summary)
        self.run.finish(exit_code=exit_code)
        write_whole(self._marker, json.dumps({"rows": len(self._logged), "mode": self._mode}) + "\n")


class CopiedAttempt(NamedTuple):
    """An attempt at a run: names of the run, its role and model, and the attempt's number."""

    run: str
    role: str
    model: str
    number: int
    metrics: int | None = None
    """Bytes of metrics.jsonl when it began; None: it was not followed from its beginning, and is over."""


class WandbCopy:
    """wandb's copy of a study, online or offline. An offline run cannot be resumed, so those in progress stay open."""

    def __init__(self, study: Study, tracking: TrackingConfig, mode: str) -> None:
        self._study, self._tracking, self._mode = study, tracking, mode
        self._open: dict[str, TrackedRun] = {}
        self._given_up: set[tuple[str, int]] = set()

    def sync(self, chosen: Iterable[CopiedAttempt], *, over: bool) -> tuple[int, int]:
        """Log what wandb lacks of attempts; safe to repeat.

        What cannot be copied is a line on stderr, and the copy stays without a marker. Returns how many copies were
        completed, and how many were given up.
        """
        completed, given_up = 0, len(self._given_up)
        for attempt in chosen:
            try:
                completed += self._sync(attempt, over)
            except Exception as error:
                self._given_up.add((attempt.run, attempt.number))
                warn(f"{attempt.run}: {reason(error)}")
        return completed, len(self._given_up) - given_up

    def _sync(self, attempt: CopiedAttempt, over: bool) -> bool:
        folder = self._study.runs / attempt.run
        records = {record["attempt"]: record for record in attempts(folder)}
        record = records[attempt.number]
        identity = attempt_identity(self._study, attempt.run, record)
        done = (attempt.run, attempt.number) in self._given_up or marker(self._study, identity).exists()
        if done or not ("from_step" in record or over):
            return False
        if identity not in self._open:
            self._open[identity] = self._begin(attempt, record, identity)
        if attempt.metrics is None:
            rows = rows_by_attempt(folder, [*records.values()])[attempt.number]
        else:
            rows = rows_so_far(folder, record.get("from_step", inf), attempt.metrics, over)
        self._open[identity].log(rows)
        if over:
            code = int(record.get("exit_code", 1))
            why = record.get("reason", "" if "end" in record else "the process died without a reason")
            summary = {"state": state_of(folder), "exit_code": code, "reason": why}
            self._open.pop(identity).end(code, summary)
        return over

    def _begin(self, attempt: CopiedAttempt, record: AttemptRecord, identity: str) -> TrackedRun:
        path = self._study.runs / attempt.run / "spec.yaml"
        spec = yaml.safe_load(path.read_text()) if path.exists() else {}
        config = {"run": attempt.run, "role": attempt.role, "spec": spec, "attempt": record}
        tags = [str(spec.get("phase", "")), attempt.model]
        return self.open_run(identity, f"{attempt.run} {attempt.number}", JOB_TYPES[attempt.role], tags, config)

    def open_run(self, identity: str, name: str, job_type: str, tags: list[str], config: dict[str, Any]) -> TrackedRun:
        """Open a wandb run in the study's group in place of an incomplete copy of it.

        A server that cannot be reached is a warning, and the run is offline. job_type: pretrain, continual, confirm or
        fit. The config has the study's name too.
        """
        import wandb

        study, tracking, group = self._study, self._tracking, self._study.folder.resolve().name
        for folder in local_folders(study, identity):
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)

        def begin(mode: Any, resume: Any = None) -> TrackedRun:
            run = wandb.init(
                id=identity, name=name[:128], job_type=job_type, group=group[:128], config={"study": group, **config},
                tags=[tag[:64] for tag in dict.fromkeys([*tracking.tags, *tags]) if tag], dir=str(study.folder),
                project=tracking.project, entity=tracking.entity, settings=settings(tracking), mode=mode, resume=resume,
            )  # fmt: skip
            return TrackedRun(study, identity, run, mode)

        if self._mode != "online":
            return begin(self._mode)
        try:
            return begin("online", "allow")
        except Exception as error:
            unreachable = f"wandb is unreachable ({reason(error)}); {name} is kept offline"
            warn(f"{unreachable}: cptlaw track sync {study.word}")
            return begin("offline")


def mode_of(tracking: TrackingConfig) -> str:
    """online or offline: as asked, or whether a key is known, without asking for one."""
    if tracking.mode != "auto":
        return tracking.mode
    if asked := os.environ.get("WANDB_MODE"):
        return asked
    import wandb
    from wandb.sdk.lib import wbauth

    try:
        host = wandb.setup().settings.base_url
        return "online" if wbauth.authenticate_session(host=host, source="cptlaw", prompt=False) else "offline"
    except Exception as error:
        warn(f"offline: {reason(error)}")
        return "offline"


def attempt_identity(study: Study, run: str, record: AttemptRecord) -> str:
    """wandb's id of an attempt: always the same, and different in another study."""
    where = [study.folder.resolve().name, run, *(record.get(key) for key in ("host", "start", "pid"))]
    digest = hashlib.blake2b(json.dumps(where).encode(), digest_size=4).hexdigest()
    return f"{run[-8:]}-{int(record['attempt']):03d}-{digest}"


def marker(study: Study, identity: str) -> Path:
    """The file that marks a complete copy of a run."""
    return study.folder / "wandb" / f"{identity}.json"


def local_folders(study: Study, identity: str = "*") -> list[Path]:
    """wandb's folders of offline runs of this study."""
    return sorted((study.folder / "wandb").glob(f"offline-run-*-{identity}"))


def settings(tracking: TrackingConfig) -> Any:
    """wandb's settings with bounded waits, and without facts of the machine beyond the record of the attempt."""
    import wandb

    # The attempt's record has revision and host; the working folder, its diff and the user's name are private.
    private = ("disable_git", "disable_code", "x_disable_meta", "x_disable_machine_info", "x_disable_stats")
    # Each shorter than tracking.wait, after which this process is ended.
    return wandb.Settings(
        silent=True, console="off", **dict.fromkeys(private, True), x_save_requirements=False,
        init_timeout=tracking.wait / 3, finish_timeout=tracking.wait / 2, finish_timeout_raises=True,
    )  # fmt: skip
