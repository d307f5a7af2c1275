"""Are runs of 1,200 steps of a real base model what runs of 40 and of 120 steps predict? docs/results/base-model-1200.

    python -m docs.studies.base_model_1200

Puts the last losses of the long runs beside predicted.csv, which `cptlaw predict` gave by the runs for the fit.
"""

from pathlib import Path

import pandas as pd

from docs.studies.long_runs import BAR, PART

RESULTS = Path(__file__).parents[1] / "results" / "base-model-1200"
KEYS = ["domain", "domain_ratio", "corpus"]
ASKED = {("law", 0.992), ("law", 0.842), ("headers", 0.912), ("headers", 0.762)}
"""Domain and ratio of the runs that a bar of the registration is about."""


def verdict() -> pd.DataFrame:
    """A row a predicted loss: the last one that was measured, the error, and whether it was near and inside."""
    points, table = pd.read_parquet(RESULTS / "points.parquet"), pd.read_csv(RESULTS / "predicted.csv")
    long = points[points["of_steps"] == 1200]
    ends = long[long["step"] == long.groupby("run")["step"].transform("max")]
    ends = ends.rename(columns={"ratio": "domain_ratio", "loss": "measured"})[[*KEYS, "step", "measured"]]
    table = table.merge(ends, on=KEYS, validate="many_to_one")
    table["error"] = table["predicted"] / table["measured"] - 1
    missed, change = (table["predicted"] - table["measured"]).abs(), (table["measured"] - table["before"]).abs()
    table["near"] = (missed <= BAR * table["measured"]) | (missed <= PART * change)
    table["inside"] = table["measured"].between(table["low"], table["high"])
    return table


def page(table: pd.DataFrame) -> list[str]:
    """The table of the page, and lines on each length of the runs for the fit."""
    lines = ["| domain | domain ratio | loss on | before | measured | at step | by 40 steps | error | by 120 | error |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for (domain, ratio, corpus), rows in table.groupby(KEYS, sort=False):
        first = rows.iloc[0]
        cells = [
            domain,
            f"{ratio:g}",
            corpus,
            *(f"{first[name]:.3f}" for name in ("before", "measured")),
            first["step"],
        ]
        for _, row in rows.sort_values("of_steps").iterrows():
            between = f"{row['predicted']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
            cells += [between, f"{row['error']:+.1%}" + (", near" if row["near"] else "")]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for steps, rows in table.groupby("of_steps"):
        asked = rows[[pair in ASKED for pair in zip(rows["domain"], rows["domain_ratio"], strict=True)]]
        needed, width = rows["error"].abs().quantile(0.9), (rows["high"] / rows["predicted"] - 1).mean()
        lines.append(
            f"by {steps} steps: mean error {rows['error'].abs().mean():.1%}, {rows['near'].sum()} of {len(rows)} near, "
            f"{asked['near'].sum()} of the {len(asked)} asked, {rows['inside'].sum()} inside; 90% of errors up to "
            f"{needed:.1%}, intervals {width:.1%} to the upper side"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(page(verdict())))
