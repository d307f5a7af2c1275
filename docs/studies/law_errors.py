"""Losses of kept studies and of public runs, and the errors of laws on points that they were not fitted to."""

import os
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

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
    """The losses of one validation corpus.

    `points`: a row a point of continual pre-training or of a ladder, with the columns of the laws. Of `horizon_series`
    the column curve names the points that differ in tokens alone, and role, where there is one, the points that may be
    fitted ("fit"). `laws`: what a question would fit. `schedules`: those of the runs, or None where S2 is read from the
    points.
    """

    source: str
    name: str
    points: pd.DataFrame
    laws: tuple[str, ...] = ()
    schedules: Schedules | None = None
    kind: str = ""
    """ "general" or "domain", where it is one of both."""


def with_errors(judged: pd.DataFrame) -> pd.DataFrame:
    """Judged points of `fitting.held_out` with their `error`, relative, and `of_change`.

    `of_change` is the error over the measured change from the loss before, where the points have that.
    """
    judged = judged.assign(error=judged["relative_error"].abs())
    if "loss_before" in judged:
        judged["of_change"] = judged["error"] * judged["measured"] / (judged["loss_before"] - judged["measured"]).abs()
    return judged


def last_points(points: pd.DataFrame) -> pd.DataFrame:
    """The points at the last step of each run."""
    return points[points["step"] == points.groupby("run")["step"].transform("max")]


def markdown(heads: Collection, rows: Iterable[Iterable]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


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
        yield Series("usages", str(corpus), points.reset_index(drop=True), kind=kind)
    study = six_domains(from_step=FIRST_STEP)
    for domain, (letter, kind) in product(DOMAINS, (("G", "general"), ("D", "domain"))):
        yield Series("six domains", f"{domain} {letter}", study.fitted(domain, letter), kind=kind)


def chinchilla_points() -> pd.DataFrame:
    """Losses that Besiroglu et al. 2024 (arXiv:2404.10102) read off the figure of Hoffmann et al. 2022; 240 runs."""
    table = pd.read_csv(DATA / "chinchilla_points/svg_extracted_data.csv")
    table = table[table["loss"] < table["loss"].sort_values().iloc[-5]]
    size, flops = table["Model Size"], table["Training FLOP"]
    points = {"N": size / 1e9, "D": flops / 6 / size / 1e9, "loss": table["loss"], "run": table.index, "flops": flops}
    return pd.DataFrame(points)


def pile_python(corpus: str) -> pd.DataFrame:
    """Losses of Pythia-70M on "pile" or "python", continued at five ratios of both; r is that of the corpus."""
    table = pd.read_csv(DATA / "pile_python_cpt/ct_tidy.csv")
    points = {"loss": table[f"loss_{corpus}"], "r": table[f"r_{corpus}"], "run": table["r_python"]}
    return pd.DataFrame({**points, "N": 0.07, "step": table["step"]})


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
    rows = table[
        (table["corpus"] == corpus) & table["domain"].isin([pair, "general"]) & (table["phase"] == "continual")
    ]
    step = np.arange(1200)
    rates = 3e-3 * np.minimum(1, (step + 1) / 50) * np.clip(1 - 0.9 * (step - 960) / 240, 0.1, 1.0)
    schedules = {
        run: Schedule(trial_rates(*settings), SLOW, rates)
        for run, *settings in rows.groupby("run")[["schedule", "peak", "steps"]].first().itertuples()
    }
    before, share = rows[rows["step"] == 0].set_index("run")["loss"], rows["domain_ratio"]
    points = rows[["run", "step", "loss", "schedule", "peak", "steps"]].assign(
        N=rows["n_params_non_embedding"] / 1e9,
        D=rows["tokens"] / 1e9,
        share=share,
        r=1 - share if corpus == "general" else share,
        rho=float(corpus == "general"),
        loss_before=rows["run"].map(before),
    )
    points = fitting.with_areas(points[points["step"] >= FIRST_STEP].reset_index(drop=True), schedules, decay=0.5)
    name, kind = (f"general ({pair})", "general") if corpus == "general" else (corpus, "domain")
    return Series("trials", name, points, schedules=schedules, kind=kind)
