"""The study of the transfer law: docs/results/transfer-law.csv, and the figures and tables of its two pages.

    python -m docs.studies.transfer_law          # everything but the registered forms that did not become a law
    python -m docs.studies.transfer_law forms    # these forms, in the place of their rows
    python -m docs.studies.transfer_law missing  # laws that the CSV does not have yet
    python -m docs.studies.transfer_law page     # the tables of the pages again, from the CSV alone

Needs the trials in CPTLAW_PUBLIC_DATA (default ../shared/data) for all but the pages.
"""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pandas as pd

import fitting
from docs.studies import transfer_page, transfer_pictures
from docs.studies.transfer_closed import closed_forms
from docs.studies.transfer_eps import falling_eps
from docs.studies.transfer_forms import FORMS
from docs.studies.transfer_kept import kept_rows
from docs.studies.transfer_page import RESULTS
from docs.studies.transfer_points import DATA, Series, read_series, there
from docs.studies.transfer_questions import (
    ANCHORED,
    BLIND,
    COMPARED,
    SETTLED,
    Errors,
    base,
    errors_on,
    fit_to,
    held_out_errors,
    parameters_of,
    predicted,
    questions_of,
    settled_errors,
)
from docs.studies.transfer_variants import PROPOSED, registered
from fitting import Fit

COLUMNS = (
    *("section", "series", "kind", "question", "law", "name", "parameters", "runs", "points"),
    *("value", "bias", "difference", "stderr", "low", "high", "known"),
)
LOST = tuple(form.name for form in FORMS[1:])
MEASURED = tuple(law for law in COMPARED if law not in LOST)
Row = dict[str, object]


def main(arguments: list[str]) -> None:
    """Measure, unless only the page is asked for; then write page and pictures."""
    part = arguments[0] if arguments else "all"
    if part != "page":
        if not there():
            sys.exit(f"no transfer_trials in CPTLAW_PUBLIC_DATA ({DATA}): the points of the study are not here")
        known = transfer_page.read()
        new = {
            "all": MEASURED,
            "forms": LOST,
            "missing": tuple(law for law in COMPARED if law not in set(known["law"])),
        }
        rows = measure() if part == "all" else measure_laws(new[part])
        kept = known[known["law"].isin(LOST)] if part == "all" else known[~known["law"].isin(new[part])]
        table = pd.concat([kept, pd.DataFrame(rows, columns=list(COLUMNS))])
        table.to_csv(RESULTS, index=False, float_format="%.6g")
    transfer_page.write()


def measure_laws(laws: tuple[str, ...]) -> list[Row]:
    """The rows of fits and of held-out cells of some laws."""
    series = read_series()
    with registered():
        rows = [*fits_of_all(series, laws), *held_out(series, (ANCHORED, *laws))]
    return [row for row in rows if row["law"] in laws]


def measure() -> list[Row]:
    """Every row of the results, and the two pictures that need the points."""
    series = read_series()
    with registered():
        rows = [*fits_of_all(series), *held_out(series), *settled(series), *sizes(series)]
        fits = {one.name: with_profiles(one) for one in series}
        rows += [*identified(series, fits), *closed(series, fits), *public(), *kept(), *eps_by_time(series[0])]
        transfer_pictures.curves(series)
    return rows


def fits_of_all(series: list[Series], laws: tuple[str, ...] = MEASURED) -> Iterator[Row]:
    """R2 and mean relative error of each law on the points that it was fitted to."""
    for one in series:
        for law in laws:
            fit = fit_to(one, law, one.points["loss"] > 0)
            found = errors_on(one, fit, one.points)
            loss = one.points["loss"]
            errors = found.residuals
            r2 = 1 - float(np.sum(errors**2) / np.sum((loss - loss.mean()) ** 2))
            yield _row("fitted", one, "all", law, found) | {"name": "r2", "low": r2}
        log(f"fitted to all: {one.name}")


def held_out(series: list[Series], laws: tuple[str, ...] = MEASURED) -> Iterator[Row]:
    """Each cell of the table; then each question over the three pairs together, run by run."""
    yield from _cells("held-out", series, laws, held_out_errors)


