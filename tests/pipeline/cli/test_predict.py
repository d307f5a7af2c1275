"""Predictions of a study's laws from the command line: those of its recommendation, and of runs beyond it."""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import array, compute, parquet

from pipeline.cli import predict
from pipeline.cli.main import run
from pipeline.goals.registry import load_question
from pipeline.study.artifacts import Recommendation
from pipeline.study.collect import points_of
from pipeline.study.folder import Study, question_yaml
from tests.pipeline.small import refused
from training.schedule import learning_rates

pytestmark = pytest.mark.slow
KEPT = Path(__file__).parents[3] / "docs/results/base-model-medical"


@pytest.fixture(scope="module")
def study(tmp_path_factory, no_profiles) -> Study:
    """A kept study, fitted with one law and answered again."""
    folder = tmp_path_factory.mktemp("studies") / "kept"
    shutil.copytree(KEPT, folder)
    assert run(["fit", str(folder), "law=[transfer-open-saturating]", "bootstrap=8"]) == 0
    assert run(["recommend", str(folder)]) == 0
    return Study(folder)


def test_the_run_of_the_recommendation_is_predicted_as_it_predicts(study: Study, capsys) -> None:
    answer = Recommendation.read(study)
    assert answer.mixture is not None
    before = (study.folder / "study.yaml").read_text()
    assert run(["predict", str(study.folder), f"domain_ratio=[{answer.mixture['domain']}]"]) == 0
    printed = capsys.readouterr().out
    assert f"peak {answer.peak_learning_rate:g}: by" in printed
    for corpus, loss in answer.predicted.items():
        (row,) = re.findall(rf"{corpus} .* (\d\.\d+) .* (\d\.\d+) to (\d\.\d+)", printed)
        assert list(map(float, row)) == pytest.approx([loss.loss, loss.low, loss.high], abs=1e-4)
    assert "horizon: 3 times the most tokens of a fitted run" in printed
    assert "note: peak" not in printed
    assert (study.folder / "study.yaml").read_text() == before


def test_a_peak_that_no_run_had_is_noted(study: Study, capsys) -> None:
    peaks = [max(learning_rates(one.spec.schedule, one.spec.steps)) for one in study.read_plan() if one.role == "fit"]
    for peak, times in ((10 * max(peaks), 10), (min(peaks) / 4, 0.25)):
        assert run(["predict", str(study.folder), "domain_ratio=0.2", f"target.peak_learning_rate={peak}"]) == 0
        note = rf"note: peak {peak:g} is beyond the points, {times:g} times the nearest: the runs for the fit have "
        assert re.search(note, capsys.readouterr().out)


def test_a_batch_that_no_run_had_is_noted(study: Study, capsys) -> None:
    spec = next(run.spec for run in study.read_plan() if run.role == "fit")
    assert run(["predict", str(study.folder), "domain_ratio=0.2", "target.global_batch=999"]) == 0
    asked = f"{999 * spec.sequence_length:,} tokens a step are asked about"
    said = f"{asked}, the runs for the fit have {spec.tokens_per_step:,}"
    assert f"note: no law reads the batch: {said}\n" in capsys.readouterr().out


