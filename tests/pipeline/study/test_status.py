"""What status says of a run whose process is on another host."""

import json
import os
import time

from pipeline.study.folder import PlannedRun, Study
from pipeline.study.status import statuses
from tests.conftest import tiny_spec
from training.attempt import claim


def test_a_run_on_another_host_is_interrupted_after_the_seconds_of_the_question(tmp_path):
    spec = tiny_spec(mixture={"general": "1", "code": "0"}, steps=10)
    study, run = Study(tmp_path), PlannedRun(f"fit-{spec.hash[:8]}", "fit", "tiny", "", spec)
    folder = study.runs / run.name
    folder.mkdir(parents=True)
    attempt = claim(folder, heartbeat_seconds=1000)
    (folder / "attempts/001.json").write_text(json.dumps({**attempt.record, "host": "elsewhere"}))
    beat = time.time() - 90
    os.utime(folder / "attempts/001.heartbeat", (beat, beat))
    for stale_after, state in ((60.0, "interrupted"), (300.0, "running")):
        (row,) = statuses(study, [run], stale_after)
        assert row.state == state
    attempt.end(0)
