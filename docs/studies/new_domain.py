"""What does the cross-domain law know of a domain that it was not fitted to, for 1% of that domain's cost?

python -m docs.studies.new_domain dcpt-six-small dcpt-six-annealed     # designs to choose a method on
python -m docs.studies.new_domain dcpt-six-long                        # the design that judges it

Each domain in turn is held out. Of it only runs of the smallest model are known, whose cost (N times steps) is at most
1% of that of all its runs, a part of one run where a whole one costs more. Every other point on the domain, from a
quarter of the steps on, is predicted by

- `k3`: cross-domain-k3 of the other domains, with k1 and k2 of the new one, as the paper has it;
- `k3, shifted`: the same, times what it misses the short runs by, on average. On dcpt-six-annealed a line through the
  logs of the short runs' losses missed by 4.0% and a law refitted with the short runs by 1.88%, `k3, shifted` by 1.89%.

The 90% interval is made of the log errors of the same method on the other domains, each held out from the rest in turn,
by model size: `inside`, by their 90% quantile; `inside_t`, by their root mean square times Student's t of as many
domains. Chosen on dcpt-six-small and dcpt-six-annealed, before dcpt-six-long was judged: `k3, shifted` with `inside_t`.
"""

import sys

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from docs.studies.law_errors import RESULTS, kept_points
from fitting import new_domain
from pipeline.papers.dcpt.fits import learnability
from pipeline.papers.dcpt.points import DomainPoints

PART = 0.01
RATIOS = (0.5, 0.9, 0.1)
"""Ratios of the short runs, in the order in which the budget is spent on them."""


def read(design: str) -> DomainPoints:
    points = kept_points(design, 0)
    domains = tuple(name for name in points["corpus"].unique() if name != "general")
    return DomainPoints(points, "general", domains, int(points["step"].max() // 4), 0.05)


def parted(study: DomainPoints, domain: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The points of the short runs of a domain, and all its others, with k1 and k2."""
    points = study.fitted(domain, "D").assign(domain=domain, **learnability(study, domain))
    points["run"] = points["run"] + " " + domain
    runs = points.groupby("run").agg(N=("N", "first"), r=("r", "first"), steps=("step", "max"))
    cost, left = runs["N"] * runs["steps"], PART * float((runs["N"] * runs["steps"]).sum())
    small, known = runs[runs["N"] == runs["N"].min()], dict[str, float]()
    for ratio in RATIOS:
        run = str((small["r"] - ratio).abs().idxmin())
        if run not in known and (cost[run] <= left or not known):
            known[run] = min(1.0, left / float(cost[run]))
            left -= float(cost[run]) * known[run]
    short = points["step"] <= points["run"].map(known).fillna(0.0) * points["run"].map(runs["steps"])
    return points[short], points[~short]


def judged(design: str) -> pd.DataFrame:
    """Mean error and coverage of each method on each domain."""
    study = read(design)
    rows = []
    for domain in study.domains:
        short, rest = parted(study, domain)
        others = [parted(study, other) for other in study.domains if other != domain]
        known = pd.concat(part.assign(short=place == 0) for other in others for place, part in enumerate(other))
        answer = new_domain(known, short)
        for method, shifted in (("k3", False), ("k3, shifted", True)):
            own = np.log(rest["loss"] / answer.law.predict(rest)) - answer.shift * shifted
            beside = answer.errors["error"] + (0.0 if shifted else answer.errors["shift"])
            sizes = answer.errors["N"]
            t = stdtrit(len(study.domains) - 2, 0.95) * (beside**2).groupby(sizes).mean() ** 0.5
            ends = [float(np.abs(np.expm1(-own)).mean())]
            for half in (rest["N"].map(beside.abs().groupby(sizes).quantile(0.9)), rest["N"].map(t)):
                ends += [half.mean(), (own.abs() <= half).mean()]
            rows.append((design, domain, method, short["run"].nunique(), len(own), *ends))
    columns = ["design", "domain", "method", "runs", "points", "mean_error", "half_width", "inside"]
    columns += ["half_width_t", "inside_t"]
    return pd.DataFrame(rows, columns=columns)


def main(*designs: str) -> None:
    """Judge designs, print and keep what came out."""
    tables, file = pd.concat([judged(design) for design in designs]), RESULTS / "new-domain.csv"
    before = pd.read_csv(file)
    tables = pd.concat([before[~before["design"].isin(designs)], tables])
    tables.round(5).to_csv(file, index=False)
    print(tables.groupby(["design", "method"], sort=False)[[*tables.columns[5:]]].mean().round(4))
    print(tables.round(4).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