def settled(series: list[Series]) -> Iterator[Row]:
    """The same on settled points, which D-CPT is meant for."""
    yield from _cells("settled points", series, (ANCHORED, *SETTLED), settled_errors)


def _cells(section: str, series: list[Series], laws: tuple[str, ...], ask: Callable) -> Iterator[Row]:
    pooled: dict[tuple[str, str, str], list[Errors]] = {}
    for one in series:
        for question in questions_of(one):
            found = {law: ask(one, law, question) for law in laws if question not in BLIND.get(law, ())}
            if found[ANCHORED] is None:
                continue
            for law, errors in found.items():
                yield _row(section, one, question, law, errors, found[ANCHORED])
                pooled.setdefault((one.kind, question, law), []).append(errors)
            log(f"{section}: {one.name}, {question}: {ANCHORED} {found[ANCHORED].errors['error'].mean():.2%}")
    for (kind, question, law), parts in pooled.items():
        together, best = _together(parts), _together(pooled[kind, question, ANCHORED])
        yield _row(section, None, question, law, together, best) | {"kind": kind}


def _together(parts: list[Errors]) -> Errors:
    errors = pd.concat({i: part.errors for i, part in enumerate(parts)})
    return Errors(errors, sum(part.points for part in parts), parts[0].residuals)


