"""cptlaw tables of a study that is missing, unfinished, or kept without its runs."""

import dataclasses
import shutil
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.cli.main import run
from pipeline.cli.table_studies import complete_study
from pipeline.goals.registry import read_question
from pipeline.steps import STEPS
from pipeline.study.collect import COLUMNS, _write
from pipeline.study.context import Context
from pipeline.study.folder import question_yaml, study_of
from tests.pipeline.papers.six import study_points
from training.run import Exit


def _tables(tmp_path: Path, *words: str) -> int:
    return run(["tables", f"studies={tmp_path}/studies", f"data={tmp_path}/data", *words])


def test_the_cost_of_a_missing_study_is_printed(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("CPTLAW_CORPORA", raising=False)
    assert _tables(tmp_path, "tables.names=[dcpt-1]") == 3
    printed = capsys.readouterr().out
    # Without the texts it is the study of the installed corpora.
    assert "six-installed" in printed
    assert "150" in printed
    assert "six-installed: not begun; tables.run=true runs it" in " ".join(printed.split())
    assert not (tmp_path / "studies").exists()


def test_a_dry_run_prints_the_jobs_of_a_study_whose_text_is_not_there(tmp_path: Path, capsys) -> None:
    words = ["experiment=dynamics-paper-open", "launcher=slurm", "launcher.slurm.gpus=8", "dry_run=true"]
    for more in ([], ["tables.run=true"]):
        assert _tables(tmp_path, *words, *more) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "the corpora are not prepared: this is an estimate, no plan is written" in printed
        assert "$ sbatch --parsable " in printed
        assert printed.endswith(" ".join(["launcher.slurm.gpus=8", *more]))
        assert not list(tmp_path.iterdir())


def test_a_mistake_is_refused_before_the_first_study(tmp_path: Path, capsys) -> None:
    """Also one that the first experiment takes: planning all of them takes half a minute."""
    for word, key in (("design=active", "design.kind: 'active' with"), ("tables.papers=no", "tables.papers: 'no'")):
        assert _tables(tmp_path, "tables.names=[dcpt-1,autoscale-1]", word) == 2
        printed = capsys.readouterr()
        assert not printed.out
        assert printed.err.startswith(key)


def test_a_study_without_text_leaves_the_others(tmp_path: Path, capsys) -> None:
    """That of figure 18 needs the text that trained its model."""
    assert _tables(tmp_path, "tables.names=[dynamics-figure-18,dcpt-12]") == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "corpora.sources.general.path: missing" in printed
    assert "not begun; tables.run=true runs it" in printed.split("corpora.sources.general.path: missing")[1]


def test_run_takes_every_step_and_trains_once(tmp_path: Path, monkeypatch) -> None:
    taken: list[str] = []
    question = read_question(["experiment=autoscale-small", "tables.run=true", f"studies={tmp_path}"])

    def take(name: str, context: Context, console: Console) -> Exit:
        taken.append(name)
        if name == "plan":
            context.study.write_plan([])
        return Exit.RUN_ME_AGAIN if name == "confirm" else Exit.DONE

    for name, step in STEPS.items():
        monkeypatch.setitem(STEPS, name, dataclasses.replace(step, run=partial(take, name)))
    # The exit code that stops a step is returned; the second time nothing is left to train.
    quiet = Console(quiet=True)
    assert complete_study(study_of(question), question, quiet) == Exit.RUN_ME_AGAIN
    assert taken == ["prepare", "plan", "train", "recommend", "confirm"]
    taken.clear()
    complete_study(study_of(question), question, quiet)
    assert taken == ["recommend", "confirm"]


@pytest.mark.slow
def test_kept_points_are_enough(tmp_path: Path, capsys, monkeypatch) -> None:
    question = read_question(["experiment=dcpt-six-installed", "corpora.domains=[code]"])
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "study.yaml").write_text(question_yaml(question))
    points = study_points(("code",), ratios=(0.0, 0.5, 1.0), steps=(50, 100, 200))
    mixtures = [column for column in points if column.startswith("mixture.")]
    points = points.reindex(columns=[*COLUMNS, *mixtures]).assign(study="kept", tokens=0, model="m")
    _write(points, kept / "points.parquet")
    words = ["tables.names=[dcpt-10]", "tables.from_step=1"]
    assert run(["tables", f"points={kept}/points.parquet", *words]) == 0, capsys.readouterr().err
    printed = (kept / "tables.md").read_text()
    assert "From the study kept" in printed
    assert "D-CPT table 10" in printed
    shutil.move(kept / "points.parquet", tmp_path / "alone.parquet")
    monkeypatch.setattr("pipeline.papers.make.find_spec", lambda library: None)
    assert _tables(tmp_path, f"points={tmp_path}/alone.parquet", "experiment=dcpt-six-installed", *words) == 0
    assert "without figures: they need plotly" in capsys.readouterr().out
    assert (tmp_path / "studies" / "six-installed" / "tables" / "dcpt-10.csv").exists()
    assert run(["tables", str(kept), *words]) == 3
    assert "kept: not begun" in capsys.readouterr().err
