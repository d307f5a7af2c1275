"""Figures 2, 5, 6, 7, 8 and 14 of the learning-dynamics paper: what follows from its law, beside measurements."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, product

import numpy as np
import pandas as pd

from fitting import Fit, PointsError, balance, turning_length
from fitting.answers.balance import cosine
from fitting.answers.loss_curve import Course
from fitting.answers.loss_potential import with_potential
from fitting.answers.turning_point import return_steps
from pipeline.papers.dynamics.fits import REPLAY
from pipeline.papers.dynamics.points import CORPORA, FitRequest, ScheduleStudy, fitted
from pipeline.papers.verdict import DECIDED, IN_ORDER, MOST, NOT_HERE, SEED_TIE, UNKNOWN

SIDES = ("measured", "predicted")
OVERLAP = 1.25
"""Shifts that differ by a smaller factor overlap."""
WEIGHTS = ("0.1", "0.3", "0.5", "0.7", "0.9")
"""lambda_1 of eq. 5, the weight of the corpus of pre-training."""
POTENTIALS = np.linspace(0.0, 1.0, 41).round(3)
"""Candidate loss potentials."""
CHOICES = {"loss potential": -1, "peak rate": -1, "replay": 1}
"""Choice -> whether it falls (-1) or rises (1) with the weight of D_pt in the paper."""


def shifts(study: ScheduleStudy) -> pd.DataFrame:
    """Loss at the end less that of the run that continues with the old corpus, nats per token (figures 2, 6, 14)."""
    runs, rows = study.fitted_runs(), []
    for corpus in CORPORA:
        losses = runs.assign(loss=runs["run"].map(study.at_end(corpus, runs)["loss"])).dropna(subset="loss")
        keys = ["model", "parent", "transfer", "pieces", "seed"]
        reference = losses[losses["ratio"] == 0].drop_duplicates(keys).set_index(keys)["loss"]
        mixed = losses[losses["ratio"] > 0]
        shift = mixed["loss"] - reference.reindex(pd.MultiIndex.from_frame(mixed[keys])).to_numpy()
        mixed = mixed.assign(replay=(1 - mixed["ratio"]).round(6), corpus=corpus, value=shift).dropna(subset="value")
        rows.append(mixed)
    note = "Nats per token, at the last step; transfer: steps of pre-training before it."
    table = _over_seeds(pd.concat(rows, ignore_index=True), ["model", "transfer", "replay", "corpus"], note)
    if table.empty:
        raise PointsError("no run continues with the corpus of pre-training alone: plan a domain ratio of 0")
    return table.sort_values(["model", "replay", "transfer"], ignore_index=True)


def judge_overlap(cells: pd.DataFrame, key: str) -> tuple[str, str]:
    """Whether shifts without replay are alike for all values of a key, transfer or model."""
    rows = cells[cells["replay"] == cells["replay"].min()]
    shift = rows["ours"].abs().groupby([rows[name] for name in ("model", "transfer", "corpus") if name != key])
    factor = (shift.max() / shift.min())[shift.size() > 1]
    if factor.empty:
        return UNKNOWN, f"There is one {key} only."
    verdict = IN_ORDER if (factor <= OVERLAP).mean() >= MOST else NOT_HERE
    factors = f"{factor.min():.2f} to {factor.max():.2f} ({OVERLAP:g} is alike)"
    return verdict, f"Among {key}s the shift without replay differs by a factor of {factors}."


def judge_replay(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether more replay means a smaller shift."""
    pairs = _pairs(cells.assign(ours=cells["ours"].abs()), "replay", ["model", "transfer", "corpus"])
    return _judge_pairs(((after < before) for before, after in pairs), "more replay makes the shift smaller")


def potentials(study: ScheduleStudy) -> pd.DataFrame:
    """The final loss by loss potential, of the schedule that follows most, without and with re-warm-up (figure 5)."""
    runs = study.runs[study.runs["ratio"] == study.runs["ratio"].max()]
    runs = runs[runs["transfer"] == runs["parent"].map(lambda run: study.steps(run) if run else -1)]
    runs = runs.assign(setting=np.where(runs["rewarmed"], "with re-warm-up", "without re-warm-up"))
    return _sides(study, _most(runs, ["setting", "model"], ["pieces"], "potential"), ["setting", "model", "potential"])


def peaks(study: ScheduleStudy) -> pd.DataFrame:
    """The final loss by peak rate, of otherwise equal runs: model, peak, corpus, side, value (figure 7a, b).

    Of each model the base and schedule that most peaks follow.
    """
    runs = study.runs[study.runs["ratio"] == study.runs["ratio"].max()]
    return _sides(study, _most(runs, ["model"], ["parent", "transfer", "form"], "peak"), ["model", "peak"])


def _most(runs: pd.DataFrame, rows: list[str], alike: list[str], value: str) -> pd.DataFrame:
    """Of each key of `rows` the runs that are alike and have the most values, two or more."""
    counted = runs.assign(several=runs.groupby([*rows, *alike])[value].transform("nunique"))
    counted = counted[counted["several"] > 1].sort_values("several", ascending=False, kind="stable")
    first = counted.groupby(rows)[alike].transform("first")
    return counted[(counted[alike] == first).all(axis=1)].sort_index()


