"""Workers that fork, for all tests of studies that train."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.question.schema import Question
from pipeline.study.folder import Study
from tests.processes import Forked


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """The start of a worker takes longer than its runs of a second; tests of test_road.py start some as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.launch.local.Popen", Forked)
        yield


@pytest.fixture
def few_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sliders of few positions, for tests of the rest of a report: the answers at all take most of its time."""
    for name, count in (("_TOLERANCES", 5), ("_SIZES", 2), ("_LENGTHS", 2)):
        monkeypatch.setattr(f"pipeline.show.report.explorer.{name}", count)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without studies: in a clone there is one after make quickstart."""
    monkeypatch.chdir(tmp_path)


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
