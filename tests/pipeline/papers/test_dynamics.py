"""The learning-dynamics paper's tables from points drawn from its law."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from pipeline.papers.dynamics import facts, fits
from pipeline.papers.dynamics.points import READING, FitRequest, ScheduleStudy, fitted
from pipeline.papers.dynamics.tables import TABLES
from pipeline.papers.figures import figures
from pipeline.papers.make import tables_of
from pipeline.papers.show import markdown
from pipeline.papers.table import PaperStudy, paper_numbers
from pipeline.papers.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN
from pipeline.question.schema import Question
from pipeline.study.folder import Study, StudyError
from tests.pipeline.papers.schedules import MEMORY, TRUE, dynamics_small, study_of_schedules

PAPERS = Path(os.environ.get("CPTLAW_PAPER_TABLES", "../shared/paper-tables"))
MODEL = "qwen2-0.05m"


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Study, Question]:
    return study_of_schedules(tmp_path_factory.mktemp("schedules"))


@pytest.fixture(scope="module")
def schedules(study: tuple[Study, Question]) -> ScheduleStudy:
    return READING.read(PaperStudy(*study))


def test_a_study_with_variants_has_these_tables_and_no_other_study(study: tuple[Study, Question]) -> None:
    assert READING.applies(study[1])
    assert not READING.applies(dataclasses.replace(study[1], variants={}))


def test_points_alone_suffice_where_the_question_is_known(study, schedules) -> None:
    tables = dataclasses.replace(study[1].tables, points=str(study[0].folder / "points.parquet"))
    question = dataclasses.replace(study[1], tables=tables)
    again = READING.read(PaperStudy(Study(study[0].folder / "nowhere"), question))
    pd.testing.assert_frame_equal(again.runs, schedules.runs)
    assert all((again.schedules[run].rates == schedules.schedules[run].rates).all() for run in again.plan)
    fewer = {name: keys for name, keys in question.variants.items() if name != "half-tenth"}
    with pytest.raises(StudyError, match="1 of 31 continual runs are not of the question"):
        READING.read(PaperStudy(study[0], dataclasses.replace(question, variants=fewer)))


def test_runs_are_known_by_what_they_do(schedules: ScheduleStudy) -> None:
    runs = schedules.runs
    assert len(runs) == 31
    starts = {
        variant: (round(own["potential"].iloc[0], 3), own["rewarmed"].iloc[0])
        for variant, own in runs.groupby("variant")
    }
    assert starts["half-anneal"] == (0.5, False)
    assert starts["half-tenth"] == (0.5, True)
    assert starts["cosine-cosine"] == (0.0, True)
    assert starts["constant-constant"] == (1.0, False)


def test_a_run_that_confirms_the_studys_own_answer_is_in_no_table(schedules: ScheduleStudy) -> None:
    held = next(run for run in schedules.plan.values() if run.role == "confirm")
    plan = {**schedules.plan, held.name: dataclasses.replace(held, variant="")}
    assert {*schedules.runs["run"]} - {*dataclasses.replace(schedules, plan=plan).runs["run"]} == {held.name}


def test_the_law_that_drew_the_points_is_found(schedules: ScheduleStudy) -> None:
    fit = fitted(schedules, FitRequest("dynamics", "D_cpt", MODEL, 1.0))
    truth = TRUE["code"][1]
    assert fit.decay == pytest.approx(MEMORY, abs=0.01)
    # At a ratio of 1 eq. 8 is eq. 4 with another C2 and B.
    assert fit.params["C1"] == pytest.approx(truth["C1"], rel=0.05)
    assert fit.params["C2"] == pytest.approx(truth["C2"] * 2.718281828 ** truth["a1"], rel=0.05)


def test_what_no_fit_saw_is_predicted_and_held_runs_are_in_no_fit(schedules: ScheduleStudy) -> None:
    seen = schedules.on("D_pt", schedules.fitted_runs(MODEL, 1.0))
    held = schedules.runs.loc[schedules.runs["role"] == "confirm", "run"]
    assert not seen["run"].isin(held).any()
    # Nor is the pre-training that only they continue.
    assert not seen["run"].isin(schedules.runs.loc[schedules.runs["variant"] == "half-anneal", "parent"]).any()
    (ten,) = tables_of({"dynamics": schedules}, ["dynamics-figure-10"], None)
    assert ten.verdict == HOLDS, ten.why
    errors = ten.cells.groupby("law")["ours"].mean()
    assert errors[["eq. 4", "eq. 8"]].max() < 0.001
    assert errors["eq. 4, 0.999"] > 3 * errors["eq. 4"]
    assert ten.cells["schedule"].nunique() == 8


def test_facts_that_follow_from_the_law(schedules: ScheduleStudy) -> None:
    names = [f"dynamics-figure-{number}" for number in ("2", "5", "6", "7", "7c", "14")]
    two, five, six, seven, turning, fourteen = tables_of({"dynamics": schedules}, names, None)
    assert (two.verdict, six.verdict) == (IN_ORDER, IN_ORDER)
    assert fourteen.verdict == UNKNOWN  # One model.
    for shown in (five, seven):
        sides = shown.cells.pivot(index=shown.table.keys[:-1], columns="side", values="ours")
        assert (sides["measured"] / sides["predicted"] - 1).abs().max() < 0.005
    assert five.cells["potential"].round(3).unique().tolist() == [0.1, 0.5, 1.0]
    assert five.verdict == IN_ORDER, five.why
    assert seven.cells["peak"].tolist()[::4] == [7.5e-4, 1.5e-3, 3e-3]
    at = turning.cells.pivot(index=["replay", "transfer"], columns="side", values="ours")
    assert len(at) == 4 * 3
    both = at[at["measured"] < float("inf")]
    assert len(both) > 2
    assert ((both["predicted"] - both["measured"]).abs() < 30).all()
    assert turning.verdict == IN_ORDER, turning.why


def test_seeds_of_a_cell_are_averaged(schedules: ScheduleStudy) -> None:
    names = [f"dynamics-figure-{number}" for number in ("2", "5", "6", "7", "7c", "14")]
    runs = schedules.runs["run"]
    again = schedules.points[schedules.points["run"].isin(runs)]
    # A second seed of every continual run, whose losses are 2% higher.
    again = again.assign(run=again["run"] + "-again", loss=1.02 * again["loss"])
    known = dict(schedules.schedules) | {f"{run}-again": schedules.schedules[run] for run in runs}
    plan = dict(schedules.plan)
    for run in runs:
        spec = dataclasses.replace(plan[run].spec, seed=1)
        plan[f"{run}-again"] = dataclasses.replace(plan[run], name=f"{run}-again", spec=spec)
    points = pd.concat([schedules.points, again], ignore_index=True)
    two = dataclasses.replace(schedules, points=points, plan=plan, schedules=known, cache={})
    for one, both in zip(*(tables_of({"dynamics": study}, names, None) for study in (schedules, two))):
        keys = [*one.table.keys]
        assert not both.cells.duplicated(keys).any()
        assert markdown([both], "From a test.")
        old, new = (made.cells.set_index(keys)["ours"].sort_index() for made in (one, both))
        if "side" in keys:
            old, new = (of.xs("measured", level="side") for of in (old, new))
        if one.name != "dynamics-figure-7c":  # Steps.
            pd.testing.assert_series_equal(new, 1.01 * old)
        assert "left out" not in both.note
    # The same runs of another variant are in no cell, which is said.
    plan |= {f"{run}-again": dataclasses.replace(plan[f"{run}-again"], variant="again") for run in runs}
    two = dataclasses.replace(two, plan=plan, cache={})
    (made,) = tables_of({"dynamics": two}, ["dynamics-figure-2"], None)
    assert made.note.endswith("Of several variants in a cell the first is shown; left out somewhere: again.")


def test_of_several_schedules_after_one_base_the_one_with_most_peaks_is_shown(schedules: ScheduleStudy) -> None:
    """A variant of the user's may have a schedule whose values are among those of another."""
    more = schedules.runs.iloc[[0, 0]].assign(run=["more-1", "more-2"], form="another", peak=[1e-4, 2e-4], ratio=1.0)
    runs = schedules.runs[schedules.runs["ratio"] == 1.0]
    alike = ["parent", "transfer", "form"]
    expected = facts._most(runs, ["model"], alike, "peak")
    assert expected.groupby("model")["peak"].nunique().min() > 2
    assert not expected.duplicated(["model", "peak"]).any()
    pd.testing.assert_frame_equal(facts._most(pd.concat([more, runs]), ["model"], alike, "peak"), expected)


