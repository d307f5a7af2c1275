"""The report's tables: parameters, held-out errors, confirmation, cost and provenance, each as markup."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from markupsafe import Markup

from fitting import LAWS, Fit, LawAverage
from fitting.schedule import LAMBDA
from pipeline.plan.cost import costs
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import CORPUS_COLOURS, law_colour
from pipeline.show.report.page import heading, paragraph, table
from pipeline.study.artifacts import Corpora
from pipeline.study.collect import read_points
from pipeline.study.folder import StudyError
from pipeline.study.number_format import duration, percent, quantity
from training.attempt import attempts

_SPLITS = {
    "size": "the largest size",
    "tokens": "the last third of the tokens",
    "ratio": "every third ratio",
    "size-and-tokens": "size and tokens: a larger model, longer runs",
}
_INTERVALS = (
    "90% confidence intervals. A parameter that is not identified may still predict well inside the fitted range; "
    "do not interpret its value. N and D are in billions."
)
_REFITTED = (
    "Each law was fitted again without a part of the points and predicted that part. For each corpus the law with "
    "the least mean error in size and tokens gave the answer; all laws are compared on the same points. These "
    "errors widen the prediction intervals."
)
_COUNTED = (
    "Tokens and FLOPs are those of the whole plan, evaluations included. Time is the sum over all attempts that "
    "ended, parallel runs counted each."
)
_ELSEWHERE = (
    "This study's points were kept without its runs, so that software, machine and time of the runs are not known. "
    "A run with points to its last step counts as done."
)
_FACTS = {"git": "git revision of cptlaw", "python": "Python", "threads": "threads a run", "device": "machine"}


def parameters(evidence: Evidence) -> Markup:
    """The points and the quality of each fit, and every parameter with its interval."""
    if not evidence.fits:
        return paragraph("Nothing is fitted yet: run cptlaw fit.", "missing")
    summaries, tables = [], []
    for corpus, colour in zip(evidence.corpora, CORPUS_COLOURS):
        rows = []
        for law in evidence.laws:
            fit, section = evidence.fits[law][corpus], evidence.question.law.get(law)
            if isinstance(fit, LawAverage) or section is None:
                continue
            named = (law, law_colour(evidence, law))
            read = (f"{fit.n_points:,}", str(fit.n_runs), str(max(section.from_step, 1)))
            quality = (f"{fit.metrics['r2']:.4f}", f"{fit.metrics['mae']:.4f}")
            summaries.append([(corpus, colour), named, *read, percent(section.min_ratio), *quality])
            rows += [[named, *cells] for cells in _values(fit)]
        columns = ["law", "parameter", "unit", "value", "90% interval", "identified"]
        tables.append(table(f"Parameters, loss on {corpus}", columns, rows, left=3))
    columns = ["loss on", "law", "points", "runs", "from step", "from ratio", "R²", "mean error, nats"]
    return paragraph(_INTERVALS, "note") + table("Fits", columns, summaries, left=2) + Markup().join(tables)


def _values(fit: Fit) -> Iterable[list[str]]:
    units = {one.name: one.unit for one in (*LAWS[fit.law].parameters, LAMBDA)}
    drawn = len(fit.draws) > 0
    intervals, identified = (fit.intervals(0.9), fit.identified) if drawn else ({}, {})
    for name, value in fit.params.items():
        between, known = "no bootstrap", "not known"
        if drawn:
            between = " to ".join(f"{side:.4g}" for side in intervals[name])
            known = "yes" if identified[name] else "no"
        yield [name, units.get(name, ""), f"{value:.4g}", between, known]


def held_out(evidence: Evidence) -> Markup:
    """The errors of each law on held-out points."""
    if evidence.tested is None or evidence.tested.empty:
        return paragraph("No law could be tested on held-out runs yet.", "missing")
    errors = evidence.tested.assign(error=evidence.tested["relative_error"].abs())
    rows = []
    for corpus, colour in zip(evidence.corpora, CORPUS_COLOURS):
        for (split, words), law in itertools.product(_SPLITS.items(), evidence.laws):
            chosen = (errors["corpus"] == corpus) & (errors["split"] == split) & (errors["law"] == law)
            own = errors.loc[chosen, "error"]
            if not own.empty:
                cells = (f"{own.mean():.2%}", f"{own.max():.2%}", f"{len(own):,}")
                rows.append([(corpus, colour), words, (law, law_colour(evidence, law)), *cells])
    columns = ["corpus", "held out", "law", "mean error", "largest error", "points"]
    return paragraph(_REFITTED, "note") + table("Held-out errors of the laws", columns, rows, left=3)


def confirmation(evidence: Evidence) -> Markup:
    """Predicted and measured loss of every confirmation run, by every law."""
    if not evidence.confirmations:
        return paragraph("The answer is not confirmed yet: run cptlaw confirm.", "missing")
    rows = [
        [
            *(f"{percent(row.domain_ratio)} {evidence.domain}", row.corpus),
            row.law + (", gave the answer" if row.recommended else ""),
            *(f"{row.predicted:.4f}", f"{row.low:.4f} to {row.high:.4f}", f"{row.measured:.4f}"),
            *(f"{row.perplexity:.2f}", "n/a" if row.bits_per_byte is None else f"{row.bits_per_byte:.4f}"),
            *(f"{row.relative_error:+.2%}", "yes" if row.inside else "no"),
        ]
        for row in evidence.confirmations
    ]
    columns = [
        *("run", "loss on", "law", "predicted", "90% interval", "measured", "perplexity", "bits per byte"),
        *("error of prediction", "inside"),
    ]
    model = evidence.confirmations[0].model
    return table(f"Confirmation runs of {model}, losses in nats per token", columns, rows, left=3)


def cost(evidence: Evidence) -> Markup:
    """Runs, tokens, FLOPs and measured time by role and model."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    done: Counter[tuple[str, str]] = Counter()
    last = _last_steps_without_runs(evidence)
    for run in evidence.plan:
        seconds[run.role, run.model] += sum(_seconds(record) for record in _attempts(evidence, run.name))
        whole = evidence.study.state(run) == "done" if last is None else last.get(run.name) == run.spec.steps
        done[run.role, run.model] += whole
    groups = costs(evidence.plan, None, evidence.question)
    here = last is None
    rows = [
        [
            *(group.role, group.model, quantity(group.non_embedding)),
            f"{done[group.role, group.model]} of {group.runs}",
            *(quantity(group.tokens), f"{group.flops:.2e}"),
            duration(seconds[group.role, group.model]) if here else "not here",
        ]
        for group in groups
    ]
    tokens, flops = sum(group.tokens for group in groups), sum(group.flops for group in groups)
    whole_time = duration(sum(seconds.values())) if here else "not here"
    total = f"{sum(done.values())} of {len(evidence.plan)}"
    rows.append(["all", "", "", total, quantity(tokens), f"{flops:.2e}", whole_time])
    columns = ["role", "model", "N (non-embedding)", "runs done", "tokens", "FLOPs", "measured time"]
    return paragraph(_COUNTED, "note") + table("Runs, tokens, operations and time", columns, rows, left=2)


