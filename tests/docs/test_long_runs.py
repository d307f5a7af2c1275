"""The tables and verdicts of the long runs are those of their registered predictions and kept points."""

from pathlib import Path

import pytest

from docs.studies.long_runs import STUDIES, page, verdict


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_page_has_what_the_kept_points_give(study: Path) -> None:
    lines = page(verdict(study))
    text = (study / "README.md").read_text()
    assert len(lines) > 2
    assert all(line in text for line in lines), "\n".join(lines)
