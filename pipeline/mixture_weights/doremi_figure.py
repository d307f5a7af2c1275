"""The picture of DoReMi: how its proxies' weights moved, and their mean, which is the answer."""

from __future__ import annotations

from pipeline.mixture_weights.artifacts import WeightsRecommendation
from pipeline.mixture_weights.figures import colours
from pipeline.report.marks import GREY, Figure, Key, axis, line, panel
from pipeline.report.number_format import label


def weights_by_step(content: WeightsRecommendation) -> Figure | None:
    """Weights of the proxies against their steps, a panel a round and seed; None without DoReMi."""
    row = next((row for row in content.proposals if row.method == "doremi"), None)
    if row is None:
        return None
    ink = colours(list(content.mixture))
    panels = []
    for number, made in enumerate(row.details.rounds, start=1):
        for seed, path in enumerate(made.paths):
            traces = []
            for domain, colour in ink.items():
                hover = f"{label(domain)}: %{{y:.1%}} after %{{x}} steps"
                traces.append(line(path.steps, path.weights[domain], colour, "dot", 1.2, hover))
                traces.append(line(path.steps, path.mean[domain], colour, "solid", 2, hover))
            words = [f"round {number}"] if len(row.details.rounds) > 1 else []
            words += [f"seed {seed + 1}"] if len(made.paths) > 1 else []
            y = axis("weight", tickformat=".0%", rangemode="tozero")
            panels.append(panel("", ", ".join(words), traces, axis("step of the proxy"), y, 300))
    keys = [Key(domain, colour, "line") for domain, colour in ink.items()]
    return Figure([*keys, Key("after each step", GREY, "dotted"), Key("mean so far: the answer", GREY, "line")], panels)
