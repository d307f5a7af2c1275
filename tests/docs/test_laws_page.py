"""docs/laws.md says what the laws say, its pictures are what the fits draw, and its numbers are what is measured."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import fitting
from docs import laws, pictures
from docs.line_chart import Series, line_chart
from fitting import LAWS
from tests.docs.pages import ROOT
from tests.fitting import test_public_bars as bars

PAGE = laws.PAGE.read_text(encoding="utf-8")
PAGES = ("laws.md", "choosing.md", "your-own-law.md")
NUMBER = re.compile(r"-?\d+\.?\d*")


def section(name: str) -> str:
    """What stands between the heading of a law and the next heading."""
    return PAGE.split(f"\n### {name}\n")[1].split("\n#")[0]


def test_the_marked_lines_are_what_the_laws_say():
    assert laws.renewed(PAGE) == PAGE, "run .venv/bin/python -m docs.laws"


@pytest.mark.parametrize("name", LAWS)
def test_every_law_has_its_section(name):
    text = section(name)
    assert text.count("<!-- begin ") == text.count(f"<!-- begin law {name} -->") == 1
    by_hand = text.split("<!-- end -->")[1]
    for part in ("**When.**", "**Fails.**"):
        assert by_hand.count(part) == 1
    assert len(by_hand.split()) > 40


@pytest.mark.parametrize("name", LAWS)
def test_a_section_holds_the_law_s_own_facts(name):
    law, text = LAWS[name], section(name)
    assert all(f"| `{p.name}` | {p.unit} |" in text for p in law.parameters)
    assert law.source in text
    assert law.equation.replace(r"\,", r"\thinspace ") in text
    assert law.among is not None or all(f"`{column}`" in text for column in law.columns)
    assert set(law.columns if law.among is None else ()) <= set(laws.COLUMNS)


def test_a_law_without_a_section_stops_the_script(monkeypatch):
    monkeypatch.setitem(LAWS, "mine", LAWS["chinchilla"])
    with pytest.raises(ValueError, match="<!-- begin law mine -->"):
        laws.renewed(PAGE)
    monkeypatch.delitem(LAWS, "mine")
    monkeypatch.delitem(LAWS, "ddo")
    with pytest.raises(ValueError, match=r"a place for law ddo, which fitting\.LAWS does not have"):
        laws.renewed(PAGE)


@pytest.mark.parametrize("page", PAGES)
def test_what_github_renders_as_math_is_whole(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    fences = re.findall(r"^\$\$$", text, flags=re.M)
    assert len(fences) == text.count("$$"), "every $$ stands on a line of its own"
    assert len(fences) % 2 == 0
    shown = re.findall(r"^\$\$\n(.+?)\n\$\$$", text, flags=re.M | re.S)
    assert len(shown) == len(fences) / 2
    for paragraph in text.replace("$$", "").split("\n\n"):
        assert paragraph.count("$") % 2 == 0, paragraph
    for equation in shown:
        assert equation.count("{") == equation.count("}"), equation
        assert equation.count(r"\left") == equation.count(r"\right"), equation
        assert not re.search(r"\\[^a-zA-Z]", equation), f"Markdown takes the backslash away: {equation}"
        assert "](" not in equation, f"Markdown sees a link: {equation}"
        assert not re.search(r"[<>*]", equation), f"Markdown sees markup: {equation}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        path, _, anchor = target.partition("#")
        there = ROOT / "docs" / (path or page)
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), flags=re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings], (
                target
            )


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_what_the_fit_draws(name):
    assert f"](fits/{name}.svg)" in PAGE
    stored, drawn = (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8"), pictures.PICTURES[name]()
    assert NUMBER.sub("#", stored) == NUMBER.sub("#", drawn), "run .venv/bin/python -m docs.laws"
    there, here = (np.array(NUMBER.findall(text), dtype=float) for text in (stored, drawn))
    assert here == pytest.approx(there, abs=0.3)
    texts = ["".join(node.itertext()) for node in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert any("synthetic points" in text for text in texts)
    off = re.search(r"noise ([\d.]+)%.*within ([\d.]+)% \(mean\)", " ".join(texts))
    assert off
    assert float(off[2]) < 2 * float(off[1]), "what was held out is missed by little more than the noise"


def test_a_chart_puts_points_where_they_belong():
    x, y = np.array([1.0, 10.0, 100.0]), np.array([3.0, 2.0, 2.5])
    series = [Series("all", (x, y), (x, y)), Series("", (x, y), (x, y), held_out=True, like=0)]
    chart = line_chart("a < b", "told", "x (steps)", "y (nats)", series, log_x=True)
    tree = ET.fromstring(chart)
    rings = [node for node in tree.iter("{http://www.w3.org/2000/svg}circle")]
    assert [ring.get("fill") for ring in rings] == ["#0072b2"] * 3 + ["none"] * 3
    across, up = ([float(ring.get(key, "nan")) for ring in rings[:3]] for key in ("cx", "cy"))
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2), "decades are equally far apart"
    assert up[0] < up[2] < up[1], "a higher loss stands higher"
    words = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "told", "x (steps)", "y (nats)", "10", "2.4", "all"} <= set(words)


def says(name: str, *parts: str) -> None:
    text = " ".join(section(name).split())
    for part in parts:
        assert part in text, f"{name}: measured {part}"


def short(value: float, digits: int = 3) -> str:
    """As the page writes it: .975 and not 0.975."""
    return f"{value:.{digits}f}".removeprefix("0")


def test_numbers_on_the_chinchilla_points():
    table = bars.chinchilla.__wrapped__()
    openai, chinchilla = (fitting.fit(table, law, bootstrap=0) for law in ("openai", "chinchilla"))
    of = [(short(fit.metrics["r2"]), short(fit.objective, 5)) for fit in (openai, chinchilla)]
    says(
        "openai", f"its R2 is {of[0][0]} and its Huber sum {of[0][1]}, where chinchilla's are {of[1][0]} and {of[1][1]}"
    )
    says("chinchilla", short(chinchilla.objective, 8))


def test_numbers_on_schedules():
    points, schedules = bars.annealed(bars.TRAIN)
    held = bars.errors_on_other_schedules(fitting.fit(points, "annealing", bootstrap=0))[1]
    fit = fitting.fit(points, "annealing", schedules=schedules, bootstrap=0)
    free = bars.errors_on_other_schedules(fit)[1]
    says("annealing", f"{short(held, 4)} nats at lambda = .999, and {short(free, 4)} with lambda fitted")
    says("annealing", f"({short(fit.params['lambda'], 4)})")


def test_numbers_on_pile_and_python():
    pile, python = bars.continued("pile"), bars.continued("python")
    dcpt, free = (
        fitting.fit(python, law, fix=bars.ONE_SIZE, bootstrap=0).metrics["r2"] for law in ("dcpt", "dcpt-free")
    )
    rising = fitting.fit(pile, "dcpt", fix=bars.ONE_SIZE, bootstrap=0).metrics["r2"]
    transfer = fitting.fit(pile, "transfer", fix={"F": 0.0, "g": 0.5}, bootstrap=0).metrics["r2"]
    says("dcpt", f"its R2 stays at {short(rising)}, where `transfer` has {short(transfer)}")
    says("dcpt", f"(R2 {short(dcpt)} against {short(free)} for `dcpt-free`)")
    says("transfer", f"R2 {short(transfer)}")
