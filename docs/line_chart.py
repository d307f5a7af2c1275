"""A line chart as SVG text, for the pictures of these pages: dots and lines of fits, rings for what was held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

import numpy as np

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 66, 190, 62, 54
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0578d", "#b07d00", "#5b7fd1")
# Paper and ink change together, so that a viewer who asks for dark, and one who cannot ask, can both read.
STYLE = """<style>
.paper{fill:#ffffff} .ink{fill:#24292f} .grid{stroke:#d8dee4} text{font:13px sans-serif}
@media (prefers-color-scheme: dark){.paper{fill:#161b22} .ink{fill:#d1d7de} .grid{stroke:#373e47}}
</style>"""


@dataclass(frozen=True, eq=False)
class Series:
    """A line (m,) and points (n,) in one colour; `held_out`: rings and dashes. `like`: number of the colour.

    A series without a label is not in the legend.
    """

    label: str
    line: tuple[np.ndarray, np.ndarray]
    points: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (np.zeros(0), np.zeros(0)))
    held_out: bool = False
    like: int | None = None


def line_chart(title: str, told: str, x_title: str, y_title: str, series: Sequence[Series], log_x: bool = False) -> str:
    """The chart as a whole SVG file; `told` is the line under the title."""
    place_x = np.log10 if log_x else np.asarray
    xs = place_x(np.concatenate([part for one in series for part in (one.line[0], one.points[0])]))
    ys = np.concatenate([part for one in series for part in (one.line[1], one.points[1])])
    (x0, x1), (y0, y1) = _widened(xs), _widened(ys)

    def at(x, y) -> list[str]:
        across = LEFT + (place_x(np.asarray(x, float)) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - (np.asarray(y, float) - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(np.atleast_1d(across), np.atleast_1d(up), strict=True)]

    def text(x: float, y: float, words: str, more: str = "") -> str:
        return f'<text class="ink" x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'

    middle, bottom = (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM
    made = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', STYLE]
    made += [f"<title>{escape(title)}</title>", f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>']
    made += [text(16, 25, title, 'style="font-size:15px;font-weight:bold"'), text(16, 45, told)]
    for value in _ticks(x0, x1, log_x):
        x, _ = at(value, y0)[0].split(",")
        made.append(f'<path class="grid" d="M{x},{TOP}V{bottom}"/>')
        made.append(text(float(x), bottom + 18, f"{value:g}", 'text-anchor="middle"'))
    for value in _ticks(y0, y1, False):
        _, y = at(1.0, value)[0].split(",")
        made.append(f'<path class="grid" d="M{LEFT},{y}H{WIDTH - RIGHT}"/>')
        made.append(text(LEFT - 8, float(y) + 4, f"{value:g}", 'text-anchor="end"'))
    made.append(text(middle, HEIGHT - 12, x_title, 'text-anchor="middle"'))
    made.append(text(0, 0, y_title, f'text-anchor="middle" transform="translate(18,{(TOP + bottom) / 2}) rotate(-90)"'))
    rows = 0
    for i, one in enumerate(series):
        colour = COLOURS[(i if one.like is None else one.like) % len(COLOURS)]
        dashes, fill = (' stroke-dasharray="6 4"', "none") if one.held_out else ("", colour)
        stroke = f'stroke="{colour}" stroke-width="2"{dashes}'
        made.append(f'<polyline fill="none" {stroke} points="{" ".join(at(*one.line))}"/>')
        for point in at(*one.points):
            x, y = point.split(",")
            made.append(f'<circle cx="{x}" cy="{y}" r="3.2" fill="{fill}" stroke="{colour}" stroke-width="1.4"/>')
        if one.label:
            height, side, rows = TOP + 12 + 22 * rows, WIDTH - RIGHT + 14, rows + 1
            made.append(f'<path {stroke} d="M{side},{height}h22"/>')
            made.append(text(side + 28, height + 4, one.label))
    return "\n".join([*made, "</svg>\n"])


def _widened(values: np.ndarray) -> tuple[float, float]:
    margin = 0.04 * (values.max() - values.min())
    return float(values.min() - margin), float(values.max() + margin)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        every = [m * 10.0**k for k in range(int(np.floor(low)), int(np.ceil(high)) + 1) for m in (1, 2, 5)]
        return [value for value in every if low <= np.log10(value) <= high]
    rough = (high - low) / 5
    step = min((m * 10 ** np.floor(np.log10(rough)) for m in (1, 2, 5, 10)), key=lambda s: abs(np.log(s / rough)))
    return [round(step * k, 10) for k in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]
