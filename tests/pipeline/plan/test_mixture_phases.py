"""A mixture that changes along the schedule, from its keys to collected points and what the laws read of them."""

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fitting import PointsError, areas, fit
from pipeline.cli.main import run as cptlaw
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.cost import costs
from pipeline.plan.runs import estimate, planned_runs
from pipeline.plan.token_supply import supply_problems
from pipeline.question.messages import ConfigError
from pipeline.question.phases import describe_phases, mixtures_of, phase_lengths, pieces
from pipeline.question.schema import PhaseConfig
from pipeline.question.schema.training import MixturePhaseConfig, ScheduleConfig
from pipeline.study.collect import DECAY, collect, read_points, schedules
from pipeline.study.fitted_points import selected
from pipeline.study.folder import Study
from tests.pipeline.small import study_in, with_tokens, write_losses
from training.evaluation_steps import evaluation_steps
from training.schedule import Piece, learning_rates

QUESTION = [
    *("experiment=quickstart", "mixture=ratios", "ladder=[qwen2-0.05m]", "model=qwen2-0.05m", "law=chinchilla"),
    *("mixture.domain_ratio=[0.1,0.5]", "mixture.replicates=1", "pretrain.steps=40", "target.steps=60"),
    *("schedule@target.schedule=wsd", "continual.evaluation.policy=dense", "continual.evaluation.every=3"),
    *("evaluation_budget=1", "law.chinchilla.from_step=0"),
]
SWITCH = "[{share: 0.8}, {domain_ratio: 0.7}]"
"""The run's domain ratio for 24 of 30 steps, then 70%."""
BATCH, LENGTH = 16, 128


def planned(*words: str):
    question = read_question([*QUESTION, *words])
    return planned_runs(estimate(question))


def continual(*words: str):
    return [run for run in planned(*words) if run.role == "fit"]


def test_phases_that_change_nothing_change_no_name() -> None:
    names = [run.name for run in planned()]
    for same in ("[{}]", "[{share: 0.5}, {steps: 15}]"):
        assert [run.name for run in planned(f"continual.phases={same}")] == names
    fixed = continual("continual.phases=[{share: 0.5, domain_ratio: 0.5}, {mixture: {general: 0.5, code: 0.5}}]")
    assert [run.name for run in fixed] == names[2:]


def test_a_phase_meets_the_grid_of_ratios() -> None:
    runs = continual(f"continual.phases={SWITCH}")
    assert [run.name[:-9] for run in runs] == [
        f"continual-qwen2-0.05m-code{ratio}to0.7-30-seed0" for ratio in (0.1, 0.5)
    ]
    assert len({run.name for run in [*runs, *continual()]}) == 4
    for run, ratio in zip(runs, ("1/10", "1/2")):
        assert run.spec.mixture["code"] == ratio
        assert [(phase.first_sequence, phase.mixture) for phase in run.spec.phases] == [
            (24 * BATCH, {"general": "3/10", "code": "7/10"})
        ]
    # A phase may read a corpus that the others do not; a run's own ratio may come last.
    words = ["corpora=installed-python-six", "corpora.domain=code"]
    (first, _) = continual(*words, "continual.phases=[{steps: 10, mixture: {math: 0.25, general: 0.75}}, {}]")
    assert first.spec.mixture == {"general": "3/4", "code": "0", "math": "1/4"}
    assert first.spec.phases[0].mixture == {"general": "9/10", "code": "1/10", "math": "0"}
    assert set(first.spec.corpora) == {"general", "code", "math"}


def test_phases_cost_what_one_mixture_costs() -> None:
    question = read_question(QUESTION)
    plain, switched = (costs(plan, None, question) for plan in (planned(), planned(f"continual.phases={SWITCH}")))
    assert plain == switched