def turning(study: ScheduleStudy) -> pd.DataFrame:
    """Steps until the loss on the old corpus is as at the start, at a constant rate; inf: not reached (figure 7c)."""
    runs, rows = study.fitted_runs(), []
    runs = runs[~runs["rewarmed"] & (runs["ratio"] > 0) & (runs["parent"] != "")]
    columns = ["run", "variant", "model", "ratio", "transfer"]
    for run, variant, model, ratio, transfer in runs[columns].itertuples(index=False, name=None):
        schedule = study.schedules[run]
        if np.ptp(schedule.rates) > 0 or schedule.pretrain is None:
            continue
        fit, first = fitted(study, FitRequest("dynamics", "D_pt", model, ratio)), float(schedule.rates[0])
        turn = turning_length(fit, first, before=schedule.before, pretrain=schedule.pretrain, decay=fit.decay)
        steps, losses = study.curve("D_pt", run).to_numpy(float).T
        sides = {"measured": float(return_steps(steps, losses[None])[0]), "predicted": turn["turning_length"]}
        rows += [(variant, model, round(1 - ratio, 6), transfer, *side) for side in sides.items()]
    if not rows:
        raise PointsError("no run continues at a constant rate without re-warm-up")
    keys = ["model", "replay", "transfer", "side"]
    note = "Steps; inf: not within the run, or never by the law. Predicted: eq. 4, fitted at this replay."
    table = _over_seeds(pd.DataFrame(rows, columns=["variant", *keys, "value"]), keys, note)
    return table.sort_values(["model", "replay", "transfer"], ignore_index=True)


