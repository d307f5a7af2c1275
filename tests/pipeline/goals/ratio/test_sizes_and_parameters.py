"""What is said of a question before and of an answer after its runs: sizes, and parameters that are left open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from pipeline.goals.ratio.answer_warnings import _not_identified
from pipeline.goals.ratio.asked import size_lines
from pipeline.goals.registry import read_question

GRID = ["experiment=own", "mixture=ratios", "law=[dcpt,transfer-anchored]", "model=qwen2-0.3m"]
TARGET = "one size, qwen2-0.3m: what size does to a loss is assumed, not measured, and the answer holds for that size"
OTHER = "one size, qwen2-0.05m: what size does to a loss is assumed, not measured, and the answer holds for qwen2-0.3m"


@pytest.mark.parametrize(
    ("words", "sizes", "said"),
    [
        ([], ["qwen2-0.3m"], TARGET),
        ([], ["qwen2-0.05m"], OTHER),
        ([], ["qwen2-0.05m", "qwen2-0.3m"], ""),
        (["law=transfer-anchored"], ["qwen2-0.3m"], ""),
        (["mixture=chosen", "ladder=[]"], [], TARGET),
        (["mixture=chosen", "ladder=[qwen2-0.05m]"], ["qwen2-0.3m"], ""),
        (["mixture=chosen", "ladder=[qwen2-0.05m]", "design.target_size=false"], [], OTHER),
    ],
)
def test_runs_of_one_size_are_said_where_a_law_reads_sizes(words: list[str], sizes: list[str], said: str) -> None:
    runs: Any = [SimpleNamespace(role="fit", model=size) for size in sizes]
    runs += [SimpleNamespace(role="pretrain", model="qwen2-0.15m")]
    lines = [*size_lines(read_question([*GRID, *words]), runs)]
    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_what_is_not_identified_is_one_line_with_the_runs_that_would_tell() -> None:
    known: Any = SimpleNamespace(identified={"C": True})
    general: Any = SimpleNamespace(identified={"A": False, "E": True, "eps": False})
    domain: Any = SimpleNamespace(identified={"A": False, "beta": False})
    laws = {"dcpt": (general, domain), "transfer": (known, known), "openai": (known, domain)}
    fits = {law: dict(zip(("general", "code"), of_law)) for law, of_law in laws.items()}
    rows = [("fit", corpus, 0.1, 0.5) for corpus in ("general", "code")]
    points = pd.DataFrame(rows, columns=["role", "corpus", "N", "r"])
    many = (
        "not identified on one corpus or both: 5 parameters of dcpt, openai, listed in the report; to know them takes "
    )
    # Whether this answer is known is said once, behind all notes.
    open_end = "an answer may be known without them"
    (line,) = _not_identified(fits, points)
    telling = "another size, a longer run, a ratio near 0 of the corpus (docs/laws.md)"
    assert line == f"{many}{telling}; {open_end}"
    # A run that has been made, also one of few tokens of the corpus, is no advice any more.
    points.loc[len(points)] = ["fit", "general", 0.2, 0.01]
    points.loc[len(points)] = ["fit", "code", 0.2, 0.99]
    (line,) = _not_identified(fits, points)
    assert line == f"{many}a longer run (docs/laws.md); {open_end}"
    assert [*_not_identified({"transfer": fits["transfer"]}, points)] == []
