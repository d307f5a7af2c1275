"""What a person sees of a run that is followed: tables and lines of plain text."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from pipeline.goals.ratio.following import Ending, FollowedRun
from pipeline.show.table import Table
from pipeline.study.number_format import percent, signed

ROWS = 6
"""Losses of a corpus that a terminal shows, the last one among them."""


def following_items(run: FollowedRun) -> list[Table | str]:
    """The run so far beside its prediction, its end, and other ways to end it."""
    return [headline(run), losses_table(run, ROWS), *position_lines(run), *verdict_items(run)]


def headline(run: FollowedRun) -> str:
    """Which run it is, and how far it has come."""
    steps, domain = run.target.steps, run.corpora[1]
    came = f"step {run.step:,} of {steps:,} ({run.step / steps:.0%})"
    return f"{run.target.model} on {percent(run.domain_ratio)} {domain}: {came}"


def losses_table(run: FollowedRun, most: int) -> Table:
    """At most so many losses of each corpus, evenly spaced."""
    rows = []
    for corpus in run.corpora:
        table = run.compared[corpus]
        chosen = np.unique(np.linspace(0, len(table) - 1, min(most, len(table))).round().astype(int))
        for row, outside in zip(table.iloc[chosen].itertuples(), _outside(table).iloc[chosen]):
            interval, mark = f"{row.low:.4f} to {row.high:.4f}", "!" if outside else ""
            rows.append([corpus, f"{row.step:,}", f"{row.loss:.4f}", f"{row.predicted:.4f}", interval, mark])
    columns = ["loss on", "step", "measured", "predicted", "90% interval", ""]
    longest = max(len(table) for table in run.compared.values())
    some = f"; {most} of {longest} losses on a corpus, the page has all" if longest > most else ""
    return Table("The losses so far", columns, rows, f"!: measured outside the interval{some}")


def position_lines(run: FollowedRun) -> Iterator[str]:
    """Whether the losses of each corpus are inside their intervals; if not, from which step on, and by how much.

    Also that another run than the one asked about may be the cause, where that is so from the first loss on.
    """
    of_another = False
    for corpus in run.corpora:
        table = run.compared[corpus]
        if table.empty:
            yield f"{corpus}: no loss yet at step {run.first_step(corpus):,} or later, of which the laws speak"
            continue
        outside, last = _outside(table), table.iloc[-1]
        steps = run.measured.loc[run.measured["corpus"] == corpus, "step"]
        if before := int(((steps > 0) & (steps < run.first_step(corpus))).sum()):
            early = f"{before} loss{'es' * (before > 1)} before step {run.first_step(corpus):,}"
            yield f"{corpus}: {early}, where the laws begin, not compared"
        marks = np.select([table["loss"] > table["high"], table["loss"] < table["low"]], ["+", "-"], ".")
        strip = f"{''.join(marks[-60:])} (a loss each: + above, - below, . inside)"
        if outside.iloc[-1]:
            since = table["step"][outside[::-1].cummin()].iloc[0]
            of_another |= bool(outside.all())
            side, end = ("above", "high") if last["loss"] > last["high"] else ("below", "low")
            at = f"by {abs(last['loss'] / last[end] - 1):.2%} at step {last['step']:,.0f}"
            yield f"{corpus}: {side} its 90% interval from step {since:,} on, {at}: {strip}"
        else:
            yield f"{corpus}: {int((~outside).sum())} of {len(table)} losses inside, the last one too: {strip}"
        errors, at_end = run.drift(corpus)
        if at_end:
            loss, low, high = run.predicted_end(corpus)
            there = loss * float(np.exp(at_end))
            first, now, then = (f"{abs(np.expm1(error)):.2%}" for error in (errors[0], errors[-1], at_end))
            change = f", {signed(run.increase(corpus, there))} from before the run" if corpus == run.corpora[0] else ""
            yield (
                f"{corpus}: drifts {'above' if at_end > 0 else 'below'} its prediction: its last {len(errors)} losses "
                f"are all on that side, by {first} first and {now} now; at this pace by {then} at the end "
                f"({there:.4f}{change}), {'inside' if low <= there <= high else 'outside'} its 90% interval: the laws "
                "miss how this run goes on"
            )
    if of_another:
        peak = run.laws.question.target.peak_learning_rate
        asked = f"{percent(run.domain_ratio)} {run.corpora[1]} and the peak {peak:g}"
        yield (
            f"outside from the first loss on: perhaps another run than the one asked about, of {asked}; "
            "domain_ratio=, target.peak_learning_rate= and schedule@target.schedule= say how it is trained"
        )
    for corpus, level in run.levels.items():
        # As soon as a digit that is printed is another than the study's.
        if abs(level) >= 5e-5:
            own, known = run.loss_before(corpus), run.target.before[corpus]
            yield f"{corpus}: {own:.4f} before the run, {known:.4f} in the study; predictions shifted by {level:+.4f}"


def verdict_items(run: FollowedRun) -> list[Table | str]:
    """The end of the run, what it means for the goal, and other ways to go on."""
    general, goal, steps = run.corpora[0], run.laws.question.goal, run.target.steps
    is_limited, allowed = goal.kind == "trade-off", f"{100 * goal.tolerance:.3g}% allowed"
    if run.step >= steps:
        last = run.measured[run.measured["corpus"] == general].sort_values("step").iloc[-1]
        when = f" until step {last['step']:,}, its last loss" * bool(last["step"] < run.step)
        rise = f"{signed(run.increase(general, float(last['loss'])))}{when}{f', {allowed}' * is_limited}"
        return [f"the run has ended: the loss on {general} changed by {rise}"]
    endings = [
        Ending("as predicted before it", steps, {corpus: run.predicted_end(corpus) for corpus in run.corpora}),
        Ending("with its losses so far", steps, {corpus: run.end(corpus) for corpus in run.corpora}),
    ]
    lines = [f"horizon: the end has {steps / max(run.step, 1):.3g} times the steps so far"]
    if is_limited and run.is_refuted(general):
        now = run.increase(general, float(run.compared[general]["loss"].iloc[-1]))
        lines.append(
            f"the laws do not hold for the loss on {general} of this run: it is at {signed(now)}, {allowed}; what they "
            "say of its end, or of another rest, is not to be trusted, and runs nearer to it in length would tell"
        )
    elif is_limited and run.compared[general].empty:
        lines.append(f"no loss on {general} counts yet: its end is as it was predicted")
    elif is_limited:
        loss, low, high = (run.increase(general, side) for side in endings[-1].losses[general])
        exceeds, probably = loss > goal.tolerance, "probably " if low <= goal.tolerance < high else ""
        word = f"will {probably}{'exceed' if exceeds else 'stay within'} the tolerance"
        at_end = f"{signed(loss)} at the end (90%: {signed(low)} to {signed(high)})"
        line = f"the loss on {general} {word}: {at_end}, {allowed}"
        others = list(run.endings(exceeds))
        endings += [one for one in others if isinstance(one, Ending)]
        lines = [line, *lines, *(one for one in others if isinstance(one, str))]
    return [_endings_table(run, endings), *lines]


def _endings_table(run: FollowedRun, endings: list[Ending]) -> Table:
    """A row an ending and corpus: the loss, its interval, and the change from before the run."""
    rows = [
        [one.what, f"{one.steps:,}", corpus, f"{loss:.4f}", f"{low:.4f} to {high:.4f}"]
        + [signed(run.increase(corpus, loss))]
        for one in endings
        for corpus, (loss, low, high) in one.losses.items()
    ]
    return Table("The end", ["", "step", "loss on", "predicted", "90% interval", "change"], rows, left=3, group=2)


def _outside(table: pd.DataFrame) -> pd.Series:
    return (table["loss"] < table["low"]) | (table["loss"] > table["high"])
