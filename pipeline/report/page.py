"""The report's page: everything in one HTML file that asks no network for anything, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.report.colours import both, palette
from pipeline.report.marks import Figure, Key, Panel

Cell = str | tuple[str, str]
"""Plain text, or plain text and the colour of the spot before it."""
WEB = Path(__file__).parent / "web"
"""Folder of the page's style and scripts."""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    """Anchor."""
    title: str
    """Heading, plain text."""
    body: str
    """Markup."""
    link: str = ""
    """What leads to it; empty: the heading."""


def page(
    study: str,
    headline: str,
    summary: str,
    head: str,
    sections: Sequence[Section],
    figures: Sequence[Figure] = (),
    explorer: dict[str, Any] | None = None,
) -> str:
    """The whole file.

    Args:
        study: its name, plain text.
        headline: the answer in one line, plain text.
        summary: the answer in plain text, for search engines and scripts: the meta description and #summary.
        head: markup between the headline and the sections.
        sections: in order.
        figures: all that `figure` was called for, in the same order.
        explorer: what the sliders of a section read (`pipeline.report.explorer`).
    """
    kept: dict[str, Any] = {"figures": [panel.spec for shown in figures for panel in shown.panels]}
    if explorer is not None:
        kept["study"] = explorer
    data = {name: _json(value) for name, value in kept.items()}
    data["dark"] = _json(palette(data.values()))
    names = ["page.js", *(["explorer.js"] if explorer else [])]
    scripts = [*([_plotly()] if figures or explorer else []), *map(_file, names)]
    early = _file("head.js")
    assert not any("</script" in script.lower() for script in (early, *scripts))
    links = "".join(f'<a href="#{part.name}">{text(part.link or part.title)}</a>' for part in sections)
    body = "".join(f'<section id="{part.name}"><h2>{text(part.title)}</h2>{part.body}</section>\n' for part in sections)
    held = "".join(f'<script type="application/json" id="{name}">{value}</script>\n' for name, value in data.items())
    run = "".join(f"<script>{script}</script>\n" for script in scripts)
    return f"""<!doctype html>
<html lang="en" data-study="{text(study)}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_policy([early, *scripts])}">
<meta name="description" content="{text(summary)}">
<link rel="icon" href="data:,">
<title>{text(f"{study}: {headline}")}</title>
<script>{early}</script>
<style>{_file("page.css")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<main id="content" tabindex="-1">
<header><div class="top"><p class="over">cptlaw report of the study {text(study)}</p>
<button type="button" id="colours" aria-pressed="false" hidden>Dark colours</button></div>
<h1>{text(headline[0].upper() + headline[1:])}</h1>
{head}<noscript>{paragraph(_NO_SCRIPT, "missing")}</noscript><nav aria-label="Sections">{links}</nav></header>
{body}</main>
<script type="text/plain" id="summary">{text(summary)}</script>
{held}{run}</body>
</html>
"""


def figure(shown: Figure, caption: str) -> str:
    """Markup of a figure: caption, key and empty places that the page's script fills, in the order of the calls."""
    groups: dict[str, list[str]] = {}
    for panel in shown.panels:
        title = f"<h4>{text(panel.title)}</h4>" if panel.title else ""
        place = f'<div class="panel">{title}{plot(panel, caption)}</div>'
        groups.setdefault(panel.group, []).append(place)
    parts = []
    for group, panels in groups.items():
        heading = f"<h3>{text(group)}</h3>" if group else ""
        parts.append(f'{heading}<div class="panels">{"".join(panels)}</div>')
    return f"<figure><figcaption>{text(caption)}</figcaption>{key_list(shown.keys)}{''.join(parts)}</figure>"


def key_list(keys: Sequence[Key]) -> str:
    """Markup of a key: what colours, lines and marks mean."""
    return f'<ul class="key">{"".join(map(_key, keys))}</ul>'


def plot(panel: Panel, caption: str, kind: str = "drawn") -> str:
    """The empty place of a plot, with its words for those who do not see it; kind: how a script finds it."""
    height = panel.spec["layout"]["height"]
    name = text(f"{f'{panel.group} {panel.title}'.strip() or caption}: {panel.words}")
    # The height stands before the plot does, so that anchors do not move while the page draws.
    return f'<div class="plot {kind}" role="img" aria-label="{name}" style="height:{height}px"></div>'


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], left: int = 1, kind: str = "") -> str:
    """A table of plain text; the first `left` columns are words and stand left, the rest are numbers.

    kind: "words" for cells that are sentences, so that they wrap.
    """
    side = ["" if at < left else ' class="number"' for at in range(len(columns))]
    heads = "".join(f'<th scope="col"{of}>{text(name)}</th>' for name, of in zip(columns, side))
    lines = "".join(_row(row, side) for row in rows)
    said = text(caption)
    button = (
        f'<button type="button" class="download" hidden>Download CSV<span class="unseen"> of {said}</span></button>'
    )
    # Scrolls inside its own box on a narrow screen; reachable by keyboard.
    return (
        f'<div class="table {kind}"><div class="scroll" role="region" aria-label="{said}" tabindex="0"><table>'
        f"<caption><span>{said}</span></caption><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>{button}</div>"
    )


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text; kind: "", note or missing."""
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def bullets(lines: Sequence[str]) -> str:
    """A list of plain text."""
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>"


def spot(colour: str) -> str:
    """A spot of a colour before words."""
    return f'<span class="spot" style="background:{both(colour)}"></span>'


def text(words: str) -> str:
    """Plain text as markup, in an element or in a quoted attribute."""
    return html.escape(words, quote=True)


_NO_SCRIPT = "The figures and sliders need JavaScript; the answer and the tables do not."


def _row(row: Sequence[Cell], side: Sequence[str]) -> str:
    first, *rest = (_cell(cell) for cell in row)
    cells = "".join(f"<td{of}>{cell}</td>" for cell, of in zip(rest, side[1:]))
    return f'<tr><th scope="row"{side[0]}>{first}</th>{cells}</tr>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return text(cell)
    words, colour = cell
    return spot(colour) + text(words)


def _key(key: Key) -> str:
    return f'<li><span class="mark {key.mark}" style="color:{both(key.colour)}"></span>{text(key.label)}</li>'


def _json(value: Any) -> str:
    # Inside a script element only "<" can end it or open a comment.
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _file(name: str) -> str:
    return (WEB / name).read_text()


def _plotly() -> str:
    from plotly.offline import get_plotlyjs  # what draws nothing need not wait for it

    return get_plotlyjs()


def _policy(scripts: Sequence[str]) -> str:
    """Only this file's scripts run and nothing is fetched, even if a name were once not escaped."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
