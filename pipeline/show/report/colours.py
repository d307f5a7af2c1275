"""Colours of the report: of corpora, laws and domain ratios, and of the dark page."""

import itertools
import re
from collections.abc import Iterable, Sequence

GREY, BLACK = "#5f6773", "#111111"
CORPUS_COLOURS = ("#0072B2", "#D55E00")
"""General, domain: blue and vermilion, which every kind of colour vision tells apart (Okabe and Ito)."""
LAW_COLOURS = ("#009E73", "#AA4499", "#B07C00", "#3A3F9E", "#6B6B6B", "#56B4E9")
"""Laws, in the question's order."""
SERIES = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B07C00", "#56B4E9", "#3A3F9E", "#6B6B6B", "#88CCEE", "#661100")
"""Colours of domains and of methods, in their order, repeated after the last."""
PAPER = "#14181d"
"""The dark page itself, as in web/page.css."""
_CHOSEN = {
    **{"#ffffff": PAPER, "#111111": "#f1f3f5", "#5f6773": "#a3adb9", "#6b6b6b": "#b3b3b3"},
    **{"#333a44": "#c3cad3", "#e9ecf0": "#2b323b", "#aab1bb": "#59626e"},
    "rgba(255,255,255,0.8)": "rgba(20,24,29,0.8)",
}
"""White, black, greys and lines, which are inverted."""
_TOWARDS_WHITE = 0.38
"""Ratio of white mixed into the others: enough contrast, and lighter colours stay lighter."""
_VIRIDIS = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151")
"""Domain ratio from 0 to 1: lightness rises, so that it reads in grey, and ends before it is too light."""
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}|rgba\([0-9., ]*\)")


def series_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name."""
    return dict(zip(names, itertools.cycle(SERIES)))


def ratio_colour(ratio: float) -> str:
    """Colour of a domain ratio in [0, 1].

    >>> ratio_colour(0.0), ratio_colour(1.0)
    ('#440154', '#7ad151')
    """
    place = min(max(float(ratio), 0.0), 1.0) * (len(_VIRIDIS) - 1)
    first = min(int(place), len(_VIRIDIS) - 2)
    ends = [[int(_VIRIDIS[first + k][at : at + 2], 16) for at in (1, 3, 5)] for k in (0, 1)]
    mixed = (round(a + (b - a) * (place - first)) for a, b in zip(*ends))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def dark(colour: str) -> str:
    """A colour, #rrggbb or rgba(r, g, b, a), as it is on a dark page.

    >>> dark("#111111"), dark("#440154"), dark("rgba(0, 114, 178, 0.16)")
    ('#f1f3f5', '#8b6295', 'rgba(97, 168, 207, 0.24)')
    """
    if colour.lower() in _CHOSEN:
        return _CHOSEN[colour.lower()]
    if not colour.startswith("#"):
        *parts, alpha = colour[5:-1].split(",")
        return f"rgba({', '.join(str(_lighter(int(part))) for part in parts)}, {1.5 * float(alpha):.2g})"
    return "#" + "".join(f"{_lighter(int(colour[at : at + 2], 16)):02x}" for at in (1, 3, 5))


def both(colour: str) -> str:
    """A colour for CSS, in light and in dark."""
    return f"light-dark({colour}, {dark(colour)})"


def palette(texts: Iterable[str]) -> dict[str, str]:
    """Light -> dark of every colour in the texts."""
    return {colour: dark(colour) for text in texts for colour in sorted({*_COLOUR.findall(text)})}


def _lighter(value: int) -> int:
    return round(value + (255 - value) * _TOWARDS_WHITE)
