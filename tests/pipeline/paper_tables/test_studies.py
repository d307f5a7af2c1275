"""cptlaw tables of a study that is missing, unfinished, or kept without its runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.cli import verbs
from pipeline.cli.main import run
from pipeline.paper_tables import studies
from pipeline.question.loading import read_question
from pipeline.study.collect import _write
from training.run import Exit


def _missing(tmp_path: Path, *words: str) -> int:
    return run(["tables", f"studies={tmp_path}/studies", f"data={tmp_path}/data", *words])


def test_what_is_missing_is_priced(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.delenv("CPTLAW_CORPORA", raising=False)
    assert _missing(tmp_path, "tables.names=[dcpt-1]") == 3
    told = capsys.readouterr().out
    # Where the texts are not named it is the installed ones' study.
    assert "six-installed" in told
    assert "150" in told
    assert "six-installed: not begun; tables.run=true sees to it" in " ".join(told.split())
    assert not (tmp_path / "studies").exists()


def test_with_run_the_road_is_gone_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    question = read_question(["experiment=autoscale-small", "tables.run=true", f"studies={tmp_path}"])

    def carried_out(verb: str, own, console) -> Exit:
        gone.append(f"{verb} {own.name}")
        if verb == "plan":
            verbs.study_of(own).write_plan([])
        return Exit.RUN_ME_AGAIN if verb == "confirm" else Exit.DONE

    monkeypatch.setattr(verbs, "carry_out", carried_out)
    from rich.console import Console

    # What stops on the way is handed on; the next time nothing is left to train.
    assert studies.brought_about(verbs.study_of(question), question, Console(quiet=True)) == Exit.RUN_ME_AGAIN
    assert [line.split()[0] for line in gone] == ["prepare", "plan", "train", "recommend", "confirm"]
    gone.clear()
    studies.brought_about(verbs.study_of(question), question, Console(quiet=True))
    assert [line.split()[0] for line in gone] == ["recommend", "confirm"]


def test_points_that_were_kept_are_enough(six_points, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipeline.cli.terminal_tables import question_yaml

    question = read_question(["experiment=dcpt-six-installed", "corpora.domains=[code]"])
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "study.yaml").write_text(question_yaml(question))
    _write(six_points, kept / "points.parquet", 0.999)
    words = ["tables.names=[dcpt-10]", "tables.from_step=1"]
    assert run(["tables", f"points={kept}/points.parquet", *words]) == 0, capsys.readouterr().err
    told = (kept / "tables.md").read_text()
    assert "From the study kept" in told
    assert "D-CPT table 10" in told
    shutil.move(kept / "points.parquet", tmp_path / "alone.parquet")
    assert _missing(tmp_path, f"points={tmp_path}/alone.parquet", "experiment=dcpt-six-installed", *words) == 0
    assert (tmp_path / "studies" / "six-installed" / "tables" / "dcpt-10.csv").exists()
    assert run(["tables", str(kept), *words]) == 3
    assert "kept: not begun" in capsys.readouterr().err


@pytest.fixture
def six_points():
    from pipeline.study.collect import COLUMNS
    from tests.pipeline.paper_tables.six import study_points

    points = study_points(("code",), steps=(50, 100, 150, 200))
    mixtures = [column for column in points if column.startswith("mixture.")]
    return points.reindex(columns=[*COLUMNS, *mixtures]).assign(study="kept", tokens=0, model="m")
