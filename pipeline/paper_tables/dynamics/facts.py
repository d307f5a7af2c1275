"""Figures 2, 5, 6, 7 and 14 of the learning-dynamics paper: what follows from its law, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product

import numpy as np
import pandas as pd

from fitting import PointsError, turning_length
from fitting.answers.turning_point import returns
from pipeline.paper_tables.dynamics.points import CORPORA, Asked, Dynamics, fitted, lambda_of, predicted
from pipeline.paper_tables.verdict import IN_ORDER, MOST, NOT_HERE, UNKNOWN

SIDES = ("measured", "predicted")
OVERLAP = 1.25
"""Factor between shifts up to which they overlap."""


def shifts(given: Dynamics) -> pd.DataFrame:
    """What the new corpus adds to the loss at the end of a run, against the run that goes on with the old one: model,
    transfer, replay, corpus, value in nats a token (figures 2, 6 and 14)."""
    runs, rows = given.fitted_runs(), []
    for corpus in CORPORA:
        ends = given.ends(corpus, runs)
        keys = ["model", "parent", "transfer", "pieces"]
        same = ends[ends["share"] == 0].drop_duplicates(keys).set_index(keys)["loss"]
        own = ends[ends["share"] > 0]
        loss = own["loss"] - same.reindex(pd.MultiIndex.from_frame(own[keys])).to_numpy()
        own = own.assign(replay=(1 - own["share"]).round(6), corpus=corpus, value=loss).dropna(subset="value")
        rows.append(own.drop_duplicates(["model", "transfer", "replay"]))
    table = pd.concat(rows, ignore_index=True)[["model", "transfer", "replay", "corpus", "value"]]
    if table.empty:
        raise PointsError("no run goes on with the corpus of pre-training alone: plan a share of 0 of the domain")
    table.attrs["note"] = "Nats a token, at the last step; transfer: steps of pre-training before it."
    return table.sort_values(["model", "replay", "transfer"], ignore_index=True)


def overlapping(cells: pd.DataFrame, among: str) -> tuple[str, str]:
    """Whether shifts are alike among transfer points, or models, without replay."""
    own = cells[cells["replay"] == cells["replay"].min()]
    shift = own["ours"].abs().groupby([own[name] for name in ("model", "transfer", "corpus") if name != among])
    apart = (shift.max() / shift.min())[shift.size() > 1]
    if apart.empty:
        return UNKNOWN, f"There is one {among} only."
    told = f"{apart.min():.2f} to {apart.max():.2f} ({OVERLAP:g} is alike)"
    verdict = IN_ORDER if (apart <= OVERLAP).mean() >= MOST else NOT_HERE
    return verdict, f"Among {among}s the shift without replay differs by a factor of {told}."


def less_by_replay(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether more replay means a smaller shift."""
    pairs = _pairs(cells.assign(ours=cells["ours"].abs()), "replay", ["model", "transfer", "corpus"])
    return _ordered(((after < before) for before, after in pairs), "more replay makes the shift smaller")


def potentials(given: Dynamics) -> pd.DataFrame:
    """The last loss by loss potential of the model that is continued, without and with re-warm-up: setting, model,
    potential, corpus, side, value (figure 5)."""
    runs = given.runs[given.runs["share"] == given.runs["share"].max()]
    runs = runs[runs["transfer"] == runs["parent"].map(lambda run: given.steps(run) if run else -1)]
    many = runs.groupby(["model", "pieces"])["potential"].transform("nunique") > 1
    setting = np.where(runs["rewarmed"], "with re-warm-up", "without re-warm-up")
    return _sides(given, runs.assign(setting=setting)[many], ["setting", "model", "potential"])


