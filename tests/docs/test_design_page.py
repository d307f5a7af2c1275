"""docs/design-of-experiments.md runs and prints what it says."""

from tests.docs.pages import assert_same_output, run


def test_the_page_prints_what_it_shows():
    assert_same_output(run("design-of-experiments.md", {"__name__": "page"}))
