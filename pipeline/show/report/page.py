"""The report's page and its building blocks: one HTML file that fetches nothing, from Jinja2 templates that escape."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from pipeline.show.report.colours import both, palette
from pipeline.show.report.marks import TEMPLATE, Figure, Panel

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
    """Markup; plain text is escaped."""
    link: str = ""
    """Text of the link to it; empty: the heading."""


def page(
    study: str,
    headline: str,
    summary: str,
    head: str,
    sections: Sequence[Section],
    figures: Sequence[Figure] = (),
    explorer: dict[str, Any] | None = None,
) -> str:
    """The whole file, of plain text and markup.

    `summary` is for search engines and scripts: the meta description and #summary. `head` is markup between the
    headline and the sections. `figures` are all that `figure` was called for, in the same order; `explorer` is what the
    sliders of a section read.
    """
    held: dict[str, Any] = {"figures": [panel.spec for shown in figures for panel in shown.panels]}
    if explorer is not None:
        held["study"] = explorer
    held["template"] = TEMPLATE
    data = {name: _json(value) for name, value in held.items()}
    data["dark"] = _json(palette(data.values()))
    scripts = [*([_plotly()] if figures or explorer else []), _file("page.js")]
    scripts += [_file("explorer.js")] if explorer else []
    early = _file("head.js")
    assert not any("</script" in script.lower() for script in (early, *scripts))
    return _environment().get_template("page.html").render(
        study=study, headline=headline, summary=summary, head=head, sections=sections, data=data,
        policy=_policy([early, *scripts]), early=early, style=_file("page.css"), scripts=scripts,
    )  # fmt: skip


def block(name: str, *values: Any, **named: Any) -> Markup:
    """The markup of a macro of templates/blocks.html."""
    return getattr(_environment().get_template("blocks.html").module, name)(*values, **named)


def figure(shown: Figure, caption: str) -> Markup:
    """A figure: caption, key and empty plots that the page's script fills, in the order of the calls."""
    return block("figure", shown, caption)


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], left: int = 1, kind: str = ""
) -> Markup:
    """A table of plain text; the first `left` columns are words and stand left, the rest are numbers.

    kind: "words" for cells that are sentences, so that they wrap.
    """
    return block("table", caption, columns, rows, left, kind)


def paragraph(words: str, kind: str = "") -> Markup:
    """A paragraph of plain text; kind: "", lead, note or missing."""
    return block("paragraph", words, kind)


def bullets(lines: Sequence[str]) -> Markup:
    """A list of plain text."""
    return block("bullets", lines)


def heading(words: str) -> Markup:
    """A heading inside a section."""
    return Markup("<h3>{}</h3>").format(words)


def lead(summary: str) -> Markup:
    """The answer in a few sentences, below the headline."""
    return Markup('<p class="lead" id="answer">{}</p>').format(summary)


def judged(verdict: str, sentence: str) -> Markup:
    """A verdict and the sentence that explains it."""
    return Markup("<p><strong>{}.</strong> {}</p>").format(verdict[:1].upper() + verdict[1:], sentence)


@functools.cache
def _environment() -> Environment:
    how = {"autoescape": True, "undefined": StrictUndefined, "keep_trailing_newline": True}
    environment = Environment(loader=PackageLoader("pipeline.show.report"), **how)
    environment.filters |= {"both": both, "groupby_in_order": _by_group}
    return environment


def _by_group(panels: Sequence[Panel]) -> list[tuple[str, list[Panel]]]:
    return [(name, list(group)) for name, group in itertools.groupby(panels, lambda panel: panel.group)]


def _json(value: Any) -> Markup:
    return htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":"))


def _file(name: str) -> Markup:
    return Markup((WEB / name).read_text())


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs  # takes long to load, and only pages with figures need it

    return Markup(get_plotlyjs())


def _policy(scripts: Sequence[str]) -> str:
    """Only this file's scripts run and nothing is fetched, even if a name were once not escaped."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
