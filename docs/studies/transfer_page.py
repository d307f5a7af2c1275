"""The tables of docs/transfer-law.md and docs/transfer-law-parameters.md, from docs/results/transfer-law.csv.

The pages hold marked blocks, <!-- name --> … <!-- /name -->; this module writes what is between the marks.
"""

import re
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from docs.studies import transfer_pictures
from docs.studies.transfer_forms import FORMS
from docs.studies.transfer_kept import JUDGED, SPLITS
from docs.studies.transfer_points import ROOT
from docs.studies.transfer_questions import ANCHORED, COMPARED, QUESTIONS, SETTLED

Row = dict[Any, Any]
RESULTS = ROOT / "docs" / "results" / "transfer-law.csv"
PAGES = tuple(ROOT / "docs" / name for name in ("transfer-law.md", "transfer-law-parameters.md"))
SERIES = ("general (code)", "code", "general (law)", "law", "general (chemistry)", "chemistry")
RIVALS = (
    "transfer-replay",
    "transfer-rate",
    "dcpt-free",
    "dcpt-free-anchored",
    "dynamics-replay-size",
    "dynamics-replay-anchored",
)
PROPOSALS = ("transfer-anchored, C N^nu", "transfer-anchored, G N^nu", "transfer-grown", "transfer-rate")
CLAIMED = {
    "dcpt": "`dcpt`",
    "dcpt-free": "`dcpt-free`, which is dcpt without its constraint,",
    "dcpt-free-anchored": "the same given the loss before",
    "dcpt-areas": "the same given S1, S2 and the loss before",
    "dynamics-replay-anchored": "eq. 8 given the loss before",
    "transfer-rate": "`transfer-rate`",
    "transfer-replay": "`transfer-replay`",
}
"""Law -> how the claim names it."""


def write() -> None:
    """Write the figures that need no points, and every block of the pages."""
    table = read()
    transfer_pictures.errors(table)
    transfer_pictures.size(table)
    for page in PAGES:
        page.write_text(filled(page.read_text(), table))


def read() -> pd.DataFrame:
    """The results."""
    return pd.read_csv(RESULTS)


