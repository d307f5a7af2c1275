"""Panels of lines and dots side by side as SVG text, in the looks of `docs/line_chart.py`, which draws one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import floor, log10

from docs.line_chart import COLOURS as LOUD
from docs.line_chart import STYLE

COLOURS = (*LOUD, "#7d8590")
"""The last is neither ink nor paper, so that it is seen on dark and on light."""


@dataclass
class Chart:
    """One pair of axes. `x`, `y`: (low, high) of what is shown; `log`: which axes, of "xy", are logarithmic.

    `ticks_y`: (value, label) instead of numbers.
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float, float]
    y: tuple[float, float]
    log: str = ""
    ticks_x: Sequence[tuple[float, str]] = ()
    ticks_y: Sequence[tuple[float, str]] = ()
    width: int = 430
    height: int = 330
    left: int = 62
    marks: list[str] = field(default_factory=list)

    def across(self, value: float) -> float:
        """Pixels from the left."""
        return self.left + (self.width - self.left - 14) * _part(value, self.x, "x" in self.log)

    def down(self, value: float) -> float:
        """Pixels from the top."""
        return self.height - 46 - (self.height - 80) * _part(value, self.y, "y" in self.log)

    def line(self, xs: Iterable[float], ys: Iterable[float], colour: str, dashes: str = "") -> None:
        """A line through points."""
        path = " ".join(f"{self.across(a):.1f},{self.down(b):.1f}" for a, b in zip(xs, ys, strict=True))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashed}/>')

    def dots(self, xs: Iterable[float], ys: Iterable[float], colour: str, size: float = 2.6, hollow=False) -> None:
        """A dot a point."""
        paint = f'fill="none" stroke="{colour}" stroke-width="1.6"' if hollow else f'fill="{colour}"'
        for a, b in zip(xs, ys, strict=True):
            self.marks.append(f'<circle cx="{self.across(a):.1f}" cy="{self.down(b):.1f}" r="{size}" {paint}/>')

    def bar(self, x: float, low: float, high: float, colour: str) -> None:
        """An upright error bar."""
        self.line([x, x], [low, high], colour)

    def draw(self) -> str:
        """The chart as a group of SVG elements."""
        right, top, bottom = self.width - 14, 34, self.height - 46
        out = [_text(self.left, 20, self.title, weight="bold")]
        for value, label in self.ticks_x or _ticks(self.x):
            a = self.across(value)
            out.append(f'<line x1="{a:.1f}" x2="{a:.1f}" y1="{top}" y2="{bottom}" class="grid"/>')
            out.append(_text(a, bottom + 16, label, "middle"))
        for value, label in self.ticks_y or _ticks(self.y):
            b = self.down(value)
            out.append(f'<line x1="{self.left}" x2="{right}" y1="{b:.1f}" y2="{b:.1f}" class="grid"/>')
            out.append(_text(self.left - 6, b + 4, label, "end"))
        out.append(_text((self.left + right) / 2, self.height - 12, self.x_label, "middle"))
        if self.y_label:
            middle = (top + bottom) / 2
            turned = f'<g transform="rotate(-90 14 {middle:.1f})">{_text(14, middle, self.y_label, "middle")}</g>'
            out.append(turned)
        return "\n".join([*out, *self.marks])


def page(charts: Sequence[Chart], legend: Sequence[tuple[str, str, str]], columns: int = 2) -> str:
    """Charts side by side over a legend of (label, colour, kind), kind being "dot", "ring", "line" or "dashes"."""
    rows = [charts[i : i + columns] for i in range(0, len(charts), columns)]
    width = max(sum(chart.width for chart in row) for row in rows)
    out, y = [], 0
    for row in rows:
        x = 0
        for chart in row:
            out.append(f'<g transform="translate({x} {y})">\n{chart.draw()}\n</g>')
            x += chart.width
        y += max(chart.height for chart in row)
    x, y = 20, y + 14
    for label, colour, kind in legend:
        wide = 44 + 7.0 * len(label)
        if x + wide > width:
            x, y = 20, y + 20
        out += [_key(x, y, colour, kind), _text(x + 26, y + 4, label)]
        x += wide
    height = y + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f"{head}>", STYLE, '<rect width="100%" height="100%" class="paper"/>', *out, "</svg>", ""])


def _key(x: float, y: float, colour: str, kind: str) -> str:
    if kind == "dot":
        return f'<circle cx="{x + 10}" cy="{y}" r="3.6" fill="{colour}"/>'
    if kind == "ring":
        return f'<circle cx="{x + 10}" cy="{y}" r="3.6" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    dashed = ' stroke-dasharray="4 3"' if kind == "dashes" else ""
    return f'<line x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"{dashed}/>'


def _part(value: float, ends: tuple[float, float], logarithmic: bool) -> float:
    low, high = ends
    return log10(value / low) / log10(high / low) if logarithmic else (value - low) / (high - low)


def _ticks(ends: tuple[float, float]) -> list[tuple[float, str]]:
    span = ends[1] - ends[0]
    step = 10 ** floor(log10(span / 3))
    step *= next(k for k in (1, 2, 5, 10) if span / (k * step) <= 6)
    first = int(-(-ends[0] // step))
    return [(i * step, f"{i * step:.10g}") for i in range(first, first + 12) if i * step <= ends[1] * (1 + 1e-9)]


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    bold = f' font-weight="{weight}"' if weight != "normal" else ""
    return f'<text class="ink" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{bold}>{escape(text)}</text>'