def test_a_longer_run_is_farther_and_less_certain(study: Study, capsys, monkeypatch) -> None:
    monkeypatch.setattr(predict, "left_out_lines", lambda weights, tested: ["some laws count no more"])
    widths = []
    for steps in (120, 1200, 12_000):
        assert run(["predict", str(study.folder), "domain_ratio=0.2", f"target.steps={steps}"]) == 0
        printed = capsys.readouterr().out
        assert f"smollm2-135m, {steps:,} steps" in printed
        assert f"horizon: {3 * steps / 120:g} times the most tokens of a fitted run\nsome laws count no more" in printed
        # Where nothing is known no number is printed.
        known = re.findall(r"(\d\.\d+) to (\d\.\d+)", printed)
        assert ("not known: " in printed) == (not known) == (steps == 12_000) == ("next: " not in printed)
        widths += [float(high) / float(low) for low, high in known[1:2]]
        assert ("far: kept runs ten to thirty times as far were missed by 3 to 14%" in printed) == (steps == 1200)
        assert "beyond the points" not in printed
    assert widths[0] < widths[1]
    assert "not known: 300 times as far as was fitted, and intervals were tested up to 50 times" in printed


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], ["domain_ratio: has no value; allowed: 0 to 1, or a list: domain_ratio=[0.1,0.3]"]),
        (["mixture.domain_ratio=0.3"], ["mixture.domain_ratio: of the runs for the fit; write domain_ratio=0.3"]),
        (
            ["domain_ratio=0.5", "goal.tolerance=0.02", "goal.kind=trade-off", "confirm.seeds=2"],
            [
                f"{key}: predict does not read it: its losses are those of domain_ratio; leave it out, or give it to "
                "cptlaw recommend"
                for key in ("goal.tolerance", "confirm.seeds")
            ],
        ),
        (["domain_ratio=2"], ["domain_ratio: 2.0; allowed: 0 to 1, or a list: domain_ratio=[0.1,0.3]"]),
        (["domain_ratio=a"], ["domain_ratio[0]: 'a'; allowed: a number, 0 to 1, or a list: domain_ratio=[0.1,0.3]"]),
        (["domain_ratio=0.5", "target.stpes=3"], ["target.stpes: no such key; did you mean target.steps?"]),
    ],
)
def test_mistakes_are_a_line_each(study: Study, words: list[str], lines: list[str], capsys) -> None:
    capsys.readouterr()
    assert run(["predict", str(study.folder), *words]) == 2
    assert capsys.readouterr().err.splitlines() == lines


def test_of_a_model_that_the_study_lacks_those_that_it_has_are_named(study: Study, capsys) -> None:
    said = refused(["predict", str(study.folder), "domain_ratio=0.5", "model.name=qwen2-0.7m"], capsys, 3)
    lacking = "qwen2-0.7m: no loss on general, domain before the continual phase"
    assert said == f"{lacking}; models of this study: smollm2-135m; another one needs ladder=[...] in cptlaw plan"


def test_text_of_neither_corpus_is_a_combination(study: Study, tmp_path: Path, capsys) -> None:
    points = parquet.read_table(study.folder / "points.parquet").to_pandas().query("role == 'fit' and step > 0")
    general, domain = (points[points["corpus"] == name] for name in ("general", "domain"))
    both = general.merge(domain, on=["run", "step"], suffixes=("", "_domain"))
    third = both.assign(loss=0.4 + 0.5 * both["loss"] + 0.3 * both["loss_domain"])[["run", "step", "loss"]]
    third.to_csv(file := tmp_path / "third.csv", index=False)
    words = ["predict", str(study.folder), "domain_ratio=[0.2,0.4]", f"third={file}", "--json"]
    capsys.readouterr()
    assert run(words) == 0
    content = json.loads(capsys.readouterr().out)
    found = {name: weight["value"] for name, weight in content["weights"].items()}
    assert found == pytest.approx({"general": 0.5, "domain": 0.3, "intercept": 0.4}, abs=1e-6)
    for number, row in enumerate(content["third"]):
        losses = content["losses"][2 * number : 2 * number + 2]
        assert row["loss"] == pytest.approx(0.4 + 0.5 * losses[0]["loss"] + 0.3 * losses[1]["loss"], abs=1e-6)
        sides = [weight * (of["high"] - of["low"]) for weight, of in zip((0.5, 0.3), losses)]
        assert row["high"] - row["low"] == pytest.approx(math.hypot(*sides), abs=1e-5)
    third.assign(step=third["step"] + 1).to_csv(file, index=False)
    assert run(words) == 3
    assert f"{len(third)} of {len(third)} rows are of no run and step" in capsys.readouterr().err
    for line, table in {
        "no losses; give a measured loss a row": third[:0],
        "is there twice (rows 2 and 3; ": pd.concat([third, third]).sort_values(["run", "step"]),
        "is above 20, more than a model": third.assign(loss=np.exp(10 * third["loss"])),
        "column loss holds something that is not a number: 'x' (row 2)": third.assign(loss="x"),
    }.items():
        table.to_csv(file, index=False)
        assert run(words) == 3
        assert line in capsys.readouterr().err


