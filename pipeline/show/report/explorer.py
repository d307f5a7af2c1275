"""The report's sliders: what `cptlaw recommend` would answer at other tolerances, model sizes and run lengths.

Python computes the answers at every position of the sliders with `fitting.answers.trade_off`; the page's script
(web/explorer.js) looks them up and draws them.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypedDict

import numpy as np
import pandas as pd

from fitting import Fit, LawAverage, PointsError
from fitting.answers.answer import beyond
from fitting.answers.trade_off import trade_offs
from fitting.law_average import AVERAGE
from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.goals.ratio.trade_off_goal import is_too_wide
from pipeline.show.conclusion import WIDEST
from pipeline.show.report.colours import BLACK, CORPUS_COLOURS, GREY
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import Key, Panel, axis, band, log_axis, numbers, panel, ratio_axis
from pipeline.study.fits import horizon_weights, with_average
from pipeline.study.folder import StudyError
from pipeline.study.target import Target, find_target

Fits = dict[str, Fit | LawAverage]
"""Role -> what answers for it."""
ROLES = ("general", "domain")
LEGEND = [
    Key("loss before CPT", GREY, "dashed"),
    Key("largest loss within the tolerance", BLACK, "dotted"),
    Key("the answer, with 90% intervals", BLACK, "ring"),
    Key("90% prediction interval", GREY, "band"),
]
_TOLERANCES, _SIZES, _LENGTHS = 41, 7, 9
"""Positions of each slider, beside those of the question and of the measured models."""
_CURVE = np.linspace(0.0, 1.0, 51)
"""Domain ratios of the loss curves."""
_LENGTH_RANGE = (0.25, 8.0)
"""Shortest and longest run, relative to the shorter and the longer of the fitted run and the question's."""


class SizeShown(TypedDict):
    """A position of the slider of sizes, with the loss before CPT by role."""

    N: float
    model: str | None
    before: dict[str, float]


class Length(TypedDict):
    """A position of the slider of lengths, with the columns of the laws but N at the end of the run, by role."""

    D: float
    steps: int
    at: dict[str, dict[str, float]]


class Explorer(NamedTuple):
    """The section of the sliders."""

    data: Mapping[str, object]
    """The answers at all positions of the sliders, for web/explorer.js."""
    sliders: list[tuple[str, str, int, int]]
    """Name, label, number of positions and the first one."""
    legend: list[Key]
    panels: list[tuple[str, Panel]]
    """Empty plots, to which the script adds."""