def more_potential(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether more loss potential means a lower loss on the new corpus."""
    return _both_sides(cells, "potential", ["setting", "model"], "D_cpt", -1, "more potential, lower loss on D_cpt")


def peaks(given: Dynamics) -> pd.DataFrame:
    """The last loss by peak rate, of runs that are otherwise alike: model, peak, corpus, side, value (figure 7a, b)."""
    runs = given.runs[given.runs["share"] == given.runs["share"].max()]
    many = runs.groupby(["model", "parent", "transfer", "form"])["peak"].transform("nunique") > 1
    return _sides(given, runs[many], ["model", "peak"])


def higher_peak(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether a higher peak means less loss on the new corpus, and more on the old."""
    verdicts = [
        _both_sides(cells, "peak", ["model"], corpus, sign, f"a higher peak, {words} on {corpus}")
        for corpus, sign, words in (("D_cpt", -1, "less loss"), ("D_pt", 1, "more loss"))
    ]
    found = {verdict for verdict, _ in verdicts}
    worst = next(one for one in (UNKNOWN, NOT_HERE, IN_ORDER) if one in found)
    return worst, " ".join(why for _, why in verdicts)


def turning(given: Dynamics) -> pd.DataFrame:
    """Steps until the loss on the old corpus is back where it was, at a constant rate: model, replay, transfer, side,
    value; infinite: not within the run, or by the law never (figure 7c)."""
    runs, rows = given.fitted_runs(), []
    own = runs[~runs["rewarmed"] & (runs["share"] > 0) & (runs["parent"] != "")]
    for run, model, share, transfer in own[["run", "model", "share", "transfer"]].itertuples(index=False, name=None):
        schedule = given.schedules[run]
        if np.ptp(schedule.rates) > 0 or schedule.pretrain is None:
            continue
        curve = given.curve("D_pt", run)
        found = fitted(given, Asked("dynamics", "D_pt", model, share))
        turn = turning_length(
            found, float(schedule.rates[0]), before=schedule.before, pretrain=schedule.pretrain, decay=lambda_of(found)
        )
        back = returns(curve["step"].to_numpy(), curve["loss"].to_numpy()[None])[0]
        key = (model, round(1 - share, 6), transfer)
        rows += [(*key, "measured", float(back)), (*key, "predicted", turn["turning_length"])]
    if not rows:
        raise PointsError("no run goes on at a constant rate without re-warm-up")
    table = pd.DataFrame(rows, columns=["model", "replay", "transfer", "side", "value"])
    table.attrs["note"] = (
        "Steps; inf: not within the run, or by the law never. Predicted: eq. 4, fitted at that replay."
    )
    return table.sort_values(["model", "replay", "transfer"], ignore_index=True)


def sooner_back(cells: pd.DataFrame) -> tuple[str, str]:
    """Whether less pre-training, and more replay, mean an earlier return."""
    own = cells[cells["side"] == "measured"]
    told = [
        [(before, after) for before, after in _pairs(own, "transfer", ["model", "replay"]) if np.isfinite(before)],
        [(after, before) for before, after in _pairs(own, "replay", ["model", "transfer"]) if np.isfinite(after)],
    ]
    never = int(np.isinf(own["ours"]).sum())
    counted = f"{never} of {len(own)} runs do not come back within their length"
    return _ordered(
        (later >= sooner for side in told for sooner, later in side),
        f"{counted}; less pre-training or more replay, an earlier return",
    )


def _sides(given: Dynamics, runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Measured and predicted last losses of runs: keys, corpus, side, value."""
    if runs.empty:
        raise PointsError(f"no two runs of a model differ in their {keys[-1]} alone")
    rows = []
    for corpus, (model, own) in product(CORPORA, runs.groupby("model", sort=False)):
        found = fitted(given, Asked("dynamics", corpus, str(model), 1.0))
        ends = given.on(corpus, own, pretraining=False)
        ends = ends[ends["step"] == ends["run"].map(given.steps)].set_index("run", drop=False)
        losses = pd.DataFrame({"measured": ends["loss"], "predicted": predicted(found, ends, given.schedules)})
        there = own.set_index("run")[keys].join(losses, how="inner").assign(corpus=corpus)
        rows.append(there.melt([*keys, "corpus"], list(SIDES), "side", "value"))
    table = pd.concat(rows, ignore_index=True).sort_values(keys, kind="stable", ignore_index=True)
    table.attrs["note"] = "Nats a token at the last step. Predicted: eq. 4 fitted to the schedules that fits may see."
    return table.assign(**{keys[-1]: table[keys[-1]].round(9)})


def _pairs(cells: pd.DataFrame, by: str, within: list[str]) -> Iterator[tuple[float, float]]:
    """Every two values of cells alike in `within`, the one of the smaller `by` first."""
    for _, own in cells.dropna(subset="ours").groupby(within):
        yield from combinations(own.sort_values(by)["ours"], 2)


def _both_sides(cells: pd.DataFrame, by: str, within: list[str], corpus: str, sign: int, words: str) -> tuple[str, str]:
    own = cells[cells["corpus"] == corpus]
    of = {side: list(_pairs(own[own["side"] == side], by, within)) for side in SIDES}
    verdict, why = _ordered((sign * (after - before) > 0 for before, after in of["measured"]), words)
    agree = sum((a - b > 0) == (c - d > 0) for (b, a), (d, c) in zip(of["measured"], of["predicted"]))
    return verdict, f"{why} Eq. 4 puts {agree} of {len(of['measured'])} pairs the same way round as the runs."


def _ordered(right: Iterable[bool], words: str) -> tuple[str, str]:
    found = list(right)
    if not found:
        return UNKNOWN, f"Nothing to compare: {words}."
    verdict = IN_ORDER if sum(found) >= MOST * len(found) else NOT_HERE
    return verdict, f"{words[0].upper()}{words[1:]}: so in {sum(found)} of {len(found)} pairs ({MOST:.0%} are asked)."
