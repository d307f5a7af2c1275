"""cptlaw evaluate: down-stream tasks of lm-eval on the kept checkpoints of a study."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.launch.next_token_task import NEXT, with_next_tasks
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.durable import write_whole


@dataclass(frozen=True)
class CheckpointScores:
    """Results of the tasks on one checkpoint."""

    run: str
    """Folder name of the run."""
    step: int
    """Step of the checkpoint."""
    scores: dict[str, dict[str, float]]
    """Task -> metric -> value."""


def evaluate_tasks(study: Study, question: Question, console: Console) -> list[CheckpointScores]:
    """Run the tasks on the selected checkpoints and write each result to its run's tasks/step-N.json.

    Results of the same tasks and limit are read and not computed again.

    Raises:
        ConfigError: no task, one unknown to lm-eval, or lm-eval is not installed.
        StudyError: no checkpoint matches.
    """
    question = with_next_tasks(question, study)
    checkpoints = _checkpoints(study, question)
    settings = question.evaluate
    if not settings.tasks:
        own = "(offline, from the study's text), or your own and evaluate.folder=..."
        raise ConfigError([f"evaluate.tasks: empty; give evaluate.tasks=[hellaswag], [{NEXT}] {own}"])
    if settings.limit is not None and settings.limit < 1:
        raise ConfigError([f"evaluate.limit: {settings.limit}; allowed: 1 or more, or null for all"])
    rows, evaluator = [], None
    request = {"tasks": sorted(settings.tasks), "limit": settings.limit}
    for number, (run, step, path) in enumerate(checkpoints, start=1):
        place = study.runs / run.name / "tasks" / f"step-{step}.json"
        result = _stored_results(place, request)
        if result is None:
            evaluator = evaluator or _Evaluator(question)
            console.print(f"{number}/{len(checkpoints)} {run.name} step {step}", highlight=False)
            result = evaluator(path)
            place.parent.mkdir(exist_ok=True)
            write_whole(place, json.dumps({**request, "results": result}, indent=2) + "\n")
        rows.append(CheckpointScores(run.name, step, result))
    return rows


def task_table(rows: list[CheckpointScores]) -> Table:
    """The results for a terminal: a line a checkpoint and task."""
    table = Table("run", "step", "task", "scores")
    for row in rows:
        for number, (task, scores) in enumerate(row.scores.items()):
            named = () if number else (row.run, str(row.step))
            table.add_row(*(named or ("", "")), task, _scores(scores), end_section=number == len(row.scores) - 1)
    return table


def _scores(scores: dict[str, float]) -> str:
    """lm-eval's metrics, each with its standard error.

    >>> _scores({"acc": 0.25, "acc_stderr": 0.0123, "acc_norm": 0.3})
    'acc 0.250 ± 0.012, acc_norm 0.300'
    """
    metrics = [name for name in scores if not name.endswith("_stderr")]
    errors = {name: f" ± {scores[f'{name}_stderr']:.3f}" for name in metrics if f"{name}_stderr" in scores}
    return ", ".join(f"{name} {scores[name]:.3f}{errors.get(name, '')}" for name in metrics)


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
            raise ConfigError([f"evaluate.folder: {folder!r} is not a folder; give the folder of the task files"])
        # The thousands of task files in lm-eval take seconds to index.
        self._manager = TaskManager(include_path=folder, include_defaults=False)
        if self._unknown():
            self._manager = TaskManager(include_path=folder)
        if unknown := self._unknown():
            hint = "unknown to lm-eval; lm-eval ls tasks lists the names"
            raise ConfigError([f"evaluate.tasks: {', '.join(unknown)}: {hint}"])

    def _unknown(self) -> list[str]:
        return [task for task in self._question.evaluate.tasks if not self._manager.match_tasks([task])]

    def __call__(self, path: Path) -> dict[str, dict[str, float]]:
        import torch
        from lm_eval import simple_evaluate

        settings = self._question.evaluate
        # Its decorator hides its arguments from type checkers.
        run: Any = simple_evaluate
        output = run(
            model="hf",
            model_args={"pretrained": str(path), "dtype": "float32", "trust_remote_code": False},
            tasks=list(settings.tasks),
            task_manager=self._manager,
            batch_size=settings.batch,
            limit=settings.limit,
            device="cuda" if torch.cuda.is_available() else "cpu",
            log_samples=False,
        )
        # lm-eval adds the filter to a metric's name.
        return {
            task: {key.removesuffix(",none"): value for key, value in values.items() if isinstance(value, float)}
            for task, values in output["results"].items()
        }


def _checkpoints(study: Study, question: Question) -> list[tuple[PlannedRun, int, Path]]:
    checkpoints = []
    for run in study.read_plan():
        if question.run not in (None, run.name, run.spec.hash, run.spec.hash[:8]):
            continue
        if question.evaluate.role not in ("", run.role):
            continue
        folder = study.runs / run.name / "checkpoints"
        steps = sorted(int(path.name[5:]) for path in folder.glob("step-*") if (path / "DONE").exists())
        steps = steps if question.evaluate.checkpoints == "all" else steps[-1:]
        checkpoints += [(run, step, folder / f"step-{step}") for step in steps]
    if not checkpoints:
        owner = f"run {question.run!r} has" if question.run else "the study has"
        raise StudyError(f"{study.folder}: {owner} no checkpoint yet; run cptlaw train first")
    return checkpoints


def _stored_results(place: Path, request: dict[str, Any]) -> dict[str, dict[str, float]] | None:
    try:
        content = json.loads(place.read_text())
    except (OSError, ValueError):
        return None
    return content["results"] if {key: content.get(key) for key in request} == request else None
