"""What status says of a run whose process is on another host."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.study.folder import PlannedRun, Study
from pipeline.study.status import statuses
from tests.conftest import tiny_spec
from training.attempt import claim


def _claimed_elsewhere(tmp_path: Path) -> tuple[Study, PlannedRun]:
    """A run that a process on another host claimed, whose last heartbeat is 90 seconds old."""
    spec = tiny_spec(mixture={"general": "1", "code": "0"}, steps=10)
    study, run = Study(tmp_path), PlannedRun(f"fit-{spec.hash[:8]}", "fit", "tiny", "", spec)
    folder = study.runs / run.name
    folder.mkdir(parents=True)
    attempt = claim(folder, heartbeat_seconds=1000)
    (folder / "attempts/001.json").write_text(json.dumps({**attempt.record, "host": "elsewhere"}))
    beat = time.time() - 90
    os.utime(folder / "attempts/001.heartbeat", (beat, beat))
    return study, run


def test_a_run_on_another_host_is_interrupted_after_the_seconds_of_the_question(tmp_path):
    study, run = _claimed_elsewhere(tmp_path)
    for stale_after, state in ((60.0, "interrupted"), (300.0, "running")):
        (row,) = statuses(study, [run], stale_after)
        assert row.state == state


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "0.0", "1e400"])
def test_a_speed_that_is_no_number_is_not_shown(seconds, tmp_path):
    study, run = _claimed_elsewhere(tmp_path)
    line = f'{{"step": 3, "seconds": {seconds}, "tokens_per_second": {10**17}}}\n'
    (study.runs / run.name / "metrics.jsonl").write_text(line)
    (row,) = statuses(study, [run], 300.0)
    assert (row.step, row.speed) == (3, None)


def test_losses_of_an_earlier_step_name_it(tmp_path):
    study, run = _claimed_elsewhere(tmp_path)
    folder = study.runs / run.name
    points = [{"step": 0, "corpus": corpus, "loss": 8.5} for corpus in ("general", "code")]
    (folder / "points.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    for step, named in ((0, ""), (3, " at step 0")):
        (folder / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")
        (row,) = statuses(study, [run], 300.0)
        assert row.detail == f"general 8.5000  code 8.5000{named}"


def test_a_study_that_may_only_be_read_has_its_states(tmp_path):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount of its own is not allowed to this user")
    study, run = _claimed_elsewhere(tmp_path)
    code = (
        "import sys; from pathlib import Path; from training.attempt import attempts, is_live; "
        "folder = Path(sys.argv[1]); print(is_live(folder, attempts(folder)[-1], 300.0))"
    )
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$4"'
    words = [str(tmp_path), sys.executable, code, str(study.runs / run.name)]
    shown = subprocess.check_output(["unshare", "--mount", "bash", "-c", mount, "bash", *words], text=True)
    assert shown == "True\n"
