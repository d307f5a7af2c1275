"""Figures of mixture weights: by method, by scale and by step, the fitted curves, and the measured losses."""

import numpy as np
import pandas as pd

from pipeline.goals.weights.artifacts import DesignFit, WeightsConfirmation, WeightsRecommendation
from pipeline.show.report.colours import BLACK, GREY, series_colours
from pipeline.show.report.marks import (
    Figure,
    Key,
    Mark,
    Panel,
    axis,
    bar,
    dots,
    limits,
    line,
    log_axis,
    name_axis,
    panel,
)
from pipeline.study.number_format import label, percent, quantity

SCALES = ("#009E73", "#AA4499")
"""Dashes of the curves at the smaller and the larger scale."""


def _weight_axis() -> Mark:
    return axis("weight", tickformat=".0%", rangemode="tozero")


def weights_by_method(content: WeightsRecommendation) -> Figure:
    """The weights of every proposal, a row a domain; the recommended ones with their interval."""
    domains, rows = list(content.mixture), content.proposals
    ink = series_colours([row.method for row in rows])
    places, names = name_axis(domains)
    traces = []
    for at, row in enumerate(rows):
        weights = [row.weights[domain] for domain in domains]
        # Vertically shifted, so that equal weights do not cover each other.
        y = places + 0.6 * (0.5 - (at + 0.5) / len(rows))
        answer = row.method == content.method
        hover = f"{label(row.method)}: %{{x:.1%}}"
        trace = dots(weights, y, ink[row.method], 9 if answer else 7, "diamond" if answer else "circle", hover)
        if row.low:
            trace["error_x"] = bar([row.low[name] for name in domains], weights, [row.high[name] for name in domains])
        traces.append(trace)
    keys = [Key(row.method, ink[row.method], "diamond" if row.method == content.method else "dot") for row in rows]
    height = 70 + len(domains) * max(34, 9 * len(rows))
    return Figure(keys, [panel("", "", traces, _weight_axis(), names, height)])


def weights_by_scale(content: WeightsRecommendation) -> Figure | None:
    """Weights along AutoScale's path, from the optima at two scales to beyond the target; None without a path."""
    rows = [row for row in content.proposals if row.details.path]
    if not rows:
        return None
    domains = list(content.mixture)
    ink = series_colours(domains)
    panels = []
    for row in rows:
        path, designs = row.details.path, row.details.designs
        totals = [place.tokens for place in path]
        traces = []
        for domain in domains:
            hover = f"{label(domain)}: %{{y:.1%}} at %{{x:.3s}} tokens"
            free, capped = ([place.free[domain] for place in path], [place.weights[domain] for place in path])
            if any(abs(a - b) > 1e-6 for a, b in zip(free, capped)):
                traces.append(line(totals, free, ink[domain], "dot", 1.2))
            traces.append(line(totals, capped, ink[domain], "solid", 2, hover))
            optima = [design.weights[domain] for design in designs]
            traces.append(dots([design.tokens for design in designs], optima, ink[domain], 8, "circle", hover))
        top = max(max(place.weights.values()) for place in path)
        traces.append(line([content.target.tokens] * 2, [0.0, top], BLACK, "dash", 1.2))
        x = log_axis("tokens of the run", [*totals, content.target.tokens])
        panels.append(panel("", row.method, traces, x, _weight_axis(), 320))
    keys = [Key(domain, ink[domain], "line") for domain in domains]
    keys += [Key("optimum of the runs at a scale", GREY, "dot"), Key("without caps", GREY, "dotted")]
    return Figure([*keys, Key("the target", BLACK, "dashed")], panels)


def domain_curves(content: WeightsRecommendation) -> Figure | None:
    """The mean loss over all domains against the tokens of one: runs and fitted curves, a panel a domain."""
    of_method = {row.method: row.details.designs for row in content.proposals}
    if not (designs := of_method.get("autoscale", of_method.get("ddo", [])[-1:])):
        return None
    relative = [np.concatenate(of) / design.base_value for design in designs for of in design.points.values()]
    bounds = limits(np.concatenate(relative))
    panels = [_domain_panel(domain, designs, bounds) for domain in content.mixture]
    keys = [Key(f"base run of {quantity(design.tokens)} tokens", ink, "line") for design, ink in zip(designs, SCALES)]
    keys += [Key("a run, one seed", GREY, "dot"), Key("optimum; ◂: farther left", GREY, "diamond")]
    return Figure(keys, panels)


