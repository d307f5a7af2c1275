"""Every page of the documentation: its links, and the math that GitHub renders."""

import re

import pytest

from tests.docs.pages import ROOT, read

PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
CODE = re.compile(r"^```.*?^```$", flags=re.M | re.S)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", CODE.sub("", read(page))):
        path, _, anchor = target.partition("#")
        there = ROOT / "docs" / (path or page)
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", PAGES)
def test_what_github_renders_as_math_is_whole(page):
    text = re.sub(r"\$?`[^`\n]*`\$?", "", CODE.sub("", read(page)))
    equations = re.findall(r"^\$\$\n(.+?)\n\$\$$", text, flags=re.M | re.S)
    assert 2 * len(equations) == text.count("$$"), "every $$ stands on a line of its own"
    for paragraph in text.replace("$$", "").split("\n\n"):
        assert paragraph.count("$") % 2 == 0, paragraph
    for equation in equations:
        assert equation.count("{") == equation.count("}"), equation
        assert equation.count(r"\left") == equation.count(r"\right"), equation
        assert not re.search(r"\\[^a-zA-Z]", equation), f"Markdown takes the backslash away: {equation}"
        assert "](" not in equation, f"Markdown sees a link: {equation}"
        assert not re.search(r"[<>*]", equation), f"Markdown sees markup: {equation}"
