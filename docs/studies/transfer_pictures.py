"""The three pictures of docs/transfer-law.md."""

import math

import pandas as pd

from docs.studies.svg import COLOURS, Chart, page
from docs.studies.transfer_points import ROOT, Series
from docs.studies.transfer_questions import QUESTIONS, base, fit_to, predicted
from docs.studies.transfer_variants import PROPOSED

DOCS = ROOT / "docs"
BLUE, RED, GREEN, PINK, BROWN, VIOLET, GREY = COLOURS
SHOWN = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares of the domain that are drawn."""
MARKS = (
    ("transfer-anchored", "transfer-anchored (6)", BLUE, False),
    ("transfer-rate", "transfer-rate (7)", PINK, False),
    ("dcpt-free", "dcpt, free (9)", RED, False),
    ("dcpt-free-anchored", "dcpt, free, anchored (9)", RED, True),
    ("dynamics-replay-size", "eq. 7 + 8 (15)", GREEN, False),
    ("dynamics-replay-anchored", "eq. 8 anchored (9)", GREEN, True),
)
"""Law, legend, colour, whether the dot is hollow."""


def curves(series: list[Series]) -> None:
    """Losses of the largest size of the code pair, predicted from the smaller sizes, beside what was measured."""
    charts = []
    for one in series[:2]:
        p = one.points[base(one.points)]
        biggest = p["N"].max()
        fits = [fit_to(one, law, base(one.points) & (one.points["N"] < biggest)) for law in
                ("transfer-anchored", "dcpt-free")]  # fmt: skip
        # without general text its loss rises so far that nothing else could be told apart
        runs = p[(p["N"] == biggest) & ((p["share"] < 1) | (one.kind == "domain"))]
        chart = Chart(
            f"{one.corpus} loss, {biggest * 1e3:.2f} M, predicted from smaller sizes",
            *("step of continual pre-training", "nats per token"),
            *((0, 370), (math.floor(runs["loss"].min() * 5) / 5 - 0.2, math.ceil(runs["loss"].max() * 5) / 5)),
        )
        for share, colour in zip(SHOWN, COLOURS, strict=True):
            run = runs[runs["share"] == share].sort_values("step")
            if run.empty:
                continue
            for fit, dashes in zip(fits, ("", "4 3"), strict=True):
                chart.line(run["step"], predicted(one, fit, run), colour, dashes)
            chart.dots(run["step"], run["loss"], colour)
        charts.append(chart)
    legend = [(f"domain share {share:g}", colour, "dot") for share, colour in zip(SHOWN, COLOURS, strict=True)]
    legend += [("transfer-anchored", GREY, "line"), ("dcpt without its constraint", GREY, "dashes")]
    _write("curves", page(charts, legend))


def errors(table: pd.DataFrame) -> None:
    """Mean error of each question over the three pairs, law by law."""
    cells = table[(table["section"] == "held-out") & (table["series"] == "all")]
    charts = []
    for kind in ("general", "domain"):
        own = cells[cells["kind"] == kind]
        names = [name for name in QUESTIONS if name in set(own["question"])][::-1]
        chart = Chart(
            *(f"{kind}: held-out error, mean over runs", "mean relative error", ""),
            *((0.002, 0.5), (-0.6, len(names) - 0.4)),
            log="x",
            ticks_x=[(v, f"{v:.1%}" if v < 0.01 else f"{v:.0%}") for v in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3)],
            ticks_y=list(enumerate(names)),
            width=450,
            height=380,
            left=172,
        )
        for law, _, colour, hollow in MARKS[::-1]:
            found = own[own["law"] == law].set_index("question")["value"]
            there = [(max(found[name], 0.002), i) for i, name in enumerate(names) if name in found]
            chart.dots([x for x, _ in there], [y for _, y in there], colour, 4, hollow)
        charts.append(chart)
    _write("errors", page(charts, [(label, c, "ring" if h else "dot") for _, label, c, h in MARKS]))


def size(table: pd.DataFrame) -> None:
    """What grows with N where nothing shifts, and what is left of it in the errors."""
    own = table[table["section"] == "size"]
    gains = own[(own["question"] == "gain at r = 1") & (own["series"] == "general (code)")]
    sizes = [(v, f"{v:g} M") for v in (0.05, 0.1, 0.2, 0.5, 1.0)]
    left = Chart(
        *("gain of general where nothing shifts (r = 1)", "non-embedding parameters", "nats per token"),
        *((0.04, 1.3), (0.0, 0.08)),
        log="x",
        ticks_x=sizes,
    )
    left.line(gains["low"] * 1e3, gains["value"], BLUE)
    left.dots(gains["low"] * 1e3, gains["value"], BLUE, 4)
    right = Chart(
        *("general: error in the second half, all fitted", "non-embedding parameters", "predicted / measured - 1"),
        *((0.04, 1.3), (-0.02, 0.02)),
        log="x",
        ticks_x=sizes,
        ticks_y=[(v / 100, f"{v:+g}%") for v in (-2, -1, 0, 1, 2)],
    )
    for law, dashes in (("transfer-anchored", ""), (PROPOSED, "4 3")):
        for name, colour in (("code", BLUE), ("law", RED), ("chemistry", GREEN)):
            chosen = (own["question"] == "late bias") & (own["law"] == law) & (own["series"] == f"general ({name})")
            trend = own[chosen].sort_values("low")
            right.line(trend["low"] * 1e3, trend["value"], colour, dashes)
            right.dots(trend["low"] * 1e3, trend["value"], colour, 3.4, bool(dashes))
    legend = [(f"{name} runs", colour, "dot") for name, colour in (("code", BLUE), ("law", RED), ("chemistry", GREEN))]
    legend += [("transfer-anchored", GREY, "line"), ("with C N^nu", GREY, "dashes")]
    _write("size", page([left, right], legend))


def _write(name: str, text: str) -> None:
    (DOCS / f"transfer-law-{name}.svg").write_text(text)
