"""The campaign in small: a few kills, a full disk, and that it sees what is wrong and goes on where it was stopped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.__main__ import LEDGER, campaign, table
from tests.chaos.cycle import KINDS, Cycle
from tests.chaos.study import Reference, contents, differences
from training.durable import read_lines_whole

KILLS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos")


@pytest.mark.slow
def test_a_few_kills_lose_and_double_nothing(folder: Path) -> None:
    lines = campaign(folder, KILLS, seed=0)
    assert [line["problems"] for line in lines] == [[]] * len(lines)
    assert sum(line["kills"] for line in lines) >= KILLS
    assert [line["seed"] for line in lines] == [*range(len(lines))]
    assert table(lines).row_count
    # What is in the ledger is not done again.
    assert campaign(folder, KILLS, seed=0) == lines == read_lines_whole(folder / LEDGER)


@pytest.mark.slow
def test_a_disk_that_is_full_loses_nothing(folder: Path) -> None:
    # The first seed whose cycle is one of a full disk.
    seed = next(seed for seed in range(1000) if random.Random(seed).choices([*KINDS], [*KINDS.values()])[0] == "disk")
    (line,) = campaign(folder, 0, 0, only=seed)
    assert (line["kind"], line["problems"]) == ("disk", [])


@pytest.mark.slow
def test_a_lost_point_is_a_difference(folder: Path) -> None:
    reference = Reference(folder / "reference")
    cycle = Cycle(0, reference, folder / "other")
    reference.before("collect", cycle.place)
    points = next(cycle.place.glob("studies/*/runs/*/points.jsonl"))
    points.write_bytes(points.read_bytes()[:-1])
    (cycle.place / "studies" / "small" / "extra.json").touch()
    expected = contents(reference.folder / "train")
    found = differences(contents(cycle.place), expected)
    assert found == ["extra studies/small/extra.json", f"changed {points.relative_to(cycle.place)}"]
    points.unlink()
    assert f"missing {points.relative_to(cycle.place)}" in differences(contents(cycle.place), expected)
