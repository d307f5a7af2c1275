"""Do 15, 30 and 60 M parameters predict 135 M? The verdict of docs/results/ladder-135m.

    python -m docs.studies.ladder

Puts the losses at the ends of the runs of 135 M (top.parquet) beside those of registered.csv, which the laws' fits to
the three smaller sizes gave before any of these runs began.
"""

from pathlib import Path

import pandas as pd

from docs.studies.long_runs import judged

RESULTS = Path(__file__).parents[1] / "results" / "ladder-135m"
VARIANTS = {3e-4: "", 1e-3: "peak-1e-3"}
"""Peak learning rate -> the column variant of its runs."""


def verdict() -> pd.DataFrame:
    """A row a registered prediction: what was measured, the error, and whether it was near and inside."""
    points, table = pd.read_parquet(RESULTS / "top.parquet"), pd.read_csv(RESULTS / "registered.csv")
    points = points[points["role"] == "fit"]
    ends = points[points["step"] == points["step"].max()].fillna({"mixture.domain": 0.0, "variant": ""})
    ends = ends.assign(domain_ratio=ends["mixture.domain"], measured=ends["loss"])
    table["variant"] = table["peak"].map(VARIANTS)
    keys = ["variant", "domain_ratio", "corpus"]
    return judged(table.merge(ends[[*keys, "measured"]], on=keys, validate="one_to_one"))


def page(table: pd.DataFrame) -> list[str]:
    """The table of the page, and a line for all."""
    lines = ["| peak | domain ratio | loss on | before | predicted (90% interval) | measured | error | near |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for _, row in table.iterrows():
        between = f"{row['predicted']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        cells = [f"{row['peak']:g}", f"{row['domain_ratio']:g}", row["corpus"], f"{row['before']:.3f}", between]
        cells += [f"{row['measured']:.3f}", f"{row['error']:+.1%}", "yes" if row["near"] else "no"]
        lines.append(f"| {' | '.join(cells)} |")
    near, inside = table["near"].sum(), table["inside"].sum()
    return [*lines, f"mean error {table['error'].abs().mean():.2%}, {near} of {len(table)} near, {inside} inside"]


if __name__ == "__main__":
    print("\n".join(page(verdict())))
