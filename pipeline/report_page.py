"""The report's page: everything in one HTML file that asks no network for anything, all text escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from plotly.offline import get_plotlyjs

from pipeline.marks import Figure, Key

Cell = str | tuple[str, str]
"""Plain text, or plain text and the CSS colour of the spot before it."""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    """Anchor."""
    title: str
    """Heading, plain text."""
    body: str
    """Markup."""


def page(title: str, summary: str, head: str, sections: Sequence[Section], figures: Sequence[Figure]) -> str:
    """The whole file.

    Args:
        title: of the browser's tab, plain text.
        summary: the answer in plain text, for search engines and scripts: the meta description and #summary.
        head: markup above the sections.
        sections: in order.
        figures: all that `figure` was called for, in the same order.
    """
    specs = [panel.spec for shown in figures for panel in shown.panels]
    # Inside a script element only "<" can end it or open a comment.
    data = json.dumps(specs, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    scripts = (get_plotlyjs(), _DRAW)
    assert not any("</script" in script.lower() for script in scripts)
    links = "".join(f'<a href="#{part.name}">{text(part.title)}</a>' for part in sections)
    body = "".join(f'<section id="{part.name}"><h2>{text(part.title)}</h2>{part.body}</section>\n' for part in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
<meta name="description" content="{text(summary)}">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<header>{head}<nav aria-label="Sections">{links}</nav></header>
{body}</main>
<script type="text/plain" id="summary">{text(summary)}</script>
<script type="application/json" id="figures">{data}</script>
<script>{scripts[0]}</script>
<script>{scripts[1]}</script>
</body>
</html>
"""


def figure(shown: Figure, caption: str) -> str:
    """Markup of a figure: caption, key and empty places that the page's script fills."""
    groups: dict[str, list[str]] = {}
    for panel in shown.panels:
        title = f"<h4>{text(panel.title)}</h4>" if panel.title else ""
        height = panel.spec["layout"]["height"]
        # The height stands before the plot does, so that anchors do not move while the page draws.
        name = text(f"{panel.group} {panel.title}".strip() or caption)
        place = f'<div class="plot" role="img" aria-label="{name}" style="height:{height}px"></div>'
        groups.setdefault(panel.group, []).append(f'<div class="panel">{title}{place}</div>')
    parts = []
    for group, panels in groups.items():
        heading = f"<h3>{text(group)}</h3>" if group else ""
        parts.append(f'{heading}<div class="panels">{"".join(panels)}</div>')
    keys = "".join(_key(key) for key in shown.keys)
    head = f'<figcaption>{text(caption)}</figcaption><ul class="key">{keys}</ul>'
    return f"<figure>{head}{''.join(parts)}</figure>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], left: int = 1, caption: str = "") -> str:
    """A table of plain text; the first `left` columns are words and stand left, the rest are numbers."""
    side = ["" if at < left else ' class="number"' for at in range(len(columns))]
    heads = "".join(f'<th scope="col"{of}>{text(name)}</th>' for name, of in zip(columns, side))
    lines = "".join(
        "<tr>" + "".join(f"<td{of}>{_cell(cell)}</td>" for cell, of in zip(row, side)) + "</tr>" for row in rows
    )
    under = f"<caption>{text(caption)}</caption>" if caption else ""
    # Scrolls inside its own box on a narrow screen; reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0"><table>{under}<thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text; kind: "", note or missing."""
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def bullets(lines: Sequence[str]) -> str:
    """A list of plain text."""
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>"


def text(words: str) -> str:
    """Plain text as markup, in an element or in a quoted attribute."""
    return html.escape(words, quote=True)


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return text(cell)
    words, colour = cell
    return f'<span class="spot" style="background:{colour}"></span>{text(words)}'


def _key(key: Key) -> str:
    return f'<li><span class="mark {key.mark}" style="color:{key.colour}"></span>{text(key.label)}</li>'


