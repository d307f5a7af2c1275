"""docs/laws.md: its tables, its paragraphs and its measured numbers agree with the code."""

import re

import fitting
from docs.studies import laws_page
from fitting import LAWS
from tests.fitting import test_public_data as bars

PAGE = laws_page.PAGE.read_text(encoding="utf-8")


def paragraph(name: str) -> str:
    """The paragraph that names a law in bold."""
    (found,) = [text for text in PAGE.split("\n\n") if f"**`{name}`**" in text and not text.startswith("|")]
    return " ".join(found.split())


def test_the_tables_are_what_the_laws_and_the_results_say():
    assert laws_page.renewed(PAGE) == PAGE, "run .venv/bin/python -m docs.studies.laws_page"
    assert {*re.findall(r"<!-- begin (.+?) -->", PAGE)} == {*laws_page.TABLES}


def test_every_law_has_a_paragraph():
    named = re.findall(r"\*\*`(.+?)`\*\*", PAGE)
    # cross-domain-k1 to cross-domain-k4 share one.
    assert {*named} == {*LAWS} - {"cross-domain-k2", "cross-domain-k3"}
    assert len(named) == len({*named})
    assert all(len(paragraph(name).split()) >= 15 for name in named)


def assert_page_says(name: str, measured: str) -> None:
    assert measured in paragraph(name), f"{name}: measured {measured}"


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
    held = bars.errors_on_other_schedules(fitting.fit(points, "annealing", bootstrap=0))
    fit = fitting.fit(points, "annealing", schedules=schedules, bootstrap=0)
    free = bars.errors_on_other_schedules(fit)
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
