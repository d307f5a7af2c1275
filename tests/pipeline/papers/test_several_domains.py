"""A study of several domains: one pre-training for all, runs of their own, answers about one at a time."""

import json
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pandas as pd
import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.plan.runs import data_folder, estimate, planned_runs
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.collect import of_domain
from pipeline.study.folder import PlannedRun, Study
from tests.conftest import write_text
from tests.pipeline.small import SMALL

SIX = ["experiment=dcpt-six-small", "corpora.folder=there"]


def _plan(question: Question) -> list[PlannedRun]:
    return planned_runs(estimate(question))


def test_every_cell_of_six_domains_is_planned() -> None:
    question = read_question(SIX)
    plan = _plan(question)
    roles = Counter(planned.role for planned in plan)
    assert roles == {"pretrain": 3, "fit": 147}
    pretraining = {planned.spec.hash: planned for planned in plan if planned.role == "pretrain"}
    assert all(len(planned.spec.corpora) == 7 for planned in pretraining.values())
    cells = Counter()
    for planned in plan[3:]:
        mixture = planned.spec.mixture
        assert pretraining[planned.parent or ""].model == planned.model
        read = [corpus for corpus in mixture if corpus != "general" and mixture[corpus] != "0"]
        assert set(mixture) == {"general", *(read or question.corpora.domains)}
        cells.update((planned.model, domain, mixture["general"]) for domain in read or question.corpora.domains)
    assert len(cells) == 162
    assert set(cells.values()) == {1}


def test_one_size_of_one_domain_is_evaluated_everywhere() -> None:
    dense = {p.name.rsplit("-", 3)[0] for p in _plan(read_question(SIX))[3:] if p.spec.evaluation.policy == "dense"}
    mixtures = ("general1", *(f"code{ratio}" for ratio in ("0.1", "0.2", "0.33", "0.5", "0.67", "0.8", "0.9", "1")))
    assert dense == {f"continual-qwen2-0.05m-{mixture}" for mixture in mixtures}


@pytest.mark.parametrize(
    ("words", "more", "same"),
    [(["experiment=quickstart"], "corpora.domains=[code]", "spec.hash"), (SIX, "corpora.domain=law", "name")],
    ids=["a list of one domain", "another domain asked about"],
)
def test_runs_and_their_text_stay_the_same(words: list[str], more: str, same: str) -> None:
    one, other = read_question(words), read_question([*words, more])
    assert data_folder(one) == data_folder(other)
    assert [*map(attrgetter(same), _plan(one))] == [*map(attrgetter(same), _plan(other))]


def test_mistakes_in_the_list() -> None:
    words = [*SIX, "corpora.domains=[code,code,general,latin]", "corpora.domain=law", "+dense.greek=qwen2-0.7m"]
    with pytest.raises(ConfigError) as raised:
        read_question(words)
    keys = [line.split(":")[0] for line in raised.value.lines]
    assert keys == ["corpora.domains"] * 3 + ["corpora.domain", "dense", "dense.greek"]


def test_points_of_a_domain() -> None:
    nan = float("nan")
    rows = [("a", "general", 0.5, nan), ("a", "code", 0.5, nan), ("b", "general", nan, 0.5)]
    rows += [("c", "general", 0.0, 0.0), ("c", "law", 0.0, 0.0)]
    points = pd.DataFrame(rows, columns=["run", "corpus", "mixture.code", "mixture.law"]).assign(phase="continual")
    # Pre-training is every domain's, whatever it read.
    points.loc[len(points)] = ["d", "law", 0.03, 0.03, "pretrain"]
    question = read_question([*SIX, "corpora.domain=law"])
    of_law = of_domain(points, question)
    assert list(zip(of_law["run"], of_law["corpus"])) == [
        ("b", "general"),
        ("c", "general"),
        ("c", "law"),
        ("d", "law"),
    ]
    assert of_domain(points, read_question(["experiment=quickstart"])) is points


@pytest.mark.slow
def test_from_text_to_tables_and_an_answer_a_domain(texts: Path, tmp_path: Path, capsys) -> None:
    write_text(tmp_path / "music", 3)
    words = [
        *(word for word in SMALL if not word.startswith(("experiment=", "law=", "ladder=", "mixture.domain_ratio="))),
        *("corpora=dcpt-six", "corpora.folder=/", "corpora.domain=music", "corpora.domains=[music,law]"),
        *(f"~corpora.sources.{name}" for name in ("code", "math", "chemistry", "medical")),
        *(f"corpora.sources.{name}.group=null" for name in ("general", "law", "music")),
        *(f"studies={tmp_path / 'studies'}", f"data={tmp_path / 'data'}"),
        *(f"corpora.sources.general.path={texts / 'general'}", f"corpora.sources.law.path={texts / 'code'}"),
        *(f"corpora.sources.music.path={tmp_path / 'music'}", "ladder=[qwen2-0.05m,qwen2-0.15m]"),
        *("mixture.domain_ratio=[0.0,0.33,0.67,1.0]", "law=[transfer-anchored]", "+dense.law=qwen2-0.05m"),
        *("target.steps=36", "continual.part=0.66666667", "continual.evaluation.every=1", "confirm.neighbour=0"),
    ]
    assert run(["quickstart", *words]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines() if line.startswith("fit ")] == ["music,", "law,"]
    study = Study(tmp_path / "studies" / "small")
    assert Counter(planned.role for planned in study.read_plan()) == {"pretrain": 2, "fit": 14, "confirm": 2}
    for domain in ("music", "law"):
        folder = study.folder / "answers" / domain
        assert set(json.loads((folder / "recommendation.json").read_text())["mixture"]) == {"general", domain}
        assert json.loads((folder / "fits/general-transfer-anchored.json").read_text())["n_runs"] == 8
        assert (folder / "report.html").exists()
        assert f"answers/{domain}/report.html" in (study.folder / "report.html").read_text()
        rows = json.loads((folder / "confirmation.json").read_text())["confirmations"]
        assert {row["corpus"] for row in rows} == {"general", domain}
    assert run(["tables", str(study.folder), "tables.names=[dcpt-1,dcpt-13]"]) == 0
    printed = capsys.readouterr().out
    assert "D-CPT table 1: Fitted to all points, mean over domains" in printed
    for name in ("tables.md", "tables.html", "tables/dcpt-1.csv", "tables/dcpt-13.csv", "tables/verdicts.csv"):
        assert (study.folder / name).stat().st_size > 100
    ours = pd.read_csv(study.folder / "tables/dcpt-1.csv")
    assert len(ours) == 5 * 2 * 2
    assert ours["ours"].notna().all()
