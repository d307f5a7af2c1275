"""A run whose domain weights move ends byte for byte the same after any kill, and after a stop."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.training.proxies import assert_same, attempt, train_proxy
from training.corpora.manifest import Manifest
from training.domain_weights import PATH, read_path
from training.run import Exit
from training.spec import RunSpec
from training.stop import StopRequest

pytestmark = pytest.mark.slow

INSIDE = [("before a line", 5), ("behind a line", 7), ("points", 3), ("state", 2)]


@pytest.mark.parametrize("die_at", INSIDE, ids=lambda die_at: f"{die_at[0]} {die_at[1]}")
def test_killed_inside(
    die_at, proxy: RunSpec, manifest: Manifest, reference: Path, proxy_run: Path, tmp_path: Path
) -> None:
    assert attempt(proxy, tmp_path, manifest, reference, die_at) == -signal.SIGKILL
    if die_at[0] == "behind a line":
        assert attempt(proxy, tmp_path, manifest, reference, ("cut", 1)) == -signal.SIGKILL
    assert attempt(proxy, tmp_path, manifest, reference) == 0
    assert_same(tmp_path, proxy_run)


def test_killed_at_random_moments_and_in_the_middle_of_a_line(
    proxy: RunSpec, manifest: Manifest, reference: Path, proxy_run: Path, tmp_path: Path
) -> None:
    draw, folder = random.Random(0), tmp_path / "killed"
    # Each later than the last by more than a state, and random within.
    for least in (2, 6, 10, 14):
        killed = attempt(proxy, folder, manifest, reference, lines=draw.randint(least, least + 2))
        assert killed == -signal.SIGKILL
        with open(folder / PATH, "ab") as stream:
            stream.write(b'{"step": 21, "weig')
    assert attempt(proxy, folder, manifest, reference) == 0
    assert_same(folder, proxy_run)


def test_stopped_at_a_step_without_a_state_it_goes_on_as_if_it_had_not(
    proxy: RunSpec, manifest: Manifest, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import training.group_dro

    assert train_proxy(proxy, tmp_path / "whole", manifest, reference) == Exit.DONE
    append, calls = training.group_dro.append_flushed, []

    def stopping(path: Path, text: str) -> None:
        append(path, text)
        calls.append(path)
        if len(calls) == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training.group_dro, "append_flushed", stopping)
    with StopRequest():
        assert train_proxy(proxy, tmp_path / "run", manifest, reference, resume_every=0) == Exit.RUN_ME_AGAIN
    assert [line["step"] for line in read_path(tmp_path / "run")] == list(range(1, 9))
    assert train_proxy(proxy, tmp_path / "run", manifest, reference, resume_every=0) == Exit.DONE
    assert_same(tmp_path / "run", tmp_path / "whole")
