"""The study of the transfer law: docs/results/transfer-law.csv, the pictures and the numbers of docs/transfer-law.md.

    python -m docs.studies.transfer_law          # everything: 320 s of one core, measured
    python -m docs.studies.transfer_law page     # the numbers of the page again, from the CSV alone

Needs the trials in CPTLAW_PUBLIC_DATA (default ../shared/data) for all but the page.
"""

import sys
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd

from docs.studies import transfer_page, transfer_pictures
from docs.studies.transfer_closed import closed_forms
from docs.studies.transfer_page import RESULTS
from docs.studies.transfer_points import DATA, Series, read_series, there
from docs.studies.transfer_public import public
from docs.studies.transfer_questions import (
    ANCHORED,
    BLIND,
    COMPARED,
    OWN_GROUND,
    Missed,
    asked,
    fit_to,
    judge,
    missed,
    missed_on_own_ground,
    parameters_of,
)
from docs.studies.transfer_size import exponents, gains_without_shift, late_bias, with_profiles
from docs.studies.transfer_variants import PROPOSED, registered
from fitting import Fit

COLUMNS = (
    *("section", "series", "kind", "question", "law", "name", "parameters", "runs", "points"),
    *("value", "bias", "difference", "stderr", "low", "high", "known"),
)
Row = dict[str, object]


def main(arguments: list[str]) -> None:
    """Measure, unless only the page is asked for; then write page and pictures."""
    if arguments != ["page"]:
        if not there():
            sys.exit(f"no transfer_trials in CPTLAW_PUBLIC_DATA ({DATA}): the points of the study are not here")
        table = pd.DataFrame(measure(), columns=list(COLUMNS))
        RESULTS.parent.mkdir(exist_ok=True)
        table.to_csv(RESULTS, index=False, float_format="%.6g")
    transfer_page.write()


def measure() -> list[Row]:
    """Every row of the results, and the two pictures that need the points."""
    series = read_series()
    with registered():
        rows = [*fits_of_all(series), *held_out(series), *own_ground(series), *sizes(series)]
        fits = {one.name: with_profiles(one) for one in series}
        rows += [*known(series, fits), *closed(series, fits), *elsewhere()]
        transfer_pictures.curves(series)
    return rows


def fits_of_all(series: list[Series]) -> Iterator[Row]:
    """R2 and mean relative error of each law on the points that it was fitted to."""
    for one in series:
        for law in COMPARED:
            fit = fit_to(one, law, one.points["loss"] > 0)
            found = judge(one, fit, one.points)
            loss = one.points["loss"]
            errors = found.residuals
            r2 = 1 - float(np.sum(errors**2) / np.sum((loss - loss.mean()) ** 2))
            yield _row("fitted", one, "all", law, found) | {"name": "r2", "low": r2}
        log(f"fitted to all: {one.name}")


def held_out(series: list[Series]) -> Iterator[Row]:
    """Each cell of the table; then each question over the three pairs together, run by run."""
    yield from _cells("held-out", series, COMPARED, missed)


def own_ground(series: list[Series]) -> Iterator[Row]:
    """The same where D-CPT is at home."""
    yield from _cells("own ground", series, (ANCHORED, *OWN_GROUND), missed_on_own_ground)


def _cells(section: str, series: list[Series], laws: tuple[str, ...], ask) -> Iterator[Row]:
    pooled: dict[tuple[str, str, str], list[Missed]] = {}
    for one in series:
        for question in asked(one):
            found = {law: ask(one, law, question) for law in laws if question not in BLIND.get(law, ())}
            if found[ANCHORED] is None:
                continue
            for law, its in found.items():
                yield _row(section, one, question, law, its, found[ANCHORED])
                pooled.setdefault((one.kind, question, law), []).append(its)
            log(f"{section}: {one.name}, {question}: {ANCHORED} {found[ANCHORED].errors['error'].mean():.2%}")
    for (kind, question, law), parts in pooled.items():
        together, best = _together(parts), _together(pooled[kind, question, ANCHORED])
        yield _row(section, None, question, law, together, best) | {"kind": kind}


