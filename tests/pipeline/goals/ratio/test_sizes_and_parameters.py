"""What is said of a question before and of an answer after its runs: sizes, and parameters that are left open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.goals.ratio.answer_warnings import _not_identified
from pipeline.goals.ratio.asked import size_lines
from pipeline.goals.registry import read_question

GRID = ["experiment=own", "mixture=ratios", "law=[dcpt,transfer-anchored]", "model=qwen2-0.3m"]
TARGET = "one size, qwen2-0.3m: the prior decides the size terms of dcpt, and the answer holds for that size alone"
OTHER = "one size, qwen2-0.05m: the prior decides the size terms of dcpt, and the answer holds about qwen2-0.3m, an"


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
    known: Any = SimpleNamespace(identified={"C": True}, prior_shares={})
    shares, general_identified = {"eps": 0.9, "E": 1.0}, {"A": False, "E": True, "eps": False}
    general: Any = SimpleNamespace(identified=general_identified, prior_shares=shares)
    domain: Any = SimpleNamespace(identified={"A": False, "beta": False}, prior_shares={})
    (line,) = _not_identified({"dcpt": [general, domain], "transfer": [known, known], "openai": [known, domain]})
    assert line == (
        "not identified on one corpus or both: A, eps, beta of dcpt; A, beta of openai; the prior decides some of "
        "them; to know them takes another size, a longer run, a ratio near 0 (docs/laws.md); the answer may be "
        "known all the same"
    )
    assert [*_not_identified({"transfer": [known, known]})] == []
