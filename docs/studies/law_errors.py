"""Losses of kept studies and of public runs, and the errors of laws on points that they were not fitted to."""

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fitting
from fitting import Fold
from fitting.schedule import Schedule, Schedules
from pipeline.papers.dcpt.points import DomainPoints

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
DATA = ROOT / os.environ.get("CPTLAW_PUBLIC_DATA", "../shared/data")
"""Public data, and the transfer trials of this project."""
DOMAINS = ("chemistry", "code", "law", "math", "medical", "music")
KEPT = "dcpt-six-small"
FIRST_STEP = 5
SLOW, FAST = 3e-4, 1e-3
"""The two peak rates of the transfer trials."""
WARM_UP, PEAK = 2160, 3e-4
"""Of the curves of the model of 25M."""
_FILES = {"code": "code.csv", "law": "law_chemistry.csv", "chemistry": "law_chemistry.csv"}
"""Pair of the transfer trials, named by its domain -> file of its runs."""


@dataclass(frozen=True, eq=False)
class Series:
    """The losses of one validation corpus over several runs.

    `points`: a row a point of continual pre-training, with the columns of the laws. `schedules`: those of the runs, or
    None where S2 is read from the points. `pretraining`: the points before, where they are known.
    """

    source: str
    name: str
    kind: str
    """ "general" or "domain"."""
    points: pd.DataFrame
    schedules: Schedules | None = None
    pretraining: pd.DataFrame | None = None


def held_out_errors(
    points: pd.DataFrame, law: str, folds: str | Sequence[Fold], schedules: Schedules | None = None, **options: Any
) -> pd.DataFrame:
    """The judged points of `fitting.held_out`, with the columns `error`, relative, and `of_change`.

    `of_change` is the error over the measured change from the loss before, where the points have that.
    """
    judged = fitting.held_out(points, law, folds, schedules, **options)
    judged["error"] = judged["relative_error"].abs()
    if "loss_before" in judged:
        judged["of_change"] = judged["error"] * judged["measured"] / (judged["loss_before"] - judged["measured"]).abs()
    return judged


def one_fold(label: str, fitted: pd.Series, judged: pd.Series) -> list[Fold]:
    """A split with one fold, of two masks of the points."""
    return [Fold(label, fitted.to_numpy(bool), judged.to_numpy(bool))]


def geometric_mean(ratios: pd.Series) -> float:
    """The geometric mean of the ratios that are known."""
    return float(np.exp(np.log(ratios.dropna().astype(float)).mean()))


def kept_points(study: str, first_step: int = 1) -> pd.DataFrame:
    """The points of a kept study's continual runs that laws are fitted to, from a step on."""
    points = pd.read_parquet(RESULTS / study / "points.parquet")
    chosen = (points["phase"] == "continual") & (points["role"] == "fit") & (points["step"] >= first_step)
    return points[chosen]


def six_domains(study: str = KEPT, from_step: int = 1) -> DomainPoints:
    """The points of a kept six-domain study, to be taken by domain and corpus."""
    return DomainPoints(kept_points(study, 0), "general", DOMAINS, from_step)


def kept_series() -> Iterator[Series]:
    """Both corpora of usages-small, and general and domain of each of the six domains of dcpt-six-small: 14 series."""
    for corpus, points in kept_points("usages-small", FIRST_STEP).groupby("corpus"):
        kind = "general" if corpus == "general" else "domain"
        yield Series("usages", str(corpus), kind, points.reset_index(drop=True))
    study = six_domains(from_step=FIRST_STEP)
    for domain, (letter, kind) in product(DOMAINS, (("G", "general"), ("D", "domain"))):
        yield Series("six domains", f"{domain} {letter}", kind, study.fitted(domain, letter))


def chinchilla_points() -> pd.DataFrame:
    """Losses that Besiroglu et al. 2024 (arXiv:2404.10102) read off the figure of Hoffmann et al. 2022; 240 runs."""
    table = pd.read_csv(DATA / "chinchilla_points/svg_extracted_data.csv")
    table = table[table["loss"] < table["loss"].sort_values().iloc[-5]]
    size, flops = table["Model Size"], table["Training FLOP"]
    points = {"N": size / 1e9, "D": flops / 6 / size / 1e9, "loss": table["loss"], "run": table.index, "flops": flops}
    return pd.DataFrame(points)


