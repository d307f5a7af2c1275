"""Figures of losses: along the runs, and at their ends by domain ratio."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from pipeline.show.report.colours import BLACK, GREY, ratio_colour
from pipeline.show.report.evidence import Evidence, at_target, predicted, section
from pipeline.show.report.marks import (
    Figure,
    Key,
    Mark,
    Panel,
    axis,
    band,
    dots,
    limits,
    line,
    log_axis,
    panel,
    ratio_axis,
)
from pipeline.study.fitted_points import first_mixture, first_step
from pipeline.study.number_format import label, percent, quantity

RATIOS = np.linspace(0.0, 1.0, 51)
"""Domain ratios at which curves are drawn."""
OUTERMOST = 0.06
"""Curves nearer to a ratio of 0 or 1 do not decide on the range of an axis."""
THIN = Key("outside the ratios that the law was fitted to", GREY, "thin")


def loss_curves(evidence: Evidence) -> Figure | None:
    """Loss against tokens of every continual run, a panel for each corpus and size; None without points."""
    points = _continual(evidence)
    if points.empty:
        return None
    panels, drawn = [], set()
    for corpus in evidence.corpora:
        laws = list(dict.fromkeys([evidence.law_of[corpus], "dcpt"] if evidence.fits else []))
        laws = [law for law in laws if law in evidence.fits and law not in evidence.context.laws_without_peaks]
        own = points.loc[points["corpus"] == corpus]
        bounds = limits(own["loss"], own["loss_before"])
        for title, rows in _by_size_and_variant(own):
            span = [rows["tokens"].min(), rows["tokens"].max()]
            traces = [line(span, [rows["loss_before"].iloc[0]] * 2, GREY, "dash", 1.2)]
            for law in laws:
                dash, width = ("solid", 1.6) if law == laws[0] else ("dot", 1.3)
                for ratio, x, y in _fitted_curves(evidence, law, corpus, rows):
                    drawn.add((law, law == laws[0]))
                    traces.append(line(x, y, ratio_colour(ratio), dash, width))
            for ratio, runs in rows.groupby("ratio"):
                ratio = float(ratio)  # pyright: ignore[reportArgumentType]
                hover = f"{percent(ratio)} {label(evidence.domain)}: %{{y:.4f}} at %{{x:.3s}} tokens"
                for unseen, marked in runs.groupby(runs["role"] == "confirm"):
                    symbol, size = ("diamond", 8) if unseen else ("circle", 6)
                    traces.append(dots(marked["tokens"], marked["loss"], ratio_colour(ratio), size, symbol, hover))
            x = log_axis("tokens of the CPT run, logarithmic", rows["tokens"])
            y = axis("loss, nats per token", range=bounds)
            panels.append(panel(f"Loss on {corpus}", title, traces, x, y))
    keys = [Key(f"{percent(at)} {evidence.domain}", ratio_colour(at), "dot") for at in sorted(set(points["ratio"]))]
    keys += [Key(law, GREY, "line" if first else "dotted") for law, first in sorted(drawn, key=lambda key: not key[1])]
    keys.append(Key("loss before CPT", GREY, "dashed"))
    if "confirm" in set(points["role"]):
        keys.append(Key("confirmation run, in no fit", GREY, "diamond"))
    return Figure(keys, panels)


def ratio_curves(evidence: Evidence) -> Figure | None:
    """Loss at the end of a run against its domain ratio, at the target and each fitted size; None without fits."""
    if evidence.points is None or not evidence.fits:
        return None
    panels = []
    for corpus in evidence.corpora:
        panels += [*_target_panel(evidence, corpus), *_fitted_size_panels(evidence, corpus)]
    first = {evidence.law_of[corpus] for corpus in evidence.corpora}
    keys = [Key(law, evidence.colours[law], "line" if law in first else "dashed") for law in evidence.laws]
    keys += [Key("90% interval", GREY, "band"), THIN]
    keys += [Key("end of a fitted run", GREY, "dot"), Key("loss before CPT", GREY, "dashed")]
    if evidence.confirmations:
        keys.append(Key("confirmation run, in no fit", BLACK, "diamond"))
    if evidence.domain_ratio is not None:
        keys.append(Key("recommended domain ratio", BLACK, "upright"))
    return Figure(keys, panels)


def _target_panel(evidence: Evidence, corpus: str) -> Iterator[Panel]:
    target = evidence.target
    if target is None:
        return
    bands, lines, curves, shown = [], [], [], []
    for law in evidence.laws_for(corpus):
        if (made := at_target(evidence, law, corpus, RATIOS)) is None:
            continue
        fit, (frame, losses) = evidence.fits[law][corpus], made
        sides = [losses]
        lines = _law_lines(evidence, law, corpus, sides[0]) + lines
        if len(fit.draws):
            sides += fit.predict_interval(frame)
            bands.append(band(100 * RATIOS, sides[1], sides[2], evidence.colours[law]))
        curves += sides
        # Where the run is all domain, or all general, losses leave the range that an answer is sought in.
        near = seen(evidence, law, corpus) & (RATIOS >= OUTERMOST) & (RATIOS <= 1 - OUTERMOST)
        shown = shown or [side[near] for side in sides]
    if not curves:
        return
    measured = {row.run: row for row in evidence.confirmations if row.corpus == corpus}.values()
    x, y = [100 * row.domain_ratio for row in measured], [row.measured for row in measured]
    marks = dots(x, y, BLACK, 11, "diamond", "measured: %{y:.4f} at %{x:.1f}%")
    bounds = limits([*np.concatenate(shown), *y], [target.before[corpus]], *curves)
    rules = [line([0, 100], [target.before[corpus]] * 2, GREY, "dash", 1.2)]
    if evidence.domain_ratio is not None:
        rules.append(line([100 * evidence.domain_ratio] * 2, bounds, BLACK, "solid", 1))
    y = axis("loss, nats per token", range=bounds)
    title = f"The answer: {target.model}, {quantity(target.D * 1e9)} tokens"
    yield panel(f"Loss on {corpus}", title, [*bands, *rules, *lines, marks], ratio_axis(evidence.short_ratio_name), y)


def _fitted_size_panels(evidence: Evidence, corpus: str) -> Iterator[Panel]:
    points = _continual(evidence)
    fitted = first_mixture(points.loc[(points["corpus"] == corpus) & (points["role"] == "fit")])
    # Variants end elsewhere than the question's own runs, of which the curves speak.
    own = fitted.loc[fitted["variant"] == ""]
    for model, rows in _by_size(own if len(own) else fitted):
        ends = rows.loc[rows["step"] == rows["step"].max()]
        # Runs with another peak learning rate end elsewhere too.
        by_schedule = [of for _, of in ends.groupby(ends["s1"].round(9), dropna=False)]
        title = f"Runs for the fit: {model}, {quantity(ends['tokens'].max())} tokens"
        for of in by_schedule:
            named = f"{title}, S1 = {of['s1'].iloc[0]:.3g}" if len(by_schedule) > 1 else title
            yield _fitted_panel(evidence, corpus, named, of)


def _fitted_panel(evidence: Evidence, corpus: str, title: str, ends: pd.DataFrame) -> Panel:
    """The last points of fitted runs that differ in their ratio and seed, beside what the laws say of such runs."""
    frame = pd.DataFrame({**ends.iloc[0].to_dict(), "r": _own_ratios(evidence, corpus)})
    traces = [line([0, 100], [ends["loss_before"].iloc[0]] * 2, GREY, "dash", 1.2)]
    curves, laws = [], evidence.laws_for(corpus)
    for law in laws:
        losses = predicted(evidence, evidence.fits[law][corpus], frame)
        traces[1:1] = _law_lines(evidence, law, corpus, losses)
        curves.append(losses)
    traces.append(dots(100 * ends["ratio"], ends["loss"], GREY, 8, hover="measured: %{y:.4f} at %{x:.1f}%"))
    near = curves[0][seen(evidence, laws[0], corpus)]
    y = axis("loss, nats per token", range=limits([*ends["loss"], *near], ends["loss_before"], *curves))
    return panel(f"Loss on {corpus}", title, traces, ratio_axis(evidence.short_ratio_name), y)


def _fitted_curves(
    evidence: Evidence, law: str, corpus: str, rows: pd.DataFrame
) -> Iterator[tuple[float, list[float], list[float]]]:
    """Ratio, tokens and predicted losses of the runs of a panel; runs of one ratio are one line with gaps."""
    admitted, rows = section(evidence.question, law), first_mixture(rows)
    last = rows.loc[rows["step"] == rows.groupby("run")["step"].transform("max")]
    first = admitted.from_step if evidence.points is None else first_step(evidence.points, corpus, admitted)
    last = last[(last["step"] > first) & (last["r"] >= admitted.min_ratio)]
    if last.empty:
        return
    steps = [np.unique(np.geomspace(max(first, 1), end, 28).round().astype(int)) for end in last["step"]]
    # All runs at once: a prediction takes as long for one as for all.
    frame = last.loc[last.index.repeat([len(of_run) for of_run in steps])].reset_index(drop=True)
    frame["tokens"] *= np.concatenate(steps) / frame["step"]
    frame = frame.assign(step=np.concatenate(steps), D=frame["tokens"] / 1e9)
    frame["loss"] = predicted(evidence, evidence.fits[law][corpus], frame)
    for ratio, runs in frame.groupby("ratio"):
        x, y = [], []
        for _, run in runs.groupby("run"):
            x += [*run["tokens"], np.nan]
            y += [*run["loss"], np.nan]
        yield float(ratio), x, y  # pyright: ignore[reportArgumentType]


def _law_lines(evidence: Evidence, law: str, corpus: str, losses: np.ndarray) -> list[Mark]:
    """The curve of a law over RATIOS, thin outside the fitted ratios."""
    dash, colour = "solid" if law == evidence.law_of[corpus] else "dash", evidence.colours[law]
    hover = f"{label(law)}: %{{y:.4f}} at %{{x:.0f}}%"
    # The thin line runs below the whole of the thick one, so that no gap opens where they meet.
    within = np.where(seen(evidence, law, corpus), losses, np.nan)
    thin = line(100 * RATIOS, losses, colour, "solid", 0.9, hover)
    return [thin, line(100 * RATIOS, within, colour, dash, 2.5)]


def _continual(evidence: Evidence) -> pd.DataFrame:
    points = evidence.points
    if points is None:
        return pd.DataFrame()
    # Only a question with variants has the column.
    points = points.assign(variant=points.get("variant", ""))
    return points.loc[(points["phase"] == "continual") & (points["step"] > 0)]


def _by_size(points: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    groups = [(str(model), rows) for model, rows in points.groupby("model")]
    return sorted(groups, key=lambda group: (group[1]["N"].iloc[0], group[0]))


def _by_size_and_variant(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Title and points of each panel; the variants that no fit sees have one together, as each may be a single run."""
    unseen = (points["variant"] != "") & (points["role"] == "confirm")
    for model, rows in _by_size(points):
        size = f"{model}, N = {quantity(rows['N'].iloc[0] * 1e9)}"
        for variant, own in rows.groupby(rows["variant"].mask(unseen, "variants in no fit")):
            yield f"{size}, {variant}" if variant else size, own


def seen(evidence: Evidence, law: str, corpus: str) -> np.ndarray:
    """Which of RATIOS lie within the fitted ratios."""
    low, high = evidence.fits[law][corpus].ranges.get("r", (0.0, 1.0))
    own = _own_ratios(evidence, corpus)
    return (own >= low - 1e-9) & (own <= high + 1e-9)


def _own_ratios(evidence: Evidence, corpus: str) -> np.ndarray:
    return 1 - RATIOS if corpus == evidence.general else RATIOS