def test_an_open_model_is_fitted_without_its_past(schedules: ScheduleStudy, monkeypatch) -> None:
    monkeypatch.setattr(fits, "CORPORA", ("D_cpt",))
    table = fits.open_model(schedules).rename(columns={"value": "ours"})
    assert fits.judge_open_model(table)[0] == HOLDS
    at = table[table["metric"] == "r2"].set_index(["law", "corpus"])["ours"]
    assert set(at.index.get_level_values(0)) == {"open", "open, first half", "full", "full, first half"}
    assert at[["open", "full"]].min() > 0.9995


@pytest.mark.slow
def test_an_open_model_is_judged_on_the_steps_that_only_longer_runs_have(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(fits, "CORPORA", ("D_cpt",))
    warm_up, steps = {"shape": "linear", "end": 1.0, "share": 0.05}, [20, 300, *range(350, 900, 50)]
    shapes = {"constant": {"shape": "constant"}, "cosine": {"shape": "cosine", "end": 0.1}}
    variants = {name: {"continual": {"schedule": {"pieces": [warm_up, shape]}}} for name, shape in shapes.items()}
    longer = {"steps": 900, "evaluation": {"policy": "explicit", "steps": steps}}
    variants["longer"] = {"held_out": True, "continual": longer}
    mixture = dataclasses.replace(dynamics_small().mixture, domain_ratio=[1.0])
    study = READING.read(PaperStudy(*study_of_schedules(tmp_path, variants=variants, mixture=mixture)))
    table = fits.open_model(study).rename(columns={"value": "ours"})
    verdict, why = fits.judge_open_model(table)
    assert {*table["law"]} == {"open", "open, shorter runs", "full", "full, shorter runs"}
    assert verdict == HOLDS
    assert why.startswith("Without its past the error in longer runs, beyond the fitted length,")
    (long,) = study.runs.loc[study.runs["variant"] == "longer", "run"]
    seen = (study.points["run"] != long) | (study.points["step"] <= 300)
    worse = study.points.assign(loss=study.points["loss"].where(seen, 1.1 * study.points["loss"]))
    wrong = fits.open_model(dataclasses.replace(study, points=worse, cache={}))
    assert fits.judge_open_model(wrong.rename(columns={"value": "ours"}))[0] == NOT_HERE
    # Fitted to the shorter runs alone, it misses losses that are a tenth higher by 1 - 1 / 1.1.
    errors = wrong[(wrong["law"] == "open, shorter runs") & (wrong["metric"] == "error")]["value"]
    assert errors.tolist() == pytest.approx([1 - 1 / 1.1], abs=0.005)
    same = wrong[wrong["law"] == "open"]["value"].tolist()
    assert same == table[table["law"] == "open"]["ours"].tolist()  # No point of the longer run is fitted.


def test_a_model_from_a_directory_has_no_past_at_all(schedules: ScheduleStudy) -> None:
    continual = schedules.points[schedules.points["phase"] == "continual"]
    orphans = dataclasses.replace(schedules, points=continual, cache={})
    assert len(orphans.on("D_pt", orphans.fitted_runs(MODEL), pretraining=True)) > 0


POTENTIALS = [(p, side) for p in (0.1, 0.5, 1.0) for side in ("measured", "predicted")]
KEYS = {
    facts.judge_potentials: ("setting", "model", "potential", "corpus", "side"),
    facts.judge_turning: ("model", "replay", "transfer", "side"),
    facts.judge_designs: ("choice", "model", "weight"),
    fits.judge_held_out: ("law", "schedule", "corpus"),
    fits.judge_curves: ("law", "model", "corpus", "metric"),
    fits.judge_coefficients: ("coefficient", "corpus"),
}


def _by_potential(loss: Callable[[float], float]) -> list[tuple]:
    return [("w", "a", p, "D_cpt", side, loss(p)) for p, side in POTENTIALS]


def _returns(*steps: float) -> list[tuple]:
    return [("a", 0.5, transfer, "measured", step) for transfer, step in enumerate(steps)]


def _of_eq_8(r2: float, left_out: float) -> list[tuple]:
    rows = [(name, corpus, value) for name, value in (("R2", r2), (fits.LEFT_OUT, left_out)) for corpus in fits.CORPORA]
    return [(fits.SHIFT, "D_pt", 0.3), (fits.SHIFT, "D_cpt", -0.5), *rows]


@pytest.mark.parametrize(
    ("judge", "rows", "verdict"),
    [
        (facts.judge_potentials, _by_potential(lambda p: 3 - p), IN_ORDER),
        (facts.judge_potentials, _by_potential(lambda p: 3 + p), NOT_HERE),
        (facts.judge_potentials, _by_potential(lambda p: 3 - p / 100), UNKNOWN),
        (facts.judge_turning, _returns(20.0, 90.0, float("inf")), IN_ORDER),
        (facts.judge_turning, _returns(90.0, 20.0, 10.0), NOT_HERE),
        (facts.judge_turning, _returns(float("inf"), float("inf")), UNKNOWN),
        (facts.judge_designs, [(of, "a", w, sign * w) for of, sign in facts.CHOICES.items() for w in (1, 5)], IN_ORDER),
        (facts.judge_designs, [(choice, "a", w, 1.0) for choice in facts.CHOICES for w in (0.1, 0.5)], NOT_HERE),
        (fits.judge_held_out, [("eq. 4", "x", corpus, 0.004) for corpus in fits.CORPORA], HOLDS),
        (fits.judge_held_out, [("eq. 4", "x", corpus, 0.02) for corpus in fits.CORPORA], NOT_HERE),
        (fits.judge_curves, [("eq. 4", "a", "D", "r2", 0.995), ("eq. 4, 0.999", "a", "D", "r2", 0.9)], HOLDS),
        (fits.judge_curves, [("eq. 4", "a", "D_pt", "r2", 0.95)], NOT_HERE),
        (fits.judge_coefficients, _of_eq_8(0.991, 0.02), IN_ORDER),
        (fits.judge_coefficients, _of_eq_8(0.98, 0.002), NOT_HERE),
    ],
)
def test_verdicts_follow_a_rule(judge, rows: list[tuple], verdict: str) -> None:
    judged, why = judge(pd.DataFrame(rows, columns=[*KEYS[judge], "ours"]).assign(paper=float("nan")))
    assert judged == verdict, why
    assert why.endswith(".")


@pytest.mark.skipif(not PAPERS.is_dir(), reason="the papers' numbers are not here: CPTLAW_PAPER_TABLES")
def test_the_paper_is_found_and_read() -> None:
    two, nineteen = (paper_numbers(PAPERS, TABLES[name]) for name in ("dynamics-2", "dynamics-figure-19"))
    assert two is not None
    assert nineteen is not None
    at = nineteen.set_index(["coefficient", "corpus"])["value"]
    assert at["B", "D_cpt"] == -0.526
    assert "beta" not in at
    same = two.assign(paper=two["value"], ours=two["value"])
    assert fits.judge_formats(same)[0] == HOLDS
    worse = same.assign(ours=same["ours"].where(same["format"] != "s2_power", 0.5))
    assert fits.judge_formats(worse)[0] == NOT_HERE


@pytest.mark.slow
def test_schedules_are_drawn_with_their_predictions(schedules: ScheduleStudy) -> None:
    names = [f"dynamics-figure-{number}" for number in ("5", "6", "7", "7c", "8")]
    results = tables_of({"dynamics": schedules}, names, None)
    drawn = {caption.partition(":")[0]: figure for caption, figure in figures({"dynamics": schedules}, results)}
    numbers = [name.removeprefix("Dynamics figure ") for name in drawn]
    assert numbers == ["1", "2, 14", "3, 16", "10", "12", "19", "20", "5", "6", "7", "7c", "8"]
    for figure in drawn.values():
        assert all(panel.spec["data"] for panel in figure.panels)
