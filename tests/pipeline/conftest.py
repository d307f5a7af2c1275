"""Workers that fork, and a speed that is known, for all tests of studies that train."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitting.uncertainty.profile import Optimum, Profile
from pipeline.plan import machine
from pipeline.question.schema import Question
from pipeline.show.report import explorer
from pipeline.study.folder import Study
from tests.processes import Forked

PROCESS_SPEED = machine._process_speed
POSITIONS = {"_TOLERANCES": 2, "_SIZES": 2, "_LENGTHS": 0}
"""Counts of the sliders of a report, whose answers take most of its time; those of `whole_page` are users'."""


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    """To start a worker, or to measure the speed of this machine, takes longer than runs of a second.

    Tests of test_road.py start some workers as users do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.launch.local.Popen", Forked)
        patch.setattr(machine, "_process_speed", lambda *_: 1e3)
        for name, count in POSITIONS.items():
            patch.setattr(explorer, name, count)
        yield


@pytest.fixture
def own_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of this machine is measured."""
    monkeypatch.setattr(machine, "_process_speed", PROCESS_SPEED)


@pytest.fixture(scope="module")
def no_profiles() -> Iterator[None]:
    """Fits whose parameters have no intervals, for tests that ask for none: of an open law they take most time."""

    def unknown(optimum: Optimum, names: list[str]) -> list[Profile]:
        values = optimum.problem.parameters(optimum.theta)
        return [Profile([values[name]], [0.0], 1.0, (False, False)) for name in names]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitting.estimation.profiles", unknown)
        yield


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without studies: in a clone there is one after make quickstart."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a base model, made once a process, to read."""
    from tests.pipeline.tiny_model import tiny_model  # It loads what few tests need.

    return tiny_model(tmp_path_factory.mktemp("brought"))


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Question]:
    """A confirmed study on losses from a known law, made once a process, to read."""
    from tests.pipeline.show.report.report_study import whole_study  # It loads what few tests need.

    return whole_study(tmp_path_factory.getbasetemp() / "report")


@pytest.fixture
def changeable(whole: tuple[Study, Question], tmp_path: Path) -> tuple[Study, Question]:
    """A copy of that study, to change."""
    made, question = whole
    return Study(shutil.copytree(made.folder, tmp_path / made.folder.name)), question
