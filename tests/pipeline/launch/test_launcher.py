"""A launcher is one record of functions."""

from pathlib import Path

import pytest
from rich.console import Console

from pipeline.launch import launcher
from pipeline.launch.launcher import Launcher, launch
from pipeline.study.context import Context
from tests.pipeline.show.report.report_study import make_study
from training.run import Exit


def test_a_launcher_trains_what_is_wanted_and_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, question = make_study(tmp_path, until="plan")
    asked: list[object] = []

    def train(context: Context, console: Console, only: object) -> Exit:
        asked.append(only)
        return Exit.DONE

    monkeypatch.setitem(launcher.LAUNCHERS, question.launcher.kind, Launcher(train))
    context = Context(question, study)
    child = next(run for run in context.plan if run.after)
    parent = next(run for run in context.plan if run.spec.hash == child.after)
    assert launch(context, Console(quiet=True)) == launch(context, Console(quiet=True), [child]) == Exit.DONE
    assert asked == [None, {child.name, parent.name}]