def test_the_schedules_of_phases_follow_each_other() -> None:
    stable = "{share: 0.8, schedule: {pieces: [{shape: linear, end: 1.0, share: 0.25}, {shape: constant}]}}"
    decay = "{domain_ratio: 0.7, schedule: {pieces: [{shape: linear, end: 0.0}]}}"
    runs = planned(f"continual.phases=[{stable}, {decay}]")
    switched = runs[-1]
    before, peak = switched.spec.learning_rate_before, read_question(QUESTION).target.peak_learning_rate
    part = np.arange(1, 7) / 6
    expected = [*(before + (peak - before) * part), *np.full(18, peak), *(peak * (1 - part))]
    rates = learning_rates(switched.spec.schedule, 30, before)
    np.testing.assert_allclose(rates, expected, atol=1e-15)
    np.testing.assert_array_equal(schedules(runs)[switched.name].rates, rates)


def test_one_phase_given_explicitly_is_as_none() -> None:
    chain = ScheduleConfig([Piece("linear", end=1.0, share=0.15), Piece("cosine", end=0.1)])
    plain, corpora = PhaseConfig(steps=20, schedule=chain), read_question(QUESTION).corpora
    given = dataclasses.replace(plain, schedule=ScheduleConfig(), phases=[MixturePhaseConfig(schedule=chain)])
    assert mixtures_of(given, corpora, Fraction(1, 4)) == mixtures_of(plain, corpora, Fraction(1, 4))
    np.testing.assert_array_equal(*(learning_rates(pieces(phase), 20, 3e-3) for phase in (plain, given)))


def test_the_supply_is_that_of_all_phases() -> None:
    question = read_question([*QUESTION, f"continual.phases={SWITCH}"])
    _, *runs = planned(f"continual.phases={SWITCH}")
    decay = "[{step: 24, steps: 12, schedule: {pieces: [{shape: linear, end: 0.0}]}}]"
    with_branches = planned(f"continual.phases={SWITCH}", f"continual.branches={decay}")
    (branch,) = [run for run in with_branches if "code0.5to0.7" in run.name and run.spec.initial.moments]
    # 24 steps at one half and 6 at .7 are 192 and 68 sequences of 384 and 96; the branch reads on for 12 steps.
    for plan, sequences in ((runs, 192 + 68), ([*runs, branch], 192 + 135)):
        needed = sequences * LENGTH
        for tokens in (needed + 1, needed):
            lines = list(supply_problems(plan, with_tokens(estimate(question), tokens, "code")))
            assert [f"would read {needed:,}" in line for line in lines] == [True] * (tokens == needed)


LENGTHLESS = "continual.phases[{}], continual.phases[{}]: without steps and share"
TOO_LONG = "continual.phases: its phases take 40 steps"


def mistakes(*words: str, question: Sequence[str] = QUESTION) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_question([*question, *words])
    return caught.value.lines


CONSTANT = "schedule: {pieces: [{shape: constant}]}"