def _row(
    section: str, series: Series | None, question: str, law: str, found: Errors, against: Errors | None = None
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
    """Exponents of N on each term, gains at r = rho, and the remaining trend over sizes."""
    for one in series:
        named = {"section": "size", "series": one.name, "kind": one.kind}
        yield from ({**named, **row} for row in exponents(one))
        if one.kind == "general":
            yield from ({**named, **row} for row in gains_without_shift(one))
            for law in (ANCHORED, "transfer-anchored, G N^nu", PROPOSED):
                yield from ({**named, "law": law, **row} for row in late_bias(one, law))
        log(f"sizes: {one.name}")


def exponents(series: Series) -> Iterator[Row]:
    """nu of a factor N^nu on each term alone, then on C and G together, with 90% profile intervals.

    known: whether the interval is closed within the bounds; bias: the objective relative to that without the factor.
    """
    everything = series.points["loss"] > 0
    plain = fit_to(series, ANCHORED, everything).objective
    laws = {f"{ANCHORED}, {term} N^nu": {term: "nu"} for term in ("C2", "C", "G", "E")}
    laws["transfer-anchored, C N^nu_C and G N^nu_G"] = {"C, beside G": "nu_C", "G, beside C": "nu_G"}
    for law, names in laws.items():
        fit = fit_to(series, law, everything)
        bounds = {p.name: (p.low, p.high) for p in fit.equation.parameters}
        for term, name in names.items():
            profile = fit.profile(name)
            low, high = profile.interval()
            known = all(profile.closed) and bounds[name][0] < low and high < bounds[name][1]
            interval = {"low": low, "high": high, "known": known, "bias": fit.objective / plain}
            yield {"question": "exponent", "name": term, "value": fit.params[name], **interval}


def gains_without_shift(series: Series) -> Iterator[Row]:
    """Loss before less loss at the end of the base runs on the corpus of pre-training alone, by size.

    At r = rho the term of C is 0 at every size: a gain that grows with N is no shift.
    """
    p = series.points[base(series.points) & (series.points["r"] == 1.0)]
    for N, run in p.groupby("N"):
        last = run.sort_values("step").iloc[-1]
        gain = last["loss_before"] - last["loss"]
        yield {"question": "gain at r = 1", "name": f"{N * 1e3:.3g} M", "value": gain, "low": N}  # pyright: ignore


def late_bias(series: Series, law: str) -> Iterator[Row]:
    """Mean relative error in the second half of the base runs by size, all points fitted; standard error over runs."""
    fit = fit_to(series, law, series.points["loss"] > 0)
    p = series.points[base(series.points) & (series.points["step"] > 180)]
    by_run = p.assign(bias=predicted(series, fit, p) / p["loss"] - 1).groupby(["N", "run"])["bias"].mean()
    for N, bias in by_run.groupby("N"):
        error = bias.std(ddof=1) / np.sqrt(len(bias))
        row = {"question": "late bias", "name": f"{N * 1e3:.3g} M", "low": N}  # pyright: ignore
        yield {**row, "value": bias.mean(), "stderr": error}


def identified(series: list[Series], fits: dict[str, Fit]) -> Iterator[Row]:
    """Parameters of transfer-anchored with 90% profile intervals, and whether they are identified."""
    for one in series:
        fit = fits[one.name]
        intervals, known = fit.intervals(), fit.identified
        named = {"section": "identified", "series": one.name, "kind": one.kind, "law": ANCHORED}
        for name, value in fit.params.items():
            low, high = intervals[name]
            yield {**named, "name": name, "value": value, "low": low, "high": high, "known": known[name]}
        log(f"identified: {one.name}: {', '.join(name for name, yes in known.items() if yes)}")


def closed(series: list[Series], fits: dict[str, Fit]) -> Iterator[Row]:
    """Closed forms of each pair."""
    for general, domain in zip(series[::2], series[1::2], strict=True):
        for found in closed_forms(general, domain, (fits[general.name], fits[domain.name])):
            numbers = {"value": found.closed, "low": found.numerical, "high": found.measured}
            yield {"section": "closed form", "series": domain.pair, "law": ANCHORED, "name": found.name, **numbers}
        log(f"closed forms: {domain.pair}")


def public() -> Iterator[Row]:
    """Pythia-70M on Pile and Python: losses measured by others, at one size, with an unknown schedule.

    Assumed: a constant rate, so that S1 counts steps (in units of 10,000), and 20,000 steps of pre-training at the same
    rate; S2 is linear in steps. The loss before is not among the points, so that the law is `transfer`.
    """
    table = pd.read_csv(DATA / "pile_python_cpt/ct_tidy.csv")
    s1 = table["step"] / 1e4
    one_size = {"A": 0.0, "alpha": 0.5}
    laws = {"transfer": {"F": 0.0, "g": 0.5}, "dcpt-free": one_size, "dcpt": one_size}
    for corpus, (law, fix) in product(("pile", "python"), laws.items()):
        points = pd.DataFrame(
            {
                **{"run": table["r_python"], "step": table["step"], "N": 0.07, "D": s1},
                **{"s1": s1, "s2": s1, "s1_pretrain": 2.0, "r": table[f"r_{corpus}"]},
                **{"rho": float(corpus == "pile"), "loss": table[f"loss_{corpus}"]},
            }
        )
        whole = fitting.fit(points, law, fix=fix, bootstrap=0)
        parameters = len(whole.params) - len(whole.fixed)
        named = {"section": "public", "series": corpus, "law": law, "parameters": parameters}
        yield {**named, "question": "fitted", "name": "r2", "value": whole.metrics["r2"]}
        ratios = [_errors(points, points["r"] != r, law, fix) for r in points["r"].unique()]
        late = points["step"] > points["step"].max() / 2
        questions = {"a ratio left out": pd.concat(ratios)}
        questions |= {"the second half of the steps": _errors(points, ~late, law, fix)}
        for question, errors in questions.items():
            yield {**named, "question": question, "value": errors.mean(), "runs": len(errors)}
        log(f"public: {corpus}, {law}")


def eps_by_time(series: Series) -> Iterator[Row]:
    """The eps at each step that joins r = 0 to the other ratios."""
    yield from ({"section": "eps", "series": series.name, "kind": series.kind, **row} for row in falling_eps(series))


def kept() -> Iterator[Row]:
    """The transfer laws on the kept studies."""
    yield from kept_rows()
    log("kept studies")


def _errors(points: pd.DataFrame, fitted: pd.Series, law: str, fix: dict[str, float]) -> pd.Series:
    """Mean relative error of each run on the points that are not fitted."""
    fit, rest = fitting.fit(points[fitted], law, fix=fix, bootstrap=0), points[~fitted]
    return pd.Series(np.abs(fit.predict(rest) / rest["loss"] - 1)).groupby(rest["run"]).mean()


def with_profiles(series: Series) -> Fit:
    """transfer-anchored fitted to all points, with profiles and a bootstrap for `Fit.identified`."""
    return fit_to(series, ANCHORED, series.points["loss"] > 0, bootstrap=20, workers=1, seed=0)


def log(line: str) -> None:
    """A line of progress."""
    print(f"{time.process_time():6.0f} s  {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
