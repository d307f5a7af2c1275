"""AutoScale's tables from a comparison of weights, beside numbers of a paper."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from pipeline.goals.registry import question_of_study
from pipeline.goals.weights.artifacts import MethodResult, SpeedUp, WeightsConfirmation, WeightsTarget
from pipeline.papers import autoscale
from pipeline.papers.autoscale import READING, Weighed
from pipeline.papers.figures import figures
from pipeline.papers.make import tables_of
from pipeline.papers.table import PaperStudy
from pipeline.papers.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN
from pipeline.study.folder import Study
from tests.pipeline.goals.weights.weights_study import whole_study

LOSSES = {"autoscale": (1.0, 3.0), "uniform": (2.5, 1.0), "half": (2.0, 2.4), "doremi": (2.2, 2.2)}
"""Method -> losses of two domains. AutoScale is best by no mean: its exp(3) is the largest perplexity."""


def _weighed(speed_up: float | None = None) -> Weighed:
    speed = SpeedUp(int(bool(speed_up)), speed_up, speed_up, speed_up, None)
    rows = [
        MethodResult(
            method=method, recommended=method == "autoscale", weights={}, runs=[f"{method}-0"], values=[1.0], value=1.0,
            loss=1.0, losses=dict(zip(("a", "b"), losses)), perplexity=2.7, worst="a", worst_perplexity=2.7,
            difference=0.1, low=None, high=None, above_best=0.0, general_change=None, speed=speed, search_tokens=0,
        )
        for method, losses in LOSSES.items()
    ]  # fmt: skip
    target = WeightsTarget("m", 720, 1000)
    return Weighed(WeightsConfirmation(0.9, "uniform", "loss", {"a": 0.5, "b": 0.5}, target, 1, rows), ("half",))


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    six = [("AutoScale", "Web", 4.0), ("AutoScale", "Books", 9.0), ("LLaMA", "Web", 7.0), ("LLaMA", "Books", 8.0)]
    six += [("Uniform (30% more tokens)", "Web", 2.0), ("Uniform (30% more tokens)", "Books", 15.0)]
    seven = [("18k", "steps_saved", 5000), ("288k", "steps_saved", 20000), ("18k", "final_loss_exp", 38.0)]
    one = [("Uniform Weights", "Avg", 0.45), ("AutoScale (ours)", "Avg", 0.47)]
    for name, keys, rows in (
        ("table06_domain_perplexity_3B", ["method", "domain"], six),
        ("table07_bert_steps_saved", ["data_scale_steps", "metric"], seven),
        ("table01_downstream_3B", ["method", "task"], one),
    ):
        pd.DataFrame(rows, columns=[*keys, "value"]).to_csv(tmp_path / f"autoscale_{name}.csv", index=False)
    return tmp_path


def test_perplexities_are_summed_up_in_three_ways_for_paper_and_here(papers: Path) -> None:
    (six,) = tables_of({"weights": _weighed()}, ["autoscale-6"], papers)
    at = six.cells.set_index(["domain", "method"])
    assert at.loc[("mean", "autoscale"), "paper"] == 6.5
    assert at.loc[("exp of the mean loss", "autoscale"), "paper"] == pytest.approx(6.0)
    assert at.loc[("worst domain", "uniform"), "paper"] == 15
    assert at.loc[("mean", "autoscale"), "ours"] == pytest.approx((math.e + math.exp(3)) / 2)
    assert at.loc[("exp of the mean loss", "given"), "ours"] == pytest.approx(math.exp(2.2))
    assert at.loc[("a", "uniform"), "ours"] == pytest.approx(math.exp(2.5))
    assert six.verdict == NOT_HERE
    assert "By mean perplexity AutoScale is number 1 of 3 in the paper (best: autoscale), 4 of 4 here" in six.why
    assert "By exp of the mean loss AutoScale is number 2 of 3 in the paper (best: uniform), 2 of 4 here" in six.why


def test_a_best_place_holds_and_with_another_order_behind_it_holds_in_order() -> None:
    cells = pd.DataFrame(
        [("autoscale", 1.0, 5.0), ("uniform", 2.0, 7.0), ("given", 3.0, 6.0)], columns=["method", "paper", "ours"]
    ).assign(domain="mean")
    assert autoscale.judge_perplexities(cells)[0] == IN_ORDER
    cells["ours"] = [5.0, 6.0, 7.0]
    assert autoscale.judge_perplexities(cells)[0] == HOLDS
    without = cells.assign(paper=float("nan"))
    assert autoscale.judge_perplexities(without) == (UNKNOWN, "The paper's numbers are missing.")


def test_steps_saved_are_a_share_of_the_scale(papers: Path) -> None:
    (seven,) = tables_of({"weights": _weighed(speed_up=1.25)}, ["autoscale-7"], papers)
    assert dict(zip(seven.cells["scale"], seven.cells["paper"])) == pytest.approx(
        {18000: 27.78, 288000: 6.94, 720: float("nan")}, abs=0.01, nan_ok=True
    )
    assert seven.cells["ours"].dropna().item() == pytest.approx(20)
    assert seven.verdict == HOLDS
    (none,) = tables_of({"weights": _weighed()}, ["autoscale-7"], papers)
    assert none.verdict == NOT_HERE
    assert none.note.startswith("Here: 0 of 1 seeds reached the loss of equal weights within the 720 steps")


def test_scores_are_read_where_evaluate_left_them(papers: Path, tmp_path: Path) -> None:
    study, question = whole_study(tmp_path)
    assert READING.applies(question)
    (one,) = tables_of({"weights": READING.read(PaperStudy(study, question))}, ["autoscale-1"], papers)
    assert one.verdict == UNKNOWN
    assert "no down-stream task was evaluated" in one.why
    comparison = WeightsConfirmation.read(study)
    for noise, verdict in ((0.001, HOLDS), (0.1, UNKNOWN)):
        for row in comparison.methods:
            for seed, run in enumerate(row.runs):
                for step, score in ((10, 0.0), (720, 0.5 + noise * seed + 0.01 * (row.method == "autoscale"))):
                    file = study.runs / run / "tasks" / f"step-{step}.json"
                    file.parent.mkdir(exist_ok=True)
                    file.write_text(json.dumps({"results": {"next": {"acc": score, "acc_stderr": 0.1}}}))
        (one,) = tables_of({"weights": READING.read(PaperStudy(study, question))}, ["autoscale-1"], papers)
        ours = one.cells.set_index(["method", "task"])["ours"]
        assert ours["uniform", "next"] == pytest.approx(0.5 + noise)
        assert ours["autoscale", "Avg"] == pytest.approx(0.51 + noise)
        assert one.verdict == verdict
    assert "averages lie within 0.0100, less than twice the 0.0816 of chance" in one.why


def test_scores_of_several_numbers_of_shots_lie_beside_each_other(papers: Path, tmp_path: Path) -> None:
    study, question = whole_study(tmp_path)
    for row in WeightsConfirmation.read(study).methods:
        for run in row.runs:
            folder = study.runs / run / "tasks"
            folder.mkdir(exist_ok=True)
            for name, results in {
                "step-10-10-shot": {"hellaswag": {"acc": 0.0}},
                "step-720": {"hellaswag": {"acc": 0.3}, "boolq": {"acc": 0.6}},
                "step-720-10-shot": {"hellaswag": {"acc": 0.4}, "pubmedqa": {"acc": 0.5}},
                "step-720-25-shot": {"crows_pairs_english": {"likelihood_diff": 4.0, "pct_stereotype": 0.55}},
            }.items():
                (folder / f"{name}.json").write_text(json.dumps({"results": results}))
    (one,) = tables_of({"weights": READING.read(PaperStudy(study, question))}, ["autoscale-1"], papers)
    ours = one.cells.set_index(["method", "task"])["ours"]["uniform"].dropna()
    assert ours.drop("Avg").to_dict() == pytest.approx(
        {
            **{"hellaswag_0shot": 0.3, "hellaswag_10shot": 0.4, "boolq": 0.6, "pubmedqa": 0.5},
            "crows_pairs_english": 0.55,
        }
    )


def test_a_search_for_weights_is_drawn_as_in_the_paper() -> None:
    folder = Path(__file__).parents[3] / "docs/results/autoscale-unequal"
    source = PaperStudy(Study(folder), question_of_study(folder, []))
    drawn = figures({"weights": READING.read(source)}, [])
    numbers = [caption.partition(":")[0].removeprefix("AutoScale figure ") for caption, _ in drawn]
    assert numbers == ["2, 10", "6, 11", "7", "8", "9"]
    assert all(panel.spec["data"] for _, figure in drawn for panel in figure.panels)
