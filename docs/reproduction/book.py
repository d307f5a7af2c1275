"""The inputs of the page: kept tables of studies, kept measurements, and the papers' numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pipeline.paper_tables.catalogue import READINGS, TABLES
from pipeline.paper_tables.show import Result
from pipeline.paper_tables.table import judged

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
CLAIMS = Path(__file__).parent / "claims.csv"
MEASURED = RESULTS / "reproduction.csv"
TENTH = 0.1
"""Ratio of a corpus below which the D-CPT paper says that its law fails."""
L3 = ("dcpt-convex", "dcpt", "dcpt-free")
"""L3 as the D-CPT paper fits it (eq. 26 and eta > 1), without the bound of eta, and without both."""
FIRST_DESIGN = "dcpt-six-small"
DESIGNS = {"first": FIRST_DESIGN, "second": "dcpt-six-long", "third": "dcpt-six-annealed"}
"""The designs of the six-domain study, in their order; the tables are made from the last."""
L3_CASES = (
    *(("first", least, first) for least, first in ((0.0, 40), (TENTH, 40), (TENTH, 120))),
    *(("second", 0.0, first) for first in (300, 600)),
    ("third", 0.0, 300),
)
"""Design, least ratio and first step of the points that L3 is fitted to with and without its constraints."""


def _experiment(name: str) -> str:
    return READINGS[TABLES[name].reads].experiment


@dataclass(frozen=True)
class Book:
    """The papers' numbers and ours."""

    papers: Path
    """Folder of the papers' numbers."""
    results: Path = RESULTS
    """Folder of ours: a folder a study with tables/*.csv as `cptlaw tables` writes them, and reproduction.csv."""

    @functools.cached_property
    def claims(self) -> pd.DataFrame:
        """What the papers say in their text, by id: paper, section, quantity, value, unit; and how it is judged: how,
        words. Tables of the papers that are not made here have an id of their file's name.

        Raises:
            ValueError: claims.csv and the papers' intext.csv do not belong together.
        """
        ours = pd.read_csv(CLAIMS, dtype=str, keep_default_na=False)
        printed = pd.read_csv(self.papers / "intext.csv", dtype=str, keep_default_na=False)
        printed["id"] = printed["paper"] + "-" + (printed.groupby("paper").cumcount() + 1).astype(str)
        joined = ours.merge(printed.rename(columns={"section": "place"}), on="id", how="outer")
        in_text = joined[joined["section"] != ""]
        if len(in_text) != len(printed) or (in_text["section"] != in_text["place"]).any():
            raise ValueError(f"{CLAIMS} and {self.papers}/intext.csv do not have the same claims")
        return joined.set_index("id").loc[ours["id"]]

    def number(self, claim: str) -> float:
        """A number that a paper prints in its text."""
        return float(self.claims.loc[claim, "value"])  # pyright: ignore[reportArgumentType]

    def csv(self, name: str) -> pd.DataFrame:
        """A table as a paper prints it."""
        return pd.read_csv(self.papers / name)

    @functools.cached_property
    def tables(self) -> dict[str, tuple[Result, Path]]:
        """Name of TABLES -> the table as it was kept, and the folder of its study."""
        kept: dict[str, tuple[Result, Path]] = {}
        for folder in sorted(self.results.glob("*/tables")):
            for name, _, *texts in pd.read_csv(folder / "verdicts.csv", keep_default_na=False).itertuples(index=False):
                # Where several studies have a table, that of its experiment counts.
                if name in TABLES and (name not in kept or folder.parent.name == _experiment(name)):
                    cells = pd.read_csv(folder / f"{name}.csv")
                    kept[name] = Result(name, TABLES[name], cells, *texts), folder.parent
        return kept

    @functools.cached_property
    def measured(self) -> dict[str, float]:
        """Name -> value, as `docs.reproduction.measured` kept them."""
        file = self.results / MEASURED.name
        return pd.read_csv(file).set_index("name")["value"].to_dict() if file.exists() else {}

    @functools.cached_property
    def by_design(self) -> dict[str, dict[str, str]]:
        """Design of DESIGNS -> name of TABLES -> verdict; of those that are kept."""
        return {
            design: {
                file.stem: judged(TABLES[file.stem], pd.read_csv(file))[0]
                for file in (self.results / study / "tables").glob("*.csv")
                if file.stem in TABLES
            }
            for design, study in DESIGNS.items()
            if (self.results / study / "tables").exists()
        }

    @functools.cached_property
    def transfer(self) -> pd.DataFrame:
        """Results of the study of the transfer law, docs/laws.md."""
        return pd.read_csv(RESULTS / "transfer-law.csv")

    def not_made(self) -> Iterator[str]:
        """Files of the papers' tables that neither a table nor a claim stands for."""
        known = {table.file for table in TABLES.values()} | {f"{name}.csv" for name in self.claims.index}
        yield from sorted({file.name for file in self.papers.glob("*.csv")} - known - {"intext.csv"})
