"""Down-stream tasks that need no network: of a corpus' held-out text, which of four passages comes next."""

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

OWN = "next"
"""Name in evaluate.tasks that stands for a task next-CORPUS of each corpus."""
CHOICES = 4


def with_own_tasks(question: Question, study: Study) -> Question:
    """The question with the tasks that OWN stands for written below the study, and named.

    Raises:
        ConfigError: a folder of other tasks is given too.
        CorpusError: the corpora are not prepared.
    """
    asked = question.evaluate
    if OWN not in asked.tasks:
        return question
    if asked.folder:
        raise ConfigError([f"evaluate.folder: {asked.folder!r} with evaluate.tasks={OWN}; allowed: one of them a call"])
    folder = study.folder / "tasks"
    names = write_tasks(Manifest.open(data_folder(question)), folder, question.sequence_length)
    tasks = [*(task for task in asked.tasks if task != OWN), *names]
    return dataclasses.replace(question, evaluate=dataclasses.replace(asked, tasks=tasks, folder=str(folder)))


def write_tasks(manifest: Manifest, folder: Path, sequence_length: int, most: int = 200) -> list[str]:
    """A task file of lm-eval and its questions for each corpus; the same text gives the same files.

    A question is half a sequence of validation text; its choices, a quarter of a sequence each, are what follows there
    and what follows in three other places of the corpus. Chance is right in one of four.

    Args:
        manifest: the prepared corpora.
        folder: where the files are put.
        sequence_length: tokens that the models see at once.
        most: questions a corpus.

    Returns:
        The tasks' names; a corpus with validation text for fewer questions than choices has none.
    """
    from training.corpora.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(manifest.tokenizer_path)
    before, after = sequence_length // 2, sequence_length // 4
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for corpus in manifest.corpora:
        store = manifest.store(corpus)
        count = min(most, store.windows("validation", before + after - 1))
        if count < CHOICES:
            continue
        rows = store.batch("validation", store.validation_positions(count, before + after - 1), before + after - 1)
        texts, follow = ([tokenizer.decode(row, skip_special_tokens=True) for row in part]
                         for part in (rows[:, :before], rows[:, before:]))  # fmt: skip
        lines = []
        for at, text in enumerate(texts):
            # What follows, and what stands a quarter, a half and three quarters of the corpus on; turned by one each.
            others = [follow[(at + count * step // CHOICES) % count] for step in range(CHOICES)]
            choices = list(np.roll(np.array(others, dtype=object), at))
            lines.append(json.dumps({"text": text, "choices": choices, "answer": at % CHOICES}) + "\n")
        name = f"{OWN}-{corpus}"
        write_whole(folder / f"{name}.jsonl", "".join(lines))
        # JSON is YAML, and no name of a corpus can break out of it.
        write_whole(folder / f"{name}.yaml", json.dumps(_task(name, folder / f"{name}.jsonl"), indent=2) + "\n")
        names.append(name)
    return names


def _task(name: str, data: Path) -> dict[str, object]:
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data.resolve())}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{answer}}",
        "doc_to_choice": "{{choices}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
