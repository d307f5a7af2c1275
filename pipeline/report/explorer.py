"""The report's sliders: what the page evaluates to say what `recommend` would at another tolerance, size or length.

Everything that needs a schedule, a refit or a drawn error is worked out here, for a row of places of each slider; the
page evaluates the laws (web/laws.js) and looks for the share (web/answer.js).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fitting import LAWS, Fit
from fitting.answers.answer import EXTRAPOLATED
from fitting.answers.trade_off import cap_factors
from pipeline.question.goal import goal_of
from pipeline.report.evidence import Evidence
from pipeline.report.marks import BLACK, CORPUS_COLOURS, GREY, Key, Panel, axis, numbers, panel, token_axis
from pipeline.report.number_format import short
from pipeline.report.page import key_list, paragraph, plot, text
from pipeline.study.fits import log_errors
from pipeline.study.folder import StudyError
from pipeline.study.target import Target, find_target, lasting, target_columns

COLUMNS = {"N", "D", "r", "rho", "s1", "s2", "s1_pretrain", "s2_pretrain", "loss_before"}
"""What is known of a run that is only asked about; web/laws.js has every law that reads no other."""
ROLES = ("general", "domain")
_TOLERANCES, _SIZES, _LENGTHS = 201, 25, 25
"""Places of each slider, the question's own and the measured ones apart."""
_REACH = (0.25, 8.0)
"""Shortest and longest run, in lengths of the fitted and of the asked one."""
_NOTE = (
    "Move a slider: the page evaluates the fitted laws and says what cptlaw recommend would. Each length is a run of "
    "its own with the whole schedule. Between two measured models the loss before the run is read off a straight line "
    "over log N; cptlaw itself answers for measured models only."
)
_OTHER = "The sliders ask for the largest share within a tolerance, whatever goal the answer above is for."
_NOTHING = "Nothing to explore yet: the sliders need a recommendation, by laws of size, length, mixture, schedule."
_MAP = (
    "In the map a lighter shade is a higher loss on {domain}, as the thin lines say; left of the yellow line the loss "
    "on {general} stays within the tolerance."
)


def explorer_data(evidence: Evidence) -> dict[str, Any] | None:
    """All that the page's sliders read; None where there is no answer yet, or one of a law that the page cannot ask."""
    target, content = evidence.target, evidence.recommendation
    if target is None or content is None or not {*content["law"].values()} <= {*evidence.fits}:
        return None
    fits = {role: evidence.fits[evidence.law_of(corpus)][corpus] for role, corpus in zip(ROLES, evidence.corpora)}
    if not all({*fit.columns} <= COLUMNS and len(fit.draws) for fit in fits.values()):
        return None
    asked = content["target"]
    tolerances = _tolerances(content["goal"]["tolerance"])
    sizes = _sizes(evidence, target)
    steps = _steps(evidence.question.continual.steps, target.steps)
    lengths = [_length(evidence, lasting(evidence.question, target, count), fits) for count in steps]
    if not (lengths := [length for length in lengths if length is not None]):
        return None
    spread = {role: _spread(evidence, corpus) for role, corpus in zip(ROLES, evidence.corpora)}
    general, domain = (made.spec["layout"] for made in _curves(evidence))
    return {
        "names": dict(zip(ROLES, evidence.corpora)),
        "fits": {role: _fit(fit, spread[role]) for role, fit in fits.items()},
        "caps": _exact(cap_factors(len(fits["general"].draws), spread["general"])),
        "tolerances": tolerances,
        "sizes": sizes,
        "lengths": lengths,
        "start": {
            "tolerances": tolerances.index(content["goal"]["tolerance"]),
            "sizes": _nearest([size["N"] for size in sizes], asked["N"]),
            "lengths": _nearest([length["D"] for length in lengths], asked["D"]),
        },
        "layouts": {
            "general": general,
            "domain": domain,
            "map": _map(evidence, [1e9 * at["D"] for at in lengths]).spec["layout"],
        },
        "inks": {**dict(zip(ROLES, CORPUS_COLOURS)), "answer": BLACK, "before": GREY, "cap": BLACK},
    }


def explorer_markup(evidence: Evidence, data: dict[str, Any] | None) -> str:
    """The section's markup, which the script brings to life."""
    if data is None:
        return paragraph(_NOTHING, "missing")
    general, domain = evidence.corpora
    controls = "".join(
        f'<div><label for="{name}">{text(words)}</label><output for="{name}"></output>'
        f'<input type="range" id="{name}" name="{name}" min="0" max="{len(data[name]) - 1}" step="1" '
        f'value="{data["start"][name]}"{" disabled" if len(data[name]) == 1 else ""}></div>'
        for name, words in (
            ("tolerances", f"T, the tolerated rise of the loss on {general}"),
            ("sizes", "N, the size of the model, without its embeddings"),
            ("lengths", "D, the length of the continual phase"),
        )
    )
    keys = (
        Key("before the run", GREY, "dashed"),
        Key("the most that T allows", BLACK, "dotted"),
        Key("the answer, with 90% intervals", BLACK, "ring"),
    )
    panels = "".join(
        f'<div class="panel"><h4>{text(made.group)}</h4>{plot(made, "", kind)}</div>'
        for made, kind in zip((*_curves(evidence), _map(evidence, [1e6, 1e7])), (*ROLES, "map"))
    )
    note = f"{_NOTE} {_OTHER}" if goal_of(evidence.question).chooses_run else _NOTE
    return (
        f'{paragraph(note, "note")}<div id="explorer"><div class="controls" hidden>{controls}</div>'
        '<p class="explored" id="explored" role="status"><strong></strong> <span></span></p>'
        '<button type="button" class="back">Back to the study\'s own question</button>'
        f'{key_list(keys)}<div class="panels">{panels}</div>'
        f"{paragraph(_MAP.format(domain=domain, general=general), 'note')}</div>"
    )


