"""Losses that run far beyond a part of them: public points, and kept studies, each with the laws that answer there."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.studies import law_errors
from docs.studies.base_model_laws import OPEN, Runs
from docs.studies.law_errors import Series
from fitting import LAWS
from fitting.schedule import Schedule

CONTINUAL = ("dcpt", "transfer-anchored", "transfer-scaled", "transfer-replay", "transfer-read")
OPEN_READ = "transfer-open-read"
LADDER = ("chinchilla", "openai")
BASE_MODELS = ("chemistry", "code", "law", "math", "medical", "music", "wsd")
TOKENS_A_SAMPLE = 512e-9
"""Billions of tokens that stand for one sample of the fine-tuning curves."""
TOKENS_A_STEP = 0.26e-3
"""Billions of tokens that stand for a step where the source does not say how many it has."""


def all_series() -> Iterator[Series]:
    """The series that growth is learned on (docs/results/horizon-split.csv), public ones first."""
    for source in (_marin, _chinchilla, _schedules, _pile_python, _delphi, _smollm2, _trials, _kept, _base_models):
        yield from source()
    yield from _flan("fine-tuning", 0)
    yield from _kempner("kempner", ("c4_val", "proof_pile_2_val", "starcoder_val"))
    yield from _domains("six domains", law_errors.KEPT, ("chemistry", "code", "law"))


def apart_series() -> Iterator[Series]:
    """The series that are kept apart, to be judged alone."""
    yield from _flan("other fine-tuning", 1)
    yield from _kempner("other kempner", ("fineweb_edu_100b_val", "slimpajama_val", "smollm_val"))
    yield from _pile_domains()
    yield from _domains("other domains", law_errors.KEPT, ("math", "medical", "music"))
    yield from _domains("dcpt-six-annealed", "dcpt-six-annealed", ("code", "law", "math"))
    yield from _study("usages-compute")


def _csv(name: str) -> pd.DataFrame:
    return pd.read_csv(law_errors.DATA / name)


def _flan(source: str, first: int) -> Iterator[Series]:
    table = _csv("horizon/finetuning_flan.csv")
    for model, rows in [*table.groupby("model")][first::2]:
        before = float(rows.loc[rows["samples"] == 0, "loss"].iloc[0])
        rows = rows[rows["samples"] > 0].sort_values("samples").reset_index(drop=True)
        points = rows[["loss"]].assign(
            N=rows["size"] / 1e9, D=rows["samples"] * TOKENS_A_SAMPLE, run=np.arange(len(rows)), curve=0
        )
        points = points.assign(loss_before=before, r=1.0, s1_root=rows["samples"] / 1e3, s2_square=0.0)
        yield Series(source, str(model), points, OPEN)


def _kempner(source: str, columns: tuple[str, ...]) -> Iterator[Series]:
    table = _csv("horizon/kempner_two_sets.csv")
    for data, rows in table.groupby("data"):
        for column in columns:
            yield _ladder(source, f"{data} {column}", _in_billions(rows, column))


def _marin() -> Iterator[Series]:
    rows = _csv("horizon/marin_dclm_isoflops.csv")
    rows = rows[~rows["outlier"]]
    yield _ladder("marin", "dclm", _in_billions(rows, "loss"))


def _chinchilla() -> Iterator[Series]:
    yield _ladder("chinchilla", "figure", law_errors.chinchilla_points()[["N", "D", "loss"]])


def _in_billions(rows: pd.DataFrame, loss: str) -> pd.DataFrame:
    return pd.DataFrame({"N": rows["params"] / 1e9, "D": rows["tokens"] / 1e9, "loss": rows[loss]})


def _ladder(source: str, name: str, points: pd.DataFrame) -> Series:
    points = points.reset_index(drop=True)
    return Series(source, name, points.assign(run=points.index, curve=np.round(np.log(points["N"]) / 0.05)), LADDER)


def _schedules() -> Iterator[Series]:
    for name in ("constant_24000", "constant_72000", "cosine_24000", "cosine_72000"):
        rows = _csv(f"lr_schedules_25m/{name}.csv").iloc[::3].reset_index(drop=True)
        rates = np.interp(np.arange(1, rows["step"].max() + 1), [0, *rows["step"]], [0.0, *rows["lr"]])
        points = rows[["step", "loss"]].assign(N=0.025, D=rows["step"] * TOKENS_A_STEP, run=name, curve=0)
        schedules: dict[Hashable, Schedule] = {name: Schedule(rates, is_pretraining=True)}
        yield Series("schedules", name, fitting.with_areas(points, schedules), (), schedules)


def _pile_python() -> Iterator[Series]:
    for corpus in ("pile", "python"):
        points = law_errors.pile_python(corpus)
        points = points.assign(D=points["step"] * TOKENS_A_STEP, curve=points["run"])
        yield Series("pythia", corpus, points, ("dcpt", "dcpt-free", "dcpt-l4"))


def _pile_domains() -> Iterator[Series]:
    table = _csv("pile_python_cpt/ct.csv")
    table = table[table["step"] > 0]
    for domain in ("ArXiv", "FreeLaw", "Github", "PubMed_Abstracts", "StackExchange", "Wikipedia_en"):
        rows = table[table["valid_domain"] == domain].reset_index(drop=True)
        pile = rows["mix"].str.split("-").str[0].astype(float)
        points = rows[["loss", "step"]].assign(r=pile, N=0.07, D=rows["step"] * TOKENS_A_STEP, run=pile, curve=pile)
        yield Series("other pythia", domain, points, ("dcpt", "dcpt-free", "dcpt-l4"))


def _delphi() -> Iterator[Series]:
    rows = _csv("delphi_cpt/trajectories_1e21_math_val_loss.csv")
    rows = rows[rows["step"] > 0]
    points = pd.DataFrame({"loss": rows["math_val_loss"], "r": rows["r_math"], "N": rows["params_B"]})
    points["run"] = rows["mix"] + rows["lr_factor"].astype(str)
    points = points.assign(D=9.26 * rows["step"] / rows["final_step"], step=rows["step"], curve=points["run"])
    yield Series("delphi", "trajectories", points.reset_index(drop=True), ("dcpt", "dcpt-free"))


def _smollm2() -> Iterator[Series]:
    rows = _csv("smollm2_law/points.csv")
    for corpus, own in rows[rows["step"] > 0].groupby("corpus"):
        schedules = {run: Schedule(law_errors.trial_rates("cos", 2e-4, 40), 0.0) for run in own["run"].unique()}
        points = fitting.with_areas(own.reset_index(drop=True), schedules).assign(curve=own["run"].to_numpy())
        yield Series("smollm2", str(corpus), points, (*OPEN, "dcpt"), schedules)


def _trials() -> Iterator[Series]:
    for one in law_errors.trials() if law_errors.has_trials() else []:
        yield replace(one, points=one.points.assign(curve=one.points["run"]), laws=CONTINUAL)


def _kept() -> Iterator[Series]:
    yield from _study("usages-small", "usages")
    for study in ("pairs-medical", "pairs-music"):
        yield from _study(study, "pairs")


def _study(study: str, source: str = "") -> Iterator[Series]:
    for corpus, points in law_errors.kept_points(study, law_errors.FIRST_STEP).groupby("corpus"):
        points = points.reset_index(drop=True)
        yield Series(source or study, f"{study} {corpus}", points.assign(curve=points["run"]), CONTINUAL)


def _domains(source: str, study: str, names: tuple[str, ...]) -> Iterator[Series]:
    points = law_errors.six_domains(study, law_errors.FIRST_STEP)
    for domain, letter in product(names, "GD"):
        own = points.fitted(domain, letter)
        yield Series(source, f"{domain} {letter}", own.assign(curve=own["run"]), CONTINUAL)


def _base_models() -> Iterator[Series]:
    """The runs for the fit of each base-model study, and those that confirm, three times as long."""
    for study in BASE_MODELS:
        runs = Runs.of(law_errors.RESULTS / f"base-model-{study}")
        points = pd.concat([runs.fitted, runs.confirmed], ignore_index=True)
        for corpus, own in points.groupby("corpus"):
            own = own.reset_index(drop=True)
            laws = (*OPEN, OPEN_READ if corpus == "general" else LAWS[OPEN_READ].on_domain, "dcpt")
            yield Series("base models", f"{study} {corpus}", own.assign(curve=own["run"]), laws, runs.rates)
