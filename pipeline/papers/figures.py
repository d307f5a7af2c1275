"""Figures of the papers that show a result, drawn from the points and numbers behind the tables."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from fitting import Fit, PointsError, fit, held_out
from fitting.parallel import over_cores
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.papers.autoscale import Weighed
from pipeline.papers.dcpt.fits import FORMS, REPRESENTATIONS, every_domain
from pipeline.papers.dcpt.points import DomainPoints, at_ratio
from pipeline.papers.dynamics.fits import FORMATS, REPLAY
from pipeline.papers.dynamics.points import CORPORA, FitRequest, ScheduleStudy, fits
from pipeline.papers.show import Result
from pipeline.show.report import weights_figures
from pipeline.show.report.colours import GREY, SERIES, ratio_colour, series_colours
from pipeline.show.report.marks import Figure, Key, Mark, Panel, axis, dots, line, log_axis, panel, ratio_axis
from pipeline.study.number_format import domain_ratio_of, label, percent, quantity, short

L3 = FORMS["L3"]
"""The D-CPT law as its paper fits it."""
MOST = 40
"""Points of a curve that are drawn."""
Drawn = Iterator[tuple[str, Figure]]
"""Caption and figure."""
LOSS = "loss, nats per token"
OWN = "the question's own"
_BOTH = [Key("by the law", GREY, "line"), Key("measured", GREY, "dot")]
_AXES = {
    "dynamics-figure-5": ("potential", ["corpus"]),
    "dynamics-figure-6": ("replay", ["corpus"]),
    "dynamics-figure-7": ("peak", ["corpus"]),
    "dynamics-figure-7c": ("transfer", []),
    "dynamics-figure-8": ("weight", ["choice"]),
}
"""Table -> the key that its figure has across, and the one of its panels."""
AXIS_WORDS = {"dynamics-figure-6": "shift, nats per token", "dynamics-figure-7c": "steps", "dynamics-figure-8": "best"}


def figures(inputs: Mapping[str, object], results: Sequence[Result]) -> list[tuple[str, Figure]]:
    """The figures that the inputs of the tables allow; docs/papers.md lists the others."""
    drawn = list[tuple[str, Figure]]()
    # Two families of tables may read one input; those of ratios near 0 have a figure of their own.
    for name, data in {(type(data), name == "near-zero"): (name, data) for name, data in inputs.items()}.values():
        try:
            if isinstance(data, DomainPoints):
                drawn += _near_zero(data) if name == "near-zero" else _of_domains(data)
            elif isinstance(data, ScheduleStudy):
                drawn += [*_shifts(data), *_of_schedules(data)]
            elif isinstance(data, Weighed) and data.search:
                drawn += _of_weights(data.comparison, *data.search)
        except PointsError:
            continue  # The tables of these points say why there is no fit.
    return [*drawn, *(_of_cells(one) for one in results if one.name in _AXES and one.cells["ours"].notna().any())]


def _of_domains(study: DomainPoints) -> Drawn:
    """Loss on each domain against ratio, size and tokens, by laws of all points or of those that were not held out."""
    of, laws = dict[str, pd.DataFrame](), dict[str, Fit]()
    for domain in study.domains:
        points = study.fitted(domain, "D")
        with contextlib.suppress(PointsError):  # The tables say why a domain has no fit.
            laws[domain] = fit(points, L3, bootstrap=0)
            of[domain] = points
    if not of:
        return
    ends = {domain: points[points["step"] == points["step"].max()] for domain, points in of.items()}
    sizes = sorted({float(N) for points in of.values() for N in points["N"]})
    ink = series_colours([quantity(1e9 * N) for N in sizes])

    def along(number: str, law: str, ratio: float, rows_of: Callable[[str], pd.DataFrame]) -> tuple[str, Figure]:
        panels = []
        for domain, rows in zip(of, over_cores(rows_of, of)):
            rows = at_ratio(rows, ratio)
            traces = list[Mark]()
            for N, own in rows.groupby("N"):
                one = own[own["run"] == own["run"].iloc[0]].sort_values("D")
                colour = ink[quantity(1e9 * float(N))]  # pyright: ignore[reportArgumentType]
                traces += _curve(1e9 * one["D"], one["loss"], one["predicted"].to_numpy(), colour)
            title = f"{percent(rows['r'].iloc[0])} {domain}"
            panels.append(panel("", title, traces, log_axis("tokens", 1e9 * rows["D"]), axis(LOSS)))
        return f"D-CPT figure {number}: the loss on the domain along the tokens, and {law}", Figure(by_size, panels)

    def by(law: Fit, points: pd.DataFrame) -> pd.DataFrame:
        return points.assign(predicted=law.predict(points))

    against, slopes, grown = list[Panel](), list[Panel](), list[Panel]()
    for domain, points in ends.items():
        r, traces = np.linspace(points["r"].min(), 1, 60), list[Mark]()
        for (N, D), rows in points.groupby(["N", "D"]):  # pyright: ignore[reportGeneralTypeIssues]
            curve, colour = laws[domain].predict(pd.DataFrame({"N": N, "D": D, "r": r})), ink[quantity(1e9 * float(N))]
            traces += [line(100 * r, curve, colour), dots(100 * rows["r"], rows["loss"], colour, 7)]
        against.append(panel("", domain, traces, ratio_axis(domain_ratio_of(short(domain))), axis(LOSS)))
        traces = list[Mark]()
        for r, rows in points.groupby("r"):
            one = rows.sort_values("N").drop_duplicates("N")
            traces += _curve(1e9 * one["N"], one["loss"], laws[domain].predict(one), ratio_colour(float(r)))  # pyright: ignore
        grown.append(panel("", domain, traces, log_axis("parameters", 1e9 * points["N"]), axis(LOSS)))
        general = study.fitted(domain, "G").sort_values("D")
        runs = general[general["D"] >= general["D"].max() / 2].groupby("run")
        slope = (runs["loss"].last() - runs["loss"].first()) / (runs["D"].last() - runs["D"].first())
        traces = [
            dots(100 * runs["r"].first()[own], slope[own], ink[quantity(1e9 * float(N))], 7)  # pyright: ignore
            for N, own in runs["N"].first().groupby(runs["N"].first()).groups.items()
        ]
        x = axis(f"ratio of {label(study.general)}", ticksuffix="%")
        slopes.append(panel("", f"beside {domain}", traces, x, axis("nats per billion tokens")))
    by_size = [*(Key(f"N = {name}", colour, "line") for name, colour in ink.items()), *_BOTH]
    by_ratio = [Key(percent(r), ratio_colour(r), "line") for r in sorted(pd.concat(ends.values())["r"].unique())]
    first = (
        "D-CPT figure 1, 9: the loss on the domain against its ratio at the last step, and the law fitted to all points"
    )
    yield first, Figure(by_size, against)
    yield along("3, 8, 13, 14", "L3", 0.5, lambda domain: by(laws[domain], of[domain]))
    if len(sizes) > 1:
        seventh = "D-CPT figure 7: the loss on the domain against the size of the model, at the last step, and L3"
        yield seventh, Figure([*by_ratio, *_BOTH], grown)
        yield along("4", "L3, each size held out", 0.2, lambda domain: held_out(of[domain], L3, "each-size"))
    if 1 < len(study.domains) == len(of):
        joint, law = every_domain(study, "D"), REPRESENTATIONS["K3"]
        one = by(fit(joint, law, bootstrap=0), joint)
        yield along("5", "K3 of all domains", 0.2, lambda domain: one[one["domain"] == domain])
    half = {name: at_ratio(rows, 0.5) for name, rows in of.items()}
    sixth = {name: by(fit(rows, "chinchilla", bootstrap=0), rows) for name, rows in half.items() if len(sizes) > 1}
    if sixth:
        yield along("6", "Chinchilla's law", 0.5, lambda domain: sixth[domain])
    tenth = "D-CPT figure 10: the slope of the general loss in tokens, over the second half of a run, against its ratio"
    yield tenth, Figure(by_size[: len(sizes)], slopes)
    thirds = "L3, each third of the tokens held out"
    yield along("15", thirds, 0.8, lambda domain: held_out(of[domain], L3, "step-thirds"))


def _near_zero(study: DomainPoints) -> Drawn:
    panels, ratios = [], set[float]()
    for domain in study.domains:
        points, traces = study.fitted(domain, "G"), list[Mark]()
        for ratio, rows in points.groupby("r"):
            mean = rows.groupby("D")["loss"].mean()
            ratios.add(float(ratio))  # pyright: ignore[reportArgumentType]
            traces.append(line(1e9 * mean.index, mean, ratio_colour(float(ratio))))  # pyright: ignore
        panels.append(panel("", f"beside {domain}", traces, log_axis("tokens", 1e9 * points["D"]), axis(LOSS)))
    keys = [Key(percent(ratio), ratio_colour(ratio), "line") for ratio in sorted(ratios)]
    twelfth = "D-CPT figure 12: the general loss along the tokens near ratio 0 of general, mean of the seeds"
    yield twelfth, Figure(keys, panels)


def _shifts(study: ScheduleStudy) -> Drawn:
    """How the loss leaves that of the run that continues with the old corpus, by where it began."""
    runs, keys = study.fitted_runs(), ["model", "parent", "transfer", "pieces"]
    pairs = runs[runs["ratio"] == 1].merge(runs[runs["ratio"] == 0], on=keys, suffixes=("", "_old"))
    ink = series_colours([f"from step {transfer:,}" for transfer in sorted(pairs["transfer"].unique())])
    left, apart = list[Panel](), list[Panel]()
    for (model, of_model), corpus in product(pairs.groupby("model"), CORPORA):
        curves, shifts = list[Mark](), list[Mark]()
        for run, old, transfer in of_model[["run", "run_old", "transfer"]].itertuples(index=False, name=None):
            both = study.curve(corpus, run).merge(study.curve(corpus, old), on="step", suffixes=("", "_old"))
            colour = ink[f"from step {transfer:,}"]
            curves += [line(both["step"], both["loss"], colour), line(both["step"], both["loss_old"], colour, "dash")]
            shifts.append(line(both["step"], both["loss"] - both["loss_old"], colour))
        title = f"{study.corpora[corpus]}, {model}"
        left.append(panel("", title, curves, axis("step"), axis(LOSS)))
        apart.append(panel("", title, shifts, axis("step"), axis("difference, nats per token")))
    lines = [Key(name, colour, "line") for name, colour in ink.items()]
    if left:
        first = "Dynamics figure 1: loss curves at a constant rate, beside those of the old corpus"
        yield first, Figure([*lines, Key("on the old corpus alone", GREY, "dashed")], left)
        yield "Dynamics figure 2, 14: the distribution shift by where it begins and by size", Figure(lines, apart)


def _of_schedules(study: ScheduleStudy) -> Drawn:
    """Loss curves of all schedules, sizes and replay ratios, and the laws of the tables along them."""
    small, large = study.models[0], study.models[-1]
    ratios = [float(ratio) for ratio in sorted(study.fitted_runs()["ratio"].unique()) if ratio > 0]
    eq4 = {name: (name, 1.0, "dynamics", name) for name in study.models}
    of_ratio = {f"{percent(1 - ratio)} replay": (large, ratio, "dynamics", large) for ratio in ratios}
    eq8 = {f"{percent(1 - ratio)} replay": (small, ratio, "", small) for ratio in ratios}
    eq7 = {name: (name, 1.0, "dynamics-size", None) for name in study.models}
    others = {name: (large, 1.0, law, large) for name, law in FORMATS.items() if name != "original"}
    for number, words, role, cells in (
        ("3, 16", "schedules that eq. 4 was fitted to, and eq. 4", "fit", eq4),
        ("10", "schedules that eq. 4 has not seen, and its predictions", "confirm", eq4),
        ("12", "replay ratios, and eq. 4 of each", "fit", of_ratio),
        ("15", "sizes, and eq. 7 of all", "fit", eq7 if len(study.models) > 1 else {}),
        ("19", "replay ratios, and eq. 8 of all", "fit", eq8),
        ("20", "other formats of the annealing term", "fit", others),
    ):
        names, panels = dict[str, str](), []
        for (title, (model, ratio, law, of)), corpus in product(cells.items(), CORPORA):
            request = FitRequest(law or REPLAY[corpus], corpus, of, None if not law else ratio)
            (fitted,) = fits(study, [request])
            runs = study.runs[(study.runs["model"] == model) & np.isclose(study.runs["ratio"], ratio)]
            runs = runs[runs["role"] == role]
            if not isinstance(fitted, Fit) or runs.empty:
                continue
            traces = list[Mark]()
            for variant, transfer, run in runs[["variant", "transfer", "run"]].itertuples(index=False, name=None):
                name = f"{variant or OWN} from {transfer:,}"
                colour = names.setdefault(name, SERIES[len(names) % len(SERIES)])
                rows = study.on(corpus, runs[runs["run"] == run], pretraining=False).sort_values("step")
                traces += _curve(rows["step"], rows["loss"], fitted.predict(rows, study.schedules), colour)
            panels.append(panel("", f"{study.corpora[corpus]}, {title}", traces, axis("step"), axis(LOSS)))
        if panels:
            keys = [Key(name, colour, "line") for name, colour in names.items()]
            yield f"Dynamics figure {number}: {words}", Figure([*keys, *_BOTH], panels)


def _of_weights(comparison: WeightsConfirmation, content: WeightsRecommendation, points: pd.DataFrame) -> Drawn:
    """What the report draws of the search for weights, where the paper has a figure of it."""
    for caption, figure in (
        ("2, 10: the mean loss against the tokens of each domain", weights_figures.domain_curves(content)),
        ("6, 11: weights by the scale", weights_figures.weights_by_scale(content)),
        ("7: the loss along the training, by method", weights_figures.confirmation_curves(comparison, points)),
        ("8: weights by method", weights_figures.weights_by_method(content)),
        ("9: DoReMi's weights along the steps of its proxies", weights_figures.weights_by_step(content)),
    ):
        if figure:
            yield f"AutoScale figure {caption}", figure


def _of_cells(result: Result) -> tuple[str, Figure]:
    """The numbers of a table against one of its keys: measured ones as dots, others as lines."""
    by, within = _AXES[result.name]
    cells = result.cells.replace(np.inf, np.nan).dropna(subset="ours")
    rest = [key for key in result.table.keys if key not in (by, "side", *within)]
    names = cells[rest].astype(str).agg(", ".join, axis=1)
    ink, panels = series_colours([*dict.fromkeys(names)]), []
    for title, rows in cells.assign(name=names).groupby(within[0], sort=False) if within else [("", cells)]:
        traces = list[Mark]()
        for key, own in rows.assign(name=names, side=rows.get("side", "")).groupby(["name", "side"], sort=False):
            name, side = map(str, key)  # pyright: ignore[reportArgumentType]
            own = own.sort_values(by)
            x, y = own[by].astype(float), own["ours"]
            traces.append(dots(x, y, ink[name], 7) if side == "measured" else line(x, y, ink[name]))
        panels.append(panel("", str(title), traces, axis(by), axis(AXIS_WORDS.get(result.name, LOSS))))
    keys = [Key(name, colour, "line") for name, colour in ink.items()]
    return result.title, Figure([*keys, *(_BOTH[1:] if "side" in cells else [])], panels)


def _curve(x: pd.Series, measured: pd.Series, law: np.ndarray, colour: str) -> list[Mark]:
    """A law's line and the measured points, of both every so many that about `MOST` are drawn."""
    some = slice(None, None, 1 + len(x) // MOST)
    return [line(x[some], law[some], colour), dots(x[some], measured[some], colour, 4, opacity=0.55)]