def _together(parts: list[Missed]) -> Missed:
    errors = pd.concat({i: part.errors for i, part in enumerate(parts)})
    return Missed(errors, sum(part.points for part in parts), parts[0].residuals)


def _row(
    section: str, series: Series | None, question: str, law: str, found: Missed, against: Missed | None = None
) -> Row:
    row: Row = {
        **{"section": section, "series": series.name if series else "all", "question": question, "law": law},
        **{"kind": series.kind if series else "", "parameters": parameters_of(law), "runs": len(found.errors)},
        **{"points": found.points, "value": found.errors["error"].mean(), "bias": found.errors["bias"].mean()},
    }
    if against is not None:
        further = found.errors["error"] - against.errors["error"]
        row["difference"] = further.mean()
        row["stderr"] = further.std(ddof=1) / np.sqrt(len(further)) if len(further) > 1 else np.nan
    return row


def sizes(series: list[Series]) -> Iterator[Row]:
    """Exponents of N on each term, gains where nothing shifts, and what is left of the trend over sizes."""
    for one in series:
        named = {"section": "size", "series": one.name, "kind": one.kind}
        for e in exponents(one):
            interval = {"low": e.low, "high": e.high, "known": e.known, "bias": e.objective}
            yield {**named, "question": "exponent", "name": e.term, "value": e.value, **interval}
        if one.kind == "general":
            for N, gain in gains_without_shift(one):
                yield {**named, "question": "gain at r = 1", "name": f"{N * 1e3:.3g} M", "value": gain, "low": N}
            for law in (ANCHORED, "transfer-anchored, G N^nu", PROPOSED):
                for N, bias, error in late_bias(one, law):
                    trend = {"law": law, "name": f"{N * 1e3:.3g} M", "value": bias, "stderr": error, "low": N}
                    yield {**named, "question": "late bias", **trend}
        log(f"sizes: {one.name}")


def known(series: list[Series], fits: dict[str, Fit]) -> Iterator[Row]:
    """Parameters of transfer-anchored with 90% profile intervals, and whether they are identified."""
    for one in series:
        fit = fits[one.name]
        intervals, pinned = fit.intervals(), fit.identified
        named = {"section": "identified", "series": one.name, "kind": one.kind, "law": ANCHORED}
        for name, value in fit.params.items():
            low, high = intervals[name]
            yield {**named, "name": name, "value": value, "low": low, "high": high, "known": pinned[name]}
        log(f"identified: {one.name}: {', '.join(name for name, yes in pinned.items() if yes)}")


def closed(series: list[Series], fits: dict[str, Fit]) -> Iterator[Row]:
    """Closed forms of each pair."""
    for general, domain in zip(series[::2], series[1::2], strict=True):
        for found in closed_forms(general, domain, (fits[general.name], fits[domain.name])):
            numbers = {"value": found.closed, "low": found.numerical, "high": found.measured}
            yield {"section": "closed form", "series": domain.pair, "law": ANCHORED, "name": found.name, **numbers}
        log(f"closed forms: {domain.pair}")


def elsewhere() -> Iterator[Row]:
    """Pythia-70M on Pile and Python."""
    for p in public():
        named = {"section": "public", "series": p.corpus, "law": p.law, "parameters": p.parameters}
        yield {**named, "question": "fitted", "name": "r2", "value": p.r2}
        for question, errors in (("a ratio left out", p.ratio), ("the second half of the steps", p.later)):
            yield {**named, "question": question, "value": errors.mean(), "runs": len(errors)}
        log(f"public: {p.corpus}, {p.law}")


def log(line: str) -> None:
    """A line of progress."""
    print(f"{time.process_time():6.0f} s  {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
