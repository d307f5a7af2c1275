"""Predictions of a study's laws from the command line: those of its recommendation, and of runs beyond it."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
from pyarrow import compute, parquet

from pipeline.cli.main import run
from pipeline.study.artifacts import Recommendation
from pipeline.study.folder import Study

pytestmark = pytest.mark.slow
KEPT = Path(__file__).parents[3] / "docs/results/base-model-medical"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A kept study, fitted with one law and answered again."""
    folder = tmp_path_factory.mktemp("studies") / "kept"
    shutil.copytree(KEPT, folder)
    assert run(["fit", str(folder), "law=[transfer-open-saturating]", "bootstrap=8"]) == 0
    assert run(["recommend", str(folder)]) == 0
    return Study(folder)


def test_the_run_of_the_recommendation_is_predicted_as_it_predicts(study: Study, capsys) -> None:
    answer = Recommendation.read(study)
    assert answer.mixture is not None
    peak = answer.peak_learning_rate or 0.0
    before = (study.folder / "study.yaml").read_text()
    words = [f"domain_ratio=[{answer.mixture['domain']}]", f"target.peak_learning_rate={peak}"]
    assert run(["predict", str(study.folder), *words]) == 0
    printed = capsys.readouterr().out
    for corpus, loss in answer.predicted.items():
        (row,) = re.findall(rf"{corpus} .* (\d\.\d+) .* (\d\.\d+) to (\d\.\d+)", printed)
        # The answer keeps three digits of its domain ratio.
        assert list(map(float, row)) == pytest.approx([loss.loss, loss.low, loss.high], abs=1e-3)
    assert "horizon: 3 times the most tokens of a fitted run" in printed
    assert (study.folder / "study.yaml").read_text() == before


def test_a_longer_run_is_farther_and_less_certain(study: Study, capsys) -> None:
    widths = []
    for steps in (120, 1200):
        assert run(["predict", str(study.folder), "domain_ratio=0.2", f"target.steps={steps}"]) == 0
        printed = capsys.readouterr().out
        assert f"smollm2-135m, {steps:,} steps" in printed
        assert f"horizon: {3 * steps / 120:g} times" in printed
        low, high = map(float, re.findall(r"(\d\.\d+) to (\d\.\d+)", printed)[1])
        widths.append(high / low)
    assert widths[0] < widths[1]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], ["domain_ratio: not given; allowed: 0 to 1, or a list: domain_ratio=[0.1,0.3]"]),
        (["domain_ratio=[0.5,2,a]"], ["domain_ratio: 2; allowed: 0 to 1", "domain_ratio: 'a'; allowed: 0 to 1"]),
        (["domain_ratio=0.5", "target.stpes=3"], ["target.stpes: no such key; did you mean target.steps?"]),
    ],
)
def test_mistakes_are_a_line_each(study: Study, words: list[str], lines: list[str], capsys) -> None:
    capsys.readouterr()
    assert run(["predict", str(study.folder), *words]) == 2
    assert capsys.readouterr().err.splitlines() == lines


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
    third[:0].to_csv(file, index=False)
    assert run(words) == 3
    assert "no losses" in capsys.readouterr().err


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
