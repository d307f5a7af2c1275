"""Which runs next, on laws that are known."""

import time

import numpy as np
import pandas as pd
import pytest

import fitting
from tests.fitting.synthetic import TRUE

TARGET = pd.DataFrame({"N": [8.0], "D": [160.0]})


def runs(sizes=(0.1, 0.3, 1.0, 3.0), tokens=(1.0, 4.0, 16.0, 64.0)) -> pd.DataFrame:
    rows = [(N, D, 6 * N * D) for N in sizes for D in tokens]
    return pd.DataFrame(rows, columns=["N", "D", "cost"], index=[f"run {k}" for k in range(len(rows))])


def measure(table: pd.DataFrame, noise: float = 0.002, seed: int = 0, law: str = "chinchilla") -> pd.DataFrame:
    chosen = fitting.LAWS[law]
    loss = chosen.loss({name: table[name].to_numpy(float) for name in chosen.columns}, TRUE[law])
    return table.assign(loss=loss * np.exp(noise * np.random.default_rng(seed).standard_normal(len(table))))


def test_a_plan_from_nothing_keeps_the_budget_and_sharpens_the_answer():
    plan = fitting.design("chinchilla", pd.DataFrame(), runs(), TARGET, budget=400)
    assert sum(plan.cost) <= 400
    assert len(plan.chosen) == len(set(plan.chosen)) == len(plan.cost) == len(plan.half_width)
    assert set(plan.chosen) <= set(runs().index)
    assert [runs().loc[label, "cost"] for label in plan.chosen] == pytest.approx(list(plan.cost))
    assert plan.half_width[-1] < plan.before / 3
    assert all(after <= before * (1 + 1e-9) for before, after in zip(plan.half_width, plan.half_width[1:]))
    first = runs().loc[list(plan.chosen[:5])]
    assert first["N"].nunique() > 1
    assert first["D"].nunique() > 1
    assert plan.reason.startswith("5 points are wanting for as many as parameters, so the prior counts; the ")
    assert "\n" not in plan.reason
    for number, (label, gains) in enumerate(zip(plan.chosen, plan.gains, strict=True)):
        costs = runs()["cost"].drop(list(plan.chosen[:number]))
        assert {*gains} == {*costs.index[costs <= 400 - sum(plan.cost[:number])]}
        assert gains[label] == pytest.approx(max(gains.values()), rel=1e-8)
    # What is left pays for no other run.
    rest = runs().drop(list(plan.chosen))["cost"]
    assert rest.min() > 400 - sum(plan.cost)


def test_a_batch_is_at_most_so_many_and_one_by_default():
    points = measure(runs())
    assert len(fitting.design("chinchilla", points, runs(), TARGET).chosen) == 1
    assert len(fitting.design("chinchilla", points, runs(), TARGET, batch=3).chosen) == 3
    assert len(fitting.design("chinchilla", points, runs(), TARGET, batch=99).chosen) == 16
    both = fitting.design("chinchilla", points, runs(), TARGET, batch=3, budget=10.0)
    assert len(both.chosen) <= 3
    assert sum(both.cost) <= 10.0


def test_runs_made_side_by_side_are_about_as_long():
    """A short one beside a long one would leave its device idle, so what teaches more at the long one's price comes."""
    points, candidates = measure(runs()).iloc[::3], runs(sizes=(0.2, 0.8, 4.0))
    one = fitting.design("chinchilla", points, candidates, TARGET, batch=3)
    both = fitting.design("chinchilla", points, candidates, TARGET, batch=3, side_by_side=True)
    assert max(one.cost) / min(one.cost) > 2 * max(both.cost) / min(both.cost)
    assert both.half_width[-1] < one.half_width[-1]
    budget = 0.9 * sum(both.cost)
    less = fitting.design("chinchilla", points, candidates, TARGET, batch=3, side_by_side=True, budget=budget)
    assert sum(less.cost) <= budget


def test_the_same_points_give_the_same_runs_in_any_unit_of_cost():
    points, candidates = measure(runs()).iloc[::2], runs(sizes=(0.2, 0.8, 4.0))
    one = fitting.design("chinchilla", points, candidates, TARGET, batch=4)
    assert one == fitting.design("chinchilla", points, candidates, TARGET, batch=4)
    scaled = candidates.assign(flops=candidates["cost"] * 1e21).drop(columns="cost")
    other = fitting.design("chinchilla", points, scaled, TARGET, batch=4, cost="flops")
    assert other.chosen == one.chosen
    assert other.half_width == pytest.approx(one.half_width)


