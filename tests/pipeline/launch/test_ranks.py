"""Runs of two processes: failures, stop and resume, and the same points as one process."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.launch.exit_codes import exit_code_of
from pipeline.launch.ranks import run_ranks
from pipeline.study.folder import Study
from tests.pipeline.small import CPTLAW, small_words, wait_until
from tests.processes import Forked, run_forked
from training.attempt import attempts
from training.durable import read_lines_whole
from training.run import Exit


def _python(script: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time\nrank = int(os.environ['RANK'])\n{script}"]


def test_the_first_failure_stops_all_and_gives_the_exit_code() -> None:
    begin = time.monotonic()
    assert run_ranks(_python("sys.exit(3) if rank else time.sleep(60)"), 2, 1, grace=0.1) == Exit.INPUT_MISSING
    assert run_ranks(_python("os.kill(os.getpid(), 9) if rank else time.sleep(60)"), 2, 1, grace=0.1) == Exit.UNEXPECTED
    assert run_ranks(_python("assert os.environ['WORLD_SIZE'] == '2'"), 2, 1) == Exit.DONE
    assert run_ranks(_python("sys.exit(75)"), 2, 1) == Exit.RUN_ME_AGAIN
    assert time.monotonic() - begin < 30


def test_a_process_that_is_gone_and_a_lost_gpu_are_one_line() -> None:
    for text, meaning in (
        ("[gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:45464. GLHF!", "another process of the run"),
        ("CUDA error: no CUDA-capable device is detected\nCompile with TORCH_USE_CUDA_DSA", "the GPU is gone"),
    ):
        code, line = exit_code_of(RuntimeError(text)) or (None, "")
        assert code == Exit.UNEXPECTED
        assert line.startswith(meaning)
        assert "\n" not in line
    assert exit_code_of(RuntimeError("CUDA error: device-side assert triggered")) is None


def _wait_for_points(path: Path, process: Forked) -> None:
    wait_until(lambda: process.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= 3))
    assert process.poll() is None


@pytest.mark.slow
def test_train_with_two_processes_a_run(texts: Path, tmp_path: Path) -> None:
    words = small_words(
        texts,
        tmp_path,
        *("ladder=[]", "model=qwen2-0.05m", "mixture.domain_ratio=[0.5]", "pretrain.steps=60", "launcher.workers=1"),
        # Frequent evaluations, so that a test can stop the run between two steps.
        "pretrain.evaluation.every=1",
    )
    for verb in ("prepare", "plan"):
        assert run([verb, *words]) == 0
    study = Study(tmp_path / "studies" / "small")
    plan = study.read_plan()
    assert len(plan) == 2
    command = [*CPTLAW, "train", *words]
    points = [study.runs / run.name / "points.jsonl" for run in plan]

    pair = Forked([*command, "parallel=ddp", "parallel.processes=2"], start_new_session=True)
    _wait_for_points(points[0], pair)
    os.killpg(pair.pid, signal.SIGINT)
    assert pair.wait() == Exit.RUN_ME_AGAIN
    first = attempts(points[0].parent)
    assert [(record["exit_code"], record["parallel"], record["processes"]) for record in first] == [(75, "ddp", 2)]
    assert len(list((points[0].parent / "resume").iterdir())) >= 1

    # The rest by ZeRO with conf/parallel; one of its processes dies once.
    pair = Forked([*command, "parallel=zero2"])
    _wait_for_points(points[1], pair)
    os.kill(attempts(points[1].parent)[-1]["pid"], signal.SIGKILL)
    assert pair.wait() == 0
    second = attempts(points[0].parent)
    assert [record["parallel"] for record in second] == ["ddp", "zero2"]
    assert 0 < second[1]["from_step"] < 20
    assert len(attempts(points[1].parent)) == 2

    spread = [read_lines_whole(path) for path in points]
    for run_ in plan:
        (study.runs / run_.name / "DONE").unlink()
        (study.runs / run_.name).rename(tmp_path / run_.name)
    assert run_forked([*command, "parallel=single"]).returncode == 0
    for several, path in zip(spread, points, strict=True):
        single = read_lines_whole(path)
        assert [(p["step"], p["corpus"]) for p in several] == [(p["step"], p["corpus"]) for p in single]
        assert [p["loss"] for p in several] == pytest.approx([p["loss"] for p in single], abs=1e-4)
    # Equal to rounding where the run was stopped. Later AdamW amplifies rounding where a gradient is nearly zero: 2e-6
    # from step 47 on one machine, 3e-7 on another.
    for point, other in zip(spread[0], read_lines_whole(points[0]), strict=True):
        assert point["step"] > 20 or point["loss"] == pytest.approx(other["loss"], abs=1e-6)
