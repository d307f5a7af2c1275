"""report.html: the answer, everything that supports it, and a sentence for what is missing."""

import dataclasses
import json
import re
import shutil

import numpy as np
import plotly.graph_objects
import pyarrow.parquet
import pytest

from fitting.law_average import AVERAGE
from pipeline.goals.active.history import TOLERANCE, ChosenRun, DesignRound, asked_of, write_rounds
from pipeline.goals.ratio.answer_warnings import by_weight
from pipeline.goals.ratio.asked import asked_lines
from pipeline.goals.ratio.trade_off_goal import TradeOffGoal
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.validation_noise import windows_line
from pipeline.question.schema import Question
from pipeline.question.schema.training import ScheduleConfig
from pipeline.show.conclusion import conclusion_of
from pipeline.show.report import study_page
from pipeline.show.report.answer_figures import rounds as rounds_figure
from pipeline.show.report.evidence import Evidence, at_target, section
from pipeline.show.report.explorer import explorer
from pipeline.show.report.loss_figures import loss_curves
from pipeline.show.report.pages import write_pages
from pipeline.show.report.tables import record, spent
from pipeline.show.terminal import shown
from pipeline.show.tracking.answer import answer_summary
from pipeline.study.artifacts import Confirmation, Corpora, Machine, PlannedCorpus, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, Study, StudyError
from tests.pipeline.show.report.report_study import (
    HOSTILE_CORPUS,
    HOSTILE_NAME,
    Page,
    long_corpora,
    make_study,
    whole_page,
)
from training.schedule import Piece

