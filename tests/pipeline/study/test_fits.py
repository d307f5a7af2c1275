"""What the back test says of the laws."""

from __future__ import annotations

import pandas as pd

from pipeline.study.fits import SPLITS, trust


def test_trust_is_told_for_each_corpus_and_split() -> None:
    errors = {"dcpt": 0.04, "transfer-anchored": -0.01}
    rows = [
        {
            "corpus": corpus,
            "split": split,
            "law": law,
            "run": run,
            "step": step,
            "relative_error": error * (1 + run / 10),
        }
        for corpus in ("general", "code")
        for split in SPLITS
        for law, error in (errors if corpus == "code" else {law: -error for law, error in errors.items()}).items()
        for run in range(3)
        for step in (10, 20)
    ]
    lines = trust(pd.DataFrame(rows))
    assert len(lines) == 8
    assert lines[0].startswith("general, size (a larger size): trust transfer-anchored: mean error 1.10% of 3")
    assert lines[7].startswith("code, size-and-tokens (a larger model trained for longer): trust transfer-anchored")
    assert trust(pd.DataFrame(rows).iloc[:0]) == []
