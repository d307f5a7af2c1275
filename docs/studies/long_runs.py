"""Is a long run what runs for the fit that cost a tenth of it predict? The verdicts of long-runs and those after it.

    python -m docs.studies.long_runs

Puts the losses at the ends of the long runs beside those of registered.csv, which was committed before any of them was
trained; the first design there has the table. `last` of the column design: the loss at the end of the longest run for
the fit of the nearest domain ratio.
"""

from pathlib import Path

import numpy as np
import pandas as pd

NAMES = (
    "long-runs",
    "long-runs-peak",
    "long-runs-2.9m",
    "long-runs-2.9m-peak",
    "long-runs-other-domains",
    "long-runs-low",
)
STUDIES = [Path(__file__).parents[1] / "results" / name for name in NAMES]
BAR, PART = 0.01, 0.1
"""A loss is near if it is missed by that part of it, or of its change."""
JUDGED = ["near", "inside"]
"""What is said of each loss."""


def ends(points: pd.DataFrame, role: str) -> pd.DataFrame:
    """The last loss of each run of a role on each corpus, with the domain of its mixture; nats per token."""
    rows = points[points["role"] == role]
    rows = rows[rows["step"] == rows.groupby("run")["step"].transform("max")]
    domains = [name for name in ("law", "headers", "medical", "math") if f"mixture.{name}" in rows]
    parts = [rows[rows[f"mixture.{name}"] > 0].assign(domain=name) for name in domains]
    # A run of general text alone is one of both.
    parts += [rows[rows["replay"] == 1].assign(domain=name) for name in domains]
    long = pd.concat(parts)
    long = long[long["corpus"].isin(["general"]) | (long["corpus"] == long["domain"])]
    ratio = [row[f"mixture.{row['domain']}"] for _, row in long.iterrows()]
    return long.assign(domain_ratio=ratio)[["domain", "domain_ratio", "corpus", "loss", "D", "run"]]


def last(points: pd.DataFrame, registered: pd.DataFrame) -> pd.DataFrame:
    """The registered rows of the first design, with the end of the longest of the nearest runs as prediction."""
    fitted, rows = ends(points, "fit"), []
    for _, row in registered[registered["design"] == registered["design"].iloc[0]].iterrows():
        own = fitted[(fitted["domain"] == row["domain"]) & (fitted["corpus"] == row["corpus"])]
        own = own.assign(away=(own["domain_ratio"] - row["domain_ratio"]).abs()).sort_values(["away", "D"])
        near = own[own["away"] <= own["away"].min() + 1e-9].iloc[-1]
        rows.append({**row, "design": "last", "predicted": near["loss"], "low": np.nan, "high": np.nan})
    return pd.DataFrame(rows)


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Predictions with their error, and whether they were near and inside.

    Columns: before, predicted, low, high, measured, all in nats per token.
    """
    missed, change = (table["predicted"] - table["measured"]).abs(), (table["measured"] - table["before"]).abs()
    return table.assign(
        error=table["predicted"] / table["measured"] - 1,
        near=(missed <= BAR * table["measured"]) | (missed <= PART * change),
        inside=table["measured"].between(table["low"], table["high"]),
    )


def verdict(study: Path) -> pd.DataFrame:
    """A row a registered prediction: what was measured, the error, and whether it was near and inside."""
    points, registered = pd.read_parquet(study / "points.parquet"), pd.read_csv(study / "registered.csv")
    measured = ends(points, "confirm").rename(columns={"loss": "measured"}).drop(columns=["D", "run"])
    measured["domain_ratio"] = measured["domain_ratio"].round(3)
    table = pd.concat([registered, last(points, registered)]).merge(measured, on=["domain", "domain_ratio", "corpus"])
    return judged(table)


def page(table: pd.DataFrame) -> list[str]:
    """The table of the page, and a line a design."""
    lines = [
        "| domain | domain ratio | loss on | before | predicted (90% interval) | measured | error | near | inside |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for _, row in table[table["design"] == table["design"].iloc[0]].iterrows():
        between = f"{row['predicted']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        cells = [row["domain"], f"{row['domain_ratio']:g}", row["corpus"], f"{row['before']:.3f}", between]
        cells += [f"{row['measured']:.3f}", f"{row['error']:+.1%}", *("yes" if row[it] else "no" for it in JUDGED)]
        lines.append(f"| {' | '.join(cells)} |")
    for design, rows in table.groupby("design", sort=False):
        inside = f", {rows['inside'].sum()} inside" if rows["low"].notna().all() else ""
        mean = f"mean error {rows['error'].abs().mean():.1%}"
        lines.append(f"{design}: {mean}, {rows['near'].sum()} of {len(rows)} near{inside}")
    return lines


if __name__ == "__main__":
    for folder in STUDIES:
        print("\n".join([folder.name, *page(verdict(folder))]))