def test_runs_that_the_fits_have_not_read_are_counted(study: Study, tmp_path: Path, capsys) -> None:
    shutil.copytree(study.folder, folder := tmp_path / "kept")
    points = parquet.read_table(file := folder / "points.parquet")
    last = points.filter(compute.field("role") == "fit")["run"][-1].as_py()
    parquet.write_table(points.filter(compute.field("run") != last), file)
    assert run(["fit", str(folder), "bootstrap=0"]) == 0
    (folder / "runs" / last).mkdir(parents=True)
    words = ["predict", str(folder), "domain_ratio=0.2"]
    assert run(words) == 0
    assert "newer run" not in capsys.readouterr().out
    (folder / "runs" / last / "DONE").touch()
    assert run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"1 newer run is not in these fits: give cptlaw collect {folder}, then cptlaw fit {folder}" in said


@pytest.fixture(scope="module")
def parted(tmp_path_factory) -> Path:
    """A kept study of six domains, parted: `known` has three, code.csv a run of the smallest model on a fourth."""
    folder, kept = tmp_path_factory.mktemp("parted"), KEPT.parent / "dcpt-six-small"
    table, points = parquet.read_table(kept / "points.parquet"), points_of(kept / "points.parquet")
    on_code = points["mixture.code"].fillna(0.0) > 0
    half = on_code & (points["phase"] == "continual") & (points["N"] == points["N"].min()) & (points["r"] == 0.5)
    question = load_question(kept / "study.yaml", [])
    corpora = dataclasses.replace(question.corpora, domain="math", domains=["math", "law", "chemistry"])
    (folder / "known").mkdir()
    parquet.write_table(table.filter(array(~on_code)), folder / "known" / "points.parquet")
    (folder / "known" / "study.yaml").write_text(
        question_yaml(dataclasses.replace(question, corpora=corpora, dense={}))
    )
    one = points[half & (points["corpus"] == "code")]
    one = one[one["run"] == one["run"].iloc[0]]
    one[["run", "corpus", "N", "D", "r", "loss"]].to_csv(folder / "code.csv", index=False)
    return folder


def test_a_new_domain_is_predicted_from_others_and_a_short_run(parted: Path, capsys) -> None:
    measured = points_of(KEPT.parent / "dcpt-six-small" / "points.parquet")
    measured = measured[(measured["corpus"] == "code") & (measured["N"] == measured["N"].max())]
    words = ["predict", str(parted / "known"), f"new={parted / 'code.csv'}", "domain_ratio=[0.2,0.8]", "--json"]
    capsys.readouterr()
    assert run([*words, "target.steps=400"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["known"] == ["math", "law", "chemistry"]
    errors = []
    for row in found["losses"]:
        near = measured[(measured["r"] == row["domain_ratio"]) & (measured["D"] * 1e9 >= 0.99 * row["tokens"])]
        loss = near.sort_values("D")["loss"].iloc[0]
        errors.append(abs(row["loss"] / loss - 1))
        assert row["low"] < loss < row["high"]
    assert len(errors) == 6
    assert sum(errors) / 6 < 0.025
    assert found["horizon"] == pytest.approx({"tokens": 1.0, "parameters": 1.0})


def test_mistakes_about_a_new_domain(parted: Path, tmp_path: Path, capsys) -> None:
    def predict(new: object, code: int, *more: str) -> str:
        return refused(["predict", str(parted / "known"), f"new={new}", "domain_ratio=0.5", *more], capsys, code)

    assert "both have math" in predict(parted / "known", 2)
    table = pd.read_csv(parted / "code.csv")
    table.drop(columns="r").to_csv(file := tmp_path / "code.csv", index=False)
    assert "no column r; allowed: run, N, D, r, loss" in predict(file, 3)
    table.assign(r=0.0).to_csv(file, index=False)
    assert "no losses on code of runs that train on it" in predict(file, 3)
    for column in ("D", "r", "loss"):
        table.assign(**{column: "x"}).to_csv(file, index=False)
        assert f"column {column} holds something that is not a number: 'x' (row 2)" in predict(file, 3)
    table.assign(loss=np.exp(table["loss"])).to_csv(file, index=False)
    assert "is above 20, more than a model without training has; give nats per token" in predict(file, 3)
    table.assign(N=1.0).to_csv(file, index=False)
    assert "math: no run of 1000 million parameters, as the short one has" in predict(file, 2)
    table[table["D"] > 0].to_csv(file, index=False)
    assert "k1 and k2 need 0 and" in predict(file, 2)
    assert "does not exist" in predict(tmp_path / "none.csv", 3)