def _policy(scripts: Sequence[str]) -> str:
    """Only this file's scripts run and nothing is fetched, even if a name were once not escaped."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


_DRAW = """
const specs = JSON.parse(document.getElementById("figures").textContent);
const places = document.querySelectorAll(".plot");
// A finger that moves over a plot scrolls the page; zooming is for those with a mouse.
const touch = matchMedia("(pointer: coarse)").matches;
const config = {responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
(async () => {
  for (let i = 0; i < specs.length; i++) {
    if (touch) specs[i].layout.dragmode = false;
    await Plotly.newPlot(places[i], specs[i].data, specs[i].layout, config);
  }
  document.documentElement.dataset.drawn = specs.length;
})();
"""

_STYLE = """
:root { color-scheme: light; --ink: #1b2027; --soft: #58616d; --rule: #dde1e7; --wash: #f5f7f9; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
main { max-width: 1200px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: clamp(1.5rem, 1rem + 2.4vw, 2.25rem); line-height: 1.2; margin: 4px 0 12px; }
h2 { font-size: 1.35rem; margin: 0 0 8px; }
h3 { font-size: 1.05rem; margin: 20px 0 4px; }
h4 { font-size: .875rem; font-weight: 600; margin: 0 0 4px 4px; }
p { margin: 8px 0; max-width: 76ch; }
.over { color: var(--soft); font-size: .875rem; margin: 0; }
.lead { font-size: 1.0625rem; }
.note, figcaption { color: var(--soft); font-size: .9375rem; max-width: 86ch; }
.missing { border-left: 4px solid #b07c00; background: #fdf7e8; padding: 8px 12px; }
section { border-top: 1px solid var(--rule); margin-top: 36px; padding-top: 24px; scroll-margin-top: 8px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 20px; font-size: .9375rem; }
nav a, a { color: #005a9c; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 12px;
  margin: 20px 0; }
.card { background: var(--wash); border-radius: 8px; padding: 12px 16px; }
.card b { display: block; font-size: 1.3rem; line-height: 1.3; font-weight: 650; }
.card span { display: block; color: var(--soft); font-size: .875rem; }
.mixture { margin: 18px 0 6px; }
.mixture .shares { display: flex; height: 30px; border-radius: 6px; overflow: hidden; }
.mixture .interval { position: relative; height: 12px; margin-top: 4px; }
.mixture .interval i { position: absolute; top: 0; height: 8px; min-width: 2px;
  border: 2px solid var(--ink); border-top: 0; }
.mixture .names { display: flex; justify-content: space-between; gap: 4px 16px; flex-wrap: wrap;
  font-size: .9375rem; }
figure { margin: 8px 0 0; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 10px 0;
  font-size: .875rem; }
.key li { display: flex; align-items: center; gap: 7px; }
.mark { flex: none; display: inline-block; width: 24px; height: 0; border-top: 3px solid; }
.mark.thin { border-top-width: 1px; }
.mark.dashed { border-top-style: dashed; border-top-width: 2px; }
.mark.dotted { border-top-style: dotted; }
.mark.upright { width: 0; height: 16px; border: 0; border-left: 2px solid; }
.mark.dot, .mark.diamond, .mark.ring { width: 11px; height: 11px; border: 0; background: currentColor;
  border-radius: 50%; }
.mark.diamond { border-radius: 0; transform: rotate(45deg) scale(.85); }
.mark.ring { background: none; border: 2.5px solid; width: 14px; height: 14px; }
.mark.band { height: 13px; border: 0; background: currentColor; opacity: .25; }
.spot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 7px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(262px, 100%), 1fr));
  gap: 18px 14px; }
.panel { min-width: 0; display: flex; flex-direction: column; justify-content: flex-end; }
.plot { width: 100%; }
.scroll { overflow-x: auto; margin: 10px 0 18px; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
th, td { padding: 5px 14px 5px 0; text-align: left; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
td { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
.number { text-align: right; }
@media (max-width: 600px) { main { padding: 20px 14px 48px; } .js-plotly-plot .modebar { display: none; } }
@media print { nav { display: none; } .panel, tr, .card { break-inside: avoid;
  } section { margin-top: 20px; } }
"""
