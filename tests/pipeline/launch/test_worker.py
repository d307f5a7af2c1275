"""The runs that a worker chooses, and the arguments that it passes to them."""

from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from pipeline.launch import work
from pipeline.launch.local import train_locally
from pipeline.launch.work import next_runs
from pipeline.study.folder import PlannedRun
from tests.pipeline.show.report.report_study import make_study
from training.run import Exit
from training.spec import SpecError
from training.stop import StopRequest


def test_a_single_run_counts_the_tokens_of_all_runs_of_its_shape(tmp_path: Path, monkeypatch) -> None:
    study, question = make_study(tmp_path, until="plan")
    plan = study.read_plan()
    first = next(run for run in plan if run.model == question.ladder[0])
    arguments: dict[str, Any] = {}

    def run_once(spec: Any, places: Any, execution: Any, **keywords: Any) -> Exit:
        arguments.update(keywords)
        return Exit.RUN_ME_AGAIN

    monkeypatch.setattr(work, "run_once", run_once)
    monkeypatch.setattr(work.Manifest, "open", lambda folder: None)
    with StopRequest() as stop:
        assert work.work(study, question, stop, only=first.name) == Exit.RUN_ME_AGAIN
    same = [run.spec.tokens for run in plan if run.spec.model == first.spec.model]
    assert len(same) > 1
    assert arguments["tokens_of_shape"] == sum(same)


def test_the_next_runs_follow_their_parents(tmp_path: Path) -> None:
    study, question = make_study(tmp_path, until="plan")
    plan = study.read_plan()
    parents, children = ([run for run in plan if (run.after is None) == is_root] for is_root in (True, False))

    def finish(runs: list[PlannedRun], marker: str) -> None:
        for run in runs:
            (study.runs / run.name).mkdir(parents=True, exist_ok=True)
            (study.runs / run.name / marker).write_text("{}\n")

    def names(selected: list[PlannedRun], last_model: str | None = None) -> object:
        return next_runs(study, question, plan, selected, 0, last_model)

    assert sorted(cast(list, names(plan))) == sorted(run.name for run in parents)
    with pytest.raises(SpecError, match="the run that it starts from is not done"):
        names(children[:1])
    finish(parents, "DONE")
    ready = cast(list, names(plan, children[-1].model))
    assert sorted(ready) == sorted(run.name for run in children)
    assert children[-1].model in ready[0]
    finish(children, "DONE")
    assert names(plan) == Exit.DONE
    (study.runs / children[0].name / "DONE").unlink()
    finish(children[:1], "FAILED")
    assert names(plan) == Exit.CRASH


def test_a_stop_file_is_named_before_a_worker_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, question = make_study(tmp_path, until="plan")
    (study.folder / "STOP").touch()
    assert train_locally(study, question, Console(width=400)) == Exit.RUN_ME_AGAIN
    line = f"{study.folder / 'STOP'}: this file stops every run: remove it and give the same command again\n"
    assert capsys.readouterr().out == line
    assert not (study.folder / "logs").exists()