def test_runs_that_tell_of_the_target_are_chosen():
    """At one size all is known; the target asks for another."""
    points = measure(runs(sizes=(0.3,), tokens=np.geomspace(1, 64, 12)))
    candidates = runs(sizes=(0.3, 3.0)).assign(cost=1.0)
    chosen = fitting.design("chinchilla", points, candidates, pd.DataFrame({"N": [3.0], "D": [64.0]}), batch=2).chosen
    assert (candidates.loc[list(chosen), "N"] == 3.0).all()


def test_a_cheaper_of_two_equal_runs_is_taken_and_the_first_of_two_the_same():
    points = measure(runs())
    candidates = pd.DataFrame({"N": 1.0, "D": 20.0, "cost": [3.0, 2.0, 2.0]})
    assert fitting.design("chinchilla", points, candidates, TARGET, batch=3).chosen == (1, 2, 0)


def test_points_of_one_run_come_together_at_one_cost():
    candidates = pd.concat([runs().assign(run=runs().index, D=runs()["D"] * part) for part in (0.25, 0.5, 1.0)])
    candidates = candidates.sort_values(["run", "D"]).reset_index(drop=True)
    points = measure(runs().iloc[::3]).reset_index(drop=True)
    plan = fitting.design("chinchilla", points, candidates, TARGET, batch=2)
    assert len(plan.chosen) == len(plan.cost) == 2
    assert len(plan.rows) == 6
    for label, cost in zip(plan.chosen, plan.cost, strict=True):
        of_run = candidates[candidates["run"] == candidates.loc[label, "run"]]
        assert set(of_run.index) <= set(plan.rows)
        assert cost == of_run["cost"].max()


def test_the_half_width_that_is_expected_comes():
    candidates = runs(sizes=(0.1, 0.5, 2.0), tokens=(1.0, 3.0, 10.0, 30.0))
    points = measure(runs(sizes=(0.1, 1.0), tokens=(1.0, 4.0, 16.0)))
    plan = fitting.design("chinchilla", points, candidates, TARGET, batch=5)
    made = pd.concat([points, measure(candidates.loc[list(plan.rows)], seed=1)])
    after = fitting.design("chinchilla", made, candidates, TARGET).before
    assert plan.half_width[-1] < 0.8 * plan.before
    assert after == pytest.approx(plan.half_width[-1], rel=0.5)


def test_laws_that_disagree_widen_the_answer_until_a_run_tells():
    falls, stays = (
        fitting.Law(
            name=f"power {power}",
            equation="L = k n^{-a}",
            source="this test",
            parameters=(fitting.Parameter("k", "nats"),),
            columns=("n",),
            varies={},
            basis=lambda x, psi, power=power: x["n"][:, None] ** -power,
        )
        for power in (0.5, 0.0)
    )
    points = pd.DataFrame({"n": [1.0, 1.0001], "loss": [3.0, 3.001]})
    candidates = pd.DataFrame({"n": [1.0, 1.5, 50.0], "cost": [1.0, 1.0, 1.0]})
    target = pd.DataFrame({"n": [100.0]})
    alone = [fitting.design(law, points, candidates, target).before for law in (falls, stays)]
    both = fitting.design([falls, stays], points, candidates, target)
    assert both.before > 5 * max(alone)
    assert both.chosen == (2,)


def pair_of_losses() -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = [(N, D, r) for N in (0.5, 2.0) for D in (2.0, 8.0, 20.0) for r in (0.1, 0.4, 0.7, 1.0)]
    table = pd.DataFrame(rows, columns=["N", "D", "r"]).assign(cost=lambda t: 6 * t["N"] * t["D"])
    general = measure(table.assign(r=1 - table["r"]), law="dcpt")["loss"]
    return table, table.assign(general=general, domain=measure(table, law="dcpt", seed=1)["loss"])


