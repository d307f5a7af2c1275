"""After kill -9 at any moment and a second start, the points are the same byte for byte as without the kill."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.training.runs import assert_same, attempt, in_process, train_run
from training.checkpoints.states import resumable_state, saved_states
from training.domain_weights import PATH, read_path
from training.run import Exit, state_of
from training.stop import StopRequest


@pytest.fixture(scope="module")
def undisturbed(spec, manifest, tmp_path_factory) -> tuple[bytes, float]:
    folder = tmp_path_factory.mktemp("undisturbed")
    in_process(int)
    start = time.perf_counter()
    assert attempt(spec, folder, manifest) == 0
    return (folder / "points.jsonl").read_bytes(), time.perf_counter() - start


@pytest.fixture(scope="module")
def killed(spec, manifest, tmp_path_factory) -> Path:
    """A run of which only the last weights are missing: all points, and the states of steps 15 and 18."""
    folder = tmp_path_factory.mktemp("killed")
    assert attempt(spec, folder, manifest, die_at=("weights", 1)) == -signal.SIGKILL
    return folder


@pytest.fixture
def nearly_done(killed, tmp_path) -> Path:
    return shutil.copytree(killed, tmp_path / "run")


def newest(folder: Path) -> str | None:
    return next((state.name for state in saved_states(folder)), None)


@pytest.mark.slow
def test_killed_inside_again_and_again(spec, manifest, undisturbed, tmp_path):
    # Place, its call in this process, and the newest state afterwards: of every third step, unless the place is its.
    for place, call, state in (
        ("evaluation", 3, None),
        ("points", 2, None),
        ("state", 2, "step-3"),
        ("state rename", 3, "step-9"),
        ("evaluation", 2, "step-12"),
        ("marker", 3, "step-18"),
        ("weights", 1, "step-18"),
    ):
        assert attempt(spec, tmp_path, manifest, die_at=(place, call)) == -signal.SIGKILL
        assert state_of(tmp_path) == "open"
        assert newest(tmp_path) == state
        assert undisturbed[0].startswith((tmp_path / "points.jsonl").read_bytes())
    assert attempt(spec, tmp_path, manifest) == 0
    assert newest(tmp_path) is None
    assert (tmp_path / "points.jsonl").read_bytes() == undisturbed[0]


def test_an_incomplete_state_falls_back_to_the_one_before(spec, manifest, undisturbed, nearly_done):
    state, points = nearly_done / "resume" / "step-18" / "state.safetensors", nearly_done / "points.jsonl"
    os.truncate(state, state.stat().st_size - 100)
    # An incomplete line of points is written again, too.
    os.truncate(points, points.stat().st_size - 40)
    # What a kill while a state is written leaves.
    (nearly_done / "resume" / ".step-17.0123.part").mkdir()
    assert resumable_state(spec, nearly_done).name == "step-15"
    assert attempt(spec, nearly_done, manifest) == 0
    assert not list(nearly_done.glob("*/.step-*.part"))
    assert points.read_bytes() == undisturbed[0]


# Steps 0, 1, 7, 14 and 20 are evaluated on two corpora.
@pytest.mark.parametrize(("line", "state"), [(9, "step-18"), (8, "step-18"), (7, None), (3, None), (0, None)])
@pytest.mark.parametrize(
    "damage",
    [b"", b'{"step": 7', b"\0" * 60 + b"\n", b"[" * 20000 + b"\n", b"3\n"],
    ids=["lost", "cut", "zeros", "brackets", "number"],
)
def test_no_state_behind_a_lost_or_damaged_point_counts(line, state, damage, spec, nearly_done):
    points = nearly_done / "points.jsonl"
    lines = points.read_bytes().splitlines(keepends=True)
    points.write_bytes(b"".join([*lines[:line], damage, *lines[line + 1 :]]))
    resumed = resumable_state(spec, nearly_done)
    assert (resumed and resumed.name) == state


def test_points_that_were_lost_are_trained_again(spec, manifest, undisturbed, nearly_done):
    points = nearly_done / "points.jsonl"
    points.write_bytes(b"".join(points.read_bytes().splitlines(keepends=True)[:3]))
    assert attempt(spec, nearly_done, manifest, die_at=("evaluation", 2)) == -signal.SIGKILL
    assert newest(nearly_done) is None
    assert attempt(spec, nearly_done, manifest) == 0
    assert points.read_bytes() == undisturbed[0]


@pytest.mark.slow
def test_a_reweighted_run_killed_inside_again_and_again(proxy, manifest, reference, proxy_run, tmp_path):
    # Each goes on from the newest state before the place: of steps 0, 3, 9, 9 and 12.
    for die_at in (("before a line", 5), ("after a line", 7), ("cut", 1), ("points", 1), ("state written", 2)):
        assert attempt(proxy, tmp_path, manifest, reference, die_at) == -signal.SIGKILL
        for name in ("points.jsonl", PATH):
            assert (proxy_run / name).read_bytes().startswith((tmp_path / name).read_bytes())
        with open(tmp_path / PATH, "ab") as stream:
            stream.write(b'{"step": 21, "weig')
    assert newest(tmp_path) == "step-15"
    # Weights that were lost before a state are trained again, as points are.
    (tmp_path / PATH).write_bytes(b"".join((tmp_path / PATH).read_bytes().splitlines(keepends=True)[:5]))
    assert resumable_state(proxy, tmp_path) is None
    assert attempt(proxy, tmp_path, manifest, reference) == 0
    assert_same(tmp_path, proxy_run)


def test_a_reweighted_run_stopped_at_a_step_without_a_state_resumes_exactly(
    proxy, manifest, reference, proxy_run, tmp_path, monkeypatch
):
    import training.group_dro

    append, calls = training.group_dro.append_flushed, []

    def stopping(path: Path, text: str) -> None:
        append(path, text)
        calls.append(path)
        if len(calls) == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training.group_dro, "append_flushed", stopping)
    with StopRequest():
        assert train_run(proxy, tmp_path, manifest, reference=reference, resume_every=0) == Exit.RUN_ME_AGAIN
    assert [line["step"] for line in read_path(tmp_path)] == list(range(1, 9))
    assert train_run(proxy, tmp_path, manifest, reference=reference, resume_every=0) == Exit.DONE
    assert_same(tmp_path, proxy_run)
