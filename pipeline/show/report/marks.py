"""Panels, keys, lines, dots, bands and axes of the report's figures, as plain Plotly JSON."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.show.report.evidence import Evidence
from pipeline.study.number_format import label, quantity, short

GREY, BLACK = "#5f6773", "#111111"
CORPUS_COLOURS = ("#0072B2", "#D55E00")
"""General, domain: blue and vermilion, which every kind of colour vision tells apart (Okabe and Ito)."""
LAW_COLOURS = ("#009E73", "#AA4499", "#B07C00", "#3A3F9E", "#6B6B6B", "#56B4E9")
"""Laws, in the question's order."""


_AXIS = {
    **{"title": {"standoff": 8}, "automargin": True, "gridcolor": "#e9ecf0", "linecolor": "#aab1bb", "zeroline": False},
    **{"showline": True, "ticks": "outside", "tickcolor": "#aab1bb", "ticklen": 4, "nticks": 7},
}
TEMPLATE = {
    "layout": {
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "margin": {"l": 10, "r": 14, "t": 8, "b": 10},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"font": {"size": 12}, "namelength": 0},
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": "#333a44"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
}
"""Plotly template of all panels. A page holds it once; a panel that leaves the page takes it along (`Panel.whole`)."""


@dataclass(frozen=True)
class Key:
    """A line of a figure's key."""

    label: str
    """Its meaning, plain text."""
    colour: str
    """CSS colour."""
    mark: str
    """line, thin, dashed, dotted, upright, dot, ring, diamond or band."""


@dataclass(frozen=True)
class Panel:
    """One plot."""

    group: str
    """Heading above it."""
    title: str
    """Its own title, as plain text."""
    spec: dict[str, Any]
    """data and layout, as Plotly.react takes them."""

    @property
    def whole(self) -> dict[str, Any]:
        """data and layout with the template."""
        return {**self.spec, "layout": {**self.spec["layout"], "template": TEMPLATE}}

    @property
    def words(self) -> str:
        """Names and ranges of its axes, for screen readers."""
        return "; ".join(filter(None, (_axis_words(self.spec, side) for side in "xy")))


@dataclass(frozen=True)
class Figure:
    """Panels with one list of keys."""

    keys: list[Key]
    """Meaning of colours, lines and marks."""
    panels: list[Panel]
    """In reading order."""


def panel(
    group: str,
    title: str,
    traces: list[dict[str, Any]],
    x: dict[str, Any],
    y: dict[str, Any],
    height: int = 270,
    annotations: Iterable[dict[str, Any]] = (),
) -> Panel:
    """A plot of traces, height in pixels; titles and keys are HTML around it, so that they cannot overlap."""
    layout = {"xaxis": x, "yaxis": y, "height": height, "annotations": list(annotations)}
    return Panel(group, title, {"data": traces, "layout": layout})


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis; the title is markup already, so pass names through `label`."""
    return {"title": {"text": title}, **more}


def ratio_axis(domain: str, low: float = -3, high: float = 103) -> dict[str, Any]:
    """An axis of domain ratios in percent."""
    return axis(f"domain ratio of {short(domain)}", range=[low, high], dtick=25, ticksuffix="%")


def token_axis(title: str, tokens: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of token counts, labelled at 1 and 3 of each decade, or at 1 if they are many."""
    logs = np.log10(np.array(list(tokens), float))
    low, high = float(logs.min()), float(logs.max())
    room = 0.05 * max(high - low, 0.1)
    steps = (1, 3) if high - low < 3 else (1,)
    marked = [step * 10**decade for decade in range(int(low) - 1, int(high) + 2) for step in steps]
    ticks = {"tickvals": marked, "ticktext": [quantity(value).replace(" ", "") for value in marked], "tickangle": 0}
    return axis(title, type="log", range=numbers([low - room, high + room]), **ticks)


def line(
    x: Iterable[Any], y: Iterable[Any], colour: str, dash: str = "solid", width: float = 2, hover: str = ""
) -> dict[str, Any]:
    """A line; NaN makes a gap. dash: solid, dash or dot; width in pixels; hover: a plotly template."""
    return _trace("lines", x, y, hover) | {"line": {"color": colour, "width": width, "dash": dash}}


