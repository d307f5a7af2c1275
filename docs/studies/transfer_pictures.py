"""Draw the three figures of docs/transfer-law.md."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from docs.charts import COLOURS, save
from docs.studies.transfer_points import ROOT, Series
from docs.studies.transfer_questions import QUESTIONS, base, fit_to, predicted
from docs.studies.transfer_variants import PROPOSED

DOCS = ROOT / "docs"
BLUE, RED, GREEN, PINK, *_, GREY = COLOURS
RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Domain ratios that are drawn."""
MARKS = (
    ("transfer-anchored", "transfer-anchored (6)", BLUE, False),
    ("transfer-rate", "transfer-rate (7)", PINK, False),
    ("dcpt-free", "dcpt, free (9)", RED, False),
    ("dcpt-free-anchored", "dcpt, free, anchored (9)", RED, True),
    ("dynamics-replay-size", "eq. 7 + 8 (15)", GREEN, False),
    ("dynamics-replay-anchored", "eq. 8 anchored (9)", GREEN, True),
)
"""Law, legend, colour, whether its marker is hollow."""


def curves(series: list[Series]) -> None:
    """Losses of the largest size of the code pair, predicted from the smaller sizes, beside what was measured."""
    figure, panels = _panels()
    for ax, one in zip(panels, series[:2], strict=True):
        p = one.points[base(one.points)]
        largest = p["N"].max()
        small = base(one.points) & (one.points["N"] < largest)
        fits = [fit_to(one, law, small) for law in ("transfer-anchored", "dcpt-free")]
        # Without general text its loss rises so far that the other runs could not be distinguished.
        runs = p[(p["N"] == largest) & ((p["share"] < 1) | (one.kind == "domain"))]
        for ratio, colour in zip(RATIOS, COLOURS, strict=True):
            run = runs[runs["share"] == ratio].sort_values("step")
            for fit, style in zip(fits, ("-", "--"), strict=True) if len(run) else ():
                ax.plot(run["step"], predicted(one, fit, run), style, color=colour, lw=1.2)
            ax.plot(run["step"], run["loss"], "o", color=colour, ms=3, label=f"domain ratio {ratio:g}")
        ax.plot([], [], "-", color=GREY, label="transfer-anchored")
        ax.plot([], [], "--", color=GREY, label="dcpt without its constraint")
        title = f"{one.corpus} loss, {largest * 1e3:.2f} M, predicted from smaller sizes"
        ax.set(title=title, xlabel="step of continual pre-training", ylabel="nats per token")
    _save("curves", figure, panels[1])


def errors(table: pd.DataFrame) -> None:
    """Mean error of each question over the three pairs, law by law."""
    cells = table[(table["section"] == "held-out") & (table["series"] == "all")]
    figure, panels = _panels()
    for ax, kind in zip(panels, ("general", "domain"), strict=True):
        rows = cells[cells["kind"] == kind]
        names = [name for name in QUESTIONS if name in set(rows["question"])]
        for law, label, colour, hollow in MARKS:
            value = rows[rows["law"] == law].set_index("question")["value"].reindex(names).clip(lower=0.002)
            ax.plot(value, names, "o", color=colour, fillstyle="none" if hollow else "full", label=label)
        ax.set(title=f"{kind}: held-out error, mean over runs", xlabel="mean relative error", xscale="log")
        _log_ticks(ax, (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3))
        ax.xaxis.set_major_formatter(PercentFormatter(1))
        ax.invert_yaxis()
    _save("errors", figure, panels[1])


def size(table: pd.DataFrame) -> None:
    """What grows with N where nothing shifts, and the error that remains."""
    rows = table[table["section"] == "size"]
    gains = rows[(rows["question"] == "gain at r = 1") & (rows["series"] == "general (code)")]
    figure, (left, right) = _panels()
    left.plot(gains["low"] * 1e3, gains["value"], "o-")
    left.set(title="gain of general where nothing shifts (r = 1)", ylabel="nats per token", ylim=(0, 0.08))
    for law, style, fill in (("transfer-anchored", "o-", "full"), (PROPOSED, "o--", "none")):
        for name, colour in (("code", BLUE), ("law", RED), ("chemistry", GREEN)):
            chosen = (rows["question"] == "late bias") & (rows["law"] == law) & (rows["series"] == f"general ({name})")
            trend = rows[chosen].sort_values("low")
            label = f"{name}, {'transfer-anchored' if fill == 'full' else 'with C N^nu'}"
            right.plot(trend["low"] * 1e3, trend["value"], style, color=colour, fillstyle=fill, label=label)
    right.set(title="general: error in the second half, all fitted", ylabel="predicted / measured - 1")
    right.yaxis.set_major_formatter(PercentFormatter(1))
    for ax in (left, right):
        ax.set(xlabel="non-embedding parameters (millions)", xscale="log")
        _log_ticks(ax, (0.05, 0.1, 0.2, 0.5, 1.0))
        ax.xaxis.set_major_formatter("{x:g}")
    _save("size", figure, right)


def _panels() -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(11, 4.6))
    return figure, list(figure.subplots(1, 2))


def _log_ticks(ax: Axes, ticks: tuple[float, ...]) -> None:
    ax.xaxis.set(major_locator=FixedLocator(ticks), minor_locator=NullLocator())


def _save(name: str, figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    save(figure, DOCS / f"transfer-law-{name}.svg")
