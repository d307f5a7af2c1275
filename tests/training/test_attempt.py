"""The lease: one holder, a dead one replaced, a sleeping one stopped."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from training.attempt import LeaseLostError, attempts, claim, is_live


def test_one_of_many_claimants_wins(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        claims = [attempt for attempt in pool.map(lambda _: claim(tmp_path), range(16)) if attempt]
    assert len(claims) == 1
    assert claim(tmp_path) is None
    claims[0].end(0)
    second = claim(tmp_path)
    assert second.number == 2
    second.end(0)


def test_a_killed_holder_on_this_host_is_replaced_at_once(tmp_path):
    claimed = f"from training.attempt import claim; claim(pathlib.Path({str(tmp_path)!r}))"
    script = f"import os, pathlib; {claimed}; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script], check=False)
    assert "end" not in attempts(tmp_path)[0]
    attempt = claim(tmp_path)
    attempt.end(0)


@pytest.mark.parametrize("skew", [0.0, -86400.0, 86400.0], ids=["right clock", "slow clock", "fast clock"])
def test_a_holder_on_another_host_is_alive_while_its_heart_beats(tmp_path, monkeypatch, skew):
    attempt = claim(tmp_path, heartbeat_seconds=1000)
    record = {**attempt.record, "host": "elsewhere"}
    (tmp_path / "attempts" / "001.json").write_text(json.dumps(record))
    right = time.time
    monkeypatch.setattr("time.time", lambda: right() + skew)
    assert is_live(tmp_path, record, stale_after=5.0)
    assert claim(tmp_path, stale_after=5.0) is None
    old = right() - 10
    os.utime(tmp_path / "attempts" / "001.heartbeat", (old, old))
    assert not is_live(tmp_path, record, stale_after=5.0)
    # From before the clock was set back by a day.
    os.utime(tmp_path / "attempts" / "001.heartbeat", (right() + 86400, right() + 86400))
    assert not is_live(tmp_path, record, stale_after=5.0)
    successor = claim(tmp_path, stale_after=5.0)
    with pytest.raises(LeaseLostError, match="taken over"):
        attempt.check()
    successor.check()
    successor.end(0)


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_that_is_set_kills_no_holder_on_this_host(tmp_path, monkeypatch, hours):
    attempt = claim(tmp_path)
    boot = psutil._pslinux.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot + 3600 * hours)
    assert is_live(tmp_path, attempt.record)
    assert claim(tmp_path) is None
    monkeypatch.undo()
    attempt.end(0)


@pytest.mark.parametrize(
    "left", ["", '{"attempt": 1, "ho', "\0\0\0\0", "[1]", "{}", "[" * 10**5, '{"attempt": 1, "start": "x"}']
)
def test_a_damaged_record_is_read_past(tmp_path, left):
    attempt = claim(tmp_path, heartbeat_seconds=1000)
    (tmp_path / "attempts" / "001.json").write_text(left)
    assert attempts(tmp_path) == [{"attempt": 1}]
    # Its heart still beats: whose it is cannot be known.
    assert claim(tmp_path) is None
    os.utime(tmp_path / "attempts" / "001.heartbeat", (0, 0))
    second = claim(tmp_path)
    assert second.number == 2
    second.end(0)
    assert [record["attempt"] for record in attempts(tmp_path)] == [1, 2]
    attempt.end(0)


def test_keys_of_an_earlier_version_are_left_out(tmp_path):
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "001.json").write_text('{"attempt": 1, "engine": "eager", "measured": {"eager": 9}}')
    assert attempts(tmp_path) == [{"attempt": 1, "engine": "eager"}]


def test_attempts_are_sorted_as_numbers(tmp_path):
    (tmp_path / "attempts").mkdir()
    for number in (998, 999, 1000, 1001):
        (tmp_path / "attempts" / f"{number:03d}.json").write_text(json.dumps({"attempt": number, "end": "x"}))
    (tmp_path / "attempts" / "1x.json").touch()
    attempt = claim(tmp_path)
    assert attempt.number == 1002
    attempt.end(0)


def test_the_heart_beats_on_after_a_failure_of_the_file_system(tmp_path):
    attempt = claim(tmp_path, heartbeat_seconds=0.02)
    heart = tmp_path / "attempts" / "001.heartbeat"
    for failure in (False, True):
        if failure:
            heart.rename(tmp_path / "away")
            time.sleep(0.2)
            (tmp_path / "away").rename(heart)
        os.utime(heart, (0, 0))
        deadline = time.time() + 5
        while heart.stat().st_mtime == 0 and time.time() < deadline:
            time.sleep(0.01)
        assert heart.stat().st_mtime > 0
    attempt.end(75, "asked to stop")
    assert attempts(tmp_path)[0]["exit_code"] == 75


def test_an_attempt_records_versions_but_no_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "a-secret-of-mine")
    attempt = claim(tmp_path)
    attempt.note(engine="eager")
    attempt.end(0)
    text = (tmp_path / "attempts" / "001.json").read_text()
    assert "a-secret-of-mine" not in text
    record = json.loads(text)
    assert record["packages"]["torch"]
    assert record["engine"] == "eager"
    assert record["exit_code"] == 0
