"""docs/papers.md is what the code makes of kept tables, and names a tested cause of each table that does not hold."""

import re

import pandas as pd
import pytest

from docs.studies import papers_page
from docs.studies.law_errors import RESULTS
from pipeline.papers.catalogue import TABLES
from pipeline.papers.show import PAPERS, numbered
from pipeline.papers.table import judged
from pipeline.papers.verdict import NOT_HERE

PAGE = papers_page.PAGE.read_text(encoding="utf-8")
MEASURED = pd.read_csv(RESULTS / "reproduction.csv").set_index("name")["value"]


def test_the_tables_are_what_the_kept_studies_say():
    assert papers_page.renewed(PAGE, papers_page.TABLES_OF_PAGE) == PAGE, "python -m docs.studies.papers_page"
    assert {*re.findall(r"<!-- begin (.+?) -->", PAGE)} == {*papers_page.TABLES_OF_PAGE}
    assert papers_page.kept_tables().keys() == TABLES.keys() >= papers_page.STATEMENTS.keys()


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_that_does_not_hold_names_a_tested_cause(paper):
    section = PAGE.split(f"<!-- begin {paper} -->")[1].split("\n## ")[0]
    causes = section.split("| does not hold | test of the cause |")[1].split("\n\n")[0]
    named = re.findall(r"^\| ((?:table|figure) \w+) \|", causes, flags=re.MULTILINE)
    kept = papers_page.kept_tables().items()
    failed = [name for name, table in kept if name.startswith(paper) and table.verdict == NOT_HERE]
    assert named == [numbered(name).split(" ", 1)[1] for name in failed]


def test_a_second_study_that_says_otherwise_is_named():
    rows = re.findall(
        r"^\| (\S+ table \d+) \| (\S+): ([^,|]+), .+ \| (\S+): ([^,|]+?)(?:,.*)? \|$", PAGE, flags=re.MULTILINE
    )
    found = []
    for name, kept in papers_page.kept_tables().items():
        for file in sorted(RESULTS.glob("*/tables/verdicts.csv")):
            study, said = file.parents[1].name, pd.read_csv(file).set_index("table")["verdict"]
            if said.get(name, kept.verdict) != kept.verdict and study not in papers_page.DESIGNS.values():
                found.append((numbered(name), study, said[name], kept.study, kept.verdict))
    assert sorted(rows) == sorted(found)


def test_kept_verdicts_are_those_of_the_rule():
    # Those of a confirmation are reached when the table is made.
    for name, kept in papers_page.kept_tables().items():
        if name not in {"dcpt-5", "dcpt-6", "dcpt-12", "autoscale-1"}:
            cells = pd.read_csv(RESULTS / kept.study / "tables" / f"{name}.csv")
            assert judged(TABLES[name], cells) == (kept.verdict, kept.why), name


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("without the bound eta > 1 {:.0f} of {:.0f} decided", ["dcpt-20 eta right", "dcpt-20 eta decided"]),
        ("without eta > 1 there {:.0f} of {:.0f}", ["dcpt-20 inner eta right", "dcpt-20 inner eta decided"]),
        ("the inflection ratio is {:.2f} beside code and {:.2f}", ["inflection code 100", "inflection math 100"]),
        ("had a loss of {:.2f} nats on code", ["code at 0"]),
        ("Without its bound eta is {:.2f} on the domains and {:.2f}", ["eta D second 0 300", "eta G second 0 300"]),
        ("raises the loss by up to {:.4f} nats", ["figure 5 largest rise"]),
        ("follows {:.0f} of 16 curves within 1%", ["schedules fitted D_cpt near"]),
        ("p = {:.2g} (176 steps), {:.2g} (264)", ["autoscale p 176", "autoscale p 264"]),
        ("of a final loss is {:.4f} nats", ["seed sd"]),
    ],
)
def test_the_causes_have_the_measured_numbers(words, names):
    said = re.sub(r"\b0\.", ".", words.format(*MEASURED[names]))
    assert said in " ".join(PAGE.split())


@pytest.mark.parametrize(("paper", "figures"), [("D-CPT", 17), ("Dynamics", 22), ("AutoScale", 11)])
def test_the_page_says_of_every_figure_whether_it_is_made(paper, figures):
    rows = PAGE.split(f"| {paper} | what it shows | here |")[1].split("\n\n")[0]
    listed = [
        int(number) for cell in re.findall(r"^\| ([\d, ]+) \|", rows, flags=re.MULTILINE) for number in cell.split(",")
    ]
    assert sorted(listed) == [*range(1, figures + 1)]
    made = {name.split("-")[2].rstrip("c") for name in TABLES if name.startswith(f"{paper.lower()}-figure")}
    with_numbers = re.findall(r"^\| ([\d, ]+) \|[^|]+\| (?:drawn|not drawn: numbers)", rows, flags=re.MULTILINE)
    assert made <= {number.strip() for cell in with_numbers for number in cell.split(",")}