def explorer(evidence: Evidence) -> Explorer | None:
    """The section of the sliders.

    None where there is no answer yet, where it is to another goal than trade-off, by runs at one domain ratio, or where
    its laws read a column that is unknown of a run that was not trained.
    """
    target, content = evidence.target, evidence.recommendation
    if target is None or content is None or not {*content.law.values()} <= {*evidence.fits}:
        return None
    if content.goal.kind != "trade-off" or one_ratio(content):
        return None
    laws = {role: (evidence.law_of[corpus], corpus) for role, corpus in zip(ROLES, evidence.corpora)}
    fits = {role: evidence.fits[law][corpus] for role, (law, corpus) in laws.items()}
    sizes, lengths = _sizes(evidence, target), _lengths(evidence, target, fits)
    if not lengths or not all(len(fit.draws) for fit in fits.values()):
        return None
    own = content.goal.tolerance
    evenly = np.linspace(min(0.0, 2 * own), max(0.2, 2 * own), _TOLERANCES)
    tolerances = sorted({*(round(float(at), 6) for at in evenly), own})
    judged = functools.cache(functools.partial(_of_target, evidence, fits))
    try:
        answers = [[_answers(judged, tolerances, size, length) for length in lengths] for size in sizes]
    except PointsError:
        return None
    (least, most), (low, high) = (fits[role].ranges.get("r", (0.0, 1.0)) for role in ROLES)
    asked, inks = content.target, dict(zip(ROLES, CORPUS_COLOURS))
    inks |= {f"{role}_band": band([], [], [], colour)["fillcolor"] for role, colour in inks.items()}
    panels = dict(zip((*ROLES, "map"), _panels(evidence, [1e9 * length["D"] for length in lengths])))
    data = {
        "names": {**dict(zip(ROLES, evidence.corpora)), "ratio": evidence.ratio_name},
        "tolerances": tolerances,
        "sizes": [{**size, "beyond": _beyond(fits, {role: {"N": size["N"]} for role in fits})} for size in sizes],
        "lengths": [{"D": of["D"], "steps": of["steps"], "beyond": _beyond(fits, of["at"])} for of in lengths],
        # The smallest and the largest domain ratio that both fits saw.
        "fitted": [max(low, 1 - most), min(high, 1 - least)],
        "curve": _CURVE.round(2).tolist(),
        "answers": answers,
        "start": {
            "tolerances": tolerances.index(own),
            "sizes": _nearest([size["N"] for size in sizes], asked.N),
            "lengths": _nearest([length["D"] for length in lengths], asked.D),
        },
        "layouts": {kind: made.spec["layout"] for kind, made in panels.items()},
        "inks": {**inks, "answer": BLACK, "before": GREY, "cap": BLACK},
    }
    labels = {
        "tolerances": f"Tolerance: the allowed loss increase on {evidence.general}",
        "sizes": "N, the non-embedding parameters of the model",
        "lengths": "D, the tokens of the CPT run",
    }
    sliders = [(name, label, len(data[name]), data["start"][name]) for name, label in labels.items()]
    return Explorer(data, sliders, LEGEND, [*panels.items()])


def _sizes(evidence: Evidence, target: Target) -> list[SizeShown]:
    """N, model and loss before CPT of the measured models and of sizes between them."""
    assert evidence.points is not None
    measured = {target.N: target}
    for name in evidence.points["model"].unique():
        with contextlib.suppress(StudyError):
            trained = find_target(evidence.question, evidence.points, str(name))
            measured.setdefault(trained.N, trained)
    known = [measured[N] for N in sorted(measured)]
    logs = [math.log(of.N) for of in known]
    between = np.linspace(logs[0], logs[-1], _SIZES)[1:-1] if len(known) > 1 else []
    # Closer than this to a measured model, a size would look the same.
    between = [at for at in between if min(abs(at - log) for log in logs) > 0.1]

    def before(log_size: float) -> dict[str, float]:
        losses = ([of.before[corpus] for of in known] for corpus in evidence.corpora)
        return {role: float(np.interp(log_size, logs, values)) for role, values in zip(ROLES, losses)}

    made = [SizeShown(N=of.N, model=of.model, before=before(log)) for of, log in zip(known, logs)]
    made += [SizeShown(N=math.exp(at), model=None, before=before(at)) for at in between]
    return sorted(made, key=lambda size: size["N"])


def _lengths(evidence: Evidence, target: Target, fits: Fits) -> list[Length]:
    """D, steps and, by role, the columns of the laws at the end of runs of several lengths."""
    fitted, asked = evidence.question.continual.steps, target.steps
    low, high = _LENGTH_RANGE[0] * min(fitted, asked), _LENGTH_RANGE[1] * max(fitted, asked)
    steps = {*np.geomspace(max(low, 1), high, _LENGTHS).round().astype(int).tolist(), fitted, asked}
    lengths, every = [], {**fits}
    for role, corpus in zip(ROLES, evidence.corpora):
        # At another length other laws may count, which read areas of their own.
        if isinstance(fits[role], LawAverage):
            laws = evidence.context.fits[corpus]
            every[role] = LawAverage(laws, dict.fromkeys(laws, 1 / len(laws)))
    for run in (target.lasting(count) for count in sorted(steps)):
        with contextlib.suppress(ValueError):  # the schedule does not fit into a run so short
            at = {role: run.columns(corpus, every[role]) for role, corpus in zip(ROLES, evidence.corpora)}
            for columns in at.values():
                columns.pop("N", None)
            lengths.append(Length(D=run.D, steps=run.steps, at=at))
    return lengths


