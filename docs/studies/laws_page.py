"""Write the tables of docs/laws.md, between marked lines, from the laws themselves and from docs/results.

python -m docs.studies.laws_page
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from docs.studies.law_errors import markdown
from docs.studies.transfer_trials import against_anchored
from fitting import LAWS
from pipeline.cli.laws import columns_of

PAGE = Path(__file__).parents[1] / "laws.md"
RESULTS = PAGE.parent / "results" / "transfer-law.csv"
STANDING = {
    "transfer-rate": "`transfer-rate`",
    "transfer": "`transfer`",
    "transfer-anchored, C N^nu": "`transfer-scaled`",
    "transfer-replay": "`transfer-replay`",
    "dcpt": "`dcpt`",
    "dcpt-free-anchored": "`dcpt-free`, given the loss before CPT",
    "dynamics-replay-anchored": "eq. 8, given the loss before CPT",
}
"""Law in transfer-law.csv -> how the page names it."""
SHOWN = (
    *("chinchilla", "power", "rectified-floorless", "dcpt", "cross-domain-k3", "annealing", "multi-power", "dynamics"),
    *("dynamics-replay", "transfer-anchored", "transfer-replay", "transfer-two-mixtures"),
    *("transfer-read", "transfer-open-saturating", "transfer-open-read"),
    *("ddo", "data-mixing"),
)
"""Laws whose equation the page has; `cptlaw laws NAME` prints that of each."""


def laws() -> str:
    """Law, equation, number of parameters, columns, of one law of each family."""
    rows = [
        (f"`{law.name}`", f"$`{law.equation}`$", len(law.parameters), ", ".join(map("`{}`".format, columns_of(law))))
        for law in map(LAWS.__getitem__, SHOWN)
    ]
    return markdown(("law", "loss", "parameters", "reads"), rows)


def standing() -> str:
    """Held-out errors of each law against those of transfer-anchored, over the cells of the transfer trials."""
    table = pd.read_csv(RESULTS)
    cells = table[(table["section"] == "held-out") & (table["series"] != "all")]
    errors = cells.pivot(index=["series", "kind", "question"], columns="law", values="value").reset_index()
    parameters, rows = cells.groupby("law")["parameters"].first(), []
    for law, row in against_anchored(errors).loc[[*STANDING]].iterrows():
        times = (f"{row[name]:.2f}" for name in ("times", "general", "domain"))
        rows.append((STANDING[str(law)], int(parameters[law]), row["cells"], *times))
    return markdown(("law", "parameters with lambda", "cells", "times", "general", "domain"), rows)


TABLES = {"laws": laws, "standing": standing}


def renewed(page: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """The page with its tables made again, by their marks."""

    def filled(found: re.Match) -> str:
        return f"<!-- begin {found[1]} -->\n{tables[found[1]]()}\n<!-- end -->"

    return re.sub(r"^<!-- begin (.+?) -->$.*?^<!-- end -->$", filled, page, flags=re.MULTILINE | re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
