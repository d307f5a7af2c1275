"""wandb runs: open, log rows, close. Only the mirror's process and `cptlaw track sync` import this."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import wandb
from wandb.sdk.lib import wbauth

from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.mirror import reason, warn
from pipeline.show.tracking.rows import STEP, Row
from pipeline.study.folder import Study
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
        self._rows = 0

    def log(self, rows: Iterable[Row]) -> None:
        """Add rows; wandb's own step counts them, and so always rises."""
        for row in rows:
            self.run.log(row, step=self._rows)
            self._rows += 1

    def end(self, exit_code: int, summary: dict[str, Any]) -> None:
        """Close it, and write the marker of a complete copy.

        Raises:
            Exception: wandb did not finish in time.
        """
        self.run.summary.update(summary)
        self.run.finish(exit_code=exit_code)
        content = {"rows": self._rows, "mode": self._mode}
        write_whole(marker(self._study, self._identity), json.dumps(content) + "\n")


def open_run(study: Study, tracking: TrackingConfig, mode: str, **shown: Any) -> TrackedRun:
    """Open a wandb run in the study's group; a server that cannot be reached is a warning, and the run is offline.

    mode: online or offline; `shown`: id, name, job_type (pretrain, continual, confirm or fit), tags and config.
    """
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


def open_attempt(
    study: Study,
    tracking: TrackingConfig,
    mode: str,
    planned: Mapping[str, str],
    spec: dict[str, Any],
    record: dict[str, Any],
) -> TrackedRun:
    """Open the wandb run of an attempt; `planned` has run (its name), role and model."""
    name = planned["run"]
    config = {"study": study.folder.resolve().name, "run": name, "role": planned["role"]}
    shown: dict[str, Any] = {"name": f"{name} {record['attempt']}", "job_type": JOB_TYPES[planned["role"]]}
    shown |= {"tags": [str(spec.get("phase", "")), planned["model"]], "id": attempt_identity(study, name, record)}
    return open_run(study, tracking, mode, **shown, config={**config, "spec": spec, "attempt": record})


def outcome(study: Study, run: str, record: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Exit code and summary of an attempt that is over."""
    code = int(record.get("exit_code", 1))
    why = record.get("reason", "" if "end" in record else "the process died without a reason")
    return code, {"state": state_of(study.runs / run), "exit_code": code, "reason": why}


def settings(tracking: TrackingConfig) -> wandb.Settings:
    """Settings with bounded waits, and without facts of the machine beyond the record of the attempt."""
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
