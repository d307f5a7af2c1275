"""Figures of the papers that show a result, drawn from the points and numbers behind the tables."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from fitting import Fit, PointsError, fit
from pipeline.papers.dcpt.points import DomainPoints
from pipeline.papers.dynamics.points import CORPORA, FitRequest, ScheduleStudy, fits, predicted
from pipeline.papers.show import Result
from pipeline.show.report.colours import ratio_colour, series_colours
from pipeline.show.report.marks import Figure, Key, Mark, Panel, axis, dots, line, log_axis, panel, ratio_axis
from pipeline.study.number_format import percent, quantity

L3 = "dcpt-convex"
"""The D-CPT law as its paper fits it."""
MOST = 40
"""Points of a curve that are drawn."""
Drawn = list[tuple[str, Figure]]
"""Caption and figure."""


def figures(inputs: Mapping[str, object], results: Sequence[Result]) -> Drawn:
    """The figures that the inputs of the tables allow: D-CPT 1 and 3, dynamics 2, 10 and 8."""
    drawn: Drawn = []
    # Two families of tables may read one input.
    for data in {type(data): data for data in inputs.values()}.values():
        try:
            if isinstance(data, DomainPoints):
                drawn += _of_ratios(data)
            elif isinstance(data, ScheduleStudy):
                drawn += _of_schedules(data)
        except PointsError:
            continue  # The tables of these points say why there is no fit.
    return [*drawn, *(one for result in results if result.name == "dynamics-figure-8" for one in _of_weights(result))]


def _of_ratios(study: DomainPoints) -> Drawn:
    """Loss against the ratio at the last step, by size, and along the tokens of the largest model, by ratio."""
    sizes: dict[str, str] = {}
    ratios, against, along = set[float](), list[Panel](), list[Panel]()
    for domain in study.domains:
        points = study.fitted(domain, "D")
        law = fit(points, L3, bootstrap=0)
        ends = points[points["step"] == points["step"].max()]
        sizes = sizes or series_colours([quantity(1e9 * N) for N in sorted(ends["N"].unique())])
        r = np.linspace(points["r"].min(), 1, 60)
        traces: list[Mark] = []
        for (N, D), rows in ends.groupby(["N", "D"]):  # pyright: ignore[reportGeneralTypeIssues]
            colour = sizes[quantity(1e9 * float(N))]
            traces += [line(100 * r, law.predict(pd.DataFrame({"N": N, "D": D, "r": r})), colour)]
            traces += [dots(100 * rows["r"], rows["loss"], colour, 7)]
        against.append(panel("", domain, traces, ratio_axis(domain), axis("loss, nats per token")))
        largest = points[points["N"] == points["N"].max()]
        traces = []
        for ratio, rows in largest.groupby("r"):
            ratios.add(float(ratio))  # pyright: ignore[reportArgumentType]
            one = rows[rows["run"] == rows["run"].iloc[0]].sort_values("D")
            traces += _curve(one["D"] * 1e9, one["loss"], law.predict(one), ratio_colour(float(ratio)))  # pyright: ignore
        along.append(panel("", domain, traces, log_axis("tokens", largest["D"] * 1e9), axis("loss, nats per token")))
    fitted = [Key("fitted", "#5f6773", "line"), Key("measured", "#5f6773", "dot")]
    by_size = [Key(f"N = {name}", colour, "line") for name, colour in sizes.items()]
    by_ratio = [Key(percent(ratio), ratio_colour(ratio), "line") for ratio in sorted(ratios)]
    first = (
        "D-CPT figure 1: the loss on the domain against its ratio, at the last step, and the law fitted to all points"
    )
    second = "D-CPT figure 3: the loss on the domain along the tokens of the largest model, and the same law"
    return [(first, Figure([*by_size, *fitted], against)), (second, Figure([*by_ratio, *fitted], along))]


def _of_schedules(study: ScheduleStudy) -> Drawn:
    """Curves of the largest model on the new corpus alone: fitted, and of schedules that no fit has seen."""
    model = study.models[-1]
    laws = dict(zip(CORPORA, fits(study, [FitRequest("dynamics", corpus, model, 1.0) for corpus in CORPORA])))
    runs = study.runs[(study.runs["model"] == model) & np.isclose(study.runs["ratio"], 1.0)]
    captions = {
        "fit": "Dynamics figure 2: loss curves under the schedules that eq. 4 was fitted to, and eq. 4",
        "confirm": "Dynamics figure 10: loss curves under schedules that eq. 4 has not seen, and its predictions",
    }
    drawn: Drawn = []
    for role, caption in captions.items():
        of_role = runs[runs["role"] == role]
        names = of_role["variant"].replace("", "the question's own") + of_role["transfer"].map(" from {:,}".format)
        colours, panels = series_colours([*dict.fromkeys(names)]), []
        for corpus, law in laws.items():
            if not isinstance(law, Fit) or of_role.empty:
                continue
            traces: list[Mark] = []
            for name, run in zip(names, of_role["run"]):
                rows = study.on(corpus, of_role[of_role["run"] == run], pretraining=False).sort_values("step")
                traces += _curve(rows["step"], rows["loss"], predicted(law, rows, study.schedules), colours[name])
            panels.append(panel("", study.corpora[corpus], traces, axis("step"), axis("loss, nats per token")))
        if panels:
            keys = [Key(name, colour, "line") for name, colour in colours.items()]
            drawn.append((f"{caption} ({model})", Figure([*keys, Key("measured", "#5f6773", "dot")], panels)))
    return drawn


def _of_weights(result: Result) -> Iterator[tuple[str, Figure]]:
    """The best loss potential, peak and replay against the weight of the old loss."""
    cells = result.cells.dropna(subset="ours") if "model" in result.cells else pd.DataFrame()
    if cells.empty:
        return
    colours = series_colours([*dict.fromkeys(cells["model"])])
    panels = []
    for choice, of_choice in cells.groupby("choice", sort=False):
        traces = [line(rows["weight"], rows["ours"], colours[str(of)]) for of, rows in of_choice.groupby("model")]
        panels.append(panel("", str(choice), traces, axis("weight of the loss on D_pt"), axis(str(choice))))
    keys = [Key(name, colour, "line") for name, colour in colours.items()]
    yield "Dynamics figure 8: the best design for a weight of both losses, by eq. 4 and eq. 8", Figure(keys, panels)


def _curve(x: pd.Series, measured: pd.Series, law: np.ndarray, colour: str) -> list[Mark]:
    """A law's line and the measured points, of both every so many that about `MOST` are drawn."""
    some = slice(None, None, 1 + len(x) // MOST)
    return [line(x[some], law[some], colour), dots(x[some], measured[some], colour, 4, opacity=0.55)]
