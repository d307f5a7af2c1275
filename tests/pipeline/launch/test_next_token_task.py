"""Down-stream tasks from validation text: reproducible, with the following passage as the answer."""

import json
from pathlib import Path

import pytest

from pipeline.goals.registry import read_question
from pipeline.launch.downstream import CHOICES, with_next_tasks, write_tasks
from pipeline.question.messages import ConfigError
from pipeline.study.folder import Study
from training.corpora.manifest import Manifest
from training.corpora.tokenizer import load_tokenizer


def test_the_answer_is_what_follows(manifest: Manifest, tmp_path: Path) -> None:
    names = write_tasks(manifest, tmp_path, sequence_length=32, limit=12)
    assert set(names) == {"next-general", "next-code"}
    tokenizer = load_tokenizer(manifest.tokenizer_path)
    for name in names:
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert len(rows) == 12
        assert {row["answer"] for row in rows} == set(range(CHOICES))
        store = manifest.store(name.removeprefix("next-"))
        windows = store.batch("validation", store.validation_positions(12, 23), 23)
        for row, window in zip(rows, windows, strict=True):
            assert len(set(row["choices"])) == CHOICES
            whole = tokenizer.decode(window, skip_special_tokens=True)
            assert row["text"] + row["choices"][row["answer"]] == whole
        task = json.loads((tmp_path / f"{name}.yaml").read_text())
        assert task["task"] == name
        assert Path(task["dataset_kwargs"]["data_files"]["test"]) == tmp_path / f"{name}.jsonl"
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_tasks(manifest, tmp_path, sequence_length=32, limit=12)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_tasks_stay_and_mistakes_are_reported(tmp_path: Path) -> None:
    question = read_question(["experiment=quickstart", "evaluate.tasks=[hellaswag]"])
    assert with_next_tasks(question, Study(tmp_path)) is question
    both = read_question(["experiment=quickstart", "evaluate.tasks=[next]", "evaluate.folder=mine"])
    with pytest.raises(ConfigError, match=r"evaluate\.folder: 'mine' with evaluate\.tasks=next"):
        with_next_tasks(both, Study(tmp_path))
    with pytest.raises(ConfigError, match=r"evaluate\.role: 'first'; allowed: empty, pretrain, fit, confirm"):
        read_question(["experiment=quickstart", "evaluate.role=first"])