def judge_turning(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether less pre-training, and more replay, mean an earlier return."""
    rows = cells[cells["side"] == "measured"]
    pairs = [
        *((a, b) for a, b in _pairs(rows, "transfer", ["model", "replay"]) if np.isfinite(a)),
        *((b, a) for a, b in _pairs(rows, "replay", ["model", "transfer"]) if np.isfinite(b)),
    ]
    never = int(np.isinf(rows["ours"]).sum())
    counted = f"{never} of {len(rows)} runs do not return within their length"
    claim = f"{counted}; less pre-training or more replay, an earlier return"
    return _judge_pairs((later >= sooner for sooner, later in pairs), claim)


def best_designs(study: ScheduleStudy) -> pd.DataFrame:
    """The minimum of eq. 5 by the weight of D_pt, by the laws fitted here: choice, model, weight, value (figure 8).

    Pre-training is that of the study's question, continual pre-training a cosine of its length to 0. The peak is by
    eq. 4, re-warmed; replay by eq. 8 at the question's peak; the loss potential by eq. 4, the cosine starting at the
    last rate of pre-training (the paper does not say whether it does).
    """
    rows = []
    for model in study.models:
        runs = study.fitted_runs(model)
        runs = runs[(runs["variant"] == "") & (runs["parent"] != "")]
        if runs.empty:
            raise PointsError("the question's own runs have no pre-training")
        first, peak, low = runs["run"].iloc[0], float(runs["peak"].iloc[0]), float(study.runs["peak"].min())
        past, steps = study.schedules[first].pretrain, study.steps(first)
        assert past is not None
        plain = [fitted(study, FitRequest("dynamics", corpus, model, 1.0)) for corpus in CORPORA]
        mixed = [fitted(study, FitRequest(REPLAY[corpus], corpus, model)) for corpus in CORPORA]
        losses = np.array([[_annealed(fit, past, potential, steps) for potential in POTENTIALS] for fit in plain])
        for weight in WEIGHTS:
            best = partial(balance, weight=float(weight), steps=steps, pretraining=past)
            weighted = float(weight) * losses[0] + (1 - float(weight)) * losses[1]
            choices = {
                "loss potential": POTENTIALS[int(weighted.argmin())],
                "peak rate": best(*plain, peak=(low, peak))["peak"],
                "replay": best(*mixed, peak=peak, replay=(0.0, 1.0))["replay"],
            }
            rows += [(choice, model, weight, value) for choice, value in choices.items()]
    return pd.DataFrame(rows, columns=["choice", "model", "weight", "value"])


def _annealed(fit: Fit, past: np.ndarray, potential: float, steps: int) -> float:
    """The loss after a cosine to 0 from the last rate of a pre-training with a loss potential."""
    before = with_potential(past, potential)
    course = Course(fit, before[-1] * cosine(steps), before[-1], before, {}, fit.decay)
    return float(course.losses(np.array([steps]))[0][0])


def judge_designs(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether the optima move with the weight as in the paper."""
    texts, right = [], []
    for choice, sign in CHOICES.items():
        for model, rows in cells[cells["choice"] == choice].groupby("model", sort=False):
            values = rows.sort_values("weight")["ours"].to_numpy()
            moved = sign * np.diff(values)
            right.append(bool((moved >= -1e-9).all() and moved.max(initial=0) > 1e-9))
            texts.append(f"{choice} of {model} {values[0]:.3g} to {values[-1]:.3g}{'' if right[-1] else ' (not so)'}")
    why = f"From the smallest weight of D_pt to the largest: {', '.join(texts)}; the paper's fall, fall and rise."
    return (IN_ORDER if all(right) else NOT_HERE), why


def _sides(study: ScheduleStudy, runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Measured and predicted final losses of runs: keys, corpus, side, value."""
    if runs.empty:
        raise PointsError(f"no two runs of a model differ in their {keys[-1]} alone")
    rows = []
    for corpus, (model, of_model) in product(CORPORA, runs.groupby("model", sort=False)):
        fit = fitted(study, FitRequest("dynamics", corpus, str(model), 1.0))
        last = study.at_end(corpus, of_model)
        losses = pd.DataFrame({"measured": last["loss"], "predicted": fit.predict(last, study.schedules)})
        table = of_model.set_index("run")[["variant", *keys]].join(losses, how="inner").assign(corpus=corpus)
        rows.append(table.melt(["variant", *keys, "corpus"], list(SIDES), "side", "value"))
    table = pd.concat(rows, ignore_index=True).round({keys[-1]: 9})
    note = "Nats per token at the last step. Predicted: eq. 4 fitted to the schedules of role fit."
    table = _over_seeds(table, [*keys, "corpus", "side"], note)
    return table.sort_values(keys, kind="stable", ignore_index=True)


def _over_seeds(rows: pd.DataFrame, keys: list[str], note: str) -> pd.DataFrame:
    """The mean value over the seeds of each key; where several variants have a key, of the first, as the note says."""
    is_first = rows["variant"] == rows.groupby(keys)["variant"].transform("first")
    table = rows[is_first].groupby(keys, sort=False)["value"].mean().reset_index()
    if others := ", ".join(sorted({name or "that without a name" for name in rows.loc[~is_first, "variant"]})):
        note += f" Of several variants in a cell the first is shown; left out somewhere: {others}."
    table.attrs["note"] = note
    return table


def _pairs(cells: pd.DataFrame, by: str, within: list[str]) -> Iterator[tuple[float, float]]:
    """Every two values of cells that agree in `within`, the one of the smaller `by` first."""
    for _, rows in cells.dropna(subset="ours").groupby(within):
        yield from combinations(rows.sort_values(by)["ours"], 2)


def _judge_sides(
    cells: pd.DataFrame, by: str, within: list[str], claims: Sequence[tuple[str, int, str]]
) -> tuple[str, str]:
    """Whether the loss on a corpus rises (1) or falls (-1) with `by`, as each claim says: corpus, sign, words.

    Losses within SEED_TIE nats tie: another seed may turn them round.
    """
    verdicts, texts = [], []
    for corpus, sign, claim in claims:
        rows = cells[cells["corpus"] == corpus]
        pairs = {side: list(_pairs(rows[rows["side"] == side], by, within)) for side in SIDES}
        changes = [sign * (after - before) for before, after in pairs["measured"]]
        verdict, why = _judge_pairs((change > 0 if abs(change) > SEED_TIE else None for change in changes), claim)
        agree = sum((a - b > 0) == (c - d > 0) for (b, a), (d, c) in zip(pairs["measured"], pairs["predicted"]))
        verdicts.append(verdict)
        texts.append(f"{why} Eq. 4 orders {agree} of {len(pairs['measured'])} pairs as the runs do.")
    return next(verdict for verdict in (UNKNOWN, NOT_HERE, IN_ORDER) if verdict in verdicts), " ".join(texts)


def _judge_pairs(pairs: Iterable[bool | None], claim: str) -> tuple[str, str]:
    """Verdict and reason of a claim on pairs; None: a tie within the noise of a seed."""
    every = list(pairs)
    if not every:
        return UNKNOWN, f"Nothing to compare: {claim}."
    right = [pair for pair in every if pair is not None]
    tied = f"; {len(every) - len(right)} more tie within {SEED_TIE:g} nats" if len(right) < len(every) else ""
    why = f"{claim[0].upper()}{claim[1:]}: so in {sum(right)} of {len(right)} pairs (required: {MOST:.0%}{tied})."
    if len(right) < max(1.0, DECIDED * len(every)):
        return UNKNOWN, why
    return (IN_ORDER if sum(right) >= MOST * len(right) else NOT_HERE), why


_OF_POTENTIAL = [("D_cpt", -1, "more potential, lower loss on D_cpt")]
_OF_PEAK = [("D_cpt", -1, "a higher peak, less loss on D_cpt"), ("D_pt", 1, "a higher peak, more loss on D_pt")]
judge_potentials = partial(_judge_sides, by="potential", within=["setting", "model"], claims=_OF_POTENTIAL)
judge_peaks = partial(_judge_sides, by="peak", within=["model"], claims=_OF_PEAK)