def _domain_panel(domain: str, designs: list[DesignFit], bounds: list[float]) -> Panel:
    traces = []
    for design, ink in zip(designs, SCALES):
        factors, curve = design.factors, design.coefficients[domain]
        x = np.geomspace(min(factors), max(factors), 61)
        a, b, c = curve.a, curve.b, curve.c
        traces.append(line(x, (x + a) ** -b + c, ink))
        for seed in design.points[domain]:
            ratios = [value / design.base_value for value in seed]
            traces.append(dots(factors, ratios, ink, 6, "circle", "%{y:.4f} at %{x:.3g} times its tokens"))
        best = design.weights[domain] / design.base[domain]
        hover = f"optimum: {percent(design.weights[domain])}, {best:.3g} times its tokens"
        # A logarithmic axis has no place for a weight of 0.
        shown = max(best, min(factors) / 2)
        symbol = "diamond" if shown == best else "triangle-left"
        traces.append(dots([shown], [(shown + a) ** -b + c], ink, 10, symbol, hover))
    marked = designs[0].factors
    ticks = {"tickvals": marked, "ticktext": [f"{factor:.3g}" for factor in marked]}
    x = axis("times its tokens in the base run", type="log", **ticks)
    return panel("", domain, traces, x, axis("mean, over the base run's", range=bounds), 250)


def losses_by_method(comparison: WeightsConfirmation) -> Figure:
    """The mean over the domains of every confirmation run, and the mean over the seeds."""
    rows = comparison.ranked
    ink = series_colours([row.method for row in comparison.methods])
    places, names = name_axis(row.method for row in rows)
    traces = []
    for place, row in zip(places, rows):
        colour = ink[row.method]
        traces.append(dots(row.values, [place] * len(row.values), colour, 7, "circle", "one seed: %{x:.4f}"))
        hover = f"{label(row.method)}: %{{x:.4f}}"
        traces.append(dots([row.value], [place], colour, 12, "diamond-open", hover))
    unit = "mean loss over the domains, nats per token" if comparison.average == "loss" else "mean perplexity"
    bounds = limits([value for row in rows for value in row.values])
    keys = [Key("one seed", GREY, "dot"), Key("mean of the seeds", GREY, "diamond")]
    return Figure(keys, [panel("", "", traces, axis(unit, range=bounds, nticks=5), names, 90 + 34 * len(rows))])


def confirmation_curves(comparison: WeightsConfirmation, points: pd.DataFrame) -> Figure | None:
    """The mean over domains and seeds while the confirmation runs train; None without their points."""
    ink = series_colours([row.method for row in comparison.methods])
    chosen = points[points["step"] > 0]
    values = chosen["loss"] if comparison.average == "loss" else np.exp(chosen["loss"])
    chosen = chosen.assign(value=values * chosen["corpus"].map(comparison.domain_values))
    traces, shown, tokens = [], [], []
    for row in comparison.methods:
        runs = chosen[chosen["run"].isin(row.runs)]
        mean = runs.groupby(["tokens", "run"])["value"].sum().groupby("tokens").mean()
        if mean.empty:
            continue
        hover = f"{label(row.method)}: %{{y:.4f}} at %{{x:.3s}} tokens"
        traces.append(line(mean.index, mean, ink[row.method], "solid", 1.8, hover))
        shown += mean[mean.index >= mean.index.max() / 8].tolist()
        tokens += mean.index.tolist()
    if not traces:
        return None
    unit = "mean loss, nats per token" if comparison.average == "loss" else "mean perplexity"
    keys = [Key(row.method, ink[row.method], "line") for row in comparison.methods]
    x = log_axis("tokens", tokens)
    return Figure(keys, [panel("", "", traces, x, axis(unit, range=limits(shown)), 360)])


def weights_by_step(content: WeightsRecommendation) -> Figure | None:
    """Weights of the proxies against their steps, a panel a round and seed; None without DoReMi."""
    row = next((row for row in content.proposals if row.method == "doremi"), None)
    if row is None:
        return None
    ink = series_colours(list(content.mixture))
    panels = []
    for number, design in enumerate(row.details.rounds, start=1):
        for seed, path in enumerate(design.paths):
            traces = []
            for domain, colour in ink.items():
                hover = f"{label(domain)}: %{{y:.1%}} after %{{x}} steps"
                traces.append(line(path.steps, path.weights[domain], colour, "dot", 1.2, hover))
                traces.append(line(path.steps, path.mean[domain], colour, "solid", 2, hover))
            words = [f"round {number}"] if len(row.details.rounds) > 1 else []
            words += [f"seed {seed + 1}"] if len(design.paths) > 1 else []
            panels.append(panel("", ", ".join(words), traces, axis("step of the proxy"), _weight_axis(), 300))
    keys = [Key(domain, colour, "line") for domain, colour in ink.items()]
    keys += [Key("after each step", GREY, "dotted"), Key("mean over the steps so far", GREY, "line")]
    return Figure(keys, panels)
