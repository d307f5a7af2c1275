"""The tables of points whose law is known, beside numbers of a paper."""

import dataclasses
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fitting import held_out
from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.papers.catalogue import TABLES, paper_folder
from pipeline.papers.dcpt import fits
from pipeline.papers.dcpt.fits import every_domain, learnability, sampling
from pipeline.papers.dcpt.points import DomainPoints, mean_scores, read_domain_points, scores
from pipeline.papers.figures import figures
from pipeline.papers.make import make_tables, tables_of
from pipeline.papers.show import Result, markdown, tables_page
from pipeline.papers.table import PaperStudy, PaperTable, paper_numbers
from pipeline.papers.verdict import HOLDS, IN_ORDER, UNKNOWN
from pipeline.question.messages import ConfigError
from pipeline.study.folder import Study, StudyError
from tests.pipeline.papers.six import study_points
from tests.pipeline.show.report.report_study import Page

DOMAINS = ("code", "law")
FOUR = ("code", "law", "music", "medical")
HOSTILE = "<img src=x onerror=alert(1)>"
PAPERS = Path(os.environ.get("CPTLAW_PAPER_TABLES", "../shared/paper-tables"))
HERE = pytest.mark.skipif(not PAPERS.is_dir(), reason="the papers' numbers are not here: CPTLAW_PAPER_TABLES")


def _study(points: pd.DataFrame, domains: tuple[str, ...] = DOMAINS) -> DomainPoints:
    return DomainPoints(points, "general", domains)


@pytest.fixture(scope="module")
def study() -> Iterator[DomainPoints]:
    with pytest.MonkeyPatch.context() as patch:
        # The other two are fitted in the slow test of a whole study.
        patch.setattr(fits, "FORMS", {form: fits.FORMS[form] for form in ("L1", "L3", "L5")})
        yield _study(study_points(DOMAINS))


def test_a_run_on_general_alone_is_every_domains(study: DomainPoints) -> None:
    for domain in DOMAINS:
        runs = study.fitted(domain, "D")["run"].unique()
        assert len(runs) == 3 * 5
        assert {run.split("-")[1].rstrip("0123456789.") for run in runs} == {"general", domain}
        assert study.fitted(domain, "G")["run"].nunique() == 3 * 5


def test_only_steps_of_all_runs_are_fitted() -> None:
    points = study_points(("code",))
    kept = points[(points["run"] != "0.5-code0.2") | (points["step"] % 50_000 == 0)]
    assert set(_study(kept, ("code",)).fitted("code", "D")["step"]) == {50_000, 100_000, 150_000, 200_000}
    assert len(_study(kept, ("code",)).measured("code", "D")) == 3 * 5 * 10 - 5
    # An unfinished run leaves the later points of the others.
    begun = points[(points["run"] != "0.5-code0.2") | (points["step"] <= 50_000)]
    fitted = _study(begun, ("code",)).fitted("code", "D")
    assert len(fitted) == len(_study(points, ("code",)).fitted("code", "D")) - 3
    assert fitted.loc[fitted["run"] == "0.5-code0.2", "step"].max() == 50_000


@pytest.mark.slow
def test_the_true_form_wins_and_domains_are_averaged(study: DomainPoints) -> None:
    one, two, r2 = tables_of({"six": study}, ["dcpt-1", "dcpt-2", "dcpt-17"], None)
    at = one.cells.set_index(["parameterization", "corpus", "metric"])["ours"]
    assert all(at["L3", corpus, "r2"] > 0.995 for corpus in "GD")
    assert all(at["L3", corpus, "huber"] < at[other, corpus, "huber"] for corpus in "GD" for other in ("L1", "L5"))
    means = r2.cells.groupby(["parameterization", "corpus"])["ours"].mean()
    held = two.cells[two.cells["metric"] == "r2"].set_index(["parameterization", "corpus"])["ours"]
    assert held.to_dict() == pytest.approx(means.to_dict())
    expected = mean_scores(held_out(study.fitted("law", "D"), fits.FORMS["L3"], "each-size"))["r2"]
    cell = r2.cells.query("parameterization == 'L3' and domain == 'law' and corpus == 'D'")
    assert cell["ours"].item() == pytest.approx(expected)


