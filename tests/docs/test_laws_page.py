"""docs/laws.md: generated parts, figures and measured numbers agree with the code."""

import re

import pytest

import fitting
from docs import charts, laws, pictures
from fitting import LAWS
from tests.fitting import test_public_bars as bars

PAGE = laws.PAGE.read_text(encoding="utf-8")


def section(name: str) -> str:
    """What stands between the heading of a law and the next heading."""
    return PAGE.split(f"\n### {name}\n")[1].split("\n#")[0]


def test_the_marked_lines_are_what_the_laws_say():
    assert laws.renewed(PAGE) == PAGE, "run .venv/bin/python -m docs.laws"


@pytest.mark.parametrize("name", LAWS)
def test_every_law_has_its_section_with_its_own_facts(name):
    law, text = LAWS[name], section(name)
    assert text.count("<!-- begin ") == text.count(f"<!-- begin law {name} -->") == 1
    by_hand = text.split("<!-- end -->")[1]
    for part in ("**When.**", "**Fails.**"):
        assert by_hand.count(part) == 1
    assert len(by_hand.split()) > 40
    assert all(f"| `{p.name}` | {p.unit} |" in text for p in law.parameters)
    assert law.source in " ".join(text.split())
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


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_figure_is_on_the_page_and_its_fit_predicts_what_was_held_out(name):
    assert f"](fits/{name}.svg)" in PAGE
    figure = pictures.PICTURES[name]()
    (ax,) = figure.axes
    stored = (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    for words in (figure.get_suptitle(), ax.get_xlabel(), ax.get_ylabel(), *ax.get_legend_handles_labels()[1]):
        assert f">{words}</text>" in stored, "run .venv/bin/python -m docs.laws"
    off = re.search(r"noise ([\d.]+)%.*mean error ([\d.]+)%", ax.get_title())
    assert off
    assert float(off[2]) < 2 * float(off[1]), "the error of held-out points is little more than the noise"


def test_a_figure_is_saved_alike_twice(tmp_path):
    for name in ("one.svg", "two.svg"):
        charts.save(pictures.ddo(), tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    assert "<dc:date>" not in text


def assert_page_says(name: str, measured: str) -> None:
    assert measured in " ".join(section(name).split()), f"{name}: measured {measured}"


def short(value: float, digits: int = 3) -> str:
    """As the page writes it: .975 and not 0.975."""
    return f"{value:.{digits}f}".removeprefix("0")


def test_numbers_on_the_chinchilla_points():
    table = bars.chinchilla.__wrapped__()
    openai, chinchilla = (fitting.fit(table, law, bootstrap=0) for law in ("openai", "chinchilla"))
    of = [(short(fit.metrics["r2"]), short(fit.objective, 5)) for fit in (openai, chinchilla)]
    assert_page_says(
        "openai", f"its R2 is {of[0][0]} and its Huber sum {of[0][1]}, where chinchilla's are {of[1][0]} and {of[1][1]}"
    )
    assert_page_says("chinchilla", short(chinchilla.objective, 8))


def test_numbers_on_schedules():
    points, schedules = bars.annealed(bars.TRAIN)
    held = bars.errors_on_other_schedules(fitting.fit(points, "annealing", bootstrap=0))[1]
    fit = fitting.fit(points, "annealing", schedules=schedules, bootstrap=0)
    free = bars.errors_on_other_schedules(fit)[1]
    assert_page_says("annealing", f"{short(held, 4)} nats at lambda = .999, and {short(free, 4)} with lambda fitted")
    assert_page_says("annealing", f"({short(fit.params['lambda'], 4)})")


def test_numbers_on_pile_and_python():
    pile, python = bars.continued("pile"), bars.continued("python")
    dcpt, free = (
        fitting.fit(python, law, fix=bars.ONE_SIZE, bootstrap=0).metrics["r2"] for law in ("dcpt", "dcpt-free")
    )
    rising = fitting.fit(pile, "dcpt", fix=bars.ONE_SIZE, bootstrap=0).metrics["r2"]
    transfer = fitting.fit(pile, "transfer", fix={"F": 0.0, "g": 0.5}, bootstrap=0).metrics["r2"]
    assert_page_says("dcpt", f"its R2 stays at {short(rising)}, where `transfer` has {short(transfer)}")
    assert_page_says("dcpt", f"(R2 {short(dcpt)} against {short(free)} for `dcpt-free`)")
    assert_page_says("transfer", f"R2 {short(transfer)}")
