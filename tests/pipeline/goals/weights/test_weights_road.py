"""The road to weights in small: real corpora, real runs at two scales, AutoScale, and the comparison."""

import json

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.study.folder import Study, study_of

pytestmark = pytest.mark.slow

AUTOSCALE = ["weights.methods=[autoscale,uniform]", "weights.scales=[9,18]", "weights.target=36"]
AUTOSCALE += ["weights.confirm_seeds=2", "name=whole"]


@pytest.fixture(scope="module")
def compared(words: list[str]) -> Study:
    assert run(["quickstart", *words, *AUTOSCALE]) == 0
    return study_of(read_question([*words, *AUTOSCALE]))


def test_the_whole_road(compared: Study, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    plan = compared.read_plan()
    assert [planned.role for planned in plan].count("fit") == 14
    assert [planned.role for planned in plan].count("confirm") == 6
    assert {planned.spec.steps for planned in plan if planned.role == "fit"} == {9, 15, 7, 18, 30, 14}
    content = WeightsRecommendation.read(compared)
    assert sum(content.mixture.values()) == pytest.approx(1)
    rows = {row.method: row for row in WeightsConfirmation.read(compared).methods}
    assert set(rows) == {"autoscale", "autoscale-offsets", "uniform"}
    assert all(len(row.values) == 2 for row in rows.values())
    assert rows["autoscale"].search_tokens == sum(planned.spec.tokens for planned in plan if planned.role == "fit")
    assert "autoscale-offsets" in (compared.folder / "report.html").read_text()
    # The same words again train nothing, and change nothing that was answered.
    before = {path: path.stat().st_mtime_ns for path in compared.runs.rglob("*") if path.is_file()}
    answers = [(compared.folder / name).read_bytes() for name in ("recommendation.json", "confirmation.json")]
    capsys.readouterr()
    for verb in ("plan", "train", "collect", "fit", "recommend", "confirm", "report"):
        assert run([verb, *words, *AUTOSCALE]) == 0, verb
    out = " ".join(capsys.readouterr().out.split())
    assert "search by autoscale" in out
    assert "20 runs, 20 of them done already" in out
    assert {path: path.stat().st_mtime_ns for path in compared.runs.rglob("*") if path.is_file()} == before
    assert answers == [(compared.folder / name).read_bytes() for name in ("recommendation.json", "confirmation.json")]


def test_weights_that_need_no_search_are_compared(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["weights.methods=[uniform,given]", "weights.given.mine={general: 1, domain: 0, third: 0}", "name=given"]
    given += ["weights.target=9", "weights.confirm_seeds=1"]
    assert run(["quickstart", *words, *given]) == 0
    assert "nothing to collect: the plan has no runs" in capsys.readouterr().out
    rows = WeightsConfirmation.read(study_of(read_question([*words, *given]))).methods
    assert {row.method for row in rows} == {"uniform", "mine"}


def test_a_masked_model_goes_the_same_road(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    bert = ["model=bert-base", "objective.kind=masked", "model.vocab_size=null", "model.hidden_size=16"]
    bert += ["model.num_hidden_layers=1", "model.num_attention_heads=2", "model.intermediate_size=32"]
    ddo = ["weights.methods=[ddo,uniform]", "weights.scales=[9]", "weights.target=18"]
    words = [word for word in words if not word.startswith("model=")]
    words += [*bert, *ddo, "weights.confirm_seeds=1", "name=masked"]
    assert run(["quickstart", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    # More rounds may follow those, and none the confirmation.
    assert "7/7 runs so far, 100% of their tokens" in out
    assert "2/2 runs, 100% of the tokens" in out
    study = study_of(read_question(words))
    plan = study.read_plan()
    assert {planned.spec.objective.kind for planned in plan} == {"masked"}
    assert [planned.role for planned in plan].count("fit") == 7
    rows = WeightsConfirmation.read(study).methods
    assert {row.method for row in rows} == {"ddo", "uniform"}
    assert {row.low for row in rows} == {None}


def test_a_recommendation_of_another_question_is_not_confirmed(compared: Study, capsys) -> None:
    assert run(["confirm", str(compared.folder), "weights.target=45"]) == 3
    assert f"of another question; run cptlaw recommend {compared.word} again" in capsys.readouterr().err
    path = compared.folder / "recommendation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mixture": {"general": 2}}))
    assert run(["report", str(compared.folder)]) == 3
    again = f"run cptlaw recommend {compared.word} again"
    wrong = f"mixture.general = 2: input should be less than or equal to 1; {again}"
    assert wrong in capsys.readouterr().err
