"""A run's numbers: the golden curve, and what they must not depend on."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests.training.runs import begin_from, diverging, losses_of, masked, points_of, train_run, trained
from training.attempt import attempts
from training.batches import training_batches, validation_windows
from training.checkpoints import states
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.devices.group import Group
from training.durable import FileError, read_lines_whole
from training.engines import drop_shared_engines
from training.evaluation_steps import EvaluationPolicy
from training.model import build_model, kept_buffers
from training.objectives import IGNORED
from training.run import Exit, RunFolders, run_once
from training.schedule import Piece
from training.spec import Execution, Initial, SpecError
from training.stop import StopRequest

GOLDEN = Path(__file__).parent / "golden_points.jsonl"


@pytest.fixture(scope="module")
def run(spec, manifest, tmp_path_factory):
    """Folder of a plain run."""
    return trained(spec, manifest, tmp_path_factory.mktemp("plain"))


ALONE = """
import gc, json, pathlib, sys
import pipeline.launch.work
from training.corpora.manifest import Manifest
from training.run import RunFolders, run_once
from training.spec import Execution, RunSpec
folder, data = map(pathlib.Path, sys.argv[1:])
spec = RunSpec.from_dict(json.loads((folder / "spec.json").read_text()))
run_once(spec, RunFolders(folder, Manifest.open(data), folder), Execution(engine="eager"))
assert gc.isenabled()
print(*sys.modules)
from scipy.optimize import linear_sum_assignment
"""


@pytest.fixture(scope="module")
def golden_run(spec, manifest, tmp_path_factory) -> tuple[str, set[str]]:
    """Points of a run in a process of its own, and the modules that it has loaded."""
    folder = tmp_path_factory.mktemp("golden")
    (folder / "spec.json").write_text(json.dumps(spec.to_dict()))
    # The instruction sets, which make all machines round alike, are read at start.
    environment = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    command = [sys.executable, "-c", ALONE, folder, manifest.folder]
    environment = os.environ | environment | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return (folder / "points.jsonl").read_text(), set(done.stdout.split())


def test_the_curve_is_the_golden_one_bit_for_bit(golden_run):
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(golden_run[0])
    assert golden_run[0] == GOLDEN.read_text()


def test_a_process_that_trains_does_not_load_scipy(golden_run):
    assert "training.loop" in golden_run[1]
    assert not {"scipy", "pandas", "fitting"} & golden_run[1]


def test_a_stop_that_was_heard_between_runs_stops_the_next(manifest, spec, tmp_path):
    folders = RunFolders(folder=tmp_path / "run", manifest=manifest, memory=tmp_path)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert run_once(spec, folders, Execution(engine="eager", resume_every=0), stop=stop) == Exit.RUN_ME_AGAIN
    assert not (folders.folder / "DONE").exists()


def test_states_are_saved_by_time_where_steps_are_slow(manifest, spec, tmp_path, monkeypatch):
    # A run that is done keeps none.
    monkeypatch.setattr(states, "drop_states", lambda *_: None)

    def saved(minutes: float) -> list[int]:
        options = {"resume_every": 0, "resume_minutes": minutes, "keep_last": 100}
        folder = trained(spec, manifest, tmp_path / str(minutes), **options)
        return sorted(int(state.name.removeprefix("step-")) for state in folder.glob("resume/step-*"))

    assert saved(1e-9) == list(range(1, spec.steps))
    assert saved(0.0) == []


def test_metrics_are_written_by_time_where_steps_are_slow(manifest, spec, run, tmp_path, monkeypatch):
    monkeypatch.setattr("training.loop.METRICS_MINUTES", 1e-9)
    steps = [line["step"] for line in read_lines_whole(trained(spec, manifest, tmp_path) / "metrics.jsonl")]
    assert steps == list(range(1, spec.steps + 1))
    assert [line["step"] for line in read_lines_whole(run / "metrics.jsonl")] == [20]


@pytest.mark.parametrize(
    ("execution", "tolerance"),
    [({"micro_batch": 1}, 1e-6), ({"engine": "sdpa"}, 1e-5)],
    ids=["micro-batches", "another attention"],
)
def test_execution_does_not_change_the_losses(manifest, spec, run, tmp_path, execution, tolerance):
    assert losses_of(trained(spec, manifest, tmp_path, **execution)) == pytest.approx(losses_of(run), abs=tolerance)


def test_a_continual_run_starts_at_its_parents_last_loss(manifest, spec, run, tmp_path):
    child = dataclasses.replace(
        spec, phase="continual", initial=Initial("run", run=spec.hash, step=20), mixture={"general": "0", "code": "1"}
    )
    points = points_of(trained(child, manifest, tmp_path, start=run / "checkpoints" / "step-20"))
    assert [point["loss"] for point in points[:2]] == losses_of(run)[-2:]
    before, after = ({point["corpus"]: point["loss"] for point in part} for part in (points[:2], points[-2:]))
    assert after["code"] < before["code"]


def test_the_standard_error_of_one_window_is_a_number():
    from training.evaluation import Validation, evaluate

    windows = torch.tensor([[1.0, 3.0], [2.0, 6.0]])
    assert evaluate(lambda rows: rows, windows[:1], 2, 1, lambda: None) == Validation(2.0, 0.0)
    assert evaluate(lambda rows: rows, windows, 2, 1, lambda: None) == Validation(3.0, 1.0)


def test_checkpoints_load_with_plain_transformers(manifest, run):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from training.evaluation import evaluate
    from training.objectives import sequence_losses

    model = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step-20", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(run / "checkpoints" / "step-20")
    assert len(tokenizer) == manifest.vocabulary
    store = manifest.store("code")
    windows = torch.from_numpy(store.batch("validation", store.validation_positions(6, 16), 16))
    result = evaluate(
        lambda tokens: sequence_losses(model, tokens, "fp32"), windows, windows.shape[1] - 1, 4, lambda: None
    )
    last = next(point for point in points_of(run) if point["step"] == 20 and point["corpus"] == "code")
    assert result.loss == pytest.approx(last["loss"], abs=1e-6)
    assert result.stderr == pytest.approx(last["loss_stderr"], rel=1e-4)


def test_a_loss_that_is_not_finite_fails_the_run_and_names_the_step(manifest, spec, run, tmp_path):
    wild = diverging(spec)
    folder = tmp_path / "wild"
    assert train_run(wild, folder, manifest) == Exit.CRASH
    assert " at step " in (folder / "FAILED").read_text()
    assert not (folder / "DONE").exists()
    # The next run of the shape in this process, which shares the model, is not touched by it.
    assert points_of(trained(spec, manifest, tmp_path / "after")) == points_of(run)


def test_a_run_notes_its_engine_and_devices_and_goes_on_with_the_engine_that_it_was_begun_with(
    manifest, spec, tmp_path
):
    trained(spec, manifest, tmp_path, engine="sdpa", kept_states=(10,))
    (tmp_path / "DONE").unlink()
    trained(spec, manifest, tmp_path, engine="auto")
    assert [record["engine"] for record in attempts(tmp_path)] == ["sdpa", "sdpa"]
    # The run would choose another one by itself.
    (record,) = attempts(trained(spec, manifest, tmp_path / "new", engine="auto"))
    assert record["engine"].startswith("eager")
    assert (record["precision"], record["parallel"], record["processes"], record["threads"]) == ("fp32", "single", 1, 1)


class _Pair(Group):
    """A group whose other process always has the same to say."""

    gathered: ClassVar[list[tuple[int, ...]]] = []

    def gather(self, values: np.ndarray) -> np.ndarray:
        self.gathered.append(values.shape)
        return np.concatenate([values, values])

    def collect(self, make):
        return [make()] * 2

    def apart(self):
        return nullcontext(self)


def test_a_step_of_several_processes_has_one_collective(manifest, spec, tmp_path):
    spec = dataclasses.replace(spec, steps=40, evaluation=EvaluationPolicy(every=40))
    trained(spec, manifest, tmp_path, group=_Pair(0, 2), resume_every=0, metrics_every=20, resume_minutes=10.0)
    gathered = _Pair.gathered
    # Stop or go on, and two clocks, at each step; the losses of 20 steps are read together.
    assert gathered.count((1, 3)) == 40
    assert gathered.count((1, 20)) == 2
    assert len(gathered) < 60
    losses = [line["loss"] for line in read_lines_whole(tmp_path / "metrics.jsonl")]
    assert len(losses) == 2
    assert all(0 < loss < 10 for loss in losses)


def losses(folder: Path) -> dict[tuple[int, str], float]:
    return {(point["step"], point["corpus"]): point["loss"] for point in points_of(folder)}


@pytest.mark.parametrize("put", [None, os.mkfifo, lambda path: path.symlink_to("nowhere")], ids=range(3))
def test_a_tokenizer_that_cannot_be_read_is_refused_before_a_point_is_dropped(spec, manifest, tmp_path, put):
    damaged = Manifest.open(shutil.copytree(manifest.folder, tmp_path / "data"))
    (damaged.tokenizer_path / "tokenizer.json").unlink()
    if put:
        put(damaged.tokenizer_path / "tokenizer.json")
    begin_from(trained(spec, manifest, tmp_path / "whole", kept_states=(9,)), 9, tmp_path / "run")
    before = points_of(tmp_path / "run")
    with pytest.raises(CorpusError, match=r"tokenizer\.json: .*; prepare the corpora again"):
        train_run(spec, tmp_path / "run", damaged)
    assert points_of(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["points.jsonl", "metrics.jsonl"])
def test_what_is_no_file_of_lines_is_refused_before_a_state_is_dropped(spec, manifest, tmp_path, name):
    begin_from(trained(spec, manifest, tmp_path / "whole", kept_states=(9,)), 9, tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).symlink_to(name)
    with pytest.raises(FileError, match=rf"{name}: Too many levels of symbolic links$"):
        train_run(spec, tmp_path / "run", manifest)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert [*states.saved_states(tmp_path / "run")] == [tmp_path / "run" / "resume" / "step-9"]


def test_a_resumed_run_has_the_buffers_of_its_first_weights(spec, manifest, tmp_path):
    shape = spec.model | {"model_type": "apertus", "initializer_range": 0.3}
    source = build_model(shape, "eager", seed=3)
    for buffer in kept_buffers(source).values():
        buffer.add_(1)
    source.save_pretrained(tmp_path / "base")
    run = dataclasses.replace(spec, model=shape, initial=Initial("directory", fingerprint="base"))
    whole = trained(run, manifest, tmp_path / "whole", start=tmp_path / "base", kept_states=(9,))
    begin_from(whole, 9, tmp_path / "run")
    # Else the model of the first run, which has them, serves the second.
    drop_shared_engines()
    assert points_of(trained(run, manifest, tmp_path / "run", start=tmp_path / "base")) == points_of(whole)


def test_a_branch_without_its_state_is_refused(spec, manifest, tmp_path):
    lost = dataclasses.replace(spec, initial=Initial("run", run="ab", step=8, moments=True))
    with pytest.raises(SpecError, match="no complete state here; run its parent again"):
        trained(lost, manifest, tmp_path / "branch", start=tmp_path / "resume" / "step-8")


def test_weights_that_see_later_tokens_are_refused_for_a_causal_objective_alone(spec, manifest, tmp_path):
    bert = masked(spec, manifest)
    build_model(bert.model, "eager", seed=0, objective="masked").save_pretrained(tmp_path / "base")
    run = dataclasses.replace(bert, initial=Initial("directory", fingerprint="base"))
    trained(run, manifest, tmp_path / "masked", start=tmp_path / "base")
    with pytest.raises(SpecError, match="base: bert: no causal language model"):
        trained(dataclasses.replace(run, objective=spec.objective), manifest, tmp_path / "run", start=tmp_path / "base")


def test_a_masked_model_learns(spec, manifest, tmp_path):
    bert = masked(spec, manifest, schedule=(Piece("constant", 5e-3),), global_batch=8)
    measured = losses(trained(bert, manifest, tmp_path / "bert"))
    assert measured[(0, "general")] == pytest.approx(np.log(manifest.vocabulary), rel=0.05)
    assert measured[(20, "general")] < measured[(0, "general")] - 0.2
    # Micro-batches and the place in the run change no mask.
    halves = losses(trained(bert, manifest, tmp_path / "halves", micro_batch=4))
    assert halves[(20, "general")] == pytest.approx(measured[(20, "general")], abs=1e-5)
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    whole = [batch.numpy() for batch in training_batches(stores, bert, 1)]
    later = dataclasses.replace(bert, first_sequence=8, steps=2)
    np.testing.assert_array_equal(next(training_batches(stores, later, 1)).numpy(), whole[1])
    assert ((whole[0][:, 1] != IGNORED).sum(1) == bert.objective.predictions(spec.sequence_length)).all()


def test_a_sequence_may_begin_with_the_token_between_documents(spec, manifest):
    """What is predicted stays the same, token by token."""
    stores = {corpus: manifest.store(corpus) for corpus in spec.corpora}
    begun = dataclasses.replace(spec, separator_first=True)
    for store in stores.values():
        plain, beginning = (validation_windows(store, one) for one in (spec, begun))
        assert torch.equal(plain[:, 1:], beginning[:, 1:])
        assert (beginning[:, 0] == store.meta.end_of_text).all()
        assert not torch.equal(plain, beginning)
    plain, beginning = (next(training_batches(stores, one, 1)) for one in (spec, begun))
    assert torch.equal(plain[:, 1:], beginning[:, 1:])
    assert (beginning[:, 0] == next(iter(stores.values())).meta.end_of_text).all()


def test_documents_of_a_sequence_can_be_kept_apart(spec, manifest, tmp_path):
    short = dataclasses.replace(spec, steps=1, evaluation=EvaluationPolicy(), sequence_length=63)
    across = losses(trained(short, manifest, tmp_path / "across"))
    within = losses(trained(dataclasses.replace(short, boundaries="documents"), manifest, tmp_path / "within"))
    assert across.keys() == within.keys()
    assert across != within
