"""After kill -9 at any moment and a second start, the points are the same byte for byte as without the kill."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.training.runs import assert_same, attempt, train_run
from training.domain_weights import PATH, read_path
from training.run import Exit, state_of
from training.stop import StopRequest


@pytest.fixture(scope="module")
def undisturbed(spec, manifest, tmp_path_factory) -> tuple[bytes, float]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert attempt(spec, folder / "first", manifest) == 0
    start = time.perf_counter()
    assert attempt(spec, folder / "run", manifest) == 0
    points = (folder / "run" / "points.jsonl").read_bytes()
    assert points == (folder / "first" / "points.jsonl").read_bytes()
    return points, time.perf_counter() - start


INSIDE = [("evaluation", 3), ("evaluation", 6), ("points", 2), ("state", 2), ("state rename", 3)]
INSIDE += [("checkpoint marker", 2), ("weights", 1), ("state", 1)]


@pytest.mark.parametrize("die_at", INSIDE, ids=lambda die_at: f"{die_at[0]} {die_at[1]}")
def test_killed_inside(die_at, spec, manifest, undisturbed, tmp_path):
    assert attempt(spec, tmp_path, manifest, die_at=die_at) == -signal.SIGKILL
    assert state_of(tmp_path) == "open"
    assert attempt(spec, tmp_path, manifest) == 0
    assert (tmp_path / "points.jsonl").read_bytes() == undisturbed[0]


@pytest.mark.slow
def test_killed_at_ten_random_moments(spec, manifest, undisturbed, tmp_path):
    points, seconds = undisturbed
    draw = random.Random(0)
    killed = 0
    for run in range(20):
        folder = tmp_path / str(run)
        if attempt(spec, folder, manifest, after=draw.uniform(0.0, seconds)) == -signal.SIGKILL:
            killed += 1
        else:
            # It ended before: the machine is less busy than when the time was taken.
            seconds *= 0.8
        assert attempt(spec, folder, manifest) == 0
        assert (folder / "points.jsonl").read_bytes() == points
        if killed == 10:
            return
    assert killed >= 10


def test_an_incomplete_state_falls_back_to_the_one_before(spec, manifest, undisturbed, tmp_path):
    attempt(spec, tmp_path, manifest, die_at=("weights", 1))
    states = sorted((tmp_path / "resume").glob("step-*"), key=lambda path: int(path.name[5:]))
    assert [path.name for path in states] == ["step-15", "step-18"]
    newest = states[-1] / "state.safetensors"
    os.truncate(newest, newest.stat().st_size - 100)
    # An incomplete line of points is written again, too.
    points = tmp_path / "points.jsonl"
    os.truncate(points, points.stat().st_size - 40)
    # What a kill while a state is written leaves.
    (tmp_path / "resume" / ".step-17.0123.part").mkdir()
    assert attempt(spec, tmp_path, manifest) == 0
    assert not list(tmp_path.glob("*/.step-*.part"))
    assert points.read_bytes() == undisturbed[0]


# Steps 0, 1, 7, 14 and 20 are evaluated on two corpora; the states are those of steps 15 and 18.
@pytest.mark.parametrize("kept", [7, 3, 0], ids=lambda kept: f"{kept} lines")
def test_points_that_were_cut_after_a_state_are_trained_again(kept, spec, manifest, undisturbed, tmp_path):
    attempt(spec, tmp_path, manifest, die_at=("weights", 1))
    points = tmp_path / "points.jsonl"
    lines = points.read_bytes().splitlines(keepends=True)
    points.write_bytes(b"".join(lines[:kept]) + lines[kept][:40])
    assert attempt(spec, tmp_path, manifest, die_at=("evaluation", 2)) == -signal.SIGKILL
    assert not list(tmp_path.glob("resume/step-1*"))
    assert attempt(spec, tmp_path, manifest) == 0
    assert points.read_bytes() == undisturbed[0]


@pytest.mark.parametrize(
    "damage", [b"\0" * 60 + b"\n", b"[" * 20000 + b"\n", b"3\n"], ids=["zeros", "brackets", "number"]
)
def test_points_behind_a_damaged_line_are_trained_again(damage, spec, manifest, undisturbed, tmp_path):
    attempt(spec, tmp_path, manifest, die_at=("weights", 1))
    points = tmp_path / "points.jsonl"
    lines = points.read_bytes().splitlines(keepends=True)
    points.write_bytes(b"".join([*lines[:4], damage, *lines[5:]]))
    assert attempt(spec, tmp_path, manifest) == 0
    assert points.read_bytes() == undisturbed[0]


@pytest.mark.slow
def test_domain_weights_that_were_cut_after_a_state_are_trained_again(proxy, manifest, reference, proxy_run, tmp_path):
    assert attempt(proxy, tmp_path, manifest, reference, ("points", 4)) == -signal.SIGKILL
    lines = (tmp_path / PATH).read_bytes().splitlines(keepends=True)
    assert len(lines) == 14
    (tmp_path / PATH).write_bytes(b"".join(lines[:5]))
    assert attempt(proxy, tmp_path, manifest, reference) == 0
    assert_same(tmp_path, proxy_run)


DRO_INSIDE = [("before a line", 5), ("after a line", 7), ("points", 3), ("state written", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("die_at", DRO_INSIDE, ids=lambda die_at: f"{die_at[0]} {die_at[1]}")
def test_a_reweighted_run_killed_inside(die_at, proxy, manifest, reference, proxy_run, tmp_path):
    assert attempt(proxy, tmp_path, manifest, reference, die_at) == -signal.SIGKILL
    if die_at[0] == "after a line":
        assert attempt(proxy, tmp_path, manifest, reference, ("cut", 1)) == -signal.SIGKILL
    assert attempt(proxy, tmp_path, manifest, reference) == 0
    assert_same(tmp_path, proxy_run)


@pytest.mark.slow
def test_a_reweighted_run_killed_at_random_moments_and_during_a_line(proxy, manifest, reference, proxy_run, tmp_path):
    draw, folder = random.Random(0), tmp_path / "killed"
    # Each later than the last by more than a state, and random within.
    for earliest in (2, 6, 10, 14):
        killed = attempt(proxy, folder, manifest, reference, lines=draw.randint(earliest, earliest + 2))
        assert killed == -signal.SIGKILL
        with open(folder / PATH, "ab") as stream:
            stream.write(b'{"step": 21, "weig')
    assert attempt(proxy, folder, manifest, reference) == 0
    assert_same(folder, proxy_run)


@pytest.mark.slow
def test_a_reweighted_run_stopped_at_a_step_without_a_state_resumes_exactly(
    proxy, manifest, reference, tmp_path, monkeypatch
):
    import training.group_dro

    assert train_run(proxy, tmp_path / "whole", manifest, reference=reference) == Exit.DONE
    append, calls = training.group_dro.append_flushed, []

    def stopping(path: Path, text: str) -> None:
        append(path, text)
        calls.append(path)
        if len(calls) == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training.group_dro, "append_flushed", stopping)
    with StopRequest():
        stopped = train_run(proxy, tmp_path / "run", manifest, reference=reference, resume_every=0)
    assert stopped == Exit.RUN_ME_AGAIN
    assert [line["step"] for line in read_path(tmp_path / "run")] == list(range(1, 9))
    assert train_run(proxy, tmp_path / "run", manifest, reference=reference, resume_every=0) == Exit.DONE
    assert_same(tmp_path / "run", tmp_path / "whole")