SECTIONS = [
    *("explore", "ratios", "trade-off", "confirmation", "losses", "agreement"),
    *("held-out", "parameters", "cost", "notes"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return Page(whole_page(tmp_path_factory.getbasetemp() / "report"))


@pytest.fixture
def copied(changeable) -> tuple[Study, Question]:
    """A study to take things away from."""
    return changeable


def written(study: Study, question: Question) -> Page:
    """The report, written anew."""
    return Page(write_pages(Context(question, study))[0])


def test_the_law_that_answers_alone_is_on_its_card(whole) -> None:
    study, question = whole
    answer = Recommendation.read(study)

    def card(**of_corpus: dict[str, float]) -> tuple[str, str]:
        weights = dict(zip(answer.weights, of_corpus.values(), strict=True))
        content = dataclasses.replace(answer, law=dict.fromkeys(weights, "average"), weights=weights)
        return next(
            card[1:3] for card in study_page._cards(Evidence(Context(question, study)), content) if card[0] == "Law"
        )

    one, two = {"dcpt": 1.0}, {"dcpt": 0.6, "transfer-anchored": 0.4}
    assert card(general=one, domain=one) == ("dcpt", "it answers alone")
    assert card(general=two, domain=two)[0] == "the average of the laws"
    law, weights = card(general=two, domain=one)
    assert law.startswith("the average of the laws on ")
    assert weights == "weights by held-out errors: on general dcpt 60%, transfer-anchored 40%"


def test_a_law_that_the_average_leaves_out_is_marked_where_laws_answer_alone(whole) -> None:
    study, question = whole
    answer = Recommendation.read(study)
    counted, left_out, *_ = answer.answers

    def note(weights: dict[str, float]) -> str:
        of_all = {corpus: weights for corpus in answer.predicted}
        content = dataclasses.replace(answer, law=dict.fromkeys(of_all, "average"), weights=of_all)
        return study_page._answer(Evidence(Context(question, study)), content)["note"]

    marked = re.findall(r"([\w-]+) \(not in the average\)", note({counted: 1.0}))
    assert left_out in marked
    assert marked == [law for law in answer.answers if law != counted]
    assert "not in the average" not in note({})


def test_the_shape_of_several_pieces_is_named_once(whole) -> None:
    study, question = whole
    schedule = ScheduleConfig([Piece("linear", end=1.0, share=0.1), Piece("linear", end=0.1)])
    asked = dataclasses.replace(question, target=dataclasses.replace(question.target, schedule=schedule))
    cards = study_page._cards(Evidence(Context(asked, study)), Recommendation.read(study))
    assert next(card[2] for card in cards if card[0] == "Peak learning rate") == "schedule: linear"


def test_of_laws_that_have_no_part_in_the_average_no_lines_are_drawn_along_the_runs(whole) -> None:
    study, question = whole
    for blind in ([], ["dcpt"]):
        vars(context := Context(question, study))["laws_without_peaks"] = blind
        figure = loss_curves(Evidence(context))
        assert figure is not None
        assert ("dcpt" in [key.label for key in figure.keys]) == (not blind)


def test_the_average_is_drawn_at_the_ratios_of_any_law() -> None:
    question = read_question(["experiment=own"])
    least = [section(question, law).min_ratio for law in (*question.law, AVERAGE)]
    assert least[-1] == min(least) < max(least)


def test_it_has_every_section_and_answers_first(whole, page):
    study, question = whole
    assert [of["id"] for tag, of in page.elements if tag == "section"] == SECTIONS
    first, more = conclusion_of(Context(question, study)).headline.split("; ", 1)
    title, below = (f"{one[0].upper()}{one[1:]}" for one in (first, more))
    assert f"{title} {below}." in " ".join(page.words.split())
    answer = Recommendation.read(study)
    ratio = (answer.mixture or {})[HOSTILE_CORPUS]
    above, _ = page.words.split("Loss against the domain ratio of", 1)
    rows = Confirmation.read(study).confirmations
    measured = [row.measured for row in rows if row.recommended and row.domain_ratio == ratio]
    assert len(measured) == 2
    # The page that lists parameters names the section.
    listed = 'listed below in "Parameters of the laws"'
    warnings = [line.replace("listed in the report", listed) for line in by_weight(answer.warnings)]
    assert listed in "".join(warnings)
    for fact in (
        *(f"{100 * ratio:.1f}".removesuffix(".0") + "%", f"{answer.low:.1%} to {answer.high:.1%}"),
        *(*answer.law.values(), answer.binding, "Domain ratio by one law alone"),
        *("600 steps of 16 x 128 tokens", "0.0006", "2026-01-01", "times the answer's run", "15 min of all processes"),
        *warnings[:5],
        *(f"{loss:.4f}" for loss in [*measured, *(predicted.loss for predicted in answer.predicted.values())]),
    ):
        assert fact in above
    facts = ("00" * 16, "lambda", "per unit of S1", "identified", "2.13.0", "abc1234", "a <processor> & more", "15 min")
    span = "2026-01-01T00:00:00+00:00 to 2026-01-01T00:00:30+00:00"
    thin = ("outside the ratios that the law was fitted to", "A curve is thin outside the domain ratios")
    assert [fact for fact in (*facts, *thin, span, *warnings) if fact not in page.words] == []
    assert "no bootstrap" not in page.words


def test_the_cost_is_in_the_unit_of_the_plan(copied) -> None:
    study, question = copied
    question = dataclasses.replace(question, design=dataclasses.replace(question.design, budget_unit="device-hours"))
    speeds = dict.fromkeys({run.model for run in study.read_plan()}, 1000)
    Machine("bf16", speeds, {}, "a processor").write(study)
    context = Context(question, study, long_corpora(study, "general", HOSTILE_CORPUS), "bf16")
    together = asked_lines(context, [run for run in context.plan if run.role != "confirm"])[2]
    target = Recommendation.read(study).target
    times, parts = spent(Evidence(context), target)
    assert together.startswith("all together, with ")
    assert f" for the pre-training, {times.split(' the ')[0]} that run, " in together
    assert parts.startswith("by device-hours at the speed that prepare measured, with starts: ")
    assert parts.endswith("15 min of all processes, measured without starts")
    Machine("bf16", dict(list(speeds.items())[1:]), {}, "a processor").write(study)
    assert spent(Evidence(context.fresh()), target)[1].startswith("by FLOPs: ")


def test_curves_and_sliders_are_at_the_peak_of_the_answer(copied) -> None:
    study, question = copied
    question = dataclasses.replace(question, design=dataclasses.replace(question.design, peaks=[3.0]))
    context = Context(question, study)
    answer = TradeOffGoal().recommend(context, list)
    answer.write(study)
    assert answer.peak_learning_rate == pytest.approx(3 * question.target.peak_learning_rate)
    evidence = Evidence(context.fresh())
    ratio = np.array([evidence.domain_ratio])
    explored = explorer(evidence)
    assert explored is not None
    tolerance, size, length = explored.data["start"].values()
    shown_first = explored.data["answers"][size][length]
    for role, corpus in zip(("general", "domain"), evidence.corpora):
        curve = at_target(evidence, answer.law[corpus], corpus, ratio)
        assert curve is not None
        assert curve[1][0] == pytest.approx(answer.predicted[corpus].loss, abs=1e-6)
        assert shown_first[role][0][tolerance] == pytest.approx(answer.predicted[corpus].loss, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["limited-data", "balance"])
def test_sliders_answer_no_other_goal_than_that_of_the_page(copied, kind) -> None:
    study, question = copied
    goal = dataclasses.replace(question.goal, kind=kind, domain_tokens=3e5)
    asked = dataclasses.replace(question, studies=str(study.folder.parent), goal=goal)
    context = Context(question, study).asking(asked)
    goal_of(asked).recommend(context, list).write(context.study)
    words = written(context.study, asked).words
    assert "Back to the question of the study" not in words
    assert f"they answer goal=trade-off, and this page answers goal={kind}." in words


def test_on_how_few_windows_losses_are_means_is_said(whole, page) -> None:
    study, question = whole
    context = Context(dataclasses.replace(question, validation_windows=25), study)
    line = windows_line(context)
    assert line.startswith("losses are means over at most 25 windows of 128 tokens of each corpus: on other text they ")
    assert f"off by 0.02 on general and 0.02 on {context.corpora[1]}, and the change on general about 0.8 " in line
    assert "with more validation_windows" in line
    assert "that is asked" not in line
    less = dataclasses.replace(context.question, goal=dataclasses.replace(question.goal, tolerance=-0.005))
    assert ", no less than the 0.5% that is asked (standard errors" in windows_line(
        dataclasses.replace(context, question=less)
    )
    assert line in shown(Recommendation.read(study), context)
    assert line in shown(Confirmation.read(study), context)
    assert "Losses are means over at most " in page.words
    # Who imports losses does not say on how many windows they were measured.
    imported = dataclasses.replace(question.model, path=IMPORTED)
    assert not windows_line(Context(dataclasses.replace(question, model=imported), study))


def test_a_corpus_named_domain_is_not_named_beside_its_ratio(tmp_path):
    study, question = make_study(tmp_path, domain="domain", until="plan")
    headings = written(study, question).words
    assert "Loss against the domain ratio" in headings
    assert "Loss against the domain ratio of" not in headings
    assert Evidence(Context(question, study)).short_ratio_name == "domain ratio"


def test_warnings_beyond_the_first_five_are_counted(monkeypatch, copied):
    monkeypatch.setattr(study_page, "_warnings", lambda _: [f"warning {n}" for n in range(6)])
    assert " 1 more warning warning 5 " in written(*copied).words


def test_those_who_do_not_see_it_are_told(page):
    of = {kind: [attrs for tag, attrs in page.elements if tag == kind] for kind in ("caption", "table", "th", "input")}
    assert len(of["caption"]) == len(of["table"]) >= 9
    assert {attrs["scope"] for attrs in of["th"]} == {"col", "row"}
    labels = {attrs["for"] for tag, attrs in page.elements if tag == "label"}
    assert labels == {attrs["id"] for attrs in of["input"]} == {"tolerances", "sizes", "lengths"}
    plots = [attrs for _, attrs in page.elements if "plot" in (attrs.get("class") or "").split()]
    assert len(plots) == len(page.specs) + 3
    assert all(attrs["role"] == "img" for attrs in plots)
    first = next(attrs["aria-label"] or "" for attrs in plots if "drawn" in (attrs["class"] or ""))
    assert first.startswith(
        "Loss on general The answer: qwen2-0.7m, 1.23 M tokens: domain ratio of <img src=x oner… from 0 to"
    )
    assert "; loss, nats per token from " in first
    assert ("a", {"class": "skip", "href": "#content"}) in page.elements


def test_provenance_names_the_text(copied):
    study, question = copied

    def words() -> str:
        return str(record(Evidence(Context(question, study)))["texts"])

    fingerprint = "00" * 16
    assert fingerprint in words()
    text = PlannedCorpus(fingerprint, "c0ffee", {"train": 1234567, "validation": 89})
    Corpora({}, {"general": text, HOSTILE_CORPUS: dataclasses.replace(text, fingerprint="other")}).write(study)
    assert "c0ffee" in words()
    assert "1,234,567" in words()
    # What is recorded of another text is not told of this one.
    assert words().count("not recorded") == 3


def test_names_never_become_markup(page):
    tags = [tag for tag, _ in page.elements]
    assert "img" not in tags
    assert "b" in tags  # the cards' own
    assert all(of == {} for tag, of in page.elements if tag == "b")
    assert not any(name.startswith("on") for _, of in page.elements for name in of)
    # Before the page is painted; what is held; plotly, the page's own, and that of the sliders.
    assert page.scripts == ["", "summary", "figures", "study", "template", "dark", *[""] * 3]
    assert all("<" not in page.held[name] for name in ("figures", "study", "dark"))
    assert HOSTILE_CORPUS in page.words
    assert HOSTILE_NAME in page.words
    # Plotly reads tags as well, so names reach it escaped once more.
    assert HOSTILE_CORPUS not in json.dumps(page.specs)
    assert "&lt;img src=x onerror=alert(1)&gt;" in json.dumps(page.specs)


def test_it_is_one_small_file_that_fetches_nothing(whole, page):
    study, _ = whole
    assert (study.folder / "report.html").stat().st_size < 10e6
    for _, of in page.elements:
        assert "src" not in of
        assert (of.get("href") or "#").startswith(("#", "data:"))
    policy = next(of["content"] for _, of in page.elements if of.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_the_answer_is_there_for_machines(page):
    description = next(of["content"] for _, of in page.elements if of.get("name") == "description")
    assert description.startswith("Train qwen2-0.7m for 1.23 M tokens on ")
    assert "The confirmation run measured" in description
    assert description in page.words


def test_every_figure_is_valid_plotly(page):
    # 2 corpora x (4 sizes + 4 sizes + 2 comparisons), the trade-off and the runs around the answer.
    assert len(page.specs) == 22
    for spec in page.specs:
        plotly.graph_objects.Figure(spec)
        assert any(any(y is not None for y in trace["y"]) for trace in spec["data"])


def test_confirmations_are_drawn_where_they_were_measured(whole, page):
    study, _ = whole
    rows = Confirmation.read(study).confirmations
    of_domain = sorted({row.measured for row in rows if row.corpus == HOSTILE_CORPUS})
    target = page.specs[4]  # the domain's first panel
    drawn = [trace for trace in target["data"] if trace.get("marker", {}).get("symbol") == "diamond"]
    assert sorted(y for trace in drawn for y in trace["y"]) == pytest.approx(of_domain, rel=1e-5)


ROAD = ["confirmation.json", "recommendation.json", "fits", "points.parquet", "runs"]


@pytest.mark.parametrize(
    ("steps_back", "sentences"),
    [
        (1, ["The answer is not confirmed yet: run cptlaw confirm STUDY.", "not yet"]),
        (2, ["There is no recommendation yet: run cptlaw recommend STUDY."]),
        (3, ["Not fitted: dcpt, transfer-anchored; cptlaw fit STUDY fits them, or says why it cannot."]),
        (
            4,
            ["No points are collected yet: run cptlaw train STUDY, then cptlaw collect STUDY.", "Nothing to draw yet."],
        ),
        (5, ["No run has been started"]),
    ],
)
def test_what_is_missing_is_said(copied, steps_back, sentences):
    study, question = copied
    for name in ROAD[:steps_back]:
        path = study.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = written(study, question)
    assert [of["id"] for tag, of in page.elements if tag == "section"] == SECTIONS
    for sentence in sentences:
        assert sentence.replace("STUDY", study.word) in page.words
    assert "runs done" in page.words  # the plan's cost is always there
    assert "None" not in page.words.replace("None.", "")
    assert "nan" not in page.words.split()


def test_rounds_of_chosen_runs_are_drawn_against_their_cost(copied, tmp_path):
    study, question = copied
    fitted = [run for run in study.read_plan() if run.role == "fit"][:3]
    one = DesignRound(1, "0", 0.0, 9e12, 0.05, None, None, 1, [], "")
    runs = [ChosenRun(run.name, run.model, 0.5, run.spec.steps, 0, 2e12, 0.1) for run in fitted]
    rounds = [dataclasses.replace(one, chosen=runs[:1])]
    rounds += [dataclasses.replace(one, round=2, spent=2e12, answer=0.6, half_width=0.2, chosen=runs[1:])]
    rounds += [dataclasses.replace(one, round=3, spent=6e12, answer=0.5, half_width=0.04, stop=TOLERANCE)]
    # A run that is not planned is of another question.
    other = dataclasses.replace(one, chosen=[dataclasses.replace(runs[0], run="other")])
    # So is a round for another tolerance or length.
    goal, steps = question.goal, question.target.steps
    own, *others = asked_of(goal, steps), asked_of(dataclasses.replace(goal, tolerance=0.01), steps), asked_of(goal, 7)
    rounds = [rounds[0], *(dataclasses.replace(one, asked=own) for one in rounds[1:])]
    asked = [dataclasses.replace(one, answer=0.9, half_width=0.3, asked=of) for of in others]
    write_rounds(study, [*asked, *rounds, other])
    made = written(study, question)
    assert "rounds" in [of["id"] for tag, of in made.elements if tag == "section"]
    assert "where half of that interval is at most design.tolerance, " in made.words
    figure = rounds_figure(Evidence(Context(question, study)))
    assert figure
    widths, answers = (panel.spec for panel in figure.panels)
    assert [widths, answers] == [spec for spec in made.specs if spec in (widths, answers)]
    line, dots = widths["data"][1:3]
    assert (line["x"], line["y"]) == (dots["x"], dots["y"]) == ([2.0, 6.0], [0.2, 0.04])
    assert (widths["data"][3]["x"], widths["data"][3]["y"]) == ([6.0], [0.1])
    assert answers["data"][1]["y"] == [0.6, 0.5]
    measured = Confirmation.read(study).outcome.crossing
    assert measured
    assert answers["data"][-1]["y"] == pytest.approx([measured.value] * 2, rel=1e-5)
    summary = answer_summary(Evidence(Context(question, study)))
    design = {key: value for key, value in summary.items() if key.startswith("design/")}
    assert design == {"design/half_width": 0.04, "design/spent": 6e12, "design/unit": "FLOPs", "design/rounds": 3}
    # Costs of a few hours are not shown over a power of ten.
    write_rounds(study, [dataclasses.replace(one, spent=one.spent / 1e13, unit="device-hours") for one in rounds])
    figure = rounds_figure(Evidence(Context(question, study)))
    assert figure
    spec = figure.panels[0].spec
    assert spec["data"][1]["x"] == pytest.approx([0.2, 0.6])
    assert spec["layout"]["xaxis"]["title"]["text"] == "device-hours of the chosen runs"


def test_points_kept_without_their_runs_make_the_same_page_but_for_what_the_runs_say(copied, page):
    study, question = copied
    shutil.rmtree(study.runs)
    kept = written(study, question)
    assert kept.specs == page.specs
    assert "kept without its runs" in kept.words
    assert "not here" in kept.words
    assert "No run has been started" not in kept.words
    done = re.findall(r"\d+ of \d+", page.words.split("runs done")[1].split("Notes")[0])
    assert done[-1].split()[0] != "0"
    assert re.findall(r"\d+ of \d+", kept.words.split("runs done")[1].split("Notes")[0]) == done


def test_a_confirmation_run_is_a_diamond_beside_a_fitted_run_of_its_ratio(whole):
    study, question = whole
    evidence = Evidence(Context(question, study))
    assert evidence.points is not None
    vars(evidence)["points"] = evidence.points.assign(ratio=1.0, N=0.1, model="one")
    figure = loss_curves(evidence)
    assert figure is not None
    marks = [trace["marker"]["symbol"] for panel in figure.panels for trace in panel.spec["data"] if "marker" in trace]
    assert marks.count("diamond") == marks.count("circle") == len(evidence.corpora)


def test_an_variant_has_panels_of_its_own(whole):
    study, question = whole
    evidence, other = Evidence(Context(question, study)), Evidence(Context(question, study))
    assert evidence.points is not None
    fitted = evidence.points["role"] == "fit"
    variants = np.where(fitted & (evidence.points["ratio"] > 0.4), "short", np.where(fitted, "", "seen-by-none"))
    vars(other)["points"] = evidence.points.assign(variant=variants)
    whole_panels, parted = (
        [panel for panel in found.panels if panel.group.endswith("general")]
        for found in (loss_curves(evidence), loss_curves(other))
        if found is not None
    )
    sizes = [panel.title for panel in whole_panels]
    assert {panel.title.removeprefix(size) for size in sizes for panel in parted if panel.title.startswith(size)} == {
        "", ", short", ", variants in no fit",
    }  # fmt: skip
    short = next(panel for panel in parted if panel.title.endswith("short"))
    dots = [trace for trace in short.spec["data"] if trace.get("mode") == "markers"]
    assert len(dots) == (np.unique(evidence.points.loc[fitted, "ratio"]) > 0.4).sum()


def _drop_a_law(study):
    for path in (study.folder / "fits").glob("*-dcpt.json"):
        path.unlink()


def _drop_the_draws(study):
    (study.folder / "recommendation.json").unlink()
    for path in (study.folder / "fits").glob("*.json"):
        _edit(study, f"fits/{path.name}", draws=[], run_errors=[], point_errors=[])


def _find_no_mixture(study):
    nothing = {"mixture": None, "low": None, "high": None, "predicted": {}}
    _edit(study, "recommendation.json", **nothing, binding="infeasible even at domain ratio 0")
    (study.folder / "confirmation.json").unlink()


def _recommend_another_ratio(study):
    goal = {**vars(Recommendation.read(study).goal), "tolerance": 0.07}
    _edit(study, "recommendation.json", mixture={"general": 0.9, HOSTILE_CORPUS: 0.1}, goal=goal)


def _find_no_optimum(study):
    _edit(study, "recommendation.json", identified=False)


def _refine_without_an_optimum(study):
    _find_no_optimum(study)
    _edit(study, "confirmation.json", answer="another")


def _warn_often(study):
    _edit(study, "recommendation.json", warnings=[f"D is beyond the points, {times} times" for times in range(2, 13)])


def _drop_a_model_from_the_plan(study):
    study.write_plan([run for run in study.read_plan() if run.model != "qwen2-0.05m"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said", "unsaid"),
    [
        (
            _drop_a_law,
            ["Not fitted: dcpt; cptlaw fit STUDY fits them, or says why it cannot.", "Parameters of the laws"],
            [],
        ),
        (_drop_the_draws, ["no bootstrap"], []),
        (
            _find_no_mixture,
            ["No mixture keeps qwen2-0.7m within the tolerance", "infeasible even at domain ratio 0"],
            [],
        ),
        (
            _recommend_another_ratio,
            ["The confirmation runs are of another domain ratio", "tolerance, +7%"],
            ["The confirmation run measured"],
        ),
        (
            _find_no_optimum,
            ["does not confirm", "What would tell: cptlaw refine", "Binding constraint, by the prediction alone"],
            ["Binding constraint: "],
        ),
        (
            _refine_without_an_optimum,
            ["What would tell: cptlaw refine", "The confirmation runs are of another domain ratio, fit or question."],
            ["run cptlaw confirm"],
        ),
        (_warn_often, ["8 times; a confirmation run measured there", "more warnings", "7 times"], ["5 more warnings"]),
        (_drop_a_model_from_the_plan, ["qwen2-0.15m"], ["qwen2-0.05m"]),
    ],
)
def test_a_changed_study_has_a_page_that_says_so(copied, change, said, unsaid):
    study, question = copied
    change(study)
    words = written(study, question).words
    assert [part for part in said if part.replace("STUDY", study.word) not in words] == []
    assert [part for part in unsaid if part in words] == []


@pytest.mark.parametrize(
    "change",
    [{"law": {"general": "dcpt", HOSTILE_CORPUS: "chinchilla"}}, {"loss_before": {"general": 4.0, "poems": 5.0}}],
)
def test_the_answer_to_another_question_is_none(copied, change):
    study, question = copied
    _edit(study, "recommendation.json", **change)
    evidence = Evidence(Context(question, study))
    assert evidence.recommendation is None
    assert evidence.missing == [f"The recommendation is of another question: run cptlaw recommend {study.word} again."]


def _drop_the_schema_of_the_points(study):
    table = pyarrow.parquet.read_table(study.folder / "points.parquet").replace_schema_metadata({})
    pyarrow.parquet.write_table(table, study.folder / "points.parquet")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda study: _edit(study, "recommendation.json", schema=99), "recommendation.json: schema 99"),
        (lambda study: _edit(study, "confirmation.json", schema=99), "confirmation.json: schema 99"),
        (_drop_the_schema_of_the_points, "points of schema none"),
        (lambda study: study.plan_file.unlink(), "missing; run cptlaw plan"),
    ],
)
def test_another_schema_or_no_plan_is_an_error(copied, change, error):
    study, question = copied
    change(study)
    with pytest.raises(StudyError, match=error):
        written(study, question)


def _edit(study: Study, name: str, **changes) -> None:
    path = study.folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
