"""What docs/training.md and the kept tables say of mixtures that change is what the kept points say."""

import re
from collections.abc import Iterable

import pytest

from docs.studies.midtraining import KEPT, advantage_lines, error_lines, interval, upward_differences
from pipeline.study.folder import Study
from tests.docs.pages import assert_same_output, read

PAGE = " ".join(read("training.md").split())
TABLES = (KEPT / "tables.md").read_text(encoding="utf-8")


def assert_kept(lines: Iterable[str]) -> None:
    """Check that the kept tables have these; numbers may differ a little in their last digit."""
    for table in "\n".join(lines).strip().split("\n\n"):
        heading, *rows = table.splitlines()
        shown = TABLES[TABLES.index(heading) :].splitlines()[1 : len(rows) + 1]
        assert_same_output([("\n".join(shown), "\n".join(rows))])


def test_constant_ratios_are_better_by_what_the_page_says() -> None:
    assert_kept(advantage_lines(Study(KEPT)))
    (means,) = re.findall(r"The mean over the upward changes(.*?)for the larger", PAGE)
    printed = " ".join(map(interval, upward_differences(Study(KEPT)).values()))
    assert _numbers(means) == pytest.approx(_numbers(printed), abs=6e-4)
    for corpus in ("music", "law"):
        (means,) = re.findall(rf"(\+\S+ and \S+)(?: nats)?\s+for {corpus}", PAGE)
        differences = upward_differences(Study(KEPT.parent / f"midtraining-{corpus}")).values()
        assert _numbers(means) == pytest.approx([seeds.mean() for seeds in differences], abs=6e-3)


@pytest.mark.slow
def test_the_laws_miss_by_what_the_page_says() -> None:
    assert_kept(error_lines(Study(KEPT)))


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\+(\d*\.\d+)", text)]
