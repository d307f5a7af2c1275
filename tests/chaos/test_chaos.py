"""The campaign in small: a few kills, a full disk, and that it sees what is wrong and goes on where it was stopped."""

import contextlib
import random
import re
from pathlib import Path

import psutil
import pytest

from tests.chaos.__main__ import LEDGER, campaign, tables
from tests.chaos.cycle import KINDS, Cycle
from tests.chaos.processes import Command
from tests.chaos.study import STAGES, Reference, contents, differences
from tests.docs.pages import ROOT, read
from training.durable import read_lines_whole

KILLS, SEED = 3, 30
"""From this seed on kills meet a worker, then what starts workers."""
KEPT = ROOT / "docs" / "results" / "chaos.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos")


@pytest.mark.slow
def test_a_few_kills_lose_and_double_nothing(folder: Path) -> None:
    lines = campaign(folder, KILLS, SEED)
    assert [line["problems"] for line in lines] == [[]] * len(lines)
    assert sum(line["kills"] for line in lines) >= KILLS
    assert [line["seed"] for line in lines] == [*range(SEED, SEED + len(lines))]
    kills = sum(line["kills"] for line in lines)
    totals = [row.split(" | ") for row in tables(lines).splitlines() if row.startswith("| total")]
    assert [row[1:3] for row in totals] == [[str(len(lines)), str(kills)], [str(kills), totals[1][2]]]
    # What is in the ledger is not done again.
    assert campaign(folder, KILLS, SEED) == lines == read_lines_whole(folder / LEDGER)


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
    expected = contents(reference.after("train"))
    found = differences(contents(cycle.place), expected)
    assert found == ["extra studies/small/extra.json", f"changed {points.relative_to(cycle.place)}"]
    points.unlink()
    assert f"missing {points.relative_to(cycle.place)}" in differences(contents(cycle.place), expected)


@pytest.mark.slow
def test_its_study_has_processes_that_tokenise_and_a_mixture_that_changes(folder: Path) -> None:
    reference = Reference(folder / "reference")
    reference.before("prepare", folder / "sharded")
    command = Command(STAGES["prepare"].words, folder / "sharded")
    seen: set[str] = set()
    while command.alive:
        with contextlib.suppress(psutil.Error):
            seen.update(*(child.cmdline() for child in psutil.Process(command.pid).children()))
    assert any("spawn_main" in word for word in seen)
    runs = [path.name for path in (reference.after("train") / "studies" / "small" / "runs").iterdir()]
    assert sum("domain0.5to0.9" in name for name in runs) == 1


@pytest.mark.skipif(not KEPT.exists(), reason="no campaign is kept")
def test_the_page_has_the_cycles_of_the_kept_campaign() -> None:
    page = " ".join(read("architecture.md").split())
    rows = tables(read_lines_whole(KEPT)).split("\n\n")[0].splitlines()[2:]
    *kinds, total = [row.strip("| ").split(" | ") for row in rows]
    assert [kind for kind, cycles, *_ in kinds if not re.search(rf"\*{kind}\*, {cycles}\b", page)] == []
    assert f"none of {total[1]} cycles with {total[2]} signals had a difference or failure" in page
    assert total[-1] == "0"
