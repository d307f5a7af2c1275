"""wandb's copy of a study, read back from wandb's own files, and training that wandb cannot stop."""

import dataclasses
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import question_of_study
from pipeline.question.schema import TrackingConfig
from pipeline.show.tracking.answer import answer_identity
from pipeline.show.tracking.mirror import Mirror, track_answer
from pipeline.show.tracking.rows import rows_by_attempt
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.folder import Study
from tests.pipeline.cli.test_hostile import plain_study
from tests.pipeline.show.report.report_study import set_all_positions
from tests.pipeline.small import CPTLAW, small_words, study_in, wait_until, worker
from tests.processes import Forked, run_forked
from training.attempt import attempts
from training.durable import read_lines_whole

KEY = "local-" + "0123456789abcdef" * 2 + "01234567"
"""Of the right form, and nobody's."""
WORDS = [
    *("ladder=[]", "mixture.domain_ratio=[0.5]", "launcher.workers=1"),
    *("tracking=wandb", "tracking.every=0.2", "tracking.tags=[tried]"),
]


@pytest.fixture(autouse=True)
def no_wandb_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the key nor the settings of who runs the tests."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture(scope="module")
def words(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    words = small_words(texts, tmp_path_factory.mktemp("tracked"), *WORDS)
    assert run(["prepare", *words]) == 0
    return words


@pytest.fixture(scope="module")
def tracked(words: list[str]) -> Study:
    """A study that was trained with a key in the environment, and wandb set to stay offline."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    # What a sweep's agent leaves in the environment is not for the runs of the study.
    agent = {"WANDB_API_KEY": KEY, "WANDB_MODE": "offline", "WANDB_RUN_ID": "of-the-agent", "WANDB_SWEEP_ID": "sweep"}
    assert run_forked([*CPTLAW, "train", *words], surroundings | agent).returncode == 0
    return study_in(words)


def records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: a log of 32 KiB blocks as LevelDB writes it, behind seven bytes of wandb's."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"[: len(data)]
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def stored(study: Study) -> dict[str, Any]:
    """wandb's id -> run, of all offline runs of a study; wandb's service writes their last records a moment later."""
    wait_until(lambda: all(hasattr(one, "run") and hasattr(one, "exit_code") for one in written(study)))
    return {one.run.run_id: one for one in written(study)}


def written(study: Study) -> Iterator[Any]:
    """What the files of a study's offline runs hold so far."""
    for path in sorted((study.folder / "wandb").glob("offline-run-*/*.wandb")):
        one = SimpleNamespace(config={}, summary={}, history=[], axes={}, artifacts=[], folder=path.parent)
        for record in records(path):
            match record.WhichOneof("record_type"):
                case "run":
                    one.run = record.run
                    one.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
                case "history":
                    row = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
                    one.history.append({key: json.loads(value) for key, value in row.items()})
                case "summary":
                    for item in record.summary.update:
                        one.summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
                case "metric":
                    one.axes[record.metric.glob_name or record.metric.name] = record.metric.step_metric
                case "exit":
                    one.exit_code = record.exit.exit_code
                case "artifact":
                    one.artifacts.append(record.artifact.type)
        yield one


def test_a_run_an_attempt_in_the_group_of_the_study(tracked: Study) -> None:
    runs = stored(tracked)
    plan = {planned.name: planned for planned in tracked.read_plan()}
    assert len(runs) == len(plan) == 2
    for one in runs.values():
        planned = plan[one.config["run"]]
        assert (one.run.run_group, one.run.project, one.run.display_name) == ("small", "cptlaw", f"{planned.name} 1")
        assert one.run.job_type == {"pretrain": "pretrain", "fit": "continual"}[planned.role]
        assert set(one.run.tags) == {"tried", planned.spec.phase, planned.model}
        assert one.config["spec"] == json.loads(json.dumps(planned.spec.to_dict()))
        assert (one.config["attempt"]["attempt"], one.exit_code, one.summary["state"]) == (1, 0, "done")


def test_points_and_metrics_arrive_whole_with_steps_that_rise(tracked: Study) -> None:
    for one in stored(tracked).values():
        folder = tracked.runs / one.config["run"]
        points, metrics = (read_lines_whole(folder / name) for name in ("points.jsonl", "metrics.jsonl"))
        assert one.axes["*"] == "step"
        counted, steps = [row["_step"] for row in one.history], [row["step"] for row in one.history]
        assert counted == list(range(len(counted)))
        assert steps == sorted(steps)
        logged = {(row["step"], key): value for row in one.history for key, value in row.items()}
        assert points
        for point, key in itertools.product(points, ("loss", "loss_stderr")):
            assert logged[point["step"], f"{key}/{point['corpus']}"] == point[key]
        for line, key in itertools.product(metrics, ("loss", "tokens_per_second")):
            assert logged[line["step"], f"train/{key}"] == line[key]
        assert len(one.history) == len({point["step"] for point in points}) + len(metrics)


def test_no_file_holds_the_key(tracked: Study) -> None:
    files = [path for path in tracked.folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.slow
def test_only_the_mirror_loads_wandb(tracked: Study, words: list[str]) -> None:
    code = (
        "import sys; from pipeline.cli.main import run; "
        f"assert run(['train', *{words!r}]) == 0; "
        "import pipeline.launch.work; assert 'wandb' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sync_makes_from_the_files_what_the_mirror_saw(tracked: Study, tmp_path: Path) -> None:
    copy = Study(tmp_path / "small")
    shutil.copytree(tracked.folder, copy.folder, ignore=shutil.ignore_patterns("wandb", "checkpoints"))
    assert run(["track", "sync", str(copy.folder)]) == 0
    seen, made = stored(tracked), stored(copy)
    assert set(seen) == set(made)
    for identity, one in made.items():
        assert one.history == [
            {**row, "_timestamp": mine["_timestamp"], "_runtime": mine["_runtime"]}
            for row, mine in zip(seen[identity].history, one.history, strict=True)
        ]
        assert one.config["spec"] == seen[identity].config["spec"]
        assert one.exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in (copy.folder / "wandb").rglob("*.wandb")}
    assert run(["track", "sync", str(copy.folder)]) == 0
    assert {path: path.stat().st_mtime_ns for path in (copy.folder / "wandb").rglob("*.wandb")} == before
    # What was cut off is thrown away and made again.
    identity = next(iter(made))
    (copy.folder / "wandb" / f"{identity}.json").unlink()
    made[identity].folder.joinpath(f"run-{identity}.wandb").write_bytes(b":W&B")
    assert run(["track", "sync", str(copy.folder)]) == 0
    assert set(stored(copy)) == set(made)
    assert len(stored(copy)[identity].history) == len(made[identity].history)


def test_an_attempt_of_another_host_is_copied_when_it_is_stale(tracked: Study, tmp_path: Path, capsys) -> None:
    copy = Study(tmp_path / "small")
    shutil.copytree(tracked.folder, copy.folder, ignore=shutil.ignore_patterns("wandb", "checkpoints"))
    for planned in copy.read_plan():
        record = copy.runs / planned.name / "attempts" / "001.json"
        alive = {key: value for key, value in json.loads(record.read_text()).items() if key not in ("end", "exit_code")}
        record.write_text(json.dumps(alive | {"host": "elsewhere"}))
        beat = record.with_suffix(".heartbeat")
        beat.touch()
        os.utime(beat, (time.time() - 100, time.time() - 100))
    assert run(["track", "sync", str(copy.folder), "launcher.stale_after=300"]) == 0
    assert run(["track", "sync", str(copy.folder), "launcher.stale_after=90"]) == 0
    copied = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "attempts copied from" in line]
    assert copied == ["0", "2"]


def test_what_was_recorded_offline_is_sent_by_sync(tracked: Study, tmp_path: Path, monkeypatch, capsys) -> None:
    copy = Study(tmp_path / "small")
    shutil.copytree(tracked.folder, copy.folder, ignore=shutil.ignore_patterns("checkpoints"))
    text = (copy.folder / "study.yaml").read_text()
    assert "  mode: auto\n" in text
    (copy.folder / "study.yaml").write_text(text.replace("  mode: auto\n", "  mode: offline\n"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert run(["track", "sync", str(copy.folder)]) == 0
    assert "are not uploaded: wandb login, then" in capsys.readouterr().out
    monkeypatch.setenv("WANDB_MODE", "online")
    sent: list[list[str]] = []
    done = SimpleNamespace(returncode=0)
    monkeypatch.setattr("pipeline.show.tracking.sync.subprocess.run", lambda command, **_: sent.append(command) or done)
    assert run(["track", "sync", str(copy.folder)]) == 0
    (command,) = sent
    assert command[2:4] == ["wandb", "sync"]
    assert set(command[5:]) == {str(folder) for folder in (copy.folder / "wandb").glob("offline-run-*")}


@pytest.mark.slow
def test_a_run_that_was_stopped_has_an_attempt_more(words: list[str], tmp_path: Path) -> None:
    assert run(["plan", *words, f"studies={tmp_path}", "seed=5", "pretrain.steps=3000", "allow_repeats=true"]) == 0
    study = Study(tmp_path / "small")
    (planned,) = (planned for planned in study.read_plan() if planned.role == "pretrain")
    folder = study.runs / planned.name
    first = Forked(worker(study, planned.name))
    wait_until((folder / "metrics.jsonl").exists)
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 75
    written = (folder / "metrics.jsonl").stat().st_size
    again = Forked(worker(study, planned.name))
    wait_until(lambda: (folder / "metrics.jsonl").stat().st_size > written)
    again.kill()
    again.wait()
    wait_until(lambda: len(list((study.folder / "wandb").glob("*.json"))) == 2)
    first, second = stored(study).values()
    assert (first.exit_code, first.summary["reason"]) == (75, "asked to stop; saved")
    assert (second.exit_code, second.summary["reason"]) == (1, "the process died without a reason")
    began = attempts(folder)[1]["from_step"]
    assert began > 0
    assert min(row["step"] for row in second.history) >= began
    shared = rows_by_attempt(folder, attempts(folder))
    assert [row["step"] for row in shared[1]] == [
        row["step"] for row in first.history if row["step"] < began or "train/loss" in row
    ]


def test_a_step_that_was_trained_twice_counts_once(tmp_path: Path) -> None:
    metrics = [{"step": step, "loss": float(step)} for step in (20, 40, 60, 40, 60, 80)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    points = [{"step": step, "corpus": "code", "loss": 1.0} for step in (0, 30, 50, 80)]
    (tmp_path / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in points))
    records = [{"attempt": 1, "from_step": 0}, {"attempt": 2, "from_step": 30}, {"attempt": 3, "from_step": 30}]
    shared = rows_by_attempt(tmp_path, records)
    steps = {number: [(row["step"], "train/loss" in row) for row in rows] for number, rows in shared.items()}
    assert steps == {
        1: [(0, False), (20, True)],
        2: [],
        3: [(30, False), (40, True), (50, False), (60, True), (80, False), (80, True)],
    }


def test_an_attempt_that_ended_before_it_trained_has_no_rows(tmp_path: Path) -> None:
    lines = [{"step": step, "corpus": "code", "loss": 1.0} for step in (0, 30)]
    (tmp_path / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 20, "loss": 2.0}) + "\n")
    records = [{"attempt": 1, "from_step": 0}, {"attempt": 2, "exit_code": 75}]
    shared = rows_by_attempt(tmp_path, records)
    assert {number: [row["step"] for row in rows] for number, rows in shared.items()} == {1: [0, 20, 30], 2: []}
    # Memory ran out behind step 30, and the same attempt went on from the state there.
    again = rows_by_attempt(tmp_path, [{"attempt": 1, "from_step": 30}])
    assert [row["step"] for row in again[1]] == [0, 20, 30]


@pytest.mark.slow
def test_the_answer_with_its_curves_report_and_files(tmp_path: Path, tmp_path_factory, monkeypatch) -> None:
    # The mirror is a process of its own.
    set_all_positions(monkeypatch)
    study = Study(tmp_path / "synthetic")
    shutil.copytree(plain_study(tmp_path_factory.getbasetemp() / "plain").folder, study.folder)
    assert run(["report", str(study.folder), "tracking.kind=wandb"]) == 0
    (one,) = [one for one in stored(study).values() if one.run.job_type == "fit"]
    ratio = (Recommendation.read(study).mixture or {})["code"]
    assert one.summary["domain_ratio"] == ratio
    for row in Confirmation.read(study).confirmations:
        if row.recommended and abs(row.domain_ratio - ratio) < 5e-4:
            assert one.summary[f"predicted/{row.corpus}"] == pytest.approx(row.predicted)
            assert one.summary[f"measured/{row.corpus}"] == row.measured
    kinds = {value for row in one.history for key, value in row.items() if key.endswith("/_type")}
    assert kinds == {"html-file", "plotly-file", "table-file"}
    assert "study" in one.artifacts
    (html,) = one.folder.glob("files/media/html/report*.html")
    assert html.read_text() == (study.folder / "report.html").read_text()
    # The same answer is copied once.
    track_answer(study, question_of_study(study.folder, ["tracking.kind=wandb"]))
    assert len(stored(study)) == 1


@pytest.mark.parametrize("changes", [{"goal": "answers/balance"}, {"answers": "answers/code"}])
def test_another_goal_or_domain_has_an_answer_of_its_own(changeable, changes: dict[str, str]) -> None:
    study, _ = changeable
    other, first = dataclasses.replace(study, **changes), answer_identity(study)
    written = Recommendation.path(other)
    written.parent.mkdir(parents=True)
    seen = {answer_identity(other)}
    for binding in ("one", "another"):
        written.write_text(Recommendation.path(study).read_text().replace('"binding": "', f'"binding": "{binding} '))
        seen.add(answer_identity(other))
    assert len(seen) == 3
    assert answer_identity(study) == first


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_a_warning(words: list[str], tracked: Study, tmp_path: Path) -> None:
    assert run(["plan", *words, f"studies={tmp_path}", "seed=6", "tracking.mode=online", "tracking.wait=4"]) == 0
    study = Study(tmp_path / "small")
    (planned,) = (planned for planned in study.read_plan() if planned.role == "pretrain")
    # A server that accepts and says nothing: the worst kind.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        surroundings = os.environ | {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": address}
        command = worker(study, planned.name)
        done = run_forked(command, surroundings)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("tracking: ")]
    assert lines, done.stderr
    assert "cptlaw track sync" in lines[-1]
    assert (study.runs / planned.name / "DONE").exists()
    test_no_file_holds_the_key(study)
    assert run(["track", "sync", str(study.folder)]) == 0
    (one,) = stored(study).values()
    assert [row["step"] for row in one.history][-1] == 30


@pytest.mark.parametrize("program", ["sleep 60", "exit 3"])
def test_a_mirror_that_hangs_or_dies_stops_nothing(program: str, tmp_path, monkeypatch, capsys, tracked) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    start = time.monotonic()
    mirror = Mirror(tracked, TrackingConfig(kind="wandb", wait=0.5))
    planned = tracked.read_plan()[0]
    # More than a pipe holds.
    for attempt in range(2000):
        mirror.begin(planned, attempt)
    mirror.end()
    assert time.monotonic() - start < 5.0
    if "sleep" in program:
        assert "cptlaw track sync" in capsys.readouterr().err
