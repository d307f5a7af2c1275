"""cptlaw advise: one command from a base model to a confirmed answer."""

import re
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.active.history import read_rounds
from pipeline.goals.registry import question_of_study
from pipeline.show.conclusion import conclusion_of
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.context import context_of
from tests.pipeline.small import refused, small_words, study_in

KEYS = (
    *("design.ratios=[0.2,0.5,0.8]", "design.peaks=[1,4]", "design.batch=4", "design.tolerance=0.01", "bootstrap=4"),
    *("target.peak_learning_rate=1e-3", "continual.evaluation.every=4", "confirm.neighbour=0"),
    *("law=transfer-anchored", "target.steps=24", "design.lengths=[0.5,1]", "design.budget=1e9"),
)
WITHOUT = (
    *("experiment=", "model=", "ladder=", "corpora.tokenizer", "law", "pretrain.", "mixture.", "continual.eval"),
    *("continual.checkpoints", "bootstrap"),
)


@pytest.mark.slow
def test_from_a_model_to_a_confirmed_answer(brought: Path, texts: Path, tmp_path: Path, capsys) -> None:
    words = small_words(texts, tmp_path, *KEYS, without=WITHOUT)
    study = study_in(words)
    assert run(["advise", str(brought), *words, "dry_run=true"]) == 0
    shown = capsys.readouterr().out
    assert "documents are preceded by <|endoftext|>" in shown
    assert "first round" in shown
    assert "the corpora are not prepared: this is an estimate, no plan is written\n" in shown
    assert "tokens, estimated from file sizes or max_bytes at 3 bytes each: " in shown
    # Its speed was measured.
    assert re.search(r"asked about: .* on one worker, with its start\n", shown)
    assert not study.folder.exists()
    assert not (tmp_path / "data").exists()

    assert run(["advise", str(brought), *words]) == 0
    answer, shown = Recommendation.read(study), capsys.readouterr().out
    assert "peak learning rate" in shown
    verdict = conclusion_of(context_of(question_of_study(study.folder, []))).lines[0]
    assert shown.count(verdict) == shown.count(Confirmation.read(study).outcome.sentence) == 1
    assert answer.peak_learning_rate in (1e-3, 4e-3)
    assert (study.folder / "report.html").exists()
    assert {planned.role for planned in study.read_plan()} == {"fit", "confirm"}, "the model is there already"
    confirmed = [planned for planned in study.read_plan() if planned.role == "confirm"]
    assert [planned.spec.steps for planned in confirmed] == [24]
    assert max(piece.end or 0.0 for piece in confirmed[0].spec.schedule) == answer.peak_learning_rate
    chosen = [one for around in read_rounds(study) for one in around.chosen]
    assert {one.steps for one in chosen} <= {12, 24}
    assert {one.peak for one in chosen} == {1e-3, 4e-3}
    rows = [row for row in Confirmation.read(study).confirmations if row.recommended]
    assert max(abs(row.relative_error) for row in rows) < 0.2
    # Given again it says what there is already.
    assert run(["advise", str(brought), *words]) == 0
    assert capsys.readouterr().out.count(verdict) == 1


def test_without_general_text_the_model_writes_it(brought: Path, texts: Path, tmp_path: Path, capsys) -> None:
    words = small_words(texts, tmp_path, *KEYS, "name=replay", without=WITHOUT)
    words = [word for word in words if not word.startswith("corpora.sources.general")]
    few = [f"corpora.sources.general.generated.{key}" for key in ("tokens=3000", "max_tokens=40", "max_repetition=1")]
    assert run(["advise", str(brought), *words, *few, "target.steps=8", "dry_run=true"]) == 0
    shown = capsys.readouterr().out
    assert "first round" in shown
    assert "general: the model has yet to write 3,000 of 3,000 tokens" in " ".join(shown.split())
    assert not (tmp_path / "data" / "generated").exists()
    # Hours of writing that would not be enough are refused before, dry or not.
    budget = [word for word in words if not word.startswith("design.budget")]
    for dry in ([], ["dry_run=true"]):
        line = refused(["advise", str(brought), *budget, *few, "target.steps=500", *dry], capsys, 2)
        assert "corpora.sources.general: 2," in line
        assert "would read" in line
        assert not (tmp_path / "data" / "generated").exists()


def test_mistakes_are_one_line_before_a_model_is_read(texts: Path, tmp_path: Path, capsys) -> None:
    words = small_words(texts, tmp_path, without=WITHOUT)
    line = refused(["advise", *words], capsys, 2)
    assert "0 models; allowed: one" in line
    assert "from scratch: cptlaw train experiment=own" in line
    assert "2 models; allowed: one" in refused(["advise", "a", "b", *words], capsys, 2)
    assert "did you mean continual.steps" in refused(["advise", "absent", *words, "continual.stps=3"], capsys, 2)
    assert "absent" in refused(["advise", "absent", *words], capsys, 3)