@pytest.mark.parametrize(
    ("phases", "lines"),
    [
        ("[{steps: 31}, {domain_ratio: 0.5}]", ["continual.phases: its phases take 31 steps; allowed: at most 30"]),
        ("[{steps: 10}, {steps: 10}]", ["continual.phases: its phases take 20 steps; allowed: 30, the run's"]),
        ("[{steps: 24}, {share: 0.18}]", ["continual.phases: its phases take 29.4 steps; allowed: 30, the run's"]),
        ("[{share: 0.8}, {share: 0.18}]", ["continual.phases: its shares sum to 0.98; allowed: 1, but for rounding"]),
        ("[{share: 0.8}, {share: 0.22}]", ["continual.phases: its shares sum to 1.02; allowed: 1, but for rounding"]),
        ("[{share: 0.001, domain_ratio: 0.9}, {}]", ["continual.phases[0].share: 0.001 is 0 of 30 steps; allowed: 1"]),
        ("[{share: 0.999}, {share: 0.001}]", ["continual.phases[1].share: 0.001 is 0 of 30 steps; allowed: 1"]),
        ("[{steps: 3, share: 0.5}, {}]", ["continual.phases[0]: has steps 3 and share 0.5; allowed: one of them"]),
        (
            "[{steps: 20}, {steps: 20, mixture: {general: 0.5, cod: 0.6}}]",
            [
                "continual.phases[1].mixture.cod: not a corpus",
                "continual.phases[1].mixture: its ratios sum to 1.1",
                TOO_LONG,
            ],
        ),
        ("[{steps: 0}, {}]", ["continual.phases[0].steps: 0; allowed: 1 to"]),
        ("[{share: nan}, {}]", ["continual.phases[0].share: nan; allowed: above 0, up to 1"]),
        ("[{domain_ratio: nan}]", ["continual.phases[0].domain_ratio: nan; allowed: 0 to 1"]),
        (
            "[{mixture: {code: 1.5, general: -0.5}}]",
            ["continual.phases[0].mixture.code: 1.5; allowed: 0 to 1", "continual.phases[0].mixture.general: -0.5"],
        ),
        (
            "[{domain_ratio: 0.5, mixture: {code: 1.0}}]",
            ["continual.phases[0]: has domain_ratio 0.5 and mixture {'code': 1.0}; allowed: one of them"],
        ),
        (
            f"[{{steps: 10}}, {{{CONSTANT.replace('constant', 'constant, steps: 40')}}}, {{}}]",
            [
                LENGTHLESS.format(1, 2),
                "continual.phases[0].schedule: empty, that of continual.phases[1] is not",
                "continual.phases[1].schedule: its pieces take 40 steps; allowed: at most 30",
            ],
        ),
        (f"[{{share: 0.5}}, {{{CONSTANT}}}]", ["continual.phases[0].schedule: empty, that of continual.phases[1] is"]),
        (
            f"[{{{CONSTANT.replace('constant', 'constant, steps: 40')}}}]",
            ["continual.phases[0].schedule: its pieces take 40 steps; allowed: 30, the run's"],
        ),
        # One mistake hides no other.
        ("[{}, {}]", [LENGTHLESS.format(0, 1)]),
        ("[{steps: 40}, {share: 1.5}]", ["continual.phases[1].share: 1.5; allowed: above 0, up to 1", TOO_LONG]),
        ("[{steps: 20}, {share: 1.5}]", ["continual.phases[1].share: 1.5"]),
        ("[{steps: 25}, {share: 0.5}, {}, {}]", [LENGTHLESS.format(2, 3), TOO_LONG]),
        (
            "[{steps: 0}, {steps: 40}, {}, {steps: 3, share: 0.5}]",
            ["continual.phases[0].steps: 0", "continual.phases[3]: has steps 3 and share 0.5", TOO_LONG],
        ),
        # How long each of two phases without a length is, is unknown: 20 steps of pieces may be right.
        (
            f"[{{steps: 10, {CONSTANT}}}, {{{CONSTANT.replace('constant', 'constant, steps: 15')}}}, {{{CONSTANT}}}]",
            [LENGTHLESS.format(1, 2)],
        ),
    ],
)
def test_each_mistake_is_a_line_that_names_its_key(phases: str, lines: list[str]) -> None:
    found = mistakes(f"continual.phases={phases}")
    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines


