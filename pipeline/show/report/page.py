"""The report's pages: HTML files that fetch nothing, from Jinja templates that escape."""

import base64
import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from pipeline.question.messages import StudyError
from pipeline.show.report.colours import both, palette
from pipeline.show.report.marks import TEMPLATE, Figure, Panel

WEB = Path(__file__).parent / "web"
"""Folder of the page's style and scripts."""


def page(
    template: str, place: tuple[Path, str], headline: str, summary: str, explorer: Mapping[str, object] | None = None,
    several: bool = False, /, **content: Any,
) -> str:  # fmt: skip
    """The whole file: a template of templates/ that sets `head` and `body`, filled with plain text, tables and figures.

    `place` is the study's folder and the page's path in it; with `several` domains report.html is the page of all.
    `summary` is for search engines and scripts: the meta description and #summary. `explorer` is what the sliders read.
    """
    folder, own = place
    figures: list[Figure] = []
    sections: list[tuple[str, str]] = []
    # The template adds to both what it shows, in its order.
    filled = {**content, "summary": summary, "figures": figures, "sections": sections}
    filled["links"] = _links_beside(folder, own, several)
    parts: Any = _JINJA.get_template(template).make_module(filled)
    specs = [panel.spec for shown in figures for panel in shown.panels]
    held = {"figures": specs, **({"study": explorer} if explorer is not None else {}), "template": TEMPLATE}
    data = {name: htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":")) for name, value in held.items()}
    data["dark"] = htmlsafe_json_dumps(palette(data.values()), separators=(",", ":"))
    scripts = [*([_plotly()] if figures or explorer else []), _file("page.js")]
    scripts += [_file("explorer.js")] if explorer else []
    early = _file("head.js")
    assert not any("</script" in script.lower() for script in (early, *scripts))
    return _JINJA.get_template("page.html").render(
        study=folder.resolve().name, headline=headline, summary=summary, head=parts.head, body=parts.body,
        sections=sections, data=data, policy=_policy([early, *scripts]), early=early, style=_file("page.css"),
        scripts=scripts,
    )  # fmt: skip


def _links_beside(folder: Path, own: str, several: bool) -> list[tuple[str, str]]:
    """Address and words of the links from a page, by its place in the folder, to the study's other pages."""
    pages = {"report.html": "all domains" if several else "the study", "tables.html": "the papers' tables"}
    pages["follow.html"] = "the followed run"
    for path in sorted((folder / "answers").glob("**/*.html")):
        place = path.relative_to(folder)
        pages[str(place)] = ", ".join([*place.parts[1:-1], *(["the followed run"] if path.stem == "follow" else [])])
    return [
        (quote(os.path.relpath(place, Path(own).parent)), words)
        for place, words in pages.items()
        if place != own and ((folder / place).exists() or (several and place == "report.html"))
    ]


def _by_group(panels: Sequence[Panel]) -> list[tuple[str, list[Panel]]]:
    return [(name, list(group)) for name, group in itertools.groupby(panels, lambda panel: panel.group)]


_JINJA = Environment(
    loader=PackageLoader("pipeline.show.report"), extensions=["jinja2.ext.do"], autoescape=True,
    undefined=StrictUndefined, keep_trailing_newline=True,
)  # fmt: skip
_JINJA.filters |= {"both": both, "groupby_in_order": _by_group}


def _file(name: str) -> Markup:
    return Markup((WEB / name).read_text())


def refuse_without_plotly() -> None:
    """Raise StudyError where a report could not show its figures."""
    if find_spec("plotly") is None:
        raise StudyError("report: the figures need plotly: pip install -e '.[report]'")


def _plotly() -> Markup:
    refuse_without_plotly()
    from plotly.offline import get_plotlyjs  # takes long to load, and only pages with figures need it

    return Markup(get_plotlyjs())


def _policy(scripts: Sequence[str]) -> str:
    """Only this file's scripts run and nothing is fetched, even if a name were once not escaped."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