def test_learnability_is_measured_in_two_hundredths() -> None:
    step = pd.Series(range(201)) * 10
    loss = 5 - step / 1000 + (step / 1000) ** 2
    points = pd.DataFrame({"step": step, "loss": loss, "N": 0.1, "r": 0.5, "run": "a", "corpus": "law"})
    curvature = (loss[11] - loss[10] - (loss[1] - loss[0])) / 10
    expected = pytest.approx({"k1": 5, "k2": 5 - loss[5], "k3": curvature})
    assert learnability(_study(points, ("law",)), "law") == expected


def test_at_one_ratio_chinchillas_law_is_better_than_openais(study: DomainPoints) -> None:
    (ten,) = tables_of({"six": study}, ["dcpt-10"], None)
    at = ten.cells.set_index(["law", "corpus", "metric"])["ours"]
    assert at["chinchilla", "D", "r2"] > at["openai", "D", "r2"]


@pytest.mark.parametrize("keys", [{"from_step": 10**9}, {"min_ratio": 1.1}])
def test_without_a_point_to_fit_the_reason_is_said(keys: dict[str, Any]) -> None:
    points = study_points(("code",))
    study = DomainPoints(points, "general", ("code",), **keys)
    (ten,) = tables_of({"six": study}, ["dcpt-10"], None)
    assert (ten.verdict, ten.why) == (UNKNOWN, "Not made: 0 points are too few: openai has 4 parameters.")
    assert figures({"six": study}, []) == []


def test_of_two_ratios_equally_near_the_one_is_fitted() -> None:
    points = study_points(("code",), ratios=(0.0, 0.25, 0.75, 1.0))
    study = _study(points, ("code",))
    (ten,) = tables_of({"six": study}, ["dcpt-10"], None)
    # Of the same run.
    assert ten.note == "Domain code, ratio 0.25, 0.75 of the corpus that is predicted."
    (sixth,) = [figure for caption, figure in figures({"six": study}, []) if caption.startswith("D-CPT figure 6:")]
    of = {trace["mode"]: trace["y"] for trace in sixth.panels[0].spec["data"]}
    assert max(abs(line / dot - 1) for line, dot in zip(of["lines"], of["markers"], strict=True)) < 0.01


@pytest.mark.slow
def test_one_law_of_all_domains_and_pairs_of_them_held_out(monkeypatch) -> None:
    monkeypatch.setattr(fits, "REPRESENTATIONS", {"K1": "cross-domain-k1"})
    monkeypatch.setattr(fits, "CORPORA", ("D",))
    points = study_points(FOUR, ratios=(0.0, 0.5, 1.0), steps=(1, 5, 10, 11, 50, 100, 200), noise=2e-4)
    study = _study(points, FOUR)
    seven, eight = tables_of({"six": study}, ["dcpt-7", "dcpt-8"], None)
    assert "k2, nats per token, of each domain: code" in seven.note
    joint, r2 = every_domain(study, "D"), [made.cells.set_index("metric")["ours"]["r2"] for made in (seven, eight)]
    assert joint["run"].nunique() == sum(study.fitted(domain, "D")["run"].nunique() for domain in FOUR)
    # Held-out domains are missed by more.
    assert 1 > r2[0] > 0.9
    assert r2[0] > r2[1]


def test_what_the_points_do_not_allow_says_why() -> None:
    eight, thirteen = tables_of({"six": _study(study_points(("code",)), ("code",))}, ["dcpt-8", "dcpt-13"], None)
    assert eight.verdict == thirteen.verdict == UNKNOWN
    assert "three domains or more" in eight.why
    assert "+dense.DOMAIN=MODEL" in thirteen.why


def test_sampling_reads_the_densest_runs() -> None:
    dense = study_points(("law",), ratios=(0.0, 0.33, 0.67, 1.0), steps=tuple(range(1, 201)))
    points = dense[(dense["N"] == 0.5) | (dense["step"] % 20_000 == 0)]
    table = sampling(_study(points, ("law",)))
    assert table.attrs["note"].startswith("law, N = 500 million; evaluations of a run: M1 200, M2 40, M3 40, M4 49.")
    r2 = table[table["metric"] == "r2"].set_index(["method", "corpus"])["value"]
    assert len(r2) == 8
    assert r2.min() > 0.98
    # What cannot be fitted has a reason.
    one = points[(points["corpus"] != "law") | (points["r"] == 0.33)]
    note = sampling(_study(one, ("law",))).attrs["note"]
    assert "No number for M1 D, M2 D, M3 D, M4 D: " in note
    alone = _study(study_points(("law",), ratios=(0.33,), steps=tuple(range(1, 201))), ("law",))
    (table,) = tables_of({"six": alone}, ["dcpt-13"], None)
    assert table.verdict == UNKNOWN
    assert table.why.startswith("Not made: one ratio only (r = 0.67)")