def dots(
    x: Iterable[Any],
    y: Iterable[Any],
    colour: str,
    size: float,
    symbol: str = "circle",
    hover: str = "",
    opacity: float = 1.0,
) -> dict[str, Any]:
    """Marks, size in pixels."""
    edge = {"width": 0.8, "color": "#ffffff"} if not symbol.endswith("open") else {"width": 2.5, "color": colour}
    marker = {"color": colour, "size": size, "symbol": symbol, "opacity": opacity, "line": edge}
    return _trace("markers", x, y, hover) | {"marker": marker}


def band(x: Iterable[Any], low: Iterable[Any], high: Iterable[Any], colour: str) -> dict[str, Any]:
    """The area between two curves over the same x."""
    x, low, high = list(x), list(low), list(high)
    fill = f"rgba({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}, 0.16)"
    return _trace("none", [*x, *reversed(x)], [*low, *reversed(high)], "") | {"fill": "toself", "fillcolor": fill}


def notes(
    x: Iterable[float], y: Iterable[float], words: Iterable[str], x_range: list[float], y_range: list[float]
) -> list[dict[str, Any]]:
    """Labels beside points; a label that would touch an earlier one is left out."""
    written: list[tuple[float, float]] = []
    labels = []
    for at_x, at_y, word in zip(x, y, words):
        left = (at_x - x_range[0]) / (x_range[1] - x_range[0])
        low = (at_y - y_range[0]) / (y_range[1] - y_range[0])
        # 0.14 and 0.07: width and height of a label on a telephone, relative to the plot.
        free = all(abs(left - x) > 0.14 or abs(low - y) > 0.07 for x, y in written)
        if not free or not (0 <= left <= 1 and 0 <= low <= 1):
            continue
        written.append((left, low))
        beside = {"xanchor": "left", "yanchor": "bottom", "xshift": 5, "yshift": 3, "showarrow": False}
        look = {"text": label(word), "bgcolor": "rgba(255,255,255,0.8)"}
        labels.append({"x": float(at_x), "y": float(at_y), **beside, **look})
    return labels


def bar(low: Iterable[Any], value: Iterable[Any], high: Iterable[Any]) -> dict[str, Any]:
    """Error bars from low to high around values."""
    value, low, high = (np.asarray(side, float) for side in (value, low, high))
    size = {"array": numbers(high - value), "arrayminus": numbers(value - low)}
    return {"type": "data", "symmetric": False, "thickness": 1.6, "width": 5, **size}


def value_range(shown: Iterable[Any], *others: Any) -> list[float]:
    """An axis range around values that must be seen; other values may at most double it."""
    shown = np.asarray(list(shown), float)
    shown = shown[np.isfinite(shown)]
    if not len(shown):
        return [0.0, 1.0]
    low, high = float(shown.min()), float(shown.max())
    room = max(high - low, 1e-3 * abs(high), 1e-9)
    for values in others:
        values = np.asarray(values, float)
        values = values[np.isfinite(values)]
        if len(values):
            low = min(low, max(float(values.min()), float(shown.min()) - room / 2))
            high = max(high, min(float(values.max()), float(shown.max()) + room / 2))
    return numbers([low - 0.06 * room, high + 0.06 * room])  # pyright: ignore[reportReturnType]


def law_colour(evidence: Evidence, law: str) -> str:
    """The colour of a law, the same in every figure and table."""
    laws = list(evidence.question.law)
    return LAW_COLOURS[laws.index(law) % len(LAW_COLOURS)] if law in laws else BLACK


def law_keys(evidence: Evidence) -> list[Key]:
    """The keys of all laws, those that gave the answer first and solid."""
    first = {evidence.law_of(corpus) for corpus in evidence.corpora}
    return [Key(law, law_colour(evidence, law), "line" if law in first else "dashed") for law in evidence.laws]


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Six digits of each: more cannot be seen and makes the page large. None where it is not a number."""
    floats = (float("nan") if value is None else float(value) for value in values)
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in floats]


def _axis_words(spec: dict[str, Any], side: str) -> str:
    made = spec["layout"][f"{side}axis"]
    values = [value for trace in spec["data"] for value in trace[side] if value is not None]
    name = html.unescape(made["title"]["text"])
    if made.get("type") != "log" and "ticktext" in made:
        return ", ".join([*([name] if name else []), *map(html.unescape, made["ticktext"])])
    return f"{name} from {min(values):.4g} to {max(values):.4g}" if values else name


def _trace(mode: str, x: Iterable[Any], y: Iterable[Any], hover: str) -> dict[str, Any]:
    # The empty <extra> takes away the box with the trace's name.
    shown = {"hovertemplate": hover + "<extra></extra>"} if hover else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": mode, "x": numbers(x), "y": numbers(y), **shown}
