"""What the back test says of the laws."""

from __future__ import annotations

import itertools

import pandas as pd

from pipeline.study.fits import SPLITS, trust


def test_trust_is_told_for_each_corpus_and_split() -> None:
    errors = {"dcpt": 0.04, "transfer-anchored": -0.01}
    signs = {"general": -1, "code": 1}
    columns = ["corpus", "split", "law", "run", "step", "relative_error"]
    rows = [
        (corpus, split, law, run, step, sign * error * (1 + run / 10))
        for (corpus, sign), split, (law, error) in itertools.product(signs.items(), SPLITS, errors.items())
        for run, step in itertools.product(range(3), (10, 20))
    ]
    tested = pd.DataFrame(rows, columns=columns)
    lines = trust(tested)
    assert len(lines) == 8
    assert lines[0].startswith("general, size (a larger size): trust transfer-anchored: mean error 1.10% of 3")
    assert lines[7].startswith("code, size-and-tokens (a larger model trained for longer): trust transfer-anchored")
    assert trust(tested.iloc[:0]) == []
