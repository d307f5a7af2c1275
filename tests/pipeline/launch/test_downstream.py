"""cptlaw evaluate: a user's task file through the real lm-eval."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.goals.registry import read_question
from pipeline.launch.downstream import evaluate_tasks, task_table
from pipeline.question.messages import ConfigError
from pipeline.study.folder import PlannedRun, Study, StudyError
from training.checkpoints.weights import save_weights
from training.corpora.manifest import Manifest
from training.model import build_model
from training.spec import RunSpec

pytest.importorskip("lm_eval", reason="lm-eval is an extra: pip install -e '.[tasks]'")
# lm-eval warns of deprecations in its dependencies.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

TASK = {
    **{"task": "letters", "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice"},
    **{"doc_to_text": "{{question}}", "doc_to_target": "{{answer}}", "doc_to_choice": "{{choices}}"},
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}


@pytest.fixture
def study(tmp_path: Path, spec: RunSpec, manifest: Manifest) -> Study:
    study = Study(tmp_path / "study")
    run = PlannedRun(f"pretrain-tiny-{spec.hash[:8]}", "pretrain", "tiny", "", spec)
    study.write_plan([run])
    for step in (1, 2):
        save_weights(study.runs / run.name, step, build_model(spec.model, "eager", step), manifest.tokenizer_files())
    return study


@pytest.fixture
def question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [{"question": f"ab {n}", "answer": n % 2, "choices": ["cd", "efgh"]} for n in range(8)]
    data = tmp_path / "tasks" / "letters.jsonl"
    data.parent.mkdir()
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(data)}}}
    (data.parent / "letters.yaml").write_text(json.dumps(task))
    tasks = ("evaluate.tasks=[letters]", f"evaluate.folder={data.parent}", "evaluate.checkpoints=all")
    return read_question(["experiment=quickstart", *tasks])


def test_a_task_file_is_run_on_every_checkpoint_and_once(study: Study, question, monkeypatch) -> None:
    console = Console(quiet=True)
    # Of a qwen2 it would make another tokenizer than that of the study.
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", None)
    rows = evaluate_tasks(study, question, console)
    assert [row.step for row in rows] == [1, 2]
    for row in rows:
        # With two choices that never change the accuracy is the frequency of one answer.
        assert row.scores["letters"]["acc"] == 0.5
        kept = study.runs / row.run / "tasks" / f"step-{row.step}.json"
        assert json.loads(kept.read_text())["results"] == row.scores
        kept.write_text(kept.read_text().replace("0.5", "0.75"))
    again = evaluate_tasks(study, question, console)
    assert {row.scores["letters"]["acc"] for row in again} == {0.75}
    # With solved questions before each they are others.
    shots = replace(question, evaluate=replace(question.evaluate, few_shot=2, checkpoints="last"))
    (row,) = evaluate_tasks(study, shots, console)
    kept = {path.name: json.loads(path.read_text())["few_shot"] for path in (study.runs / row.run / "tasks").iterdir()}
    assert kept == {"step-1.json": None, "step-2.json": None, "step-2-2-shot.json": 2}
    with (terminal := Console(width=80)).capture() as shown:
        scores = [{f"task-{n}": row.scores["letters"] for n in range(6)} for row in rows]
        terminal.print(task_table([replace(row, scores=of) for row, of in zip(rows, scores)]))
    assert shown.get().count("acc 0.500 ±") == 12, "readable however many tasks there are"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tasks": []}, r"evaluate\.tasks: empty"),
        ({"tasks": ["lettres"]}, r"evaluate\.tasks: lettres: unknown to lm-eval"),
        ({"folder": "nowhere"}, r"evaluate\.folder: 'nowhere' is not a folder"),
    ],
)
def test_bad_input_is_one_line(study: Study, question, changes, error) -> None:
    with pytest.raises(ConfigError, match=error):
        evaluate_tasks(study, replace(question, evaluate=replace(question.evaluate, **changes)), Console(quiet=True))


def test_a_run_without_checkpoints_is_one_line(study: Study, question) -> None:
    with pytest.raises(StudyError, match="run 'abc' has no checkpoint yet"):
        evaluate_tasks(study, replace(question, run="abc"), Console(quiet=True))