def _of_target(evidence: Evidence, fits: Fits, role: str, N: float, D: float) -> Fit | LawAverage:
    """The fit, or average of the laws, that answers for a size and length."""
    corpus, fit = evidence.corpora[ROLES.index(role)], fits[role]
    if evidence.tested is None or not isinstance(fit, LawAverage):
        return fit
    # Beyond what some laws see they have no weight at the answer, and have one here.
    laws = {corpus: evidence.context.fits[corpus]}
    weights = horizon_weights(laws, evidence.tested, N, D)
    return with_average(laws, weights, evidence.tested)[corpus][AVERAGE]


def _answers(
    of_target: Callable[[str, float, float], Fit | LawAverage], tolerances: list[float], size: SizeShown, length: Length
) -> dict[str, list[list[float | None]]]:
    """The answers (a list entry a tolerance) and the loss curves at one size and length, rounded as they are shown."""
    general, domain = (of_target(role, size["N"], length["D"]) for role in ROLES)
    before, n = size["before"]["general"], len(tolerances)
    at = {f"{role}_at": length["at"][role] | {"loss_before": size["before"][role]} for role in ROLES}
    for columns in at.values():
        columns.pop("D", None)
    answers = trade_offs(
        general, domain, size["N"], length["D"], np.array(tolerances), before, _CURVE, parts=1000, **at
    )
    ratios = [np.floor(1000 * answers.domain_ratio), np.round(1000 * answers.low), np.round(1000 * answers.high)]
    low, high = (side / before - 1 for side in answers.predicted["general"][1:, :n])
    open_width = answers.high - answers.low > WIDEST
    return {
        # What is not known, as recommend says it: the ratio, or whether it keeps to the tolerance.
        "open": np.where(open_width, 1, np.where(is_too_wide(low, high, np.array(tolerances)), 2, 0)).tolist(),
        "ratios": _listed(np.array(ratios)),
        **{role: _listed(values[:, :n].round(4)) for role, values in answers.predicted.items()},
        **{f"{role}_curve": _listed(values[:, n:].round(4)) for role, values in answers.predicted.items()},
    }


def _listed(values: np.ndarray) -> list[list[float | None]]:
    # Integers print shorter, and JSON knows no NaN.
    return [[None if np.isnan(v) else int(v) if v == int(v) else float(v) for v in row] for row in values]


def _beyond(fits: Fits, at: dict[str, dict[str, float]]) -> list[str]:
    """How far columns, by role, lie outside the fitted points: a line a column."""
    lines = {}
    for role, fit in fits.items():
        columns = {name: value for name, value in at[role].items() if name in fit.ranges}
        for line in beyond(role, fit, pd.DataFrame([columns])) if columns else []:
            words = line.removeprefix(f"{role}: ")
            lines.setdefault(words.split(" ")[0], words)
    return [*lines.values()]


def _nearest(places: list[float], value: float) -> int:
    return int(np.argmin(np.abs(np.array(places) - value)))


def _panels(evidence: Evidence, tokens: list[float]) -> list[Panel]:
    """The empty plots: loss on each corpus, and the map of the loss on the domain."""
    x, y = ratio_axis(evidence.short_ratio_name), axis("loss, nats per token")
    made = [panel("", f"Loss on {corpus}", [], x, y, 300) for corpus in evidence.corpora]
    y = log_axis("tokens of the run", tokens)
    y["range"] = numbers([math.log10(tokens[0]), math.log10(tokens[-1])])
    title = f"Loss on {evidence.domain} by domain ratio and tokens"
    tokens_map = panel("", title, [], ratio_axis(evidence.short_ratio_name, 0, 100), y, 300)
    # The last tick stands at the edge.
    tokens_map.spec["layout"]["margin"] = {"l": 10, "r": 26, "t": 8, "b": 10}
    return [*made, tokens_map]
