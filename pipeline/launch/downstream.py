"""Down-stream tasks of kept checkpoints, by lm-eval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.launch.next_token_task import OWN, with_own_tasks
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.durable import write_whole


def evaluate_tasks(study: Study, question: Question, console: Console) -> list[dict[str, Any]]:
    """Run the tasks on the chosen checkpoints and keep each result in its run's tasks/step-N.json.

    What was evaluated before, with the same tasks and limit, is read and not run again.

    Returns:
        A row a checkpoint: run, step, and task -> {metric: value}.

    Raises:
        ConfigError: no task named, one that lm-eval does not know, or lm-eval is not installed.
        StudyError: no run or checkpoint fits.
    """
    question = with_own_tasks(question, study)
    chosen = _checkpoints(study, question)
    wanted = question.evaluate
    if not wanted.tasks:
        raise ConfigError(
            [
                f"evaluate.tasks: empty; give evaluate.tasks=[hellaswag], [{OWN}] (offline, from the study's text), "
                "or your own and evaluate.folder=..."
            ]
        )
    if wanted.limit is not None and wanted.limit < 1:
        raise ConfigError([f"evaluate.limit: {wanted.limit}; allowed: 1 or more, or null for all"])
    rows = []
    evaluator = None
    for number, (run, step, path) in enumerate(chosen, start=1):
        asked = {"tasks": sorted(wanted.tasks), "limit": wanted.limit}
        place = study.runs / run.name / "tasks" / f"step-{step}.json"
        result = _known(place, asked)
        if result is None:
            evaluator = evaluator or _Evaluator(question)
            console.print(f"{number}/{len(chosen)} {run.name} step {step}", highlight=False)
            result = evaluator(path)
            place.parent.mkdir(exist_ok=True)
            write_whole(place, json.dumps({**asked, "results": result}, indent=2) + "\n")
        rows.append({"run": run.name, "step": step, "results": result})
    return rows


def task_table(rows: list[dict[str, Any]]) -> Table:
    """The results for a terminal: a line a checkpoint and task."""
    table = Table("run", "step", "task", "scores")
    for row in rows:
        for number, (task, found) in enumerate(row["results"].items()):
            named = () if number else (row["run"], str(row["step"]))
            table.add_row(*(named or ("", "")), task, _scores(found), end_section=number == len(row["results"]) - 1)
    return table


def _scores(found: dict[str, float]) -> str:
    """lm-eval's metrics, each with its standard error.

    >>> _scores({"acc": 0.25, "acc_stderr": 0.0123, "acc_norm": 0.3})
    'acc 0.250 ± 0.012, acc_norm 0.300'
    """
    metrics = [name for name in found if not name.endswith("_stderr")]
    errors = {name: f" ± {found[f'{name}_stderr']:.3f}" for name in metrics if f"{name}_stderr" in found}
    return ", ".join(f"{name} {found[name]:.3f}{errors.get(name, '')}" for name in metrics)


class _Evaluator:
    """lm-eval with its tasks loaded once for all checkpoints."""

    def __init__(self, question: Question) -> None:
        try:
            from lm_eval.tasks import TaskManager
        except ImportError:
            raise ConfigError(["evaluate: lm-eval is not installed; pip install 'cptlaw[tasks]'"]) from None
        self._question = question
        folder = question.evaluate.folder
        if folder and not Path(folder).is_dir():
            raise ConfigError([f"evaluate.folder: {folder!r} is not a folder; give one that holds the tasks' YAML"])
        # lm-eval's own thousands of task files take seconds to index.
        self._manager = TaskManager(include_path=folder, include_defaults=False)
        if self._unknown():
            self._manager = TaskManager(include_path=folder)
        if unknown := self._unknown():
            raise ConfigError([f"evaluate.tasks: {', '.join(unknown)}: not known to lm-eval; see lm-eval ls tasks"])

    def _unknown(self) -> list[str]:
        return [task for task in self._question.evaluate.tasks if not self._manager.match_tasks([task])]

    def __call__(self, path: Path) -> dict[str, dict[str, float]]:
        import torch
        from lm_eval import simple_evaluate

        wanted = self._question.evaluate
        # Its decorator hides its arguments from type checkers.
        run: Any = simple_evaluate
        found = run(
            model="hf",
            model_args={"pretrained": str(path), "dtype": "float32", "trust_remote_code": False},
            tasks=list(wanted.tasks),
            task_manager=self._manager,
            batch_size=wanted.batch,
            limit=wanted.limit,
            device="cuda" if torch.cuda.is_available() else "cpu",
            log_samples=False,
        )
        return {task: _numbers(values) for task, values in found["results"].items()}


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    """Metric -> value, without lm-eval's filter in the name."""
    found = {}
    for key, value in values.items():
        if isinstance(value, float):
            found[key.removesuffix(",none")] = value
    return found


def _checkpoints(study: Study, question: Question) -> list[tuple[PlannedRun, int, Path]]:
    chosen = []
    for run in study.read_plan():
        if question.run not in (None, run.name, run.spec.hash, run.spec.hash[:8]):
            continue
        if question.evaluate.role not in ("", run.role):
            continue
        folders = (study.runs / run.name / "checkpoints").glob("step-*")
        steps = sorted(int(folder.name[5:]) for folder in folders if (folder / "DONE").exists())
        steps = steps if question.evaluate.checkpoints == "all" else steps[-1:]
        chosen += [(run, step, study.runs / run.name / "checkpoints" / f"step-{step}") for step in steps]
    if not chosen:
        what = f"run {question.run!r} has" if question.run else "the study has"
        raise StudyError(f"{study.folder}: {what} no checkpoint yet; run cptlaw train first")
    return chosen


def _known(place: Path, asked: dict[str, Any]) -> dict[str, dict[str, float]] | None:
    try:
        content = json.loads(place.read_text())
    except (OSError, ValueError):
        return None
    return content["results"] if {key: content.get(key) for key in asked} == asked else None
