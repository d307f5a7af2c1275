"""The whole road in small: real preparation, training, fits, answer and proof, and what happens on the way."""

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import question_of_study
from pipeline.launch.work import run_worker
from pipeline.question.schema import LawConfig
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.collect import read_points
from pipeline.study.fits import read_fits
from pipeline.study.fitted_points import selected
from pipeline.study.folder import Study, StudyError
from tests.pipeline.cli.test_advise import KEYS, WITHOUT
from tests.pipeline.small import CPTLAW, refused, small_words, study_in, wait_until, worker
from tests.processes import Forked, run_forked
from training.corpora.manifest import Manifest
from training.durable import read_lines_whole

NEWLINE = b"\n"


@pytest.fixture(scope="module")
def words(texts: Path, tmp_path_factory) -> list[str]:
    return small_words(texts, tmp_path_factory.mktemp("road"))


@pytest.fixture(scope="module")
def trained(words: list[str]) -> Study:
    """A study whose fit runs two processes trained at once, one of them started as a user does."""
    for verb in ("prepare", "plan"):
        assert run([verb, *words]) == 0
    processes = [start([*CPTLAW, "train", *words, "launcher.workers=1"]) for start in (subprocess.Popen, Forked)]
    assert [process.wait() for process in processes] == [0, 0]
    return study_in(words)


def test_two_processes_train_every_run_once(trained: Study) -> None:
    plan = trained.read_plan()
    assert len(plan) == 5
    for planned in plan:
        folder = trained.runs / planned.name
        assert (folder / "DONE").exists()
        assert len(list((folder / "attempts").glob("*.json"))) == 1
        steps = {int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").iterdir()}
        assert steps == ({30} if planned.role == "pretrain" else {6, 12, 24})
    assert {path.name for path in trained.runs.iterdir()} == {planned.name for planned in plan}


def test_to_plan_the_same_again_makes_no_report_old(trained: Study, words: list[str]) -> None:
    question = trained.folder / "study.yaml"
    os.utime(question, (1, 1))
    assert run(["plan", *words]) == 0
    assert question.stat().st_mtime == 1
    question.write_text(question.read_text().replace("#", "# ", 1))
    assert run(["plan", *words]) == 0
    assert question.stat().st_mtime > 1


def test_training_again_trains_nothing(trained: Study, words: list[str], capsys) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in trained.runs.rglob("*") if path.is_file()}

    before = times()
    assert run(["train", *words]) == 0
    assert "all 5 runs of the plan are done" in capsys.readouterr().out
    assert times() == before