def filled(text: str, table: pd.DataFrame) -> str:
    """The page with each block written anew. Raises KeyError for a mark that no block has."""

    def block(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n{BLOCKS[name](table)}\n<!-- /{name} -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", block, text, flags=re.DOTALL)


def standing(table: pd.DataFrame) -> str:
    """Law, parameters, R2 of what was fitted, and the tally of held-out cells against transfer-anchored."""
    fitted = table[table["section"] == "fitted"].pivot(index="law", columns="series", values="low")
    rows = []
    for law in COMPARED:
        subset = table[(table["section"] == "held-out") & (table["law"] == law)]
        cells, pooled = subset[subset["series"] != "all"], subset[subset["series"] == "all"]
        tally = ["", "", ""]
        if law != ANCHORED:
            worse, better = (pooled["difference"] > pooled["stderr"]), (pooled["difference"] < -pooled["stderr"])
            tally = [
                f"{(cells['difference'] > 0).sum()} of {len(cells)}",
                f"{worse.sum()} / {(~worse & ~better).sum()} / {better.sum()}",
                f"{_times(cells, table):.2f}",
            ]
        r2 = [f"{fitted.loc[law, name]:.3f}".lstrip("0") for name in SERIES]
        rows.append([f"`{law}`", str(int(subset["parameters"].iloc[0])), *r2, *tally])
    heads = ["law", "parameters", *(f"R2 {name}" for name in SERIES)]
    return _markdown([*heads, "cells with a larger error", "questions lost / tied / won", "error, times"], rows)


def claim(table: pd.DataFrame) -> str:
    """The tally in words, for the laws that a reader asks about first."""
    texts = []
    for law, words in CLAIMED.items():
        subset = table[(table["section"] == "held-out") & (table["law"] == law) & (table["series"] != "all")]
        texts.append(
            f"{words} in {(subset['difference'] > 0).sum()} of {len(subset)} (error {_times(subset, table):.2f} times)"
        )
    fitted = table[table["section"] == "fitted"]
    count = int(fitted.loc[fitted["law"] == ANCHORED, "parameters"].iloc[0])
    return textwrap.fill(
        f"Held-out cells in which `{ANCHORED}` ({count} parameters) has a smaller error than {', '.join(texts)}.",
        120,
        break_on_hyphens=False,
    )


def _times(cells: pd.DataFrame, table: pd.DataFrame) -> float:
    """Geometric mean over the cells of a law's error over that of transfer-anchored."""
    anchored = table[(table["section"] == "held-out") & (table["law"] == ANCHORED)]
    against = anchored.set_index(["series", "question"])["value"]
    ratio = cells.set_index(["series", "question"])["value"] / against
    return float(np.exp(np.log(ratio.dropna()).mean()))


def questions(table: pd.DataFrame, kind: str, section: str = "held-out", rivals: tuple[str, ...] = RIVALS) -> str:
    """Question by law, over the three pairs: mean error, and how much more than transfer-anchored's."""
    chosen = (table["section"] == section) & (table["series"] == "all") & (table["kind"] == kind)
    subset = _by(table[chosen], "question", "law")
    rows = []
    for question in QUESTIONS:
        if (question, ANCHORED) not in subset:
            continue
        first = subset[question, ANCHORED]
        cells = [_compared(subset[question, law]) for law in rivals]
        rows.append([question, str(int(first["runs"])), _percent(first["value"]), *cells])
    return _markdown(["fitted to predicted", "runs", f"`{ANCHORED}`", *(f"`{law}`" for law in rivals)], rows)


def _compared(row: Row) -> str:
    found, give = f"{_percent(row['value'])} ({100 * row['difference']:+.2f}", ""
    if np.isfinite(row["stderr"]):
        give = f" ± {100 * row['stderr']:.2f}"
    better = row["difference"] < -row["stderr"]
    return f"**{found}{give})**" if better else f"{found}{give})"


def worst(table: pd.DataFrame) -> str:
    """The cells that transfer-anchored misses by most, with its bias."""
    subset = table[(table["section"] == "held-out") & (table["law"] == ANCHORED) & (table["series"] != "all")]
    held = table[(table["section"] == "held-out") & (table["series"] != "all")]
    rows = []
    for row in subset.sort_values("value", ascending=False).head(10).to_dict("records"):
        others = held[(held["series"] == row["series"]) & (held["question"] == row["question"])]
        best = others.sort_values("value").to_dict("records")[0]
        entry = [row["series"], row["question"], str(int(row["runs"])), _percent(row["value"])]
        rows.append([*entry, f"{100 * row['bias']:+.2f}%", f"`{best['law']}`, {_percent(best['value'])}"])
    return _markdown(["series", "question", "runs", "error", "bias", "best of all laws"], rows)


def exponents(table: pd.DataFrame) -> str:
    """nu of each term by series."""
    subset = _by(table[(table["section"] == "size") & (table["question"] == "exponent")], "name", "series")
    rows = []
    for term in ("C2", "C", "E", "G", "C, beside G", "G, beside C"):
        cells = []
        for name in SERIES:
            e = subset[term, name]
            interval = f"{e['low']:.2f} to {e['high']:.2f}"
            entry = f"{e['value']:.3f} ({interval})" if bool(e["known"]) else f"not identified ({interval})"
            cells.append(f"{entry}; {e['bias']:.2f}")
        rows.append([f"N^nu on {term}", *cells])
    return _markdown(["factor", *SERIES], rows)


def gains(table: pd.DataFrame) -> str:
    """The gain of general where nothing shifts, by size, as one sentence."""
    chosen = (table["section"] == "size") & (table["question"] == "gain at r = 1")
    subset = table[chosen & (table["series"] == "general (code)")].sort_values("low")
    entry = ", ".join(f"{row['value']:.3f} ({row['name']})" for row in subset.to_dict("records"))
    power = np.polyfit(np.log(subset["low"]), np.log(subset["value"]), 1)[0]
    text = f"Gain of the general loss over 360 steps at r = rho = 1, in nats: {entry}; as a power of N, {power:.2f}."
    return textwrap.fill(text, 120)


def proposals(table: pd.DataFrame) -> str:
    """How the proposals fare against transfer-anchored: cells and pooled questions, by kind of corpus."""
    rows = []
    for law in PROPOSALS:
        for kind in ("general", "domain"):
            subset = table[(table["section"] == "held-out") & (table["law"] == law) & (table["kind"] == kind)]
            cells, pooled = subset[subset["series"] != "all"], subset[subset["series"] == "all"]
            won, lost = (pooled["difference"] < -pooled["stderr"]), (pooled["difference"] > pooled["stderr"])
            rows.append(
                [
                    *(f"`{law}`", str(int(subset["parameters"].iloc[0])), kind),
                    f"{(cells['difference'] < 0).sum()} of {len(cells)}",
                    f"{_beyond(cells)} of {int(cells['stderr'].notna().sum())}",
                    f"{won.sum()} / {(~won & ~lost).sum()} / {lost.sum()}",
                    f"{_times(cells, table):.2f}",
                ]
            )
    heads = ["law", "parameters", "corpus", "cells won", "won by more than a tie, of those with two runs or more"]
    return _markdown([*heads, "questions won / tied / lost", "error, times"], rows)


def forms(table: pd.DataFrame) -> str:
    """The registered forms beside the best of the earlier laws: bars, and what no exploration saw."""
    held = table[table["section"] == "held-out"]
    rows = []
    for law in (ANCHORED, PROPOSALS[0], *(form.name for form in FORMS)):
        subset = held[held["law"] == law]
        cells, pooled = subset[subset["series"] != "all"], subset[subset["series"] == "all"]
        unseen = cells[~cells["series"].isin(SERIES[:2])]
        asked = pooled[pooled["kind"] == "general"].set_index("question")["value"]
        rows.append(
            [
                *(f"`{law}`", str(int(subset["parameters"].iloc[0]))),
                *(_percent(asked[question]) for question in ("no general", "a larger size")),
                *(f"{_times(part, table):.2f}" for part in (cells, cells[cells["kind"] == "general"])),
                *(f"{_times(cells[cells['kind'] == 'domain'], table):.2f}", f"{_times(unseen, table):.2f}"),
                f"{(unseen['difference'] < 0).sum()} of {len(unseen)}",
            ]
        )
    heads = ["law", "parameters", "general, no general", "general, a larger size", "60 cells, times"]
    return _markdown([*heads, "30 of general", "30 of domains", "36 unseen, times", "unseen, won"], rows)


def eps_by_time(table: pd.DataFrame) -> str:
    """The eps that joins r = 0 to the other ratios, by step."""
    rows = []
    for row in table[table["section"] == "eps"].to_dict("records"):
        product = f"{row['value'] * row['low'] * 1e4:.1f}e-4"
        rows.append([row["name"], *(_number(row[column]) for column in ("low", "high", "value")), product])
    return _markdown(["", "S1", "C", "eps", "eps S1"], rows)


def kept(table: pd.DataFrame) -> str:
    """Split by kind of corpus on the kept studies: mean error of each law, and the cells that transfer-replay wins."""
    subset = table[table["section"] == "kept study"]
    rows = []
    for kind in ("general", "domain"):
        for split in SPLITS:
            chosen = (subset["kind"] == kind) & (subset["question"] == split)
            cells = subset[chosen].pivot(index="series", columns="law", values="value")
            won = (cells["transfer-replay"] < cells[ANCHORED]).sum()
            means = [_percent(cells[law].mean()) for law in JUDGED]
            rows.append([kind, split, *means, f"{won} of {len(cells)}", f"{_ratio(cells):.2f}"])
    every = subset.pivot(index=["series", "question"], columns="law", values="value")
    means = [_percent(every[law].mean()) for law in JUDGED]
    won = (every["transfer-replay"] < every[ANCHORED]).sum()
    rows.append(["both", "all", *means, f"{won} of {len(every)}", f"{_ratio(every):.2f}"])
    return _markdown(["corpus", "held out", *(f"`{law}`" for law in JUDGED), "series won", "error, times"], rows)


def _ratio(cells: pd.DataFrame) -> float:
    return float(np.exp(np.log(cells["transfer-replay"] / cells[ANCHORED]).mean()))


def _beyond(cells: pd.DataFrame) -> int:
    return int((cells["difference"] < -cells["stderr"]).sum())


def parameters(table: pd.DataFrame) -> str:
    """Each parameter with its 90% profile interval."""
    subset = _by(table[table["section"] == "identified"], "name", "series")
    rows = []
    for name in ("C2", "C", "G", "eps", "E", "lambda"):
        cells = []
        for series in SERIES:
            e = subset[name, series]
            entry = f"{e['value']:.3g} ({e['low']:.3g} to {e['high']:.3g})"
            cells.append(entry if bool(e["known"]) else f"*{entry}*")
        rows.append([name, *cells])
    return _markdown(["parameter", *SERIES], rows)


def closed(table: pd.DataFrame) -> str:
    """Closed forms beside numerical answers and measurements."""
    subset = _by(table[table["section"] == "closed form"], "name", "series")
    rows = []
    for name in dict.fromkeys(name for name, _ in subset):
        for pair in ("code", "law", "chemistry"):
            e = subset[name, pair]
            never = name == "ratio of no return" and e["value"] < 0
            entry = ["none", "none", ""] if never else [_number(e[column]) for column in ("value", "low", "high")]
            rows.append([name, pair, *entry])
    return _markdown(["asked", "pair", "closed form", "numerical", "measured"], rows)


def elsewhere(table: pd.DataFrame) -> str:
    """Pythia-70M."""
    subset = _by(table[table["section"] == "public"], "series", "law", "question")
    rows = []
    for series, law in dict.fromkeys((series, law) for series, law, _ in subset):
        out = [_percent(subset[series, law, q]["value"]) for q in ("a ratio left out", "the second half of the steps")]
        fitted = subset[series, law, "fitted"]
        rows.append([series, f"`{law}`", str(int(fitted["parameters"])), f"{fitted['value']:.3f}", *out])
    return _markdown(["corpus", "law", "parameters", "R2", "each ratio left out", "second half left out"], rows)


BLOCKS: dict[str, Callable[[pd.DataFrame], str]] = {
    "claim": claim,
    "standing": standing,
    "general": lambda table: questions(table, "general"),
    "domain": lambda table: questions(table, "domain"),
    "ground-general": lambda table: questions(table, "general", "settled points", SETTLED),
    "ground-domain": lambda table: questions(table, "domain", "settled points", SETTLED),
    "worst": worst,
    "exponents": exponents,
    "gains": gains,
    "proposals": proposals,
    "forms": forms,
    "kept": kept,
    "eps": eps_by_time,
    "parameters": parameters,
    "closed": closed,
    "elsewhere": elsewhere,
}


def _by(rows: pd.DataFrame, *columns: str) -> dict[tuple[str, ...], Row]:
    return {tuple(str(row[name]) for name in columns): row for row in rows.to_dict("records")}


def _percent(value: float) -> str:
    return f"{100 * value:.2f}%"


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
