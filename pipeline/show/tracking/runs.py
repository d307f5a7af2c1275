"""wandb runs: open, log rows, close. wandb is loaded on the first use: by the mirror's process and by track sync."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.mirror import reason, warn
from pipeline.show.tracking.rows import STEP, Row, rows_by_attempt, rows_so_far
from pipeline.study.folder import Study
from training.attempt import attempts
from training.durable import write_whole
from training.run import state_of

JOB_TYPES = {"pretrain": "pretrain", "fit": "continual", "confirm": "confirm"}
"""Role of a run in the plan -> job type; the wandb run of the fits and the answer has job type fit."""
_LONGEST = 128
_LONGEST_TAG = 64


class TrackedRun:
    """A wandb run that is open."""

    def __init__(self, study: Study, identity: str, run: Any, mode: str) -> None:
        self._study, self._identity, self._mode = study, identity, mode
        self.run = run
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

    def end(self, exit_code: int, summary: dict[str, Any]) -> None:
        """Close it, and write the marker of a complete copy.

        Raises:
            Exception: wandb did not finish in time.
        """
        self.run.summary.update(summary)
        self.run.finish(exit_code=exit_code)
        content = {"rows": len(self._logged), "mode": self._mode}
        write_whole(marker(self._study, self._identity), json.dumps(content) + "\n")


@dataclass(frozen=True)
class Attempt:
    """An attempt at a run."""

    run: str
    """Name of the run."""
    role: str
    """Its role in the plan."""
    model: str
    """Name of its model."""
    number: int
    """Number of the attempt."""
    metrics: int | None = None
    """Bytes of metrics.jsonl when it began; None: it was not followed from its beginning, and is over."""


class WandbCopy:
    """wandb's copy of a study. An offline run cannot be resumed, so those in progress stay open here."""

    def __init__(self, study: Study, tracking: TrackingConfig, mode: str) -> None:
        self._study, self._tracking, self._mode = study, tracking, mode
        self._open: dict[str, TrackedRun] = {}
        self._given_up: set[str] = set()

    def sync(self, found: Iterable[Attempt], *, over: bool) -> tuple[int, int]:
        """Log what wandb lacks of attempts; safe to repeat.

        What cannot be copied is a line on stderr, and the copy stays without a marker.

        Returns:
            How many copies were completed, and how many were given up.
        """
        completed, given_up = 0, len(self._given_up)
        for attempt in found:
            try:
                completed += self._sync(attempt, over)
            except Exception as error:
                self._given_up.add(f"{attempt.run} {attempt.number}")
                warn(f"{attempt.run}: {reason(error)}")
        return completed, len(self._given_up) - given_up

    def _sync(self, attempt: Attempt, over: bool) -> bool:
        name = f"{attempt.run} {attempt.number}"
        folder = self._study.runs / attempt.run
        records = {record["attempt"]: record for record in attempts(folder)}
        record = records[attempt.number]
        identity = attempt_identity(self._study, attempt.run, record)
        done = name in self._given_up or marker(self._study, identity).exists()
        if done or not ("from_step" in record or over):
            return False
        if identity not in self._open:
            forget(self._study, identity)
            self._open[identity] = self._begin(attempt, record, identity)
        rows: list[Row]
        if attempt.metrics is None:
            rows = rows_by_attempt(folder, [*records.values()])[attempt.number]
        else:
            rows = rows_so_far(folder, int(record.get("from_step", 0)), attempt.metrics, over)
        self._open[identity].log(rows)
        if over:
            self._open.pop(identity).end(*_outcome(self._study, attempt.run, record))
        return over

    def _begin(self, attempt: Attempt, record: dict[str, Any], identity: str) -> TrackedRun:
        path = self._study.runs / attempt.run / "spec.yaml"
        spec = yaml.safe_load(path.read_text()) if path.exists() else {}
        config = {"study": self._study.folder.resolve().name, "run": attempt.run, "role": attempt.role}
        shown: dict[str, Any] = {"name": f"{attempt.run} {attempt.number}", "job_type": JOB_TYPES[attempt.role]}
        shown |= {"tags": [str(spec.get("phase", "")), attempt.model], "id": identity}
        shown["config"] = {**config, "spec": spec, "attempt": record}
        return open_run(self._study, self._tracking, self._mode, **shown)


def open_run(study: Study, tracking: TrackingConfig, mode: str, **shown: Any) -> TrackedRun:
    """Open a wandb run in the study's group; a server that cannot be reached is a warning, and the run is offline.

    mode: online or offline; `shown`: id, name, job_type (pretrain, continual, confirm or fit), tags and config.
    """
    import wandb

    given: dict[str, Any] = {"dir": str(study.folder), "project": tracking.project, "entity": tracking.entity}
    given |= {**shown, "group": study.folder.resolve().name[:_LONGEST], "settings": settings(tracking)}
    given["name"] = shown["name"][:_LONGEST]
    given["tags"] = [tag[:_LONGEST_TAG] for tag in dict.fromkeys([*tracking.tags, *shown["tags"]]) if tag]
    if mode == "online":
        try:
            return TrackedRun(study, shown["id"], wandb.init(mode="online", resume="allow", **given), mode)
        except Exception as error:
            unreachable = f"wandb is unreachable ({reason(error)}); {shown['name']} is kept offline"
            warn(f"{unreachable}: cptlaw track sync {study.folder}")
            mode = "offline"
    return TrackedRun(study, shown["id"], wandb.init(mode=mode, **given), mode)  # pyright: ignore[reportArgumentType]


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


def attempt_identity(study: Study, run: str, record: dict[str, Any]) -> str:
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


def forget(study: Study, identity: str) -> None:
    """Remove an incomplete copy of an offline run."""
    for folder in local_folders(study, identity):
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)


def _outcome(study: Study, run: str, record: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Exit code and summary of an attempt that is over."""
    code = int(record.get("exit_code", 1))
    why = record.get("reason", "" if "end" in record else "the process died without a reason")
    return code, {"state": state_of(study.runs / run), "exit_code": code, "reason": why}


def settings(tracking: TrackingConfig) -> Any:
    """wandb's settings with bounded waits, and without facts of the machine beyond the record of the attempt."""
    import wandb

    return wandb.Settings(
        silent=True,
        console="off",
        # The attempt's record has revision and host; the working folder, its diff and the user's name are private.
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
        # Each shorter than tracking.wait, after which this process is ended.
        init_timeout=tracking.wait / 3,
        finish_timeout=tracking.wait / 2,
        finish_timeout_raises=True,
    )
