"""Down-stream tasks from the study's validation text: which of four passages comes next."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from pipeline.plan.runs import data_folder
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import Study
from training.corpora.manifest import Manifest
from training.durable import write_whole

NEXT = "next"
"""Name in evaluate.tasks for the tasks next-CORPUS of all corpora."""
CHOICES = 4


def with_next_tasks(question: Question, study: Study) -> Question:
    """The question with `next` replaced by the tasks of its corpora, whose files are written below the study.

    Raises:
        ConfigError: evaluate.folder is given too.
        CorpusError: the corpora are not prepared.
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
    """Write a task file of lm-eval and its questions for each corpus; the same text gives the same files.

    A question is half a sequence of validation text. Its four choices, a quarter of a sequence each, are the text that
    follows it and the texts that follow three other questions. Chance accuracy is 1/4. A corpus has at most `limit`
    questions.

    Returns:
        The tasks' names; a corpus with too little validation text has no task.
    """
    from training.corpora.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(manifest.tokenizer_path)
    before, after = sequence_length // 2, sequence_length // 4
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for corpus in manifest.corpora:
        store = manifest.store(corpus)
        count = min(limit, store.windows("validation", before + after - 1))
        if count < CHOICES:
            continue
        rows = store.batch("validation", store.validation_positions(count, before + after - 1), before + after - 1)
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
