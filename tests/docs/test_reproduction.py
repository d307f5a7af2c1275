"""docs/reproduction.md is what the code makes of kept results and of the papers' numbers, and forgets none of them."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest

from docs.reproduction.book import CLAIMS, Book
from docs.reproduction.causes import NOT_TESTED, cause
from docs.reproduction.facts import facts
from docs.reproduction.findings import FINDINGS, findings
from docs.reproduction.own_numbers import sentences
from docs.reproduction.page import NOT_YET, PAGE, _findings, _numbers, _of_claim, _of_table, page
from pipeline.paper_tables.catalogue import TABLES
from pipeline.paper_tables.table import judged
from pipeline.paper_tables.verdict import HOLDS, NOT_HERE, UNKNOWN
from tests.docs.pages import ROOT

PAPERS = ROOT / os.environ.get("CPTLAW_PAPER_TABLES", "../shared/paper-tables")
HERE = pytest.mark.skipif(not PAPERS.is_dir(), reason="the papers' numbers are not here: CPTLAW_PAPER_TABLES")


@HERE
def test_the_page_is_what_the_code_makes() -> None:
    renew = f"CPTLAW_PAPER_TABLES={PAPERS} python -m docs.reproduction.page"
    assert page(Book(PAPERS)) == PAGE.read_text(encoding="utf-8"), renew


def test_every_claim_is_judged_by_something_that_exists() -> None:
    rows = list(csv.DictReader(CLAIMS.read_text(encoding="utf-8").splitlines()))
    assert len({row["id"] for row in rows}) == len(rows) > 150
    for row in rows:
        kind, _, name = row["how"].partition(" ")
        assert kind in ("none", "table", "fact"), row
        assert kind != "fact" or name in facts(), row
        # A table that nobody has made yet says so on the page; its name must at least be one.
        assert kind != "table" or name in TABLES or name.split("-")[-1].isdigit(), row
        assert kind != "none" or row["words"], row
    judged = {row["how"].removeprefix("fact ") for row in rows if row["how"].startswith("fact ")}
    assert judged == set(facts())


def _kept(results: Path, l3: float) -> None:
    folder = results / "a-study" / "tables"
    folder.mkdir(parents=True)
    cells = "".join(f"L3,{corpus},{metric},{l3},{l3}\n" for corpus in "GD" for metric in ("huber", "r2"))
    (folder / "dcpt-1.csv").write_text(f"parameterization,corpus,metric,paper,ours\n{cells}")
    (folder / "verdicts.csv").write_text(f"table,title,verdict,why,note\ndcpt-1,t,{HOLDS},because,a note\n")


@HERE
def test_a_kept_study_moves_the_verdicts(tmp_path: Path) -> None:
    book = Book(PAPERS, tmp_path)
    assert _of_table(book, "dcpt-1").verdict == NOT_YET
    assert _of_claim(book, "dcpt-9").verdict == NOT_YET
    for number, expected in ((0.98, HOLDS), (0.9, NOT_HERE)):
        _kept(tmp_path / str(number), number)
        book = Book(PAPERS, tmp_path / str(number))
        assert _of_table(book, "dcpt-1").why == "because"
        assert _of_claim(book, "dcpt-9").verdict == expected
        assert _of_claim(book, "dcpt-8").verdict == UNKNOWN
    assert "| L3 | 0.9 | 0.9 | 0.9000 | 0.9000 | 0.9 | 0.9 | 0.9000 | 0.9000 |" in "\n".join(_numbers(book, "dcpt-1"))


@HERE
def test_claims_of_another_file_and_forgotten_tables_are_told(tmp_path: Path) -> None:
    papers = tmp_path / "papers"
    shutil.copytree(PAPERS, papers)
    (papers / "dcpt_table99_new.csv").write_text("table,value\n")
    assert list(Book(papers).not_made()) == ["dcpt_table99_new.csv"]
    with pytest.raises(ValueError, match=r"dcpt_table99_new\.csv: neither made nor in claims\.csv"):
        page(Book(papers))
    lines = (papers / "intext.csv").read_text(encoding="utf-8").splitlines()
    (papers / "intext.csv").write_text("\n".join([lines[0], *lines[2:]]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="do not have the same claims"):
        _ = Book(papers).claims


@HERE
def test_what_the_papers_own_tables_contradict_is_found() -> None:
    text = "\n".join(sentences(Book(PAPERS)))
    for line in (
        "table 3 prints 0.0038 for L3, G, huber; the mean of its domains in table 18 is 0.0034",
        "table 3 prints 0.1212 for L5, G, huber; the mean of its domains in table 18 is 0.012.",
        "The other 78 of 80 means",
        "4 in table 1, 3 in table 2, 3 in table 3, 3 in table 4",
        "20,000 of 288,000 steps, which are 6.9%",
        "is that of autoscale; by the exp of the mean loss",
    ):
        assert line in text, text


@HERE
def test_the_short_page_is_what_the_code_makes() -> None:
    assert findings(Book(PAPERS)) == FINDINGS.read_text(encoding="utf-8"), "python -m docs.reproduction.page"


@HERE
def test_every_table_that_does_not_hold_names_a_tested_cause() -> None:
    book = Book(PAPERS)
    failed = [name for name, (shown, _) in book.tables.items() if shown.verdict == NOT_HERE]
    assert [name for name in failed if cause(book, name) == NOT_TESTED] == []
    assert cause(book, "dcpt-20").startswith("The bound eta > 1, or early points, or ")
    assert "with eq. 26 and without eta > 1 14 of 16 decided pairs" in cause(book, "dcpt-20")
    assert "p = 0.089 (176)" in cause(book, "autoscale-1")
    assert "0.0004 nats behind autoscale-offsets" in cause(book, "autoscale-6")
    assert "with re-warm-up 0 of 2" in cause(book, "dynamics-figure-5")


@HERE
def test_kept_verdicts_are_those_of_the_rule() -> None:
    # Those of a confirmation are reached when the table is made.
    others = {"dcpt-5", "dcpt-6", "dcpt-12", "autoscale-1"}
    for name, (shown, _) in Book(PAPERS).tables.items():
        assert name in others or judged(shown.table, shown.cells) == (shown.verdict, shown.why), name


@HERE
def test_one_finding_is_counted_once() -> None:
    book = Book(PAPERS)
    claims = {claim: _of_claim(book, claim) for claim in map(str, book.claims.index)}
    counted = _findings(book, claims, True)
    # Nine numbers of remark 1 are one finding; those that table 7 answers are counted with it.
    assert sum(book.claims.loc[claim, "how"] == "fact remark-1" for claim in counted) == 1
    assert not any(str(book.claims.loc[claim, "how"]).startswith("table ") for claim in counted)
    tables = ["dcpt-1", "autoscale-7"]
    assert _findings(book, dict.fromkeys(tables, claims["dcpt-1"]), of_claims=False) == tables