def annealed(names: Iterable[str]) -> tuple[pd.DataFrame, dict[Hashable, Schedule]]:
    """Curves of a model of 25M. The warm-up, which is not in the files, belongs in S1 and not in S2."""
    parts, schedules = [], dict[Hashable, Schedule]()
    for name in names:
        curve = pd.read_csv(DATA / "lr_schedules_25m" / f"{name}.csv").dropna()
        curve = curve[curve["step"] != 24_000]
        rates = np.interp(np.arange(WARM_UP, curve["step"].max() + 1), curve["step"], curve["lr"])
        schedules[name] = Schedule(rates, before=PEAK)
        step = (curve["step"] - WARM_UP + 1).astype(int)
        parts.append(pd.DataFrame({"run": name, "step": step, "loss": curve["loss"]}))
    points = fitting.with_areas(pd.concat(parts, ignore_index=True), schedules, 0.999)
    return points.assign(s1=points["s1"] + PEAK * WARM_UP / 2), schedules


def has_trials() -> bool:
    """Whether the transfer trials are in `DATA`."""
    return all((DATA / "transfer_trials" / name).exists() for name in _FILES.values())


def trials() -> list[Series]:
    """General and domain of the three pairs of the transfer trials: 88 runs, 6 series.

    Docstrings to code, English to law, English to chemistry; shapes, batches and schedules are those of the trials'
    SOURCE.txt. Points have the columns share (of the domain in the mixture), schedule, peak and steps of their run.
    """
    return [_trial(pair, corpus) for pair in _FILES for corpus in ("general", pair)]


def trial_rates(schedule: str, peak: float, steps: int) -> np.ndarray:
    """The learning rate of each continual step of a trial."""
    step = np.arange(steps)
    if schedule == "cos":
        return peak * (0.1 + 0.9 * (1 + np.cos(np.pi * step / steps)) / 2)
    if schedule == "wsd":
        return peak * np.clip(1 - 0.9 * (step - 0.8 * steps) / (0.2 * steps), 0.1, 1.0)
    return np.full(steps, peak)


def _trial(pair: str, corpus: str) -> Series:
    table = pd.read_csv(DATA / "transfer_trials" / _FILES[pair])
    table = table[(table["corpus"] == corpus) & table["domain"].isin([pair, "general"])]
    continual, pretraining = (table[table["phase"] == phase] for phase in ("continual", "pretrain"))
    step = np.arange(1200)
    rates = 3e-3 * np.minimum(1, (step + 1) / 50) * np.clip(1 - 0.9 * (step - 960) / 240, 0.1, 1.0)
    schedules = {
        run: Schedule(trial_rates(*settings), SLOW, rates)
        for run, *settings in continual.groupby("run")[["schedule", "peak", "steps"]].first().itertuples()
    }
    schedules |= {run: Schedule(rates, is_pretraining=True) for run in pretraining["run"].unique()}
    before = continual["run"].map(continual[continual["step"] == 0].set_index("run")["loss"])
    points = _with_columns(continual[continual["step"] >= FIRST_STEP], corpus, schedules).assign(loss_before=before)
    past = _with_columns(pretraining[pretraining["step"] > 0], corpus, schedules).reset_index(drop=True)
    name, kind = (f"general ({pair})", "general") if corpus == "general" else (corpus, "domain")
    return Series("trials", name, kind, points.reset_index(drop=True), schedules, past)


def _with_columns(rows: pd.DataFrame, corpus: str, schedules: Schedules) -> pd.DataFrame:
    share = rows["domain_ratio"]
    points = rows[["run", "step", "loss", "schedule", "peak", "steps"]].assign(
        N=rows["n_params_non_embedding"] / 1e9,
        D=rows["tokens"] / 1e9,
        share=share,
        r=1 - share if corpus == "general" else share,
        rho=float(corpus == "general"),
    )
    return fitting.with_areas(points, schedules, decay=0.5)
