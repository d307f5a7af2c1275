"""cptlaw evaluate: down-stream tasks of lm-eval on the kept checkpoints of a study.

A task can be made from the study's validation text: which of four passages comes next.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline.plan.runs import data_folder
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.question.schema.execution import EvaluateConfig
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.corpora.manifest import Manifest
from training.corpora.tokenizer import load_tokenizer
from training.durable import FileError, numbered, read_json, write_whole

Scores = dict[str, dict[str, float]]
"""Task -> metric -> value."""
NEXT = "next"
"""Name in evaluate.tasks for the tasks next-CORPUS of all corpora."""
CHOICES = 4


@dataclass(frozen=True)
class CheckpointScores:
    """Results of the tasks on the checkpoint of a run at a step."""

    run: str
    step: int
    scores: Scores


def evaluate_tasks(study: Study, question: Question, console: Console) -> list[CheckpointScores]:
    """Run the tasks on the selected checkpoints and write each result to its run's tasks/step-N.json.

    With K solved questions before each it is tasks/step-N-K-shot.json. Results of the same tasks and limit are read and
    not computed again. ConfigError: no task, one unknown to lm-eval, or lm-eval is not installed. StudyError: no
    checkpoint matches.
    """
    question = with_next_tasks(question, study)
    checkpoints = _checkpoints(study, question)
    settings = question.evaluate
    if not settings.tasks:
        own = "(offline, from the study's text), or your own and evaluate.folder=..."
        raise ConfigError([f"evaluate.tasks: empty; give evaluate.tasks=[hellaswag], [{NEXT}] {own}"])
    rows, manager = [], None
    request = {"tasks": sorted(settings.tasks), "limit": settings.limit, "few_shot": settings.few_shot}
    shots = "" if settings.few_shot is None else f"-{settings.few_shot}-shot"
    for number, (run, step, path) in enumerate(checkpoints, start=1):
        file = study.runs / run.name / "tasks" / f"step-{step}{shots}.json"
        result = _stored_results(file, request)
        if result is None:
            manager = manager or _task_manager(settings)
            console.print(f"{number}/{len(checkpoints)} {run.name} step {step}")
            result = _evaluate(path, settings, manager)
            file.parent.mkdir(exist_ok=True)
            write_whole(file, json.dumps({**request, "results": result}, indent=2) + "\n")
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


def _task_manager(settings: EvaluateConfig) -> Any:
    """lm-eval's index of tasks, the asked ones among them."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError:
        raise ConfigError(["evaluate: lm-eval is not installed; pip install -e '.[tasks]'"]) from None
    if settings.folder and not Path(settings.folder).is_dir():
        raise ConfigError([f"evaluate.folder: {settings.folder!r} is not a folder; give the folder of the task files"])
    # The thousands of task files in lm-eval take seconds to index.
    for defaults in (False, True):
        manager = TaskManager(include_path=settings.folder, include_defaults=defaults)
        unknown = [task for task in settings.tasks if not manager.match_tasks([task])]
        if not unknown:
            return manager
    hint = "unknown to lm-eval; lm-eval ls tasks lists the names"
    raise ConfigError([f"evaluate.tasks: {', '.join(unknown)}: {hint}"])


def _evaluate(path: Path, settings: EvaluateConfig, manager: Any) -> Scores:
    import torch
    from lm_eval import simple_evaluate

    # Its decorator hides its arguments from type checkers.
    run: Any = simple_evaluate
    output = run(
        model="hf",
        model_args={
            **{"pretrained": str(path), "dtype": "float32", "trust_remote_code": False},
            "tokenizer": load_tokenizer(path),
        },
        tasks=list(settings.tasks),
        task_manager=manager,
        batch_size=settings.batch,
        limit=settings.limit,
        num_fewshot=settings.few_shot,
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
        steps = [step for step, path in numbered(folder, "step-*").items() if (path / "DONE").exists()]
        steps = steps if question.evaluate.checkpoints == "all" else steps[-1:]
        checkpoints += [(run, step, folder / f"step-{step}") for step in steps]
    if not checkpoints:
        owner = f"run {question.run!r} has" if question.run else "the study has"
        raise StudyError(f"{study.folder}: {owner} no checkpoint yet; run cptlaw train {study.word} first")
    return checkpoints


def _stored_results(file: Path, request: dict[str, object]) -> Scores | None:
    try:
        content = read_json(file)
    except (OSError, FileError):
        return None
    return content.get("results") if {key: content.get(key) for key in request} == request else None


def with_next_tasks(question: Question, study: Study) -> Question:
    """The question with `next` replaced by the tasks of its corpora, whose files are written below the study.

    ConfigError: evaluate.folder is given too. CorpusError: the corpora are not prepared.
    """
    settings = question.evaluate
    if NEXT not in settings.tasks:
        return question
    if settings.folder:
        problem = f"evaluate.folder: {settings.folder!r} with evaluate.tasks={NEXT}"
        raise ConfigError([f"{problem}; allowed: only one of them"])
    folder = study.folder / "tasks"
    names = write_tasks(Manifest.open(data_folder(question)), folder, question.sequence_length)
    tasks = [*(task for task in settings.tasks if task != NEXT), *names]
    return dataclasses.replace(question, evaluate=dataclasses.replace(settings, tasks=tasks, folder=str(folder)))


def write_tasks(manifest: Manifest, folder: Path, sequence_length: int, limit: int = 200) -> list[str]:
    """Write a task file of lm-eval and its questions for each corpus with enough validation text; returns their names.

    A question is half a sequence of validation text. Its four choices, a quarter of a sequence each, are the text that
    follows it and the texts that follow three other questions. Chance accuracy is 1/4. A corpus has at most `limit`
    questions. The same text gives the same files.
    """
    tokenizer = load_tokenizer(manifest.tokenizer_path)
    before, after = sequence_length // 2, sequence_length // 4
    folder.mkdir(parents=True, exist_ok=True)
    names, length = [], before + after - 1
    for corpus in manifest.corpora:
        store = manifest.store(corpus)
        if (count := min(limit, store.windows("validation", length))) < CHOICES:
            continue
        rows = store.batch("validation", store.validation_positions(count, length), length)
        texts, follow = ([tokenizer.decode(row, skip_special_tokens=True) for row in part]
                         for part in (rows[:, :before], rows[:, before:]))  # fmt: skip
        lines = []
        for at, text in enumerate(texts):
            # From this question and those a quarter, a half and three quarters of the corpus on, rotated by one each.
            passages = [follow[(at + count * step // CHOICES) % count] for step in range(CHOICES)]
            choices = list(np.roll(np.array(passages, dtype=object), at))
            lines.append(json.dumps({"text": text, "choices": choices, "answer": at % CHOICES}) + "\n")
        name = f"{NEXT}-{corpus}"
        write_whole(folder / f"{name}.jsonl", "".join(lines))
        # JSON is valid YAML, and quotes any corpus name.
        write_whole(folder / f"{name}.yaml", json.dumps(_task(name, folder / f"{name}.jsonl"), indent=2) + "\n")
        names.append(name)
    return names


def _task(name: str, data: Path) -> dict[str, object]:
    return {
        **{"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data.resolve())}}},
        **{"test_split": "test", "output_type": "multiple_choice", "target_delimiter": ""},
        **{"doc_to_text": "{{text}}", "doc_to_target": "{{answer}}", "doc_to_choice": "{{choices}}"},
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
