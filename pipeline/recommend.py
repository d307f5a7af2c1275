"""From fits to an answer: which law to trust, which mixture, which losses to expect."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, TradeOff, trade_off, with_areas
from fitting.schedule import Schedule
from pipeline.config import models, pieces
from pipeline.fits import log_errors, read_back_test
from pipeline.schema import Question
from pipeline.study import Study, StudyError
from training.schedule import learning_rates


@dataclass(frozen=True)
class Target:
    """The run that the answer is for."""

    model: str
    """Name of the model."""
    N: float
    """Its non-embedding parameters, billions."""
    D: float
    """Tokens of the continual phase, billions."""
    steps: int
    """Steps of the continual phase."""
    rate_before: float
    """Last learning rate before it."""
    before: dict[str, float]
    """Corpus -> loss before it, nats a token."""
    rho: dict[str, float]
    """Corpus -> share of it in pre-training; NaN: not known."""
    s1_pretrain: float
    """Summed learning rate of pre-training; NaN: not known."""
    pretrain: np.ndarray | None = None
    """Learning rates (steps,) of pre-training; None: not known."""


def recommend(
    study: Study, question: Question, points: pd.DataFrame, fits: dict[str, dict[str, Fit]]
) -> dict[str, Any]:
    """Answer the question's goal and write recommendation.json.

    Each corpus is answered for by the law that predicts its held-out points best.

    Raises:
        StudyError: the target's loss before the continual phase was not measured.
    """
    target = find_target(question, points)
    general, domain = question.corpora.general, question.corpora.domain
    tested = read_back_test(study)
    scores = score(tested)
    law = {
        corpus: min(question.law, key=lambda name: scores.get(corpus, {}).get(name, math.inf))
        for corpus in (general, domain)
    }
    answer = _answer(question, target, fits, law, tested)
    alone = {name: _answer(question, target, fits, dict.fromkeys(law, name), tested) for name in question.law}
    warnings = _by_corpus(answer.warnings, {"general": general, "domain": domain})
    if not scores:
        warnings.append("no law could be tested on held-out runs; the first one was taken")
    for corpus in (general, domain):
        unknown = [name for name, known in fits[corpus][law[corpus]].identified.items() if not known]
        if unknown:
            warnings.append(f"{law[corpus]} on {corpus}: the points do not fix {', '.join(unknown)}")
    # Down, so that the mixture that is run stays within the tolerance.
    share = None if answer.domain_ratio is None else math.floor(answer.domain_ratio * 1000) / 1000
    content = {
        "goal": {"kind": question.goal.kind, "tolerance": question.goal.tolerance},
        "law": law,
        "target": {"model": target.model, "N": target.N, "D": target.D, "steps": target.steps},
        "loss_before": target.before,
        "mixture": None if share is None else {general: round(1 - share, 3), domain: share},
        "low": answer.low,
        "high": answer.high,
        "predicted": {
            corpus: dict(zip(("loss", "low", "high"), answer.predicted[kind]))
            for corpus, kind in ((general, "general"), (domain, "domain"))
            if answer.predicted
        },
        "binding": answer.binding,
        "warnings": warnings,
        "held_out": _held_out_table(tested),
        "held_out_error": scores,
        "answers": {
            name: {
                "domain_ratio": other.domain_ratio,
                "low": other.low,
                "high": other.high,
                "binding": other.binding,
            }
            for name, other in alone.items()
        },
    }
    study.write_json(study.answer("recommendation.json"), content)
    return content


def find_target(question: Question, points: pd.DataFrame) -> Target:
    """The target model's facts, from the measured points before its continual phase.

    Raises:
        StudyError: they were not measured.
    """
    _, model = models(question)
    own = points[points["model"] == model.name]
    pretrained = own[own["phase"] == "pretrain"]
    if not pretrained.empty:
        before = pretrained[pretrained["step"] == pretrained["step"].max()]
        rho = dict(zip(before["corpus"], before["r"]))
        rate = float(before["learning_rate"].iloc[0])
        rates = learning_rates(pieces(question.pretrain), question.pretrain.steps)
    else:
        before = own[own["step"] == 0].drop_duplicates("corpus")
        rho = dict(zip(before["corpus"], before["rho"]))
        rate, rates = 0.0, None
    losses = dict(zip(before["corpus"], before["loss"]))
    lacking = [corpus for corpus in (question.corpora.general, question.corpora.domain) if corpus not in losses]
    if lacking:
        raise StudyError(
            f"{model.name}: no loss on {', '.join(lacking)} before the continual phase; train its pre-training, "
            "then collect"
        )
    steps = round(question.continual.steps * question.confirm.tokens_factor)
    tokens = steps * question.continual.global_batch * question.sequence_length
    n, s1_pretrain = (float(before[name].iloc[0]) for name in ("N", "s1_pretrain"))
    return Target(model.name, n, tokens / 1e9, steps, rate, losses, rho, s1_pretrain, rates)


def target_columns(question: Question, target: Target, corpus: str, fit: Fit) -> dict[str, float]:
    """The columns of a law at the end of the target's run, its share apart."""
    phase = dataclasses.replace(question.continual, steps=target.steps)
    rates = learning_rates(pieces(phase), target.steps, target.rate_before)
    end = pd.DataFrame({"run": [target.model], "step": [target.steps]})
    schedule = Schedule(rates, target.rate_before, target.pretrain)
    at = with_areas(end, {target.model: schedule}, fit.params.get("lambda", 0.999), LAWS[fit.law].rate_power)
    found = {name: float(at[name].iloc[0]) for name in ("s1", "s2", "s2_pretrain") if name in at}
    return {
        "N": target.N,
        "D": target.D,
        "s2_pretrain": 0.0,
        **found,
        "s1_pretrain": target.s1_pretrain,
        "loss_before": target.before[corpus],
        "rho": target.rho[corpus],
    }


