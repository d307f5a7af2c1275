"""The commands of docs/midtraining.md are understood, and its numbers are those of the kept points."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from docs.studies.midtraining import KEPT, advantage_lines, error_lines, interval, upward_differences
from pipeline.question.loading import read_question
from pipeline.study.folder import Study
from tests.docs.pages import assert_same_output, commands, read

PAGE = read("midtraining.md")


@pytest.mark.parametrize("command", commands(PAGE), ids=" ".join)
def test_its_commands_are_questions(command: list[str]) -> None:
    overrides = [word for word in command[1:] if "=" in word and not word.startswith("experiment=")]
    assert read_question(["experiment=midtraining-small", *overrides]).name == "midtraining"


def assert_on_the_page(lines: Iterable[str]) -> None:
    """Check that the page has these tables; numbers may differ a little in their last digit."""
    for table in "\n".join(lines).strip().split("\n\n"):
        heading, *rows = table.splitlines()
        shown = PAGE[PAGE.index(heading) :].splitlines()[1 : len(rows) + 1]
        assert_same_output([("\n".join(shown), "\n".join(rows))])


def test_constant_ratios_are_better_by_what_the_page_says() -> None:
    assert_on_the_page(advantage_lines(Study(KEPT)))
    (means,) = re.findall(r"The mean over the upward changes(.*?)for the larger", PAGE, flags=re.DOTALL)
    printed = " ".join(map(interval, upward_differences(Study(KEPT)).values()))
    assert _numbers(means) == pytest.approx(_numbers(printed), abs=6e-4)
    for corpus in ("music", "law"):
        (means,) = re.findall(rf"(\+\S+ and \S+)(?: nats)?\s+for {corpus}", PAGE)
        differences = upward_differences(Study(KEPT.parent / f"midtraining-{corpus}")).values()
        assert _numbers(means) == pytest.approx([seeds.mean() for seeds in differences], abs=6e-3)


@pytest.mark.slow
def test_the_laws_miss_by_what_the_page_says() -> None:
    assert_on_the_page(error_lines(Study(KEPT)))


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\+(\d*\.\d+)", text)]
