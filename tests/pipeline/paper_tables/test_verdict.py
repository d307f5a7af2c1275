"""The rule that says whether a table holds."""

from __future__ import annotations

import pandas as pd
import pytest

from pipeline.paper_tables.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN, judge

NAN = float("nan")


def _table(paper: list[float], ours: list[float], metric: str = "r2") -> pd.DataFrame:
    laws = [f"L{number}" for number in range(1, len(paper) + 1)]
    return pd.DataFrame({"law": laws, "corpus": "G", "metric": metric, "paper": paper, "ours": ours})


PAPER = [0.97, 0.99, 0.995, 0.95]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([0.96, 0.985, 0.99, 0.90], HOLDS),
        # In order, and ten times as far off.
        ([0.7, 0.9, 0.95, 0.5], IN_ORDER),
        # One pair of six the other way round is 83%; two are 67%.
        ([0.96, 0.991, 0.990, 0.90], HOLDS),
        ([0.992, 0.990, 0.991, 0.90], NOT_HERE),
        ([NAN, 0.985, 0.99, 0.90], UNKNOWN),
    ],
)
def test_order_and_size(ours: list[float], verdict: str) -> None:
    found, why = judge(_table(PAPER, ours), "law")
    assert found == verdict, why
    assert why.endswith(".")


def test_huber_losses_are_judged_by_order_alone() -> None:
    assert judge(_table([0.01, 0.02], [3.0, 9.0], "huber"), "law")[0] == IN_ORDER
    assert judge(_table([0.01, 0.02], [9.0, 3.0], "huber"), "law")[0] == NOT_HERE


def test_pairs_that_are_not_distinct_in_the_paper_are_not_judged() -> None:
    found, why = judge(_table([0.9900, 0.9901], [0.9, 0.95]), "law")
    assert (found, why) == (UNKNOWN, "No pair is distinct in the paper.")


def test_without_the_paper_nothing_is_judged() -> None:
    assert judge(_table([NAN, NAN], [0.9, 0.95]), "law") == (UNKNOWN, "The paper's numbers are missing.")


def test_that_all_do_alike_can_be_wrong() -> None:
    paper = [0.9976, 0.9977, 0.9978]
    assert judge(_table(paper, [0.9960, 0.9959, 0.9961]), "law", alike=True)[0] == HOLDS
    assert judge(_table(paper, [0.960, 0.959, 0.961]), "law", alike=True)[0] == IN_ORDER
    assert judge(_table(paper, [0.9960, 0.990, 0.9961]), "law", alike=True)[0] == NOT_HERE