def test_two_losses_and_the_ratio_between_them():
    table, points = pair_of_losses()
    pairs = [("dcpt", "general"), ("dcpt", "domain")]
    asked = pd.DataFrame({"N": [2.0], "D": [20.0], "tolerance": [0.03], "general_before": [2.35]})
    plan = fitting.design(pairs, points.iloc[::2], table, asked, question="trade_off", batch=4)
    assert 0 < plan.half_width[-1] < plan.before < 0.5
    few = fitting.design(pairs, points.iloc[:4], table, asked, question="trade_off")
    assert few.before > plan.before
    # Half of the interval of a ratio is half of all ratios at most.
    one = fitting.design(pairs, points.iloc[:1], table, asked, question="trade_off")
    assert one.before == 0.5
    assert "half-width 0.5 now" in one.reason
    prefixed = points.assign(**{"general.r": 1 - points["r"]})
    both = table.assign(**{"general.r": 1 - table["r"]})
    target = both.tail(2)
    assert fitting.design(pairs, prefixed.iloc[::2], both, target, batch=2).half_width[-1] > 0
    for question, row in (
        ("limited_data", {"N": 2.0, "domain_tokens": 0.05}),
        ("compute_optimal", {"flops": 1e20, "r": 0.5}),
    ):
        one = points.rename(columns={"domain": "loss"})
        sharper = fitting.design("dcpt", one, table, pd.DataFrame([row]), question=question, batch=2)
        assert 0 < sharper.half_width[-1] <= sharper.before


def test_few_domain_tokens_are_asked_within_the_longest_run():
    table, points = pair_of_losses()
    one = points.rename(columns={"domain": "loss"})
    asked = pd.DataFrame({"N": [2.0], "domain_tokens": [0.05], "most_tokens": [np.inf]})
    free = fitting.design("dcpt", one, table, asked, question="limited_data")
    assert 0.05 < (free.answer or 0) < 0.75
    # Where the best ratio would take a longer run, the smallest that may be had is the answer, and is known better.
    held = fitting.design("dcpt", one, table, asked.assign(most_tokens=0.05 / 0.8), question="limited_data")
    assert held.answer == pytest.approx(0.8)
    assert held.before < free.before / 3


def test_many_candidates_take_seconds():
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(-3, 1, 3000)), np.exp(rng.uniform(0, 4, 3000))
    candidates = pd.DataFrame({"N": N, "D": D, "cost": N * D})
    start = time.process_time()
    plan = fitting.design("chinchilla", measure(runs()), candidates, TARGET, batch=8)
    assert len(plan.chosen) == 8
    assert time.process_time() - start < 20


BAD = {
    "candidates have no column cost: add what each run costs": {"candidates": runs().drop(columns="cost")},
    r"cost = -1 \(row run 0\) must be above 0": {"candidates": runs().assign(cost=-1.0)},
    "budget = 0.1 is below the cheapest run, which costs 0.6: raise it": {"budget": 0.1},
    "budget = -5 is not allowed": {"budget": -5.0},
    "batch = 0 is not allowed": {"batch": 0},
    "question = 'when' is unknown: there are trade_off, limited_data": {"question": "when"},
    "no law is called 'chinchila'; did you mean chinchilla": {"laws": "chinchila"},
    "laws is empty": {"laws": []},
    "candidates: missing column: D": {"candidates": runs().drop(columns="D")},
    "measured: missing column: loss": {"measured": runs()},
    "missing column: D; the table has N": {"target": TARGET[["N"]]},
    "target has no rows": {"target": TARGET.iloc[:0]},
    "candidates is empty": {"candidates": runs().iloc[:0]},
    "the label 'run 0' is there twice": {"candidates": pd.concat([runs(), runs()])},
    "no candidate can teach the target: all have N = 1, and it has 8; add candidates at another N": {
        "candidates": runs(sizes=(1.0,))
    },
    "column N is not finite in 1 of 16": {"candidates": runs().assign(N=[np.nan, *range(1, 16)])},
    "measured: loss = -1 must be above 0|loss = -1 .* is not allowed": {"measured": runs().assign(loss=-1.0)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_line(message):
    arguments = {"laws": "chinchilla", "measured": None, "candidates": runs(), "target": TARGET} | BAD[message]
    laws, measured, candidates, target = (arguments.pop(n) for n in ("laws", "measured", "candidates", "target"))
    with pytest.raises(fitting.PointsError, match=message) as raised:
        fitting.design(laws, measured, candidates, target, **arguments)
    assert "\n" not in str(raised.value)
