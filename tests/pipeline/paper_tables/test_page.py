"""The tables as a page."""

from pathlib import Path

import pandas as pd

from pipeline.paper_tables.show import Result, tables_page
from pipeline.paper_tables.table import Table
from pipeline.paper_tables.verdict import HOLDS, UNKNOWN
from tests.pipeline.report.test_report import Page

HOSTILE = "<img src=x onerror=alert(1)>"


def test_every_table_is_there_with_its_verdict_and_a_button(tmp_path: Path) -> None:
    rows = [(form, "G", "r2", 0.98, ours) for form, ours in (("L1", 0.97), (HOSTILE, float("nan")))]
    cells = pd.DataFrame(rows, columns=["parameterization", "corpus", "metric", "paper", "ours"])
    table = Table("Fitted", "", lambda read: cells, ("parameterization", "corpus", "metric"), "parameterization")
    made = [
        Result("dcpt-1", table, cells, HOLDS, "1 of 1 pairs.", f"A note of {HOSTILE}."),
        Result("dcpt-8", table, cells.iloc[:0], UNKNOWN, "Not made: no points."),
    ]
    (tmp_path / "tables.html").write_text(tables_page("six", made, "From a test."))
    page = Page(tmp_path / "tables.html")
    for words in ("2 tables of the papers: holds: 1; cannot be judged: 1.", "From a test.", f"A note of {HOSTILE}.",
                  "general R2, paper", "0.9700", "Not made: no points.", "are compared by their misfit"):  # fmt: skip
        assert words in page.words
    assert [of["id"] for tag, of in page.elements if tag == "section"] == ["verdicts", "dcpt-1", "dcpt-8"]
    assert len([of for tag, of in page.elements if tag == "button" and of.get("class") == "download"]) == 2
    assert "img" not in [tag for tag, _ in page.elements]
    # No figure, no plotly: such a page is small.
    assert (tmp_path / "tables.html").stat().st_size < 100_000
