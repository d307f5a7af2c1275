"""Every page of the documentation: its links, the keys that it names, and the math that GitHub renders."""

import re

import pytest

from pipeline.cli.verb_table import EXIT_CODES
from pipeline.question.messages import describe_keys
from tests.docs.pages import ROOT, read

PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
OTHERS = ["../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "results/README.md"]
# Keys below a group, and the lists and mappings that have keys of their own.
KEYS = {".".join(key.split(".")[:length]) for key, *_ in describe_keys() for length in range(2, key.count(".") + 2)}
CODE = re.compile(r"^```.*?^```$", flags=re.M | re.S)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", CODE.sub("", read(page))):
        path, _, anchor = target.partition("#")
        there = (ROOT / "docs" / page).parent / path if path else ROOT / "docs" / page
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there.read_text(encoding="utf-8")), target


def test_exit_codes_have_the_words_of_the_help():
    assert " ".join(EXIT_CODES.split()) in " ".join(read("../README.md").replace("`", "").split())


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CONTRIBUTING.md"])
def test_keys_are_those_of_a_question(page):
    groups = {key.split(".")[0] for key in KEYS}
    named = set(re.findall(r"(?<![\w./-])([a-z_]+(?:\.[a-z_]+)+)(?=[=`])", read(page)))
    keys = {name for name in named if name.split(".")[0] in groups and not name.endswith((".bin", ".py", ".jsonl"))}
    # Names of variants and DeepSpeed's own keys are free; the last two are counts of a manifest.
    free = r"variants\..+|parallel\.deepspeed\..+|validation\.(same|near)"
    known = "|".join(re.escape(key).replace(r"\*", "[^.]+") for key in KEYS)
    assert {name for name in keys if not re.fullmatch(f"({known}|{free})", name)} == set()


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CONTRIBUTING.md"])
def test_files_modules_and_experiments_are_there(page):
    text = read(page)
    files = re.findall(r"`((?:conf|docs|fitting|pipeline|slurm|tests|training)/[\w./-]+)`", text)
    modules = re.findall(r"python -m ((?:docs|pipeline|tests|training)[\w.]*)", text)
    places = [[file] for file in files if file != "fitting/laws/repeated.py"]
    places += [[f"{name}.py", f"{name}/__main__.py"] for name in (module.replace(".", "/") for module in modules)]
    places += [[f"conf/experiment/{name}.yaml"] for name in re.findall(r"experiment=([\w-]+)", text)]
    assert [place for place in places if not any((ROOT / path).exists() for path in place)] == []


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