def score(tested: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Corpus -> law -> mean relative error on held-out points.

    Of a larger model for longer where all laws could be asked that, since it is what a recommendation asks and what its
    interval is made of (`pipeline.fits.log_errors`); otherwise over the splits, each with the same weight.
    """
    if tested.empty:
        return {}
    error = tested.assign(error=tested["relative_error"].abs())
    scores = {}
    for corpus, own in error.groupby("corpus"):
        cells = own.groupby(["law", "split"])["error"].mean().unstack("law")
        # A split that one law could not be fitted for says nothing about which is better.
        shared = cells.dropna()
        cells = shared if len(shared) else cells
        means = cells[cells.index == "reach"].mean() if "reach" in cells.index else cells.mean()
        scores[str(corpus)] = {str(law): float(value) for law, value in means.items() if np.isfinite(value)}
    return scores


def _by_corpus(warnings: list[str], names: dict[str, str]) -> list[str]:
    """The fitter's warnings with the corpora's own names, and one line where both laws are warned of the same."""
    merged: dict[str, list[str]] = {}
    for warning in warnings:
        kind, _, rest = warning.partition(": ")
        merged.setdefault(rest, []).append(names.get(kind, kind))
    return [f"{', '.join(corpora)}: {rest}" for rest, corpora in merged.items()]


def _answer(
    question: Question, target: Target, fits: dict[str, dict[str, Fit]], law: dict[str, str], tested: pd.DataFrame
) -> TradeOff:
    general, domain = question.corpora.general, question.corpora.domain
    at = {corpus: target_columns(question, target, corpus, fits[corpus][name]) for corpus, name in law.items()}
    for columns in at.values():
        del columns["N"], columns["D"]
    return trade_off(
        fits[general][law[general]],
        fits[domain][law[domain]],
        target.N,
        target.D,
        question.goal.tolerance,
        target.before[general],
        general_at=at[general],
        domain_at=at[domain],
        general_spread=log_errors(tested, law[general], general),
        domain_spread=log_errors(tested, law[domain], domain),
    )


def _held_out_table(tested: pd.DataFrame) -> list[dict[str, Any]]:
    if tested.empty:
        return []
    error = tested.assign(error=tested["relative_error"].abs())
    groups = error.groupby(["corpus", "split", "law"])["error"].agg(mean_error="mean", max_error="max", points="size")
    return [{str(key): value for key, value in row.items()} for row in groups.reset_index().to_dict("records")]