def test_beside_a_paper_with_the_same_numbers_it_holds(study: DomainPoints, tmp_path: Path) -> None:
    (ours,) = tables_of({"six": study}, ["dcpt-14"], None)
    printed = ours.cells.drop(columns="paper").rename(columns={"ours": "value"})
    printed.to_csv(tmp_path / TABLES["dcpt-14"].file, index=False)
    (same,) = tables_of({"six": study}, ["dcpt-14"], tmp_path)
    assert (same.cells["paper"] == same.cells["ours"]).all()
    assert same.verdict == IN_ORDER
    assert re.match(r"(\d+) of \1 pairs", same.why)
    page = markdown([same], "From a test.")
    assert "| parameterization | domain | general Huber, paper | general Huber, here |" in page
    assert "| dcpt-14 | Fitted to all points, Huber loss by domain | holds in order |" in page


def test_a_column_for_each_number_has_its_cells() -> None:
    cells = pd.DataFrame(
        {"choice": "peak", "model": "m", "weight": [0.1, 0.3], "paper": math.nan, "ours": [3e-3, 2e-3]}
    )
    page = markdown([Result("dynamics-figure-8", TABLES["dynamics-figure-8"], cells, HOLDS, "")], "From a test.")
    assert "| choice | model | 0.1, here | 0.3, here |" in page
    assert "| peak | m | 0.003 | 0.002 |" in page


@HERE
def test_every_table_of_the_paper_is_found_and_read(study: DomainPoints) -> None:
    for name, table in TABLES.items():
        paper = paper_numbers(PAPERS, table)
        assert paper is not None or not table.file, name
        assert paper is None or not paper.duplicated([*table.keys]).any(), name
    (ten,) = tables_of({"six": study}, ["dcpt-10"], PAPERS)
    assert ten.cells[["paper", "ours"]].notna().all(axis=None)
    assert ten.verdict == HOLDS or "pairs are as the paper states" in ten.why


