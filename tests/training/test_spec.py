"""Identity: what changes a run's name and what does not."""

import dataclasses
import json

import pytest

from training.schedule import Piece
from training.spec import Initial, MixturePhase, Objective, Reweighting, RunSpec, SpecError


def test_every_field_changes_the_hash(spec):
    changed = {
        "phase": "continual",
        "model": {**spec.model, "hidden_size": 32},
        "initial": Initial("run", run="ab", step=1),
        "corpora": {"general": "x"},
        "mixture": {"general": "1/2", "code": "1/2"},
        "sequence_length": 32,
        "global_batch": 8,
        "steps": 21,
        "schedule": (Piece("constant", 1e-3),),
        "learning_rate_before": 1e-4,
        "optimizer": dataclasses.replace(spec.optimizer, clip=2.0),
        "precision": "bf16",
        "seed": 1,
        "evaluation": dataclasses.replace(spec.evaluation, steps=(2,)),
        "validation_windows": 7,
        "objective": Objective("masked", mask_token=3),
        "boundaries": "documents",
        "first_sequence": 8,
        "reweighting": Reweighting("ab"),
        "phases": (MixturePhase(8, {"general": "1", "code": "0"}),),
        "separator_first": True,
    }
    assert set(changed) == {field.name for field in dataclasses.fields(RunSpec)}
    hashes = {dataclasses.replace(spec, **{name: value}).hash for name, value in changed.items()}
    assert len(hashes) == len(changed)
    assert spec.hash not in hashes


def test_the_hash_is_that_of_the_file_read_back(spec):
    assert RunSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert RunSpec.from_dict(json.loads(spec.canonical())).hash == spec.hash
    backwards = dict(reversed(spec.to_dict().items()))
    assert RunSpec.from_dict(backwards).hash == spec.hash


def test_a_run_whose_weights_do_not_move_has_the_name_of_before_they_could():
    spec = RunSpec("pretrain", {}, Initial(), {"a": "b"}, {"a": "1"}, 16, 4, 20, (Piece("constant", 1e-3),))
    assert spec.hash == "b97ce17fb21185ea"
    assert "reweighting" not in spec.to_dict()
    moving = dataclasses.replace(spec, reweighting=Reweighting("ab", 0.5, 0.01))
    assert RunSpec.from_dict(json.loads(json.dumps(moving.to_dict()))) == moving


def test_another_schema_or_field_is_refused(spec):
    with pytest.raises(SpecError, match="schema 3; this version reads schema 2"):
        RunSpec.from_dict({**spec.to_dict(), "schema": 3})
    with pytest.raises(SpecError, match="colour"):
        RunSpec.from_dict({**spec.to_dict(), "colour": "red"})
