"""What a worker tells a run of the plan around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.launch import worker
from tests.pipeline.report.report_study import make_study
from training.run import Exit
from training.stop import StopRequest


def test_a_run_asked_for_alone_chooses_its_engine_for_all_of_its_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, question = make_study(tmp_path, until="plan")
    plan = study.read_plan()
    first = next(run for run in plan if run.model == question.ladder[0])
    told: dict[str, Any] = {}

    def run_once(spec: Any, places: Any, execution: Any, **words: Any) -> Exit:
        told.update(words)
        return Exit.RUN_ME_AGAIN

    monkeypatch.setattr(worker, "run_once", run_once)
    monkeypatch.setattr(worker.Manifest, "open", lambda folder: None)
    with StopRequest() as stop:
        assert worker.work(study, question, stop, only=first.name) == Exit.RUN_ME_AGAIN
    same = [run.spec.tokens for run in plan if run.spec.model == first.spec.model]
    assert len(same) > 1
    assert told["tokens_ahead"] == sum(same)