def test_shares_may_be_rounded() -> None:
    phases = "[{share: 0.33}, {share: 0.33, domain_ratio: 0.7}, {share: 0.33}]"
    assert phase_lengths(read_question([*QUESTION, f"continual.phases={phases}"]).continual.phases, 30) == [10, 10, 10]


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ([*QUESTION[:2], "pretrain.phases=[{}]"], "pretrain.phases: 1; allowed: none, give them in continual.phases"),
        (
            [*QUESTION[:2], "design=active", f"continual.phases={SWITCH}"],
            "continual.phases: given with runs chosen round by round",
        ),
        (
            ["experiment=autoscale-small", f"continual.phases={SWITCH}"],
            "continual.phases: 2 with goal.kind=weights; allowed: none",
        ),
    ],
)
def test_where_phases_have_no_place_a_line_says_so(question: list[str], line: str) -> None:
    assert line in "\n".join(mistakes(question=question))


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides of a collected study whose runs change their mixture, and of a variant whose runs do not."""
    folder = tmp_path_factory.mktemp("switched")
    words = [*QUESTION, f"continual.phases={SWITCH}", "variants.plain={continual: {phases: []}}"]
    words += [f"studies={folder}", "name=switched", "bootstrap=0"]
    question = read_question(words)
    plan = planned_runs(estimate(question))
    study = Study(folder / "switched")
    study.write_plan(plan)
    for run in plan:
        steps = evaluation_steps(run.spec.evaluation, run.spec.steps)
        write_losses(study, run, [(step, name, 4 - step / 50) for step in steps for name in run.spec.corpora])
    collect(study, "general")
    return words


def test_points_have_the_ratio_of_their_phase_and_the_tokens_so_far(switched: list[str]) -> None:
    table = read_points(study_in(switched, "switched"))
    (name,) = {name for name in table["run"] if "code0.1to0.7" in name}
    own = table[table["run"] == name].set_index(["corpus", "step"])
    for corpus, ratio in (("general", 0.9), ("code", 0.1)):
        rows = own.loc[corpus]
        first, later = rows.loc[[0, 3, 24]], rows.loc[[27, 30]]
        assert first["mixture_phase"].tolist() == [1, 1, 1]
        assert later["mixture_phase"].tolist() == [2, 2]
        assert first["r"].tolist() == [ratio] * 3
        assert later["r"].tolist() == [{"general": 0.3, "code": 0.7}[corpus]] * 2
        for part, replay in ((first, 0.9), (later, 0.3)):
            assert part["replay"].tolist() == part["mixture.general"].tolist() == [replay] * len(part)
            assert part["ratio"].tolist() == part["mixture.code"].tolist() == [round(1 - replay, 9)] * len(part)
        counts = rows[["tokens.general", "tokens.code"]]
        assert (counts.sum(axis=1) == rows["tokens"]).all()
        # 24 steps at a tenth are 38 of 384 sequences, and 6 at .7 are 67 of 96.
        assert counts["tokens.code"].loc[[0, 24, 30]].tolist() == [0, 38 * LENGTH, (38 + 67) * LENGTH]
    plain = table[table["run"].str.contains("code0.1-30")]
    assert set(plain["mixture_phase"]) == {1}
    assert plain["tokens.code"].max() == 48 * LENGTH


def test_the_areas_are_those_of_the_whole_schedule(switched: list[str]) -> None:
    study = study_in(switched, "switched")
    table, plan = read_points(study), study.read_plan()
    (run,) = [run for run in plan if "code0.1to0.7" in run.name]
    rows = table[(table["run"] == run.name) & (table["corpus"] == "code")].set_index("step")
    before = run.spec.learning_rate_before
    s1, s2 = areas(learning_rates(run.spec.schedule, 30, before), DECAY, before)
    assert rows["s1"].loc[[24, 30]].tolist() == pytest.approx([s1[23], s1[29]])
    assert rows["s2"].loc[[24, 30]].tolist() == pytest.approx([s2[23], s2[29]])
    assert rows["s1_first"].loc[[3, 24, 27, 30]].tolist() == pytest.approx([s1[2], s1[23], s1[23], s1[23]])
    assert rows["r_first"].tolist() == [0.1] * len(rows)


def test_a_study_of_one_mixture_has_the_columns_of_before(switched: list[str], tmp_path: Path) -> None:
    question = read_question([*QUESTION, f"studies={tmp_path}", "name=plain"])
    study = Study(tmp_path / "plain")
    study.write_plan(planned_runs(estimate(question)))
    for run in study.read_plan():
        write_losses(study, run, [(0, name, 4.0) for name in run.spec.corpora])
    added = {*read_points(study_in(switched, "switched")).columns} - {*collect(study, "general").columns}
    assert added == {"mixture_phase", "r_first", "s1_first", "tokens.general", "tokens.code"} | {"variant"}


def test_laws_read_each_run_up_to_its_change_and_fit_says_so(switched: list[str], capsys) -> None:
    study = study_in(switched, "switched")
    table = read_points(study)
    fitted = selected(table, "code", read_question(QUESTION).law["chinchilla"])
    assert fitted.groupby(fitted["run"].str.contains("to0.7"))["step"].max().to_dict() == {False: 30, True: 24}
    of_code = table[(table["corpus"] == "code") & (table["role"] == "fit") & (table["step"] > 0)]
    line = "mixture_phase: {} of 40 points come after a change of their run's mixture that {} does not know"
    with pytest.raises(PointsError, match=line.format(4, "chinchilla")):
        fit(of_code, "chinchilla", few=True, bootstrap=0)
    assert fit(of_code, "transfer-switched", few=True, bootstrap=0).n_points == 40
    third = of_code["mixture_phase"] + (of_code["mixture_phase"] == 2)
    with pytest.raises(PointsError, match=line.format(4, "transfer-switched")):
        fit(of_code.assign(mixture_phase=third), "transfer-switched", few=True, bootstrap=0)
    assert cptlaw(["fit", *switched]) == 0
    assert "left out of every fit: 8 of 88 points, measured after the mixture" in capsys.readouterr().out


def test_answers_are_about_one_mixture(switched: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = "continual.phases: 2, but the laws know runs of one mixture"
    for verb in ("recommend", "refine"):
        assert cptlaw([verb, *switched]) == 2
        assert line in capsys.readouterr().err
    question = read_question(switched)
    with pytest.raises(ConfigError, match=line):
        goal_of(question).confirmation_runs(
            dataclasses.replace(estimate(question), study=study_in(switched, "switched"))
        )


def test_the_plan_describes_the_phases(switched: list[str]) -> None:
    words = [*switched, f"variants.same={{continual: {{phases: {SWITCH}}}}}", "variants.law={continual: {steps: 60}}"]
    words.append("variants.late={continual: {phases: [{share: 0.9}, {domain_ratio: 0.9}]}}")
    question = read_question(words)
    notes = goal_of(question).plan_notes(estimate(question), []).lines
    assert notes[:3] == [
        "the mixture changes: 24 steps at the run's own ratio, then 6 steps at 70% code",
        "variants.law: the mixture changes: 48 steps at the run's own ratio, then 12 steps at 70% code",
        "variants.late: the mixture changes: 27 steps at the run's own ratio, then 3 steps at 90% code",
    ]
    assert str(notes[3]).startswith("the laws know runs of one mixture")
    plain = read_question([*switched, "continual.phases=[]", "variants={}"])
    assert not goal_of(plain).plan_notes(estimate(plain), []).lines


@pytest.mark.parametrize(
    ("phases", "line"),
    [
        (
            "[{steps: 10, mixture: {code: 0.25, general: 0.75}}, {domain_ratio: 0.0}, {steps: 1}]",
            "changes: 10 steps at 25% code and 75% general, then 19 steps at 0% code, "
            "then 1 step at the run's own ratio",
        ),
        ("[{share: 0.5, domain_ratio: 0.7}, {domain_ratio: 0.7}]", "does not change: 30 steps at 70% code"),
    ],
)
def test_phases_are_described_in_one_line(phases: str, line: str) -> None:
    question = read_question([*QUESTION, f"continual.phases={phases}"])
    assert describe_phases(question.continual, question.corpora) == f"the mixture {line}"
    question.corpora.domains = ["code", "math"]
    of_each = line.replace("0% code", "0% domain text")
    assert describe_phases(question.continual, question.corpora) == f"the mixture {of_each}"
