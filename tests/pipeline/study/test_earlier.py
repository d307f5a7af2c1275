"""Losses on general of earlier studies of a base model count for a later one, on another domain."""

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from fitting import Fit
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.registry import goal_of
from pipeline.question.loading import question_of_study
from pipeline.study.context import Context, context_of
from pipeline.study.earlier import BETWEEN_DOMAINS, studies_of_longer_runs, with_earlier
from pipeline.study.fits import fit_file
from pipeline.study.folder import StudyError

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Music, by runs of 40 steps."""
    return Path(shutil.copytree(RESULTS / "base-model-1200" / "music-40", tmp_path / "music"))


def _with(study: Path, *earlier: str | Path) -> Context:
    """The study with those of docs/results, or of other folders."""
    return context_of(question_of_study(study, [f"general_from=[{','.join(str(RESULTS / name) for name in earlier)}]"]))


def _refusal(study: Path, *earlier: str | Path) -> str:
    with pytest.raises(StudyError, match=r"^general_from: ") as error:
        _with(study, *earlier).points  # noqa: B018
    return str(error.value)


def test_points_and_schedules_of_earlier_studies_count(study: Path) -> None:
    alone, context = context_of(question_of_study(study, [])), _with(study, "base-model-1200/law-1200")
    own, points = alone.points, context.points
    added = points[~points["run"].isin(own["run"])]
    assert len(points) == len(own) + len(added)
    assert added["run"].nunique() == 2
    assert set(added["role"]) == {"fit"}
    # Only general, with its ratio in them: the rest of .842 and .5. A run of .992 depends on its domain.
    assert set(added["corpus"]) == {"general"}
    assert sorted(added["r"].unique()) == pytest.approx([0.158, 0.5])
    assert {*points["run"]} <= {*context.schedules}
    assert context.points_digest != alone.points_digest


@pytest.mark.slow
@pytest.mark.usefixtures("no_profiles")
def test_general_is_known_as_far_as_an_earlier_run_went(study: Path) -> None:
    """The long runs on law and medical text are not music's, whose own losses at 1,200 steps are known here."""
    context = _with(study, "base-model-1200/law-1200", "base-model-1200/medical-1200")
    context.question.bootstrap = 4
    lines: list[str] = []
    goal_of(context.question).fit(context, lines.append)
    assert lines[0].startswith("general: 118 points of 4 runs of ")
    assert "count too, up to step 1,200, domain ratios 0.5 to 0.95 (general_from)" in lines[0]
    laws, target = answering_laws(context.fresh()), context.fresh().target
    predicted, low, high = laws.loss(target, "general", 0.5)
    assert laws.fit("general").spread.half_width(target.N, target.D) > BETWEEN_DOMAINS
    in_file = Fit.from_json(fit_file(context.study, "general", laws.law["general"]).read_text())
    assert in_file.predict_interval(pd.DataFrame([{**target.columns("general", in_file), "r": 0.5}])) == (
        pytest.approx([low]),
        pytest.approx([high]),
    )
    # By the runs of 40 steps alone it is 2.929, and the interval 66% wide.
    assert predicted == pytest.approx(2.6817, rel=0.01)
    assert low < 2.6817 < high
    # The domain itself makes a difference, which no fit to other domains shows.
    assert 2 * BETWEEN_DOMAINS < high / low - 1 < 0.06
    # The domain is known no further than before.
    _, low, high = laws.loss(target, "domain", 0.5)
    assert high / low > 2


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        (["base-model-gemma"], "base-model-gemma: 100,326,016 non-embedding parameters, here 106,203,456; allowed: s"),
        (
            ["base-model-law"],
            "base-model-law: a loss of 3.3006 on general before CPT, here 3.2068; allowed: studies of",
        ),
        (["nothing"], "nothing: no points.parquet there; allowed: other studies after cptlaw collect"),
        (["base-model-1200/law-1200"] * 2, "law-1200: no run on 5% or more general that is not counted already; all"),
    ],
)
def test_a_study_that_differs_or_adds_nothing_is_refused(study: Path, others: list[str], problem: str) -> None:
    assert problem in _refusal(study, *others)


def test_the_study_itself_and_another_batch_are_refused(study: Path, tmp_path: Path) -> None:
    assert "music: the study itself; allowed: other studies" in _refusal(study, study)
    other = Path(shutil.copytree(RESULTS / "base-model-1200" / "law-40", tmp_path / "law"))
    table = parquet.read_table(other / "points.parquet")
    twice = pa.array(2 * table["tokens"].to_numpy())
    parquet.write_table(table.set_column(table.column_names.index("tokens"), "tokens", twice), other / "points.parquet")
    assert "law: 4,096 tokens per step, here 2,048; allowed" in _refusal(study, other)


def test_an_earlier_study_is_found_beside_the_study_too(study: Path) -> None:
    shutil.copytree(RESULTS / "base-model-1200" / "law-1200", study.parent / "law-1200")
    assert context_of(question_of_study(study, ["general_from=[studies/law-1200]"])).points["run"].nunique() == 5


def test_studies_of_longer_runs_are_found_beside_it(study: Path) -> None:
    beside = RESULTS / "base-model-1200"
    for name in ("law-1200", "law-40"):
        shutil.copytree(beside / name, study.parent / name)
    shutil.copytree(RESULTS / "base-model-gemma", study.parent / "gemma")
    context = context_of(question_of_study(study, []))
    assert studies_of_longer_runs(context.points, context.question) == [str(study.parent / "law-1200")]
    # Of a run three times as long its own runs tell more.
    context = context_of(question_of_study(study, ["target.steps=120"]))
    assert studies_of_longer_runs(context.points, context.question) == []


def test_a_study_whose_runs_have_just_begun_is_compared_as_far_as_it_is_measured(study: Path) -> None:
    context = _with(study, "base-model-1200/law-1200")
    begun = context_of(question_of_study(study, [])).points.query("step == 0")
    added = with_earlier(begun.assign(loss_before=float("nan")), context.question)
    assert added["run"].nunique() == 5