def provenance(evidence: Evidence) -> Markup:
    """Software, machine, time and corpora of the runs, from their attempts, the plan and corpora.json."""
    seen: dict[str, Counter[str]] = {}
    times: list[str] = []
    for run in evidence.plan:
        for record in _attempts(evidence, run.name):
            facts = dict(record.get("packages", {}))
            for name in ("python", "git", "device", "engine", "precision", "threads"):
                facts[_FACTS.get(name, name)] = record.get(name)
            for name, value in facts.items():
                if value is not None:
                    seen.setdefault(name, Counter())[str(value)] += 1
            times += [str(record[side]) for side in ("start", "end") if side in record]
    seeds = sorted({run.spec.seed for run in evidence.plan})
    rows = [["study", evidence.study.folder.resolve().name], ["seeds", ", ".join(map(str, seeds))]]
    if times:
        rows.append(["runs, first start to last end", f"{min(times)} to {max(times)}"])
    rows += [[name, _counted(values)] for name, values in seen.items()]
    rows.append(["this page written by", f"cptlaw {version('cptlaw')}"])
    none = "No run has been started yet." if _last_steps_without_runs(evidence) is None else _ELSEWHERE
    missing = Markup() if seen else paragraph(none, "missing")
    made = table("Software, machine and time of the runs", ["item", "value"], rows, left=2, kind="words")
    return heading("Provenance") + missing + made + _texts(evidence)


def _last_steps_without_runs(evidence: Evidence) -> dict[str, int] | None:
    """Run -> its last step among the points, of a study whose points are here and whose runs are not; else None."""
    study = evidence.study
    if any((study.runs / run.name / "attempts").is_dir() for run in evidence.plan):
        return None
    try:
        last = read_points(study).groupby("run")["step"].max()
        return {str(run): int(step) for run, step in last.items()}
    except StudyError:
        return None


def _texts(evidence: Evidence) -> Markup:
    """The corpora by their fingerprints, which change with any token, the tokenizer or the split."""
    try:
        recorded = Corpora.read(evidence.study).corpora
    except StudyError:
        recorded = {}
    rows = []
    for name, fingerprint in {name: of for run in evidence.plan for name, of in run.spec.corpora.items()}.items():
        corpus = recorded.get(name)
        # The plan names what the runs read; what else is recorded must be of the same text.
        if corpus is None or corpus.fingerprint != fingerprint:
            rows.append([name, fingerprint, *["not recorded"] * 3])
        else:
            counts = (f"{corpus.tokens.get(split, 0):,}" for split in ("train", "validation"))
            rows.append([name, fingerprint, corpus.revision or "none", *counts])
    columns = ["corpus", "fingerprint of its tokens", "commit on the hub", "training tokens", "validation tokens"]
    return table("Corpora", columns, rows, left=3) if rows else Markup()


def _counted(values: Counter[str]) -> str:
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(f"{value} ({count} attempts)" for value, count in values.most_common())


def _attempts(evidence: Evidence, run: str) -> Iterable[dict[str, Any]]:
    return attempts(evidence.study.runs / run)


def _seconds(record: dict[str, Any]) -> float:
    if "start" not in record or "end" not in record:
        return 0.0
    start, end = (datetime.datetime.fromisoformat(record[side]) for side in ("start", "end"))
    return (end - start).total_seconds()
