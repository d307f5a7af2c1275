"""transfer-read: where it starts, and that only how much of a corpus was read counts on the domain."""

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting import LAWS

READ = {"C2": 0.3, "C": 0.3, "K": 700.0, "b": 0.9}
OPEN = {"C2": 0.0, "Q": 0.2, "A": 0.0, "C": 0.2, "K": 0.02, "b": 1.1}


def at(**columns: float | list[float]) -> dict[str, np.ndarray]:
    """Columns of the laws, with what is not given: a new corpus at its start, and nothing annealed."""
    known = {"loss_before": 4.0, "rho": 0.0, "r": 0.5, "s1": 0.0, "s2": 0.0, "s1_pretrain": 5.0}
    known |= {"s1_root": 0.0, "s2_square": 0.0}
    count = max(len(np.atleast_1d(value)) for value in columns.values()) if columns else 1
    return {name: np.broadcast_to(np.asarray(value, float), count) for name, value in (known | columns).items()}


@pytest.mark.parametrize(("law", "params"), [("transfer-read", READ), ("transfer-open-read", OPEN)])
@pytest.mark.parametrize("rho", [0.0, 1.0])
def test_before_any_step_it_is_the_loss_before(law: str, params: dict[str, float], rho: float) -> None:
    assert LAWS[law].loss(at(rho=rho), params) == pytest.approx(4.0)


def test_twice_the_ratio_counts_as_much_as_more_training() -> None:
    by_ratio = LAWS["transfer-read"].loss(at(r=[0.2, 0.4], s1=0.5), READ)
    by_training = LAWS["transfer-read"].loss(at(r=0.2, s1=[0.5, 0.5 * 2 ** (1 / READ["b"])]), READ)
    assert by_training == pytest.approx(by_ratio)
    # Nearly a logarithm: C log 2, less what comes to an end.
    assert 0.5 < (by_ratio[0] - by_ratio[1]) / (READ["C"] * np.log(2)) < 1.0


def test_text_of_the_pretraining_does_not_move_at_its_own_ratio_but_by_further_training() -> None:
    lasting = LAWS["transfer-read"].loss(at(rho=1.0, r=1.0, s1=5.0), READ)
    assert lasting == pytest.approx(4.0 - 0.035 * np.log(2.0))


def test_few_short_runs_tell_twenty_times_their_length_where_the_law_holds() -> None:
    runs = [(0.2, 0.05), (0.2, 0.1), (0.6, 0.05), (0.6, 0.1)]
    rows = [(f"run{r}", r, s1 * part) for r, s1 in runs for part in (0.25, 0.5, 1.0)]
    points = pd.DataFrame(rows, columns=["run", "r", "s1"]).assign(loss_before=4.0, rho=0.0, s2=0.0, s1_pretrain=5.0)
    truth = READ | {"C2": 0.0, "C": 0.35, "K": 900.0}
    law = LAWS["transfer-read"]
    points["loss"] = law.loss({name: points[name].to_numpy(float) for name in law.columns}, truth)
    fit = fitting.fit(points, "transfer-read", bootstrap=0, few=True)
    far = pd.DataFrame({"r": [0.2, 0.9], "s1": 2.0, "s2": 0.0, "loss_before": 4.0, "rho": 0.0, "s1_pretrain": 5.0})
    asked = law.loss({name: far[name].to_numpy(float) for name in law.columns}, truth)
    # The prior pulls by less than a tenth of the change.
    assert fit.predict(far) == pytest.approx(asked, abs=0.1 * (4.0 - asked.min()))
    assert asked.max() < 3.5
