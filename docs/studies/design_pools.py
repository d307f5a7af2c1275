"""Pools of runs that were already made, for designs to choose among: kept studies, and public points where there."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from docs.studies import law_errors
from fitting.laws.law import Law, Parameter, exponent, power, ratio_offset

RATIOS = np.array([0.05, 0.2, 0.4, 0.6, 0.8, 0.95])


@dataclass(frozen=True, eq=False)
class Pool:
    """Runs with their losses and costs, the laws, and the answer that is wanted of them."""

    name: str
    laws: str | Law | list
    runs: pd.DataFrame
    target: pd.DataFrame
    question: str | None = None


def pools() -> list[Pool]:
    """Every pool whose data are there."""
    return [*usages(), *six_domains(), *transfer_trials(), *pile_python(), *chinchilla(), *regmix(), *schedules()]


def _pairs(points: pd.DataFrame, domain: str) -> pd.DataFrame:
    """A row for each step of a run, with the general and the domain loss; r is the domain ratio."""
    return _joined(*(points[points["corpus"] == corpus] for corpus in ("general", domain)))


def _joined(general: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    keys = ["run", "step"]
    columns = [*keys, "N", "D", "s1", "s2", "s1_pretrain", "r"]
    table = own[columns].merge(general[[*keys, "loss", "loss_before"]], on=keys)
    table = table.rename(columns={"loss": "general", "loss_before": "general.loss_before"})
    table = table.merge(own[[*keys, "loss", "loss_before"]].rename(columns={"loss": "domain"}), on=keys)
    table = table.rename(columns={"loss_before": "domain.loss_before"})
    table["cost"] = 6 * table["N"] * table["run"].map(table.groupby("run")["D"].max())
    return table.assign(**{"general.rho": 1.0, "domain.rho": 0.0})


def _trade_off(name: str, law: str, table: pd.DataFrame, tolerance: float) -> Pool:
    """The domain ratio at which the general loss of the largest model, trained longest, rises by the tolerance."""
    last = table[table["N"] == table["N"].max()].sort_values("D").tail(1)
    target = last[["N", "D", "s1", "s2", "s1_pretrain", "general.rho"]].reset_index(drop=True)
    target = target.assign(tolerance=tolerance, general_before=last["general.loss_before"].iloc[0])
    return Pool(name, [(law, "general"), (law, "domain")], table, target, "trade_off")


def _losses(name: str, law: str, table: pd.DataFrame, corpus: str) -> Pool:
    """The loss of the largest model at the end, at several ratios."""
    last = table[table["N"] == table["N"].max()].sort_values("D").tail(1)
    target = pd.concat([last] * len(RATIOS), ignore_index=True).assign(r=RATIOS)
    return Pool(name, [(law, corpus)], table, target)


def usages() -> Iterator[Pool]:
    """42 runs of the quickstart."""
    table = _pairs(law_errors.kept_points("usages-small", 5), "code")
    yield _trade_off("usages ratio", "transfer-scaled", table, 0.03)
    yield _losses("usages loss", "transfer-anchored", table, "domain")


def six_domains() -> Iterator[Pool]:
    """27 runs of each domain."""
    points = law_errors.kept_points(law_errors.KEPT, 20)
    for domain in law_errors.DOMAINS:
        others = [f"mixture.{other}" for other in law_errors.DOMAINS if other != domain]
        table = _pairs(points[~(points[others] > 0).any(axis=1)], domain)
        yield _trade_off(f"six {domain} ratio", "transfer-anchored", table, 0.05)
        late = table[(table["D"] > table["D"].max() / 4) & (table["r"] > 0)]
        yield _losses(f"six {domain} loss", "dcpt", late.reset_index(drop=True), "domain")


def transfer_trials() -> Iterator[Pool]:
    """Runs at several sizes, schedules, peaks and lengths."""
    series = law_errors.trials() if law_errors.has_trials() else []
    for general, own in zip(series[::2], series[1::2]):
        table = _joined(general.points, own.points)
        yield _trade_off(f"trials {own.name} ratio", "transfer-anchored", table, 0.03)
        yield _losses(f"trials {own.name} loss", "transfer-anchored", table, "domain")


def _one_size(x, psi) -> np.ndarray:
    beta, gamma, eta, eps = psi
    r = x["r"]
    return np.column_stack([np.ones_like(r), power(r, eta) * power(x["D"], -beta), power(r + eps, -gamma)])


ONE_SIZE = Law(
    name="dcpt at one size",
    equation=r"L = E + B r^{\eta} D^{-\beta} + C (r+\epsilon)^{-\gamma}",
    source="Que et al. 2024, eq. 6, without its term of N",
    parameters=(
        *(Parameter(name, "nats per token") for name in "EBC"),
        exponent("beta", "D"),
        exponent("gamma", "r + eps"),
        Parameter("eta", "exponent of r", 0.01, 10.0, linear=False, start=(0.1, 3.0)),
        ratio_offset("eps"),
    ),
    columns=("D", "r"),
    varies={"D": "beta", "r": "gamma"},
    basis=_one_size,
)


def pile_python() -> Iterator[Pool]:
    """Pythia-70M continued at five ratios: a run of any of ten lengths, its last loss alone known."""
    if (law_errors.DATA / "pile_python_cpt").exists():
        points = law_errors.pile_python("python")
        points = points.assign(D=points["step"] / 1e3, cost=points["step"])
        target = pd.DataFrame({"r": RATIOS[1:], "D": points["D"].max()})
        yield Pool("pile-python loss", ONE_SIZE, points[["D", "r", "loss", "cost"]], target)


def chinchilla() -> Iterator[Pool]:
    """240 runs of many sizes; the loss of the model of Hoffmann et al."""
    if (law_errors.DATA / "chinchilla_points").exists():
        runs = law_errors.chinchilla_points().rename(columns={"flops": "cost"}).drop(columns="run")
        yield Pool("chinchilla loss", "chinchilla", runs, pd.DataFrame({"N": [70.0], "D": [1400.0]}))
        yield Pool("chinchilla size", "chinchilla", runs, pd.DataFrame({"flops": [5.76e23]}), "compute_optimal")


def regmix() -> Iterator[Pool]:
    """512 mixtures of 17 corpora; the loss on Pile-CC at 256 others."""
    folder = law_errors.DATA / "regmix_1m"
    if folder.exists():

        def read(part: str) -> pd.DataFrame:
            mixtures = pd.read_csv(folder / f"{part}_mixture_1m.csv").drop(columns="index")
            mixtures.columns = [name.replace("train_the_pile_", "mixture.") for name in mixtures]
            loss = pd.read_csv(folder / f"{part}_pile_loss_1m.csv")["metric/the_pile_pile_cc_val_loss"]
            return mixtures.div(mixtures.sum(axis=1), axis=0).assign(loss=loss, cost=1.0)

        yield Pool("regmix loss", "data-mixing", read("train"), read("test").drop(columns="loss"))


def schedules() -> Iterator[Pool]:
    """Three schedules at four lengths each; the last losses of the six others."""
    folder = law_errors.DATA / "lr_schedules_25m"
    if not folder.exists():
        return
    parts = {path.stem: law_errors.annealed([path.stem])[0] for path in sorted(folder.glob("*.csv"))}
    train = ("cosine_24000", "constant_24000", "wsdcon_9", "wsdld_20000_24000")
    cut = [
        parts[name][parts[name]["step"] <= length].assign(run=f"{name} {length}", cost=float(length))
        for name in train
        for length in (3000, 6000, 12_000, 18_000, 22_000)
    ]
    longest = {(one["run"].iloc[0].split()[0], len(one)): one for one in cut}.values()
    target = pd.concat([one.tail(1) for name, one in parts.items() if name not in train])
    yield Pool("schedules loss", "annealing", pd.concat(longest, ignore_index=True), target[["s1", "s2"]])