@pytest.mark.slow
def test_from_points_to_a_confirmed_answer(trained: Study, words: list[str], tmp_path: Path, capsys) -> None:
    for verb in ("collect", "fit", "recommend"):
        assert run([verb, *words]) == 0, verb
    assert run(["plan", *(word.replace("[0.1,0.5,0.9]", "[0.1,0.3,0.5,0.9]") for word in words)]) == 0
    for verb in ("confirm", "report"):
        assert run([verb, *words]) == 0, verb
    states = [trained.state(planned) for planned in trained.read_plan() if planned.role != "confirm"]
    assert sorted(states) == ["done"] * 5 + ["open"], "the run that no confirmation needs is not trained"
    points = read_points(trained)
    assert set(points["role"]) == {"pretrain", "fit", "confirm"}
    assert set(selected(points, "domain", LawConfig())["role"]) == {"fit"}
    assert read_fits(trained, question_of_study(trained.folder, []))["domain"]["transfer-anchored"].n_runs == 3
    recommendation = Recommendation.read(trained)
    assert recommendation.law == {"general": "transfer-anchored", "domain": "transfer-anchored"}
    share = (recommendation.mixture or {})["domain"]
    assert 0 < share <= 1
    assert (recommendation.low or 0.0) <= share + 0.001
    capsys.readouterr()
    assert run(["confirm", *words]) == 0
    assert "nothing to train: the 3 runs needed are done\n" in capsys.readouterr().out
    rows = Confirmation.read(trained).confirmations
    assert len(rows) == 4
    (folder,) = (trained.folder.parent.parent / "data").iterdir()
    prepared = Manifest.open(folder)
    assert {row.corpus for row in rows} == {"general", "domain"}
    for row in rows:
        assert row.relative_error == pytest.approx(row.predicted / row.measured - 1)
        assert row.inside == (row.low <= row.measured <= row.high)
        assert row.perplexity == pytest.approx(math.exp(row.measured))
        text = prepared.corpora[row.corpus]
        per_byte = text.tokens["validation"] / text.bytes["validation"]
        assert row.bits_per_byte == pytest.approx(row.measured / math.log(2) * per_byte)
    confirmed = [planned for planned in trained.read_plan() if planned.role == "confirm"]
    assert {planned.spec.steps for planned in confirmed} == {48}
    # Planning again keeps what was confirmed, and a copy elsewhere answers by itself.
    assert run(["plan", *words]) == 0
    assert len(trained.read_plan()) == 7
    copy = tmp_path / "elsewhere"
    shutil.copytree(trained.folder, copy)
    for name in ("points.parquet", "recommendation.json", "report.html"):
        (copy / name).unlink()
    for verb in ("status", "collect", "recommend", "report"):
        assert run([verb, str(copy)]) == 0, verb
    assert Recommendation.read(Study(copy)).mixture == recommendation.mixture
    # Checkpoints of the run, as another trainer would save them, lose what it measured itself; once.
    of_run = trained.runs / confirmed[0].name
    for again in (False, True):
        capsys.readouterr()
        assert run(["follow", str(copy), f"checkpoints={of_run / 'checkpoints'}", "--json"]) == 0
        out, err = capsys.readouterr()
        assert ("step-48: domain " in err) != again
        followed = json.loads(out)["corpora"]
        for row in (row for row in read_lines_whole(of_run / "points.jsonl") if row["step"] == 48):
            assert followed[row["corpus"]]["losses"][-1]["step"] == 48
            assert followed[row["corpus"]]["losses"][-1]["loss"] == pytest.approx(row["loss"], rel=1e-6)
    # Of other weights there a run of another shape is named, and the newest of several may be half written.
    shutil.copytree(of_run / "checkpoints", moved := tmp_path / "moved")
    tokenizer = json.loads((saved := moved / "step-48" / "tokenizer.json").read_text())
    saved.write_text(json.dumps(tokenizer | {"normalizer": {"type": "Prepend", "prepend": "x"}}))
    (moved / "step-48" / "model.safetensors").write_bytes(b"")
    assert run(["follow", str(copy), f"checkpoints={moved}"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "left out, it may not be whole yet: " in shown
    assert f"note: checkpoints={moved}: the tokenizer saved there is not the study's, and a run on its tokens" in shown
    line = refused(["follow", str(copy), f"checkpoints={tmp_path}"], capsys)
    assert "no checkpoint; allowed: a folder of Hugging Face directories" in line
    line = refused(["follow", str(copy), f"checkpoints={tmp_path / 'none'}"], capsys)
    assert "none: no such folder; allowed: a folder of Hugging Face directories" in line


def test_a_stopped_run_saves_and_says_run_me_again(trained: Study, words: list[str], tmp_path: Path) -> None:
    long = ["pretrain.steps=3000", "launcher.resume_every=0", "allow_repeats=true"]
    mine, study = [*words, f"studies={tmp_path}", *long], Study(tmp_path / "small")
    assert run(["plan", *mine]) == 0
    driver = Forked([*CPTLAW, "train", *mine])
    wait_until(lambda: list(study.runs.glob("*/metrics.jsonl")))
    driver.send_signal(signal.SIGINT)
    assert driver.wait() == 75
    assert list(study.runs.glob("*/resume/step-*/DONE"))
    records = [json.loads(path.read_text()) for path in study.runs.glob("*/attempts/*.json")]
    assert {record["exit_code"] for record in records} == {75}


@pytest.mark.slow
def test_runs_begin_with_the_weights_of_a_directory(trained: Study, words: list[str], tmp_path: Path) -> None:
    directory = next(trained.runs.glob("pretrain*/checkpoints/step-30"))
    mine = [*words, "name=mine", "model=local", f"model.path={directory}", "ladder=[]", f"data={tmp_path}"]
    mine.append("mixture.domain_ratio=[0.5]")
    for verb in ("prepare", "train"):
        assert run([verb, *mine]) == 0, verb
    (of_run,) = study_in(mine, "mine").runs.iterdir()
    first, parent = (read_lines_whole(folder / "points.jsonl") for folder in (of_run, directory.parents[1]))
    assert {point["step"] for point in first[:2]} == {0}
    ends = {point["corpus"]: point["loss"] for point in parent}
    assert {point["corpus"]: point["loss"] for point in first[:2]} == pytest.approx(ends, abs=1e-6)


@pytest.mark.slow
def test_every_command_of_the_readme_runs(trained: Study, words: list[str], texts, tmp_path, monkeypatch) -> None:
    """On a copy of the small study, whose corpora, model and settings take the places of the reader's."""
    monkeypatch.chdir(tmp_path)
    readers = trained.folder.with_name("readers")
    shutil.copytree(trained.folder, readers)
    words, model = [*words, "name=readers"], next(readers.glob("runs/pretrain*/checkpoints/step-30"))
    advised = small_words(texts, readers.parents[1], *KEYS, "name=advised", "design.budget=1e10", without=WITHOUT)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("cptlaw ")]
    assert len(lines) >= 10
    for line in lines:
        verb, *rest = shlex.split(line, comments=True)[1:]
        rest = [str(readers) if word == "studies/own" else word for word in rest]
        if verb == "quickstart":
            rest = ["experiment=own"]
        if verb == "tables":
            # Those of six domains take minutes.
            kept = readers.with_name("kept")
            shutil.copytree(Path(__file__).parents[2] / "docs/results/usages-small", kept, dirs_exist_ok=True)
            rest = [str(kept)]
        elif str(readers) not in rest:
            places = {"prose/": texts / "general", "law.jsonl.gz": texts / "code", "smollm2-135m": model}
            for old, new in places.items():
                rest = [word.replace(old, str(new)) for word in rest]
            # test_advise.py takes every step of a model that is there already.
            more = [*advised, "dry_run=true"] if verb == "advise" else words
            rest = [word for word in rest if not word.startswith(("experiment=", "mixture."))] + more
        assert run([verb, *rest]) == 0, line
    guide = (Path(__file__).parents[2] / "docs/guide.md").read_text()
    (example,) = re.findall(r"```py\n(.*?)```", guide, re.DOTALL)
    for old, new in {"studies/quickstart": str(readers), "code": "domain", "step >= 60": "step >= 5"}.items():
        assert old in example
        example = example.replace(old, new)
    exec(example, {})


def test_input_that_is_missing_or_wrong(words: list[str], tmp_path: Path, capsys) -> None:
    elsewhere = [*words, f"studies={tmp_path / 's'}", f"data={tmp_path / 'd'}"]
    for verb in ("train", "fit", "status"):
        command = shlex.join(["cptlaw", "prepare", *elsewhere])
        line = refused([verb, *elsewhere], capsys, 3)
        assert line == f"{tmp_path / 's' / 'small'}: the corpora are not prepared; next: {command}"
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("caf\u00e9 ".encode("latin-1") * 100)
    for name, parts in {"none": ["domain"], "empty.txt": [], "latin.txt": ["UTF-8"]}.items():
        error = refused(["prepare", *elsewhere, f"corpora.sources.domain.path={tmp_path / name}"], capsys, 3)
        assert all(part in error for part in [name, *parts]), error
        assert name != "none" or not (tmp_path / "s").exists()
    (tmp_path / "model").mkdir()
    local = [*words, "model=local", f"model.path={tmp_path / 'model'}", "ladder=[]"]
    assert "config.json" in refused(["plan", *local], capsys, 3)


def test_prepare_says_what_plan_refuses(words: list[str], tmp_path: Path, capsys) -> None:
    mine = [*words, f"data={tmp_path}", f"studies={tmp_path}", "precision=fp32", "pretrain.steps=20000"]
    note = r"note: corpora\.sources\.general: .* epochs.* allow_repeats=true; plan refuses this\n"
    # Of text that is prepared already, too.
    for _ in range(2):
        assert run(["prepare", *mine]) == 0
        out = capsys.readouterr().out
        assert re.search(note, out)
        next_words = shlex.split(out.splitlines()[-1])[2:]
    assert "allow_repeats=true" in next_words
    assert run(next_words) == 0
    assert "allow_repeats=true" in refused(["plan", *mine], capsys, 2)
    assert run(["plan", *mine, "allow_repeats=true"]) == 0
    longer = [*mine, "pretrain.steps=30", "target.steps=20000", "continual.steps=24", "goal.tolerance=0.05"]
    for verb in ("prepare", "plan"):
        assert run([verb, *longer]) == 0
        out = capsys.readouterr().out
        assert re.search(r"note: .*domain: .* target\.steps=20000 at domain ratios up to \d", out)
        assert "note: corpora.sources.general: its loss is measured on 8 windows of 16 tokens; on other text" in out
    # Prepare measures what such a budget needs.
    hours = [*mine, "name=hours", "pretrain.steps=30", "design=active"]
    assert run(["prepare", *hours, "design.budget=1", "design.budget_unit=device-hours"]) == 0
    out = capsys.readouterr().out
    assert "measuring the speed of " in out
    assert "plan refuses this" not in out


@pytest.fixture
def copy(trained: Study, tmp_path: Path) -> Study:
    """A copy of the trained study to damage."""
    shutil.copytree(trained.folder, tmp_path / "copy")
    return Study(tmp_path / "copy")


def test_a_run_that_lost_points_is_not_collected_and_trained_again(copy: Study, capsys) -> None:
    points = sorted(copy.runs.glob("continual*/points.jsonl"))[0]
    whole = points.read_bytes()
    done = points.with_name("DONE")
    remedy = f"delete {done} and run cptlaw train {copy.word} again, which gives the same points"
    for left in (whole[:-30], b"".join(whole.splitlines(keepends=True)[:7]), b""):
        points.write_bytes(left)
        lost = f"{points}: {left.count(NEWLINE)} points, but the run ended with {whole.count(NEWLINE)}; {remedy}"
        assert refused(["collect", str(copy.folder)], capsys, 3) == lost
    points.unlink()
    assert refused(["collect", str(copy.folder)], capsys, 3).startswith(f"{points}: 0 points")
    for damaged in ("", "[]"):
        done.write_text(damaged)
        assert refused(["collect", str(copy.folder)], capsys, 3).startswith(f"{done}: damaged, so ")
    done.unlink()
    assert run_forked(worker(copy)).returncode == 0
    assert points.read_bytes() == whole
    assert run(["collect", str(copy.folder)]) == 0


def test_points_cut_in_a_line_and_a_points_table_of_another_schema(copy: Study) -> None:
    points = sorted(copy.runs.glob("continual*/points.jsonl"))[0]
    points.write_text(points.read_text()[:-30])
    points.with_name("DONE").unlink()
    assert run(["collect", str(copy.folder)]) == 0
    table = read_points(copy)
    assert len(table) > 0
    table.drop(columns="rho").to_parquet(copy.folder / "points.parquet")
    with pytest.raises(StudyError, match="lacks rho"):
        read_points(copy)


@pytest.mark.slow
def test_a_disk_that_takes_nothing_is_one_line_and_loses_nothing(copy: Study) -> None:
    planned = next(planned for planned in copy.read_plan() if planned.role == "fit")
    folder, command = copy.runs / planned.name, worker(copy, planned.name)
    whole = (folder / "points.jsonl").read_bytes()
    shutil.rmtree(folder)
    # The kernel refuses files above 64 KiB: the first resume state is larger, points and specs are not.
    limits = {"File too large; make room": {"file_size": 64 << 10}}
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0:
        limits["Read-only file system; make it writable"] = {"read_only": str(copy.folder)}
    for line, limit in limits.items():
        done = run_forked(command, **limit)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (3, 1), done.stderr
        assert f"{line} and give the same command again" in done.stderr
    # However often it is tried, the run has not failed: it counts crashes.
    assert not (folder / "FAILED").exists()
    assert not list((folder / "resume").iterdir())
    (attempt,) = (folder / "attempts").glob("*.json")
    assert json.loads(attempt.read_text())["exit_code"] == 3
    assert run_forked(command).returncode == 0
    assert (folder / "points.jsonl").read_bytes() == whole
    # Text that takes hours is not prepared for a study that keeps nothing.
    if len(limits) > 1:
        new = copy.folder.parent / "new"
        done = run_forked([*CPTLAW, "prepare", str(copy.folder), f"data={new}"], read_only=str(copy.folder))
        assert (done.returncode, done.stderr) == (3, f"{copy.folder}: {line} and give the same command again\n")
        assert not new.exists()


@pytest.mark.slow
def test_a_deleted_checkpoint_is_made_again_as_the_line_says(copy: Study, words: list[str], capsys) -> None:
    planned = next(planned for planned in copy.read_plan() if planned.role == "fit")
    child, checkpoint = copy.runs / planned.name, copy.folder / planned.start
    parent = checkpoint.parents[1]
    before = [(folder / "points.jsonl").read_bytes() for folder in (parent, child)]
    shutil.rmtree(checkpoint)
    shutil.rmtree(child)
    command = worker(copy, planned.name)
    refused = run_forked(command)
    line = f"no complete checkpoint here; remove {parent / 'DONE'} and give the same command again"
    assert (refused.returncode, line in refused.stderr) == (3, True)
    assert len(refused.stderr.strip().splitlines()) == 1
    (parent / "DONE").unlink()
    assert run_forked(worker(copy)).returncode == 0
    assert [(folder / "points.jsonl").read_bytes() for folder in (parent, child)] == before


def test_a_run_that_dies_too_often_fails_with_the_reason(copy: Study, capsys) -> None:
    planned = next(planned for planned in copy.read_plan() if planned.role == "fit")
    folder = copy.runs / planned.name
    (folder / "DONE").unlink()
    record = json.loads((folder / "attempts" / "001.json").read_text())
    for number in (1, 2, 3):
        died = {**record, "attempt": number, "exit_code": 1, "reason": "RuntimeError: boom"}
        (folder / "attempts" / f"{number:03d}.json").write_text(json.dumps(died))
    assert run_worker(copy, question_of_study(copy.folder, []), planned.name) == 1
    assert (folder / "FAILED").read_text() == "3 attempts failed, the last one: RuntimeError: boom\n"
    assert run(["status", str(copy.folder)]) == 0
    assert "boom" in capsys.readouterr().out
    other = next(one for one in copy.read_plan() if one.role == "fit" and one.name != planned.name)
    (copy.runs / other.name / "FAILED").write_text("loss is nan\n")
    assert run(["train", str(copy.folder), f"run={planned.name}", "retry_failed=true"]) == 0
    assert (folder / "DONE").exists()
    assert (copy.runs / other.name / "FAILED").exists(), "another run was not asked for"
    assert not question_of_study(copy.folder, []).retry_failed
