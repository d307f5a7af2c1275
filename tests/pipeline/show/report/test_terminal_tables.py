"""What is printed has room on a terminal of 80 columns."""

import dataclasses

import pytest
from rich.console import Console

from pipeline.goals.registry import read_question
from pipeline.show.tables import answer_table, confirmation_table, recommendation_table
from pipeline.study.artifacts import PredictedLoss
from tests.pipeline.goals.ratio.examples import confirmation_row, recommendation

ROW = confirmation_row(
    "general", 0.706, [3.32, 3.33, 3.33], model="qwen2-0.15m", law="transfer-anchored",
    predicted=3.3441, low=3.2724, high=3.4008, measured=3.3274, relative_error=0.005, sd=0.0058,
)  # fmt: skip


@pytest.mark.parametrize("other", [{"domain_ratio": 0.4}, {"model": "qwen2-0.05m"}])
def test_every_number_of_a_confirmation_has_room(other: dict) -> None:
    console = Console(width=80)
    with console.capture() as shown:
        one_seed = dataclasses.replace(ROW, **other, measured=3.5, inside=False, seeds=[3.5], sd=None)
        console.print(confirmation_table([ROW, one_seed]))
    told = shown.get()
    assert "…" not in told
    for words in (
        "transfer-anchored *",
        "3.2724 to 3.4008",
        "3.3274 ",
        "3.5000!",
        "+0.50%",
        "0.0058",
        "sd of 3",
        "n/a",
    ):
        assert words in told, words
    assert "the interval of the average" not in told
    assert f"general at {other.get('model', '0.400')}" in told


def test_why_an_average_is_narrower_than_its_laws_is_said() -> None:
    average = dataclasses.replace(ROW, law="average", low=3.3, high=3.38)
    line = "the interval of the average may be narrower than those of its laws: on other studies it erred less"
    assert line in confirmation_table([ROW, average]).note
    wider = dataclasses.replace(average, low=3.2)
    assert "average" not in confirmation_table([ROW, wider]).note


def test_a_law_without_weight_at_a_place_is_marked() -> None:
    rows = [dataclasses.replace(ROW, recommended=False, weight=weight) for weight in (None, 0.25, 0.0)]
    table = confirmation_table([ROW, *rows])
    assert [row[2] for row in table.rows] == [f"{ROW.law}{mark}" for mark in (" *", "", "", " -")]
    assert "; - not in the average at this place" in table.note
    assert "not in the average" not in confirmation_table([ROW, rows[0]]).note


def test_an_error_that_rounds_to_0_has_no_sign() -> None:
    small = dataclasses.replace(ROW, relative_error=-1e-6, measured=ROW.before * (1 - 1e-6))
    assert "0.00%" in confirmation_table([small]).rows[0]
    answer = recommendation(predicted={ROW.corpus: PredictedLoss(2.0, 1.9, 2.1)})
    (cells,) = answer_table(answer, [small], {ROW.corpus: "black"}).rows
    assert cells[-3:] == ["0.00%", "0.00%", "yes"]


def test_an_interval_of_no_width_where_the_tolerance_does_not_bind_is_no_certainty() -> None:
    question = read_question(["experiment=quickstart"])
    everything = recommendation(mixture={"general": 0.0, "code": 1.0}, low=1.0, high=1.0)
    assert (
        recommendation_table(everything, question).rows[0][2] == "1.000 to 1.000\nevery ratio is within the tolerance"
    )
    known = dataclasses.replace(everything, low=0.999)
    assert recommendation_table(known, question).rows[0][2] == "0.999 to 1.000"