@HERE
def test_of_the_papers_files_the_columns_that_the_help_lists_are_read(tmp_path: Path, capsys) -> None:
    assert run(["tables", "--help", "tables.papers"]) == 0
    shown = capsys.readouterr().out
    for table in (table for table in TABLES.values() if table.file):
        assert f"  {table.file}: {', '.join(table.file_columns)}\n" in shown
        rows = pd.read_csv(PAPERS / table.file)[[*table.file_columns]]
        rows.to_csv(tmp_path / table.file, index=False)
        alone, whole = paper_numbers(tmp_path, table), paper_numbers(PAPERS, table)
        assert alone is not None
        assert whole is not None
        assert alone.equals(whole)
        for column in table.file_columns:
            rows.drop(columns=column).to_csv(tmp_path / table.file, index=False)
            with pytest.raises(StudyError, match=f"no column {column}; it needs "):
                paper_numbers(tmp_path, table)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", r"not a CSV table \(No columns to parse from file\)"),
        (
            b"law,corpus,metric,value\nopenai,G,r2,x\n",
            r"a value of the wrong type \(could not convert string to float: 'x'.*\)",
        ),
        (b"law,corpus,metric,value\nopenai,", "a row without corpus"),
        (b"law,corpus,metric,value\n" + 2 * b"openai,G,r2,.9\n", "two rows for openai, G, r2"),
        (None, "a pipe or device, not a file"),
    ],
)
def test_a_damaged_file_of_a_paper_is_refused(content: bytes | None, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / TABLES["dcpt-10"].file
    os.mkfifo(file) if content is None else file.write_bytes(content)
    with pytest.raises(StudyError, match=f"{file.name}: {wrong}$"):
        paper_numbers(tmp_path, TABLES["dcpt-10"])


def test_a_folder_without_any_of_the_papers_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has none of the papers' files; cptlaw tables --help tables\.papers"):
        paper_folder(str(tmp_path))


def test_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    overrides = ["experiment=quickstart", "tables.names=[dcpt-99]", "tables.papers=/nowhere"]
    with pytest.raises(ConfigError) as raised:
        make_tables(Study(tmp_path), read_question(overrides), Console())
    assert [line.split(":")[0] for line in raised.value.lines] == ["tables.names", "tables.papers"]


def test_confirmations_and_pretraining_are_left_out() -> None:
    points = study_points(("code",))
    points.loc[points["N"] == 0.5, "role"] = "confirm"
    points.loc[points["N"] == 1.8, "phase"] = "pretrain"
    source = PaperStudy(Study(Path("none")), read_question(["experiment=quickstart"]))
    source.__dict__["points"] = points
    assert set(read_domain_points(source).points["N"]) == {4.0}


def test_scores_of_a_constant_prediction() -> None:
    huber = 1e-3 * (np.log(2) + np.log(1.5) - 1e-3)
    assert scores(np.array([1.0, 3.0]), np.array([2.0, 2.0])) == pytest.approx({"r2": 0, "huber": huber})


def test_every_table_is_there_with_its_verdict_and_a_button(tmp_path: Path) -> None:
    rows = [(form, "G", "r2", 0.98, ours) for form, ours in (("L1", 0.97), (HOSTILE, float("nan")))]
    cells = pd.DataFrame(rows, columns=["parameterization", "corpus", "metric", "paper", "ours"])
    table = PaperTable("Fitted", "", lambda read: cells, ("parameterization", "corpus", "metric"))
    made = [
        Result("dcpt-1", table, cells, HOLDS, "1 of 1 pairs.", f"A note of {HOSTILE}."),
        Result("dcpt-8", table, cells.iloc[:0], UNKNOWN, "Not made: no points."),
    ]
    (tmp_path / "tables.html").write_text(tables_page(tmp_path / "six", made, "From a test.", []))
    page = Page(tmp_path / "tables.html")
    for words in ("2 tables of the papers: holds: 1; cannot be judged: 1.", "From a test.", f"A note of {HOSTILE}.",
                  "general R2, paper", "0.9700", "Not made: no points.", "by what the paper states"):  # fmt: skip
        assert words in page.words
    assert [of["id"] for tag, of in page.elements if tag == "section"] == ["verdicts", "dcpt-1", "dcpt-8"]
    assert len([of for tag, of in page.elements if tag == "button" and of.get("class") == "download"]) == 2
    assert "img" not in [tag for tag, _ in page.elements]
    # No figure, no plotly: such a page is small.
    assert (tmp_path / "tables.html").stat().st_size < 100_000


@pytest.mark.slow
def test_figures_are_drawn_from_the_points(study: DomainPoints, tmp_path: Path) -> None:
    drawn = figures({"six": study, "again": study}, [])
    numbers = [caption.partition(":")[0].removeprefix("D-CPT figure ") for caption, _ in drawn]
    beside = figures({"six": study, "near-zero": study}, [])
    assert [caption for caption, _ in beside[:-1]] == [caption for caption, _ in drawn]
    assert beside[-1][0].startswith("D-CPT figure 12:")
    lacking = dataclasses.replace(study, domains=(*study.domains, "music"))
    assert len(figures({"six": lacking}, [])) == len(drawn) - 1  # That of all domains.
    assert numbers == ["1, 9", "3, 8, 13, 14", "7", "4", "5", "6", "10", "15"]
    for number, figure in zip(numbers, (figure for _, figure in drawn)):
        assert [panel.title.split()[-1] for panel in figure.panels] == list(study.domains)
        for panel in figure.panels:
            lines, measured = ([of for of in panel.spec["data"] if of["mode"] == mode] for mode in ("lines", "markers"))
            # The slope is measured alone.
            assert len(measured) > 1
            assert len(lines) == (0 if number == "10" else len(measured))
            assert np.isfinite([value for of in (*lines, *measured) for value in of["y"]]).all()
    ends = study.fitted(study.domains[0], "D").query("step == step.max()")
    assert sum(len(of["y"]) for of in drawn[0][1].panels[0].spec["data"] if of["mode"] == "markers") == len(ends)
    (tmp_path / "tables.html").write_text(tables_page(tmp_path / "six", [], "From a test.", drawn))
    page = Page(tmp_path / "tables.html")
    assert "the law fitted to all points" in page.words
    # Where two elements have one id, the page's script reads the first and draws nothing.
    ids = [of["id"] for _, of in page.elements if "id" in of]
    assert len(ids) == len({*ids})
