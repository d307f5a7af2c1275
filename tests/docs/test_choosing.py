"""docs/choosing.md does what it says."""

import re

import pandas as pd
import pytest

import fitting
from tests.docs.pages import assert_same_output, read, run

PAGE = read("choosing.md")


@pytest.mark.slow
def test_the_page_prints_what_it_says():
    namespace = {"__name__": "page"}
    outputs = run("choosing.md", namespace)
    assert sum(bool(expected) for expected, _ in outputs) >= 6
    assert_same_output(outputs)
    answer = namespace["answer"]
    general = namespace["fits"]["general"]
    at = {"N": 1.5, "D": 12.0, "r": 1 - answer.domain_ratio}
    assert general.predict(pd.DataFrame([at]))[0] == pytest.approx(1.03 * namespace["before"])


def test_the_names_in_the_table_are_there():
    table = PAGE.split("## From the question to the runs")[1].split("\n## ")[0]
    rows = [row.split("|") for row in re.findall(r"^\| .+ \|$", table, flags=re.M)[1:]]
    assert len(rows) >= 10
    for row in rows:
        for name in re.findall(r"`(\w+)`", row[2]):
            assert name == "predict" or hasattr(fitting, name), name
        for name in re.findall(r"`([\w-]+)`", row[3]):
            assert name in fitting.LAWS or name == "at", name
        for name in re.findall(r"`([\w-]+)`", row[5]):
            assert name in fitting.cross_validation.SPLITS or name in ("r2", "fit"), name
