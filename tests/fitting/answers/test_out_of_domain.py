"""A third corpus as a combination of two."""

import numpy as np
import pandas as pd
import pytest

import fitting
from docs.studies.law_errors import DATA
from tests.fitting.test_public_data import need


def curves(n_runs=8, noise=0.0, run_noise=0.0, seed=0, weights=(0.7, 0.4)) -> pd.DataFrame:
    """Losses of runs at different ratios: the more domain, the higher the one and the lower the other."""
    rng = np.random.default_rng(seed)
    frames = []
    for run in range(n_runs):
        ratio, t = run / max(n_runs - 1, 1), np.linspace(0, 1, 10)
        frames.append(
            pd.DataFrame({"pretrain": 3 + 0.3 * ratio * t, "domain": 2.5 - 0.8 * (0.1 + ratio) * t, "run": run})
        )
    table = pd.concat(frames, ignore_index=True)
    error = noise * rng.standard_normal(len(table)) + run_noise * rng.standard_normal(n_runs)[table["run"]]
    return table.assign(ood=weights[0] * table["pretrain"] + weights[1] * table["domain"] + error)


def test_it_is_ordinary_least_squares():
    table = curves(noise=0.01)
    answer = fitting.out_of_domain(table, at={"pretrain": 3.1, "domain": 2.0})
    exact = np.linalg.lstsq(table[["pretrain", "domain"]].to_numpy(), table["ood"].to_numpy(), rcond=None)[0]
    assert [answer["pretrain"], answer["domain"]] == pytest.approx(exact)
    assert answer.predicted["ood"].value == pytest.approx(exact @ [3.1, 2.0])
    errors = table["ood"] - table[["pretrain", "domain"]].to_numpy() @ exact
    assert answer["r2"] == pytest.approx(1 - (errors**2).sum() / ((table["ood"] - table["ood"].mean()) ** 2).sum())
    assert answer.warnings == []


def test_nine_in_ten_intervals_hold_the_truth_though_runs_share_their_errors():
    held = np.zeros(3)
    for seed in range(300):
        answer = fitting.out_of_domain(
            curves(noise=0.003, run_noise=0.01, seed=seed), at={"pretrain": 3.1, "domain": 2.0}
        )
        truth = {"pretrain": 0.7, "domain": 0.4}
        held[:2] += [answer.values[k].low < v < answer.values[k].high for k, v in truth.items()]
        held[2] += answer.predicted["ood"].low < 0.7 * 3.1 + 0.4 * 2.0 < answer.predicted["ood"].high
    assert (held / 300 > 0.85).all()
    assert (held / 300 < 0.97).all()


def test_collinear_losses_are_refused():
    table = curves()
    with pytest.raises(fitting.PointsError, match=r"collinear: the one is 0.8 times the other in every row"):
        fitting.out_of_domain(table.assign(domain=0.8 * table["pretrain"]))
    rng = np.random.default_rng(0)
    nearly = table.assign(domain=0.8 * table["pretrain"] * (1 + 0.003 * rng.standard_normal(len(table))))
    with pytest.raises(fitting.PointsError, match=r"collinear in these 80 rows: l1 = .* \+- "):
        fitting.out_of_domain(nearly.assign(ood=nearly["pretrain"] + 0.1 * rng.standard_normal(len(table))))


def test_what_is_no_combination_is_said_and_so_are_far_losses():
    rng = np.random.default_rng(0)
    table = curves().assign(ood=lambda t: 3 + 0.1 * rng.standard_normal(len(t)))
    answer = fitting.out_of_domain(table, at={"pretrain": 3.5, "domain": 1.0})
    assert answer.warnings[0].startswith("ood: R2 is ")
    assert answer.warnings[1] == "ood: loss on pretrain = 3.5 is beyond the points, +0.2 from the largest (3.3)"
    assert answer.warnings[2].startswith("ood: loss on domain = 1 is beyond the points, -")
    assert any("2 runs only" in line for line in fitting.out_of_domain(curves(n_runs=2)).warnings)


def test_an_intercept_is_fitted_where_it_is_asked_for():
    table = curves(noise=0.003).assign(ood=lambda t: t["ood"] + 0.5)
    answer = fitting.out_of_domain(table, at={"pretrain": 3.1, "domain": 2.0}, intercept=True)
    assert answer["intercept"] == pytest.approx(0.5, abs=0.1)
    assert answer.predicted["ood"].value == pytest.approx(0.5 + 0.7 * 3.1 + 0.4 * 2.0, abs=0.003)
    assert "intercept" not in fitting.out_of_domain(table).values
    with pytest.raises(fitting.PointsError, match="collinear: the one is -2 times"):
        fitting.out_of_domain(table.assign(domain=9 - 2 * table["pretrain"]), intercept=True)
    assert fitting.out_of_domain(table.assign(domain=9 - 2 * table["pretrain"]))["r2"] < 1


def trial(ood: str, domain: str) -> pd.DataFrame:
    need("transfer_trials", "this project's own trials of 2026-11-20")
    table = pd.read_csv(DATA / "transfer_trials/law_chemistry.csv")
    table = table[(table["phase"] == "continual") & (table["domain"] == domain)]
    wide = table.pivot(index=["run", "step"], columns="corpus", values="loss").reset_index()
    return wide.rename(columns={"general": "pretrain", domain: "domain", ood: "ood"})


@pytest.mark.parametrize(
    ("ood", "domain", "as_printed", "with_intercept"),
    [("law", "chemistry", 0.159, 0.958), ("chemistry", "law", -0.836, 0.307)],
)
def test_the_trials_need_an_intercept(ood, domain, as_printed, with_intercept):
    """laws.md, section 7, has R2 .96 and .31: with an intercept. Eq. 6 as printed has none."""
    table = trial(ood, domain)
    printed, wider = fitting.out_of_domain(table), fitting.out_of_domain(table, intercept=True)
    assert printed["r2"] == pytest.approx(as_printed, abs=0.001)
    assert wider["r2"] == pytest.approx(with_intercept, abs=0.001)
    assert printed.warnings[0].startswith("ood: R2 is ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="ood"), "missing column: ood"),
        (lambda t: t.assign(ood=np.nan), "column ood is not finite"),
        (lambda t: t.assign(domain=-1.0), "column domain holds a loss that is not above 0: -1"),
        (lambda t: t.head(2), "2 rows of 1 runs are too few"),
        (lambda t: t[t["run"] == 0], "10 rows of 1 runs are too few"),
    ],
)
def test_bad_curves(change, message):
    with pytest.raises(fitting.PointsError, match=message):
        fitting.out_of_domain(change(curves()))


def test_bad_at():
    with pytest.raises(fitting.PointsError, match="at has no domain"):
        fitting.out_of_domain(curves(noise=0.01), at={"pretrain": 3.0})
