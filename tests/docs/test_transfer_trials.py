"""docs/results/transfer-law.csv, of which docs/laws.md has a table, is what the transfer trials give."""

import pandas as pd
import pytest

from docs.studies import transfer_trials
from docs.studies.law_errors import DATA, has_trials
from docs.studies.laws_page import RESULTS
from docs.studies.transfer_trials import ANCHORED, cells_of_trials


@pytest.mark.skipif(not has_trials(), reason=f"no transfer_trials in CPTLAW_PUBLIC_DATA ({DATA}): this project's own")
@pytest.mark.parametrize(
    ("law", "kept"), [(ANCHORED, ANCHORED), ("transfer-replay",) * 2, ("transfer-scaled", "transfer-anchored, C N^nu")]
)
def test_a_cell_of_the_table_again(law, kept):
    (cell,) = [
        cell for cell in cells_of_trials() if (cell.series, cell.question) == ("general (law)", "peak 1e-3 to 3e-4")
    ]
    assert len(cell.points) == 195
    errors = cell.errors(law)
    rows = pd.read_csv(RESULTS).query("section == 'held-out' and series == @cell.series and question == @cell.question")
    row = rows.set_index("law").loc[kept]
    assert (len(errors), errors["points"].sum()) == (row["runs"], row["points"])
    assert errors["error"].mean() == pytest.approx(row["value"], rel=0.01)
    assert errors["bias"].mean() == pytest.approx(row["bias"], rel=0.01)


def test_errors_are_compared_with_those_of_transfer_anchored():
    table = pd.DataFrame(
        [("a", "general", "x", 0.02, 0.01), ("a", "domain", "x", 0.01, 0.04)],
        columns=["series", "kind", "question", ANCHORED, "other"],
    )
    other = transfer_trials.against_anchored(table).loc["other"]
    assert [*other[["cells", "times", "general", "domain"]]] == ["1 of 2", pytest.approx(2**0.5), 0.5, 4.0]
