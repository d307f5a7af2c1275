"""The 88 small runs of transfer_trials as points that `fitting` reads, and their schedules.

Docstring prose -> code, English prose -> law, English prose -> chemistry; six series of losses in all, since each pair
has two validation corpora. Shapes, batches and schedules are those of the trials' SOURCE.txt.
"""

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import fitting
from fitting.schedule import Schedule

ROOT = Path(__file__).parents[2]
DATA = ROOT / os.environ.get("CPTLAW_PUBLIC_DATA", "../shared/data")
FILES = {"code": "code.csv", "law": "law_chemistry.csv", "chemistry": "law_chemistry.csv"}
"""Pair, named by its domain -> file of its runs."""
FIRST_STEP = 5
SLOW, FAST = 3e-4, 1e-3
"""The two peak rates."""


@dataclass(frozen=True, eq=False)
class Series:
    """The losses of one validation corpus over the runs of one pair.

    `points`: a row a point of continual pre-training from step 5 on; columns run, step, loss, loss_before, N, D, r,
    rho, s1, s2 (at lambda .5, in place of the one that a fit finds), s1_pretrain, s2_pretrain, share (of the domain in
    the mixture), schedule, peak, steps. `pretraining`: the same columns along pre-training, for laws that join the two.
    """

    pair: str
    corpus: str
    points: pd.DataFrame
    pretraining: pd.DataFrame
    schedules: dict[Hashable, Schedule]

    @property
    def name(self) -> str:
        """Such as "general (law)"."""
        return f"general ({self.pair})" if self.corpus == "general" else self.corpus

    @property
    def kind(self) -> str:
        """ "general" or "domain"."""
        return "general" if self.corpus == "general" else "domain"


def read_series() -> list[Series]:
    """General and domain of code, law and chemistry. Raises FileNotFoundError where the trials are not there."""
    return [_series(pair, corpus) for pair in FILES for corpus in ("general", pair)]


def there() -> bool:
    """Whether the trials are there."""
    return all((DATA / "transfer_trials" / name).exists() for name in FILES.values())


def rates_of(schedule: str, peak: float, steps: int) -> np.ndarray:
    """The learning rate of each continual step."""
    step = np.arange(steps)
    if schedule == "cos":
        return peak * (0.1 + 0.9 * (1 + np.cos(np.pi * step / steps)) / 2)
    if schedule == "wsd":
        return peak * np.clip(1 - 0.9 * (step - 0.8 * steps) / (0.2 * steps), 0.1, 1.0)
    return np.full(steps, peak)


def pretraining_rates() -> np.ndarray:
    """The learning rate of each of the 1,200 steps of pre-training."""
    step = np.arange(1200)
    return 3e-3 * np.minimum(1, (step + 1) / 50) * np.clip(1 - 0.9 * (step - 960) / 240, 0.1, 1.0)


def _series(pair: str, corpus: str) -> Series:
    table = pd.read_csv(DATA / "transfer_trials" / FILES[pair])
    table = table[(table["corpus"] == corpus) & table["domain"].isin([pair, "general"])]
    continual, pretraining = (table[table["phase"] == phase] for phase in ("continual", "pretrain"))
    schedules = {
        run: Schedule(rates_of(*settings), SLOW, pretraining_rates())
        for run, *settings in continual.groupby("run")[["schedule", "peak", "steps"]].first().itertuples()
    }
    schedules |= {run: Schedule(pretraining_rates(), is_pretraining=True) for run in pretraining["run"].unique()}
    before = continual["run"].map(continual[continual["step"] == 0].set_index("run")["loss"])
    points = _columns(continual[continual["step"] >= FIRST_STEP], corpus, schedules).assign(loss_before=before)
    # the step before the first has no S1 to be a power of
    past = _columns(pretraining[pretraining["step"] > 0], corpus, schedules)
    return Series(pair, corpus, points.reset_index(drop=True), past.reset_index(drop=True), schedules)


def _columns(rows: pd.DataFrame, corpus: str, schedules: dict[Hashable, Schedule]) -> pd.DataFrame:
    share = rows["domain_ratio"]
    points = rows[["run", "step", "loss", "schedule", "peak", "steps"]].assign(
        N=rows["n_params_non_embedding"] / 1e9,
        D=rows["tokens"] / 1e9,
        share=share,
        r=1 - share if corpus == "general" else share,
        rho=float(corpus == "general"),
    )
    return fitting.with_areas(points, schedules, decay=0.5)
