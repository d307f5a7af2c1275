"""A run's numbers: the golden curve, and what they must not depend on."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.runs import points_of, train_run
from training.attempt import attempts
from training.corpora.manifest import Manifest
from training.run import Exit, Places, run_once
from training.spec import Execution, Initial, RunSpec
from training.stop import StopRequest

GOLDEN = Path(__file__).parent / "golden_points.jsonl"


def trained(spec: RunSpec, manifest: Manifest, folder: Path, start: Path | None = None, **execution) -> list[dict]:
    assert train_run(spec, folder, manifest, start=start, **{"resume_every": 5, **execution}) == Exit.DONE
    return points_of(folder)


def test_the_curve_is_the_golden_one_bit_for_bit(manifest, spec, tmp_path):
    # In a process of its own: the instruction sets below, which make all machines round alike, are read at start.
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OMP_NUM_THREADS": "1",
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    script = f"""
import json, pathlib
from training.corpora.manifest import Manifest
from training.run import Places, run_once
from training.spec import Execution, RunSpec
spec = RunSpec.from_dict(json.loads(pathlib.Path({str(tmp_path / "spec.json")!r}).read_text()))
folder = pathlib.Path({str(tmp_path / "run")!r})
places = Places(folder=folder, manifest=Manifest.open({str(manifest.folder)!r}), engines=folder)
run_once(spec, places, Execution(engine="eager"))
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    measured = (tmp_path / "run" / "points.jsonl").read_text()
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(measured)
    assert measured == GOLDEN.read_text()


def test_a_stop_that_was_heard_between_runs_stops_the_next(manifest, spec, tmp_path):
    places = Places(folder=tmp_path / "run", manifest=manifest, engines=tmp_path)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert run_once(spec, places, Execution(engine="eager", resume_every=0), stop=stop) == Exit.RUN_ME_AGAIN
    assert not (places.folder / "DONE").exists()


def test_accumulation_does_not_change_the_losses(manifest, spec, tmp_path):
    whole = trained(spec, manifest, tmp_path / "1x4")
    for micro_batch in (2, 1):
        split = trained(spec, manifest, tmp_path / str(micro_batch), micro_batch=micro_batch)
        assert [point["loss"] for point in split] == pytest.approx([point["loss"] for point in whole], abs=1e-6)


def test_attention_and_compilation_do_not_change_the_losses(manifest, spec, tmp_path):
    eager = trained(spec, manifest, tmp_path / "eager")
    sdpa = trained(spec, manifest, tmp_path / "sdpa", engine="sdpa")
    assert [point["loss"] for point in sdpa] == pytest.approx([point["loss"] for point in eager], abs=1e-5)


def test_training_learns_and_notes_rates_and_tokens(manifest, spec, tmp_path):
    points = trained(spec, manifest, tmp_path)
    assert [point["step"] for point in points if point["corpus"] == "code"] == [0, 1, 7, 14, 20]
    first, last = points[0], points[-2]
    assert first["corpus"] == last["corpus"]
    assert last["loss"] < first["loss"] - 0.05
    assert last["tokens"] == 20 * 4 * 16
    assert last["learning_rate"] == pytest.approx(3e-4)
    assert 0 < last["loss_stderr"] < 0.5


def test_a_continual_run_starts_at_its_parents_last_loss(manifest, spec, tmp_path):
    parent = trained(spec, manifest, tmp_path / "parent")
    child = dataclasses.replace(
        spec, phase="continual", initial=Initial("run", run=spec.hash, step=20), mixture={"general": "0", "code": "1"}
    )
    points = trained(child, manifest, tmp_path / "child", start=tmp_path / "parent" / "checkpoints" / "step-20")
    assert [point["loss"] for point in points[:2]] == [point["loss"] for point in parent[-2:]]
    by_corpus = {point["corpus"]: point["loss"] for point in points[-2:]}
    before = {point["corpus"]: point["loss"] for point in points[:2]}
    assert by_corpus["code"] < before["code"]


def test_checkpoints_load_with_plain_transformers(manifest, spec, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from training.evaluation import evaluate
    from training.objectives import sequence_losses

    points = trained(spec, manifest, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoints" / "step-20", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "checkpoints" / "step-20")
    assert len(tokenizer) == manifest.vocabulary
    store = manifest.store("code")
    windows = torch.from_numpy(store.batch("validation", store.validation_positions(6, 16), 16))
    result = evaluate(
        lambda tokens: sequence_losses(model, tokens, "fp32"), windows, windows.shape[1] - 1, 4, lambda: None
    )
    last = next(point for point in points if point["step"] == 20 and point["corpus"] == "code")
    assert result.loss == pytest.approx(last["loss"], abs=1e-6)
    assert result.stderr == pytest.approx(last["loss_stderr"], rel=1e-4)


def test_a_loss_that_is_not_finite_fails_the_run_and_names_the_step(manifest, spec, tmp_path):
    wild = dataclasses.replace(
        spec, schedule=(dataclasses.replace(spec.schedule[0], end=1e20, share=None, steps=None),),
        optimizer=dataclasses.replace(spec.optimizer, clip=0.0),
    )  # fmt: skip
    before = trained(spec, manifest, tmp_path / "before")
    folder = tmp_path / "wild"
    assert train_run(wild, folder, manifest) == Exit.CRASH
    assert " at step " in (folder / "FAILED").read_text()
    assert not (folder / "DONE").exists()
    # The next run of the shape in this process, which shares the model, is not touched by it.
    assert trained(spec, manifest, tmp_path / "after") == before


def test_the_measured_engine_and_the_devices_are_noted(manifest, spec, tmp_path):
    trained(spec, manifest, tmp_path, engine="auto")
    (record,) = attempts(tmp_path)
    assert record["engine"] in record["measured"]
    assert (record["precision"], record["parallel"], record["processes"], record["threads"]) == ("fp32", "single", 1, 1)
