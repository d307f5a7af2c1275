"""Figures of the answer: loss on general against loss on the domain, and predicted against measured."""

import numpy as np

from pipeline.goals.active.history import asked_of
from pipeline.show.report.colours import BLACK, CORPUS_COLOURS, GREY
from pipeline.show.report.evidence import Evidence, at_target, predicted, section
from pipeline.show.report.loss_figures import RATIOS, THIN, seen
from pipeline.show.report.marks import Figure, Key, axis, band, bar, dots, limits, line, log_axis, notes, panel
from pipeline.study.artifacts import ConfirmationRow
from pipeline.study.fitted_points import selected
from pipeline.study.number_format import label, percent, short

LABELLED = [0, 50, 25, 5, 10, 20, 30, 40]
"""Indices into RATIOS whose value is written beside the curve, the most important first."""
AROUND = 0.3
"""Difference of a domain ratio to the answer's from which curves do not decide on the axes; a choice."""
MOST_POINTS = 4000
"""Fitted points drawn in one panel; a browser is slow beyond."""


def trade_off_curve(evidence: Evidence) -> Figure | None:
    """Loss increase of general against the domain loss over all ratios; None without a target or fits."""
    if evidence.target is None or not evidence.fits:
        return None
    before = evidence.target.before[evidence.general]
    traces, xs, ys, within = [], [], [], []
    answers = _laws_drawn(evidence)
    for name, (laws, colour) in answers.items():
        made = [at_target(evidence, law, corpus, RATIOS) for law, corpus in zip(laws, evidence.corpora)]
        if not all(made):
            continue
        general, domain = (of_corpus[1] for of_corpus in made if of_corpus)
        rise, first = 100 * (general / before - 1), name == next(iter(answers))
        hover = f"{label(name)}, %{{customdata:.0%}} {label(evidence.domain)}: %{{x:.3f}}, %{{y:+.1f}}%"
        within.append(np.all([seen(evidence, law, at) for law, at in zip(laws, evidence.corpora)], axis=0))
        x, y = (np.where(within[-1], of, np.nan) for of in (domain, rise))
        # The thin line runs below the whole of the thick one, so that no gap opens where they meet.
        curves = line(domain, rise, colour, "solid", 0.9, hover), line(x, y, colour, "solid" if first else "dash", 2.5)
        traces[:0] = [{**curve, "customdata": RATIOS.round(2).tolist()} for curve in curves]
        if first:
            traces.append(dots(domain[LABELLED], rise[LABELLED], colour, 7))
        xs.append(domain)
        ys.append(rise)
    if not traces:
        return None
    pairs: dict[str, dict[str, ConfirmationRow]] = {}
    for row in evidence.confirmations:
        pairs.setdefault(row.run, {})[row.corpus] = row
    for pair in (pair for pair in pairs.values() if len(pair) == 2):
        general = pair[evidence.general]
        x, y = pair[evidence.domain].measured, 100 * (general.measured / general.before - 1)
        hover = f"measured at {percent(pair[evidence.domain].domain_ratio)} {label(evidence.domain)}"
        traces.append(dots([x], [y], BLACK, 11, "diamond", f"{hover}: %{{x:.4f}}, %{{y:+.2f}}%"))
        xs[0], ys[0] = np.append(xs[0], x), np.append(ys[0], y)
    tolerance = 100 * (evidence.recommendation or evidence.question).goal.tolerance
    keys = [Key(name, colour, "dashed") for name, (_, colour) in answers.items()]
    keys[0] = keys[0]._replace(mark="line")
    keys += [THIN, Key(f"tolerance, {tolerance:+.3g}%", GREY, "dashed")]
    if evidence.recommendation and (answer := evidence.recommendation.predicted):
        loss, general = answer[evidence.domain], answer[evidence.general]
        x = [loss.low], [loss.loss], [loss.high]
        y = [[100 * (side / before - 1)] for side in (general.low, general.loss, general.high)]
        mark = dots(x[1], y[1], BLACK, 16, "circle-open", "the answer: %{x:.4f}, %{y:+.2f}%")
        traces.append(mark | {"error_x": bar(*x), "error_y": bar(*y)})
        keys.append(Key("the answer, with 90% intervals", BLACK, "ring"))
    if evidence.confirmations:
        keys.append(Key("confirmation runs", BLACK, "diamond"))
    # What is asked, answered and measured sets the range, with as much of the curve around it; no law flattens it.
    x_range, y_range = (limits(*of) for of in _around_answer(evidence, xs, ys, within, [0.0, tolerance]))
    traces.insert(0, line(x_range, [tolerance] * 2, GREY, "dash", 1.6))
    x = axis(f"loss on {short(evidence.domain)}, nats per token", range=x_range)
    y = axis(f"loss increase on {short(evidence.general)}", range=y_range, ticksuffix="%")
    words = [percent(at) for at in RATIOS[LABELLED]]
    written = notes(xs[0][LABELLED], ys[0][LABELLED], words, x_range, y_range)
    return Figure(keys, [panel("", "", traces, x, y, height=430, annotations=written)])


