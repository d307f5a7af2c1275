"""Panels, keys, lines, dots, bands and axes of the report's figures, as plain Plotly JSON."""

import html
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pipeline.study.number_format import label, quantity, short

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

Mark = dict[str, Any]
"""A trace, an axis, an annotation or a whole figure, as Plotly's JSON."""
Values = Iterable[Any]
"""Numbers; what is none makes a gap."""


class Key(NamedTuple):
    """A line of a figure's key: text, CSS colour; line, thin, dashed, dotted, upright, dot, ring, diamond or band."""

    label: str
    colour: str
    mark: str


class Panel(NamedTuple):
    """One plot: heading above it and title in plain text, data and layout as Plotly.react takes them."""

    group: str
    title: str
    spec: Mark

    @property
    def whole(self) -> Mark:
        """data and layout with the template."""
        return {**self.spec, "layout": {**self.spec["layout"], "template": TEMPLATE}}

    @property
    def words(self) -> str:
        """Names and ranges of its axes, for screen readers."""
        return "; ".join(filter(None, (_axis_words(self.spec, side) for side in "xy")))


class Figure(NamedTuple):
    """Panels in reading order, with one list of keys."""

    keys: list[Key]
    panels: list[Panel]


def panel(
    group: str, title: str, traces: list[Mark], x: Mark, y: Mark, height: int = 270, annotations: Iterable[Mark] = ()
) -> Panel:
    """A plot of traces, height in pixels; titles and keys are HTML around it, so that they cannot overlap."""
    layout = {"xaxis": x, "yaxis": y, "height": height, "annotations": list(annotations)}
    return Panel(group, title, {"data": traces, "layout": layout})


def axis(title: str, **more: Any) -> Mark:
    """An axis; the title is markup already, so pass names through `label`."""
    return {"title": {"text": title}, **more}


def ratio_axis(title: str, low: float = -3, high: float = 103) -> Mark:
    """An axis of domain ratios in percent."""
    return axis(title, range=[low, high], dtick=25, ticksuffix="%")


def name_axis(names: Iterable[str]) -> tuple[np.ndarray, Mark]:
    """Places of names from the top down, and a vertical axis with them."""
    texts = list(map(short, names))
    places = np.arange(len(texts), dtype=float)[::-1]
    return places, axis("", range=[-0.6, len(texts) - 0.4], tickvals=places.tolist(), ticktext=texts)


def log_axis(title: str, tokens: Iterable[float]) -> Mark:
    """A logarithmic axis of token counts, labelled at 1, 2 and 5 of a decade, at 1 and 3 of few, or at 1 of many."""
    logs = np.log10(np.array(list(tokens), float))
    low, high = float(logs.min()), float(logs.max())
    room = 0.05 * max(high - low, 0.1)
    steps = (1, 2, 5) if high - low < 1 else (1, 3) if high - low < 3 else (1,)
    marked = [step * 10**decade for decade in range(int(low) - 1, int(high) + 2) for step in steps]
    ticks = {"tickvals": marked, "ticktext": [quantity(value).replace(" ", "") for value in marked], "tickangle": 0}
    return axis(title, type="log", range=numbers([low - room, high + room]), **ticks)


def line(x: Values, y: Values, colour: str, dash: str = "solid", width: float = 2, hover: str = "") -> Mark:
    """A line; NaN makes a gap. dash: solid, dash or dot; width in pixels; hover: a plotly template."""
    return _trace("lines", x, y, hover) | {"line": {"color": colour, "width": width, "dash": dash}}


def dots(
    x: Values, y: Values, colour: str, size: float, symbol: str = "circle", hover: str = "", opacity: float = 1.0
) -> Mark:
    """Marks, size in pixels."""
    edge = {"width": 0.8, "color": "#ffffff"} if not symbol.endswith("open") else {"width": 2.5, "color": colour}
    marker = {"color": colour, "size": size, "symbol": symbol, "opacity": opacity, "line": edge}
    return _trace("markers", x, y, hover) | {"marker": marker}


def band(x: Values, low: Values, high: Values, colour: str) -> Mark:
    """The area between two curves over the same x."""
    x, low, high = list(x), list(low), list(high)
    fill = f"rgba({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}, 0.16)"
    return _trace("none", [*x, *reversed(x)], [*low, *reversed(high)], "") | {"fill": "toself", "fillcolor": fill}


def notes(x: Values, y: Values, words: Iterable[str], x_range: list[float], y_range: list[float]) -> list[Mark]:
    """Labels beside points; a label that would touch an earlier one is left out."""
    beside = {"xanchor": "left", "yanchor": "bottom", "xshift": 5, "yshift": 3, "showarrow": False}
    written: list[tuple[float, float]] = []
    labels = []
    for at_x, at_y, word in zip(x, y, words):
        left, low = ((at - ends[0]) / (ends[1] - ends[0]) for at, ends in ((at_x, x_range), (at_y, y_range)))
        # 0.14 and 0.07: width and height of a label on a telephone, relative to the plot.
        free = all(abs(left - x) > 0.14 or abs(low - y) > 0.07 for x, y in written)
        if free and 0 <= left <= 1 and 0 <= low <= 1:
            written.append((left, low))
            text = {"text": label(word), "bgcolor": "rgba(255,255,255,0.8)"}
            labels.append({"x": float(at_x), "y": float(at_y), **beside, **text})
    return labels


def bar(low: Values, value: Values, high: Values) -> Mark:
    """Error bars from low to high around values."""
    value, low, high = (np.asarray(side, float) for side in (value, low, high))
    size = {"array": numbers(high - value), "arrayminus": numbers(value - low)}
    return {"type": "data", "symmetric": False, "thickness": 1.6, "width": 5, **size}


def limits(shown: Values, *others: Any) -> list[float]:
    """An axis range around values that must be seen; other values may at most double it."""
    seen, *more = (np.asarray(list(values), float) for values in (shown, *others))
    seen, *more = (values[np.isfinite(values)] for values in (seen, *more))
    if not len(seen):
        return [0.0, 1.0]
    low, high = first, last = seen.min(), seen.max()
    room = max(high - low, 1e-3 * abs(high), 1e-9)
    for values in filter(len, more):
        low = min(low, max(values.min(), first - room / 2))
        high = max(high, min(values.max(), last + room / 2))
    return numbers([low - 0.06 * room, high + 0.06 * room])  # pyright: ignore[reportReturnType]


def numbers(values: Values) -> list[float | None]:
    """Six digits of each: more cannot be seen and makes the page large. None where it is not a number."""
    floats = (float("nan") if value is None else float(value) for value in values)
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in floats]


def _axis_words(spec: Mark, side: str) -> str:
    made = spec["layout"][f"{side}axis"]
    values = [value for trace in spec["data"] for value in trace[side] if value is not None]
    name = html.unescape(made["title"]["text"])
    if made.get("type") != "log" and "ticktext" in made:
        return ", ".join([*([name] if name else []), *map(html.unescape, made["ticktext"])])
    return f"{name} from {min(values):.4g} to {max(values):.4g}" if values else name


def _trace(mode: str, x: Values, y: Values, hover: str) -> Mark:
    # The empty <extra> takes away the box with the trace's name.
    shown = {"hovertemplate": hover + "<extra></extra>"} if hover else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": mode, "x": numbers(x), "y": numbers(y), **shown}
