"""follow.html: the losses of a run that is trained for real, on its predicted curves."""

from pathlib import Path

import numpy as np

from pipeline.goals.ratio.following import FollowedRun
from pipeline.show.following import headline, losses_table, position_lines, verdict_items
from pipeline.show.report.colours import BLACK, CORPUS_COLOURS, GREY
from pipeline.show.report.marks import Figure, Key, Mark, axis, band, dots, limits, line, panel
from pipeline.show.report.page import page
from pipeline.show.table import Table
from pipeline.study.folder import Study
from training.durable import write_whole

CURVE = 40
"""Steps at which a predicted curve is drawn."""


def write_follow_page(study: Study, run: FollowedRun) -> Path:
    """Write follow.html beside the report of the answer. Raises StudyError without plotly."""
    place = study.answer("follow.html")
    items = [*position_lines(run), *verdict_items(run)]
    lines = [item for item in items if isinstance(item, str)]
    tables = [*(item for item in items if isinstance(item, Table)), losses_table(run, 1000)]
    content = page(
        "follow.html", (study.folder, place), headline(run), " ".join(f"{one}." for one in lines), lines=lines,
        tables=tables, curves=_curves(run),
    )  # fmt: skip
    path = study.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    return path


def _curves(run: FollowedRun) -> Figure:
    steps, panels = run.target.steps, []
    for corpus in run.corpora:
        table, before = run.compared[corpus], run.curve(corpus, _spaced(1, steps))
        traces: list[Mark] = [
            band(before["step"], before["low"], before["high"], GREY),
            line([0, steps], [run.loss_before(corpus)] * 2, GREY, "dash", 1.2),
            line(before["step"], before["predicted"], GREY, "solid", 1.6, "predicted: %{y:.4f} at step %{x:,}"),
        ]
        shown = [*before["predicted"], *table["loss"]]
        if run.step < steps:
            now = run.ahead(corpus, _spaced(max(run.step, 1), steps))
            traces.append(band(now["step"], now["low"], now["high"], CORPUS_COLOURS[1]))
            traces.append(line(now["step"], now["predicted"], CORPUS_COLOURS[1], "dash", 1.6))
            shown += [*now["low"], *now["high"]]
        traces.append(dots(table["step"], table["loss"], BLACK, 6, hover="measured: %{y:.4f} at step %{x:,}"))
        y = axis("loss, nats per token", range=limits(shown, before["low"], before["high"]))
        panels.append(panel(f"Loss on {corpus}", "", traces, axis("step", range=[0, steps]), y))
    keys = [Key("measured", BLACK, "dot"), Key("predicted before the run", GREY, "line")]
    keys += [Key("its 90% interval", GREY, "band"), Key("loss before the run", GREY, "dashed")]
    keys.append(Key("predicted with its losses, with 90% interval", CORPUS_COLOURS[1], "dashed"))
    return Figure(keys, panels)


def _spaced(first: int, last: int) -> list[int]:
    return np.unique(np.linspace(first, last, CURVE).round().astype(int)).tolist()
