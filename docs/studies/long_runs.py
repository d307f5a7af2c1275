"""Is a run what runs for the fit that cost a part of it predict? The verdicts of predictions that were registered.

    python -m docs.studies.long_runs

Puts the losses at the ends of the long runs, and of those of 135 M of ladder-135m, beside those of registered.csv,
which was committed before any of them was trained; of long runs the first design there has the table. `last` of the
column design: the loss at the end of the longest run for the fit of the nearest domain ratio.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from docs.studies.law_errors import RESULTS, last_points, markdown
from docs.studies.verdicts import judged

LADDER = RESULTS / "ladder-135m"
STUDIES = [*sorted(RESULTS.glob("long-runs*")), LADDER]


def ends(points: pd.DataFrame) -> pd.DataFrame:
    """The last loss of each run on each corpus, with the domain of its mixture; nats per token."""
    rows = last_points(points)
    columns = [str(name) for name in rows if str(name).startswith("mixture.") and name != "mixture.general"]
    domains = [name.removeprefix("mixture.") for name in columns]
    # A run of general text alone is one of each domain.
    parts = [
        part.assign(domain=name, domain_ratio=part[f"mixture.{name}"])
        for name in domains
        for part in (rows[rows[f"mixture.{name}"] > 0], rows[rows["replay"] == 1])
    ]
    long = pd.concat(parts)
    return long[(long["corpus"] == "general") | (long["corpus"] == long["domain"])]


def last(fitted: pd.DataFrame, registered: pd.DataFrame) -> pd.DataFrame:
    """The registered rows of the first design, with the end of the longest of the nearest runs as prediction."""
    rows = []
    for _, row in registered[registered["design"] == registered["design"].iloc[0]].iterrows():
        own = fitted[(fitted["domain"] == row["domain"]) & (fitted["corpus"] == row["corpus"])]
        own = own.assign(away=(own["domain_ratio"] - row["domain_ratio"]).abs()).sort_values(["away", "D"])
        near = own[own["away"] <= own["away"].min() + 1e-9].iloc[-1]
        rows.append({**row, "design": "last", "predicted": near["loss"], "low": np.nan, "high": np.nan})
    return pd.DataFrame(rows)


def verdict(study: Path) -> pd.DataFrame:
    """A row a registered prediction: what was measured, the error, and whether it was near and inside."""
    table, keys = pd.read_csv(study / "registered.csv"), ["domain", "domain_ratio", "corpus"]
    if study == LADDER:
        points = pd.read_parquet(study / "top.parquet").query("role == 'fit'")
        measured = last_points(points.fillna({"mixture.domain": 0.0, "variant": ""}))
        measured["domain_ratio"] = measured["mixture.domain"]
        table["variant"] = table["peak"].map({3e-4: "", 1e-3: "peak-1e-3"})
        keys[0] = "variant"
    elif apart := [*study.glob("long*/points.parquet")]:
        table["design"] += ", " + table["by"]
        measured = pd.concat([ends(pd.read_parquet(file).query("role == 'fit'")) for file in apart])
    else:
        points = pd.read_parquet(study / "points.parquet")
        measured = ends(points[points["role"] == "confirm"]).round({"domain_ratio": 3})
        table = pd.concat([table, last(ends(points[points["role"] == "fit"]), table)])
    return judged(table.merge(measured[[*keys, "loss"]].rename(columns={"loss": "measured"}), on=keys))


def page(table: pd.DataFrame) -> list[str]:
    """The table of the page, and a line a design."""
    subject, said, digits = ("peak", ["near"], 2) if "peak" in table else ("domain", ["near", "inside"], 1)
    designs = {"all": table} if "peak" in table else dict(iter(table.groupby("design", sort=False)))
    heads = (subject, "domain ratio", "loss on", "before", "predicted (90% interval)", "measured", "error", *said)
    lines = []
    for _, row in next(iter(designs.values())).iterrows():
        between = f"{row['predicted']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        losses = (f"{row['before']:.3f}", between, f"{row['measured']:.3f}", f"{row['error']:+.1%}")
        run = (row[subject], f"{row['domain_ratio']:g}", row["corpus"])
        lines.append((*run, *losses, *("yes" if row[it] else "no" for it in said)))
    text = markdown(heads, lines).splitlines()
    for design, rows in designs.items():
        inside = f", {rows['inside'].sum()} inside" if rows["low"].notna().all() else ""
        mean = f"mean error {rows['error'].abs().mean():.{digits}%}"
        text.append(f"{design}: {mean}, {rows['near'].sum()} of {len(rows)} near{inside}")
    return text


if __name__ == "__main__":
    for folder in STUDIES:
        print(folder.name, *page(verdict(folder)), sep="\n")
