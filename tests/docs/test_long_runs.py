"""The table and the verdict of docs/results/long-runs are those of its registered predictions and kept points."""

from docs.studies.long_runs import KEPT, page, verdict


def test_the_page_has_what_the_kept_points_give() -> None:
    lines = page(verdict())
    text = (KEPT / "README.md").read_text()
    assert len(lines) > 2
    assert all(line in text for line in lines), "\n".join(lines)