def _tolerances(asked: float) -> list[float]:
    low, high = min(0.0, 2 * asked), max(0.2, 2 * asked)
    return sorted({*(round(float(at), 6) for at in np.linspace(low, high, _TOLERANCES)), asked})


def _sizes(evidence: Evidence, target: Target) -> list[dict[str, Any]]:
    """The measured models, and places between them."""
    assert evidence.points is not None
    measured = {}
    for name in evidence.points["model"].unique():
        try:
            found = find_target(evidence.question, evidence.points, str(name))
        except StudyError:
            continue
        measured.setdefault(found.N, found)
    measured[target.N] = target
    known = [measured[N] for N in sorted(measured)]
    logs = [math.log(of.N) for of in known]
    between = np.linspace(logs[0], logs[-1], _SIZES)[1:-1] if len(known) > 1 else []
    # Two places that cannot be told apart are one.
    between = [at for at in between if min(abs(at - log) for log in logs) > 0.01]
    made = [{"N": of.N, "model": of.model, "before": _before(evidence, [of], of.N)} for of in known]
    made += [{"N": math.exp(at), "model": None, "before": _before(evidence, known, math.exp(at))} for at in between]
    return sorted(made, key=lambda size: size["N"])


def _before(evidence: Evidence, known: list[Target], N: float) -> dict[str, float]:
    logs = [math.log(of.N) for of in known]
    return {
        role: float(np.interp(math.log(N), logs, [of.before[corpus] for of in known]))
        for role, corpus in zip(ROLES, evidence.corpora)
    }


def _steps(fitted: int, asked: int) -> list[int]:
    low, high = _REACH[0] * min(fitted, asked), _REACH[1] * max(fitted, asked)
    return sorted({*np.geomspace(max(low, 1), high, _LENGTHS).round().astype(int).tolist(), fitted, asked})


def _length(evidence: Evidence, target: Target, fits: dict[str, Fit]) -> dict[str, Any] | None:
    """The columns at the end of a run so long; None where the schedule does not fit into it, or one is not known."""
    at = {}
    for role, corpus in zip(ROLES, evidence.corpora):
        try:
            columns = target_columns(evidence.question, target, corpus, fits[role])
        except ValueError:
            return None
        read = LAWS[fits[role].law].columns
        at[role] = {name: columns[name] for name in read if name in columns and name not in ("N", "D", "loss_before")}
        if not all(map(math.isfinite, at[role].values())):
            return None
    return {"D": target.D, "steps": target.steps, "at": at}


def _fit(fit: Fit, spread: np.ndarray | None) -> dict[str, Any]:
    read = {*fit.columns, "N", "D"}
    noise = fit.noise(len(fit.draws), spread)[:, :, 0].T
    return {
        "law": fit.law,
        "params": fit.params,
        "draws": [dict(zip(fit.params, _exact(draw))) for draw in fit.draws],
        "noise": [_exact(errors) for errors in noise],
        "ranges": {name: fit.ranges[name] for name in EXTRAPOLATED if name in fit.ranges and name in read},
    }


def _spread(evidence: Evidence, corpus: str) -> np.ndarray | None:
    return None if evidence.tested is None else log_errors(evidence.tested, evidence.law_of(corpus), corpus)


def _exact(values: np.ndarray) -> list[float]:
    """Nine digits of each: the page's answer is then recommend's to more than can be shown."""
    return [float(f"{value:.9g}") for value in values]


def _nearest(places: list[float], value: float) -> int:
    return int(np.argmin(np.abs(np.array(places) - value)))


def _curves(evidence: Evidence) -> list[Panel]:
    x = axis(f"share of {short(evidence.domain)}", range=[-3, 103], dtick=25, ticksuffix="%")
    y = axis("loss, nats a token")
    return [panel(f"Loss on {corpus}", "", [], dict(x), dict(y), 300) for corpus in evidence.corpora]


def _map(evidence: Evidence, tokens: list[float]) -> Panel:
    x = axis(f"share of {short(evidence.domain)}", range=[0, 100], dtick=25, ticksuffix="%")
    y = token_axis("tokens of the run", tokens)
    y["range"] = numbers([math.log10(tokens[0]), math.log10(tokens[-1])])
    made = panel(f"Loss on {evidence.domain} by share and tokens", "", [], x, y, 300)
    # The last tick stands at the edge.
    made.spec["layout"]["margin"]["r"] = 26
    return made