def _around_answer(
    evidence: Evidence, xs: list[np.ndarray], ys: list[np.ndarray], within: list[np.ndarray], asked: list[float]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What decides on the axes of `trade_off_curve`, and what may widen them; `within`: the fitted ratios of each."""
    content, at = evidence.recommendation, evidence.domain_ratio
    if content is None or not content.predicted:
        return xs, [np.append(ys[0], asked), *ys[1:]]
    before = evidence.target.before[evidence.general] if evidence.target else 1.0
    losses = (content.predicted[corpus] for corpus in evidence.corpora)
    y, x = ([loss.low, loss.loss, loss.high] for loss in losses)
    count, some = len(RATIOS), RATIOS >= 0.1
    some &= np.abs(RATIOS - at) <= AROUND if at is not None else True
    xs, runs_x = [of[:count][some & fitted] for of, fitted in zip(xs, within)], xs[0][count:]
    # Behind the curve are the confirmation runs.
    ys, runs_y = [of[:count][some & fitted] for of, fitted in zip(ys, within)], ys[0][count:]
    rises = np.concatenate([asked, 100 * (np.array(y) / before - 1), runs_y])
    rises = np.append(rises, ys[0].min(initial=rises.max()))
    return [np.concatenate([x, runs_x, xs[0][ys[0] <= rises.max()]]), *xs], [rises, *ys]


def _laws_drawn(evidence: Evidence) -> dict[str, tuple[tuple[str, str], str]]:
    """Name -> the laws of general and domain, and a colour: what gave the answer, then each law alone."""
    general, domain = (evidence.law_of[corpus] for corpus in evidence.corpora)
    alone = {law: ((law, law), evidence.colours[law]) for law in evidence.laws}
    if general == domain:
        return {general: alone[general], **alone}
    return {f"{general} on {evidence.general}, {domain} on {evidence.domain}": ((general, domain), BLACK), **alone}


def agreement(evidence: Evidence) -> Figure | None:
    """Predicted against measured loss and the error, fitted and confirmation points; None without fits."""
    if evidence.points is None or not evidence.fits:
        return None
    panels = []
    for corpus in evidence.corpora:
        losses, errors, measured, missed = [], [], [], [[0.0]]
        for law in reversed(evidence.laws):
            colour = evidence.colours[law]
            rows = selected(evidence.points, corpus, section(evidence.question, law))
            rows = rows.iloc[:: 1 + len(rows) * len(evidence.laws) // MOST_POINTS]
            y, x = predicted(evidence, evidence.fits[law][corpus], rows), rows["loss"].to_numpy()
            losses.insert(0, dots(x, y, colour, 5, opacity=0.55))
            errors.insert(0, dots(x, 100 * (y / x - 1), colour, 5, opacity=0.55))
            measured.append(x)
            missed.append(100 * (y / x - 1))
            confirmed = [row for row in evidence.confirmations if (row.corpus, row.law) == (corpus, law)]
            if not confirmed:
                continue
            x = np.array([row.measured for row in confirmed])
            sides = [np.array([getattr(row, name) for row in confirmed]) for name in ("low", "predicted", "high")]
            relative = [100 * (side / x - 1) for side in sides]
            for traces, shown, words in ((losses, sides, "predicted %{y:.4f}"), (errors, relative, "error %{y:+.2f}%")):
                hover = f"{label(law)}: measured %{{x:.4f}}, {words}"
                traces.append(dots(x, shown[1], colour, 12, "diamond", hover) | {"error_y": bar(*shown)})
            measured.append(x)
            missed += relative
        bounds = limits(np.concatenate(measured))
        x = axis("measured loss, nats per token", range=bounds)
        y = axis("predicted loss, nats per token", range=bounds)
        traces = [line(bounds, bounds, GREY, "dash", 1.2), *losses]
        panels.append(panel(f"Loss on {corpus}", "Predicted against measured", traces, x, y, 330))
        y = axis("error of the prediction", range=limits(np.concatenate(missed)), ticksuffix="%")
        traces = [line(bounds, [0, 0], GREY, "dash", 1.2), *errors]
        panels.append(panel(f"Loss on {corpus}", "Predicted ÷ measured − 1", traces, x, y, 330))
    keys = [Key(law, evidence.colours[law], "dot") for law in evidence.laws]
    keys += [Key("confirmation, with 90% interval", GREY, "diamond")] if evidence.confirmations else []
    return Figure([*keys, Key("perfect prediction", GREY, "dashed")], panels)


def places(evidence: Evidence) -> Figure | None:
    """Confirmation runs at and around the answer, predicted and measured; None where there are fewer than two."""
    outcome = evidence.outcome
    if outcome is None or len(outcome.places) < 2 or evidence.recommendation is None:
        return None
    own, corpus = outcome.places, outcome.corpus
    by_size = len({place.model for place in own}) > 1
    x = [1e9 * place.N if by_size else 100 * place.domain_ratio for place in own]
    names = ("predicted", "low", "high", "measured")
    predicted, low, high, measured = ([getattr(place, name) for place in own] for name in names)
    deviations = [place.sd or 0.0 for place in own]
    below, above = np.subtract(measured, deviations), np.add(measured, deviations)
    law = evidence.law_of[corpus if corpus in evidence.corpora else evidence.domain]
    colour = evidence.colours[law]
    runs = dots(x, measured, BLACK, 11, "diamond", "measured: %{y:.4f}") | {"error_y": bar(below, measured, above)}
    bounds = limits([*measured, *below, *above, *predicted], low, high)
    traces = [dots([x[outcome.at]], [measured[outcome.at]], BLACK, 22, "circle-open")]
    keys = [Key(f"{law}, with 90% interval", colour, "dot")]
    if (tolerance := outcome.tolerance) is not None:
        cap = evidence.recommendation.loss_before[corpus] * (1 + tolerance)
        traces.append(line([min(x), max(x)], [cap] * 2, GREY, "dash", 1.6))
        keys.append(Key(f"tolerance, {100 * tolerance:+.3g}%", GREY, "dashed"))
    # Each by itself: between them the law is no straight line.
    foreseen = dots(x, predicted, colour, 13, hover="predicted: %{y:.4f}") | {"error_y": bar(low, predicted, high)}
    traces += [foreseen, runs]
    noise = f", with the standard deviation of {outcome.seeds} seeds" if outcome.seeds > 1 else ""
    keys += [Key(f"measured{noise}", BLACK, "diamond"), Key("the answer", BLACK, "ring")]
    across = axis(evidence.short_ratio_name, ticksuffix="%")
    if by_size:
        across = log_axis("parameters of the model, non-embedding", x)
    y = axis(f"loss on {short(corpus)}, nats per token", range=bounds)
    return Figure(keys, [panel("", "", traces, across, y, 330)])


def rounds(evidence: Evidence) -> Figure | None:
    """Half-width of the answer's interval, and the answer, against the cost of the chosen runs; None: not measured.

    Of the rounds of the question that is answered now alone.
    """
    question, answer = evidence.question, evidence.recommendation
    goal, target = (answer.goal, answer.asked) if answer else (question.goal, None)
    of = asked_of(goal, (target or question.target).steps)
    known = [one for one in evidence.rounds if one.half_width is not None and one.answer is not None]
    known = [one for one in known if one.asked in ("", of)]
    if not known:
        return None
    known = [one for one in known if one.unit == known[-1].unit]
    most = max(one.spent for one in known)
    unit = 1.0 if 0.01 <= most < 1e4 else 10.0 ** np.floor(np.log10(most))
    spent = np.array([one.spent for one in known]) / unit
    half = np.array([one.half_width for one in known], float)
    answer = np.array([one.answer for one in known], float)
    ends = [(one.spent + sum(run.cost for run in one.chosen)) / unit for one in known if one.chosen]
    expected = [one.chosen[-1].half_width for one in known if one.chosen]
    planned = [(end, width) for end, width in zip(ends, expected) if width is not None]
    tolerance, x_range = known[-1].tolerance, limits([0.0, *spent, *(end for end, _ in planned)])
    colour = CORPUS_COLOURS[1]
    widths = [
        line(x_range, [tolerance] * 2, GREY, "dash", 1.6),
        line(spent, half, colour),
        dots(spent, half, colour, 9, hover="after %{x:.3g}: ±%{y:.3f}"),
    ]
    if planned:
        at, width = np.array(planned).T
        widths.append(dots(at, width, GREY, 9, "circle-open", "expected after %{x:.3g}: ±%{y:.3f}"))
    answers = [
        band(spent, np.clip(answer - half, 0, 1), np.clip(answer + half, 0, 1), colour),
        line(spent, answer, colour),
        dots(spent, answer, colour, 9, hover="after %{x:.3g}: %{y:.3f}"),
    ]
    keys = [
        Key("the answer, with half of its 90% interval to either side", colour, "line"),
        Key("design.tolerance", GREY, "dashed"),
    ]
    keys += [Key("expected after the chosen runs", GREY, "ring")] if planned else []
    crossing = evidence.outcome.crossing if evidence.outcome else None
    if crossing is not None:
        answers.append(line(x_range, [crossing.value] * 2, BLACK, "dot", 1.6))
        keys.append(Key("measured by the confirmation runs", BLACK, "dotted"))
    times = "" if unit == 1 else f", {unit:.0e}".replace("e+", "e")
    x = axis(f"{known[-1].unit} of the chosen runs{times}", range=x_range)
    y = axis("half-width of the 90% interval", range=limits([0.0, *half, tolerance]))
    y_ratio = axis(evidence.short_ratio_name, range=[-0.03, 1.03])
    panels = [panel("", "", widths, x, y, 300), panel("", "", answers, x, y_ratio, 300)]
    return Figure(keys, panels)
