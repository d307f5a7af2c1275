"""Tables that only the report has: parameters, held-out errors, measured cost, software and corpora."""

import datetime
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from fitting import LAWS, LawAverage
from fitting.schedule import LAMBDA
from pipeline.goals.active.candidates import own_cost, unit
from pipeline.plan.cost import run_flops
from pipeline.show.report.colours import CORPUS_COLOURS
from pipeline.show.report.evidence import Evidence
from pipeline.show.table import Table
from pipeline.show.tables import SPLITS, cost_rows, mean_error
from pipeline.study.artifacts import Corpora, RecommendedRun
from pipeline.study.fitted_points import first_step
from pipeline.study.folder import PlannedRun, StudyError
from pipeline.study.number_format import NOT_KNOWN, coefficient, duration, parameter_intervals, percent

_INTERVALS = (
    "90% confidence intervals. A parameter that is not identified may still predict well inside the fitted range; "
    "do not interpret its value. N and D are in billions."
)
_REFITTED = (
    "Each law was fitted again without a part of the points and predicted that part. All laws are "
    "compared on the same points. An average weighs its laws by the errors of the column that is like the answer: "
    "another ratio, more tokens, a larger size, or both; where one law answers it is that of the least mean error in "
    "size and tokens. The errors widen the prediction intervals."
)
_COUNTED = (
    "Tokens and FLOPs are those of the whole plan, evaluations included. Time is the sum over all attempts that "
    "ended, parallel runs counted each, measured without the start of a process."
)
_FACTS = {"git": "git revision of cptlaw", "python": "Python", "threads": "threads a run", "device": "machine"}


def parameter_tables(evidence: Evidence) -> list[Table]:
    """The points and the quality of each fit, then by corpus every parameter with its interval; none without fits."""
    if not evidence.fits:
        return []
    fits, tables = [], []
    for corpus, colour in zip(evidence.corpora, CORPUS_COLOURS):
        rows = []
        for law in evidence.laws:
            fit, section = evidence.fits[law][corpus], evidence.question.law.get(law)
            if isinstance(fit, LawAverage) or section is None:
                continue
            named = (law, evidence.colours[law])
            first = section.from_step if evidence.points is None else first_step(evidence.points, corpus, section)
            read = (f"{fit.n_points:,}", str(fit.n_runs), str(first))
            quality = (f"{fit.metrics['r2']:.4f}", f"{fit.metrics['mae']:.4f}")
            fits.append([(corpus, colour), named, *read, percent(section.min_ratio), *quality])
            units = {one.name: one.unit for one in (*LAWS[law].parameters, LAMBDA)}
            intervals, identified = (parameter_intervals(fit), fit.identified) if len(fit.draws) else ({}, {})
            for name, value in fit.params.items():
                known = ("no bootstrap", NOT_KNOWN)
                if name in intervals:
                    known = (intervals[name], "yes" if identified[name] else "no")
                rows.append([named, name, units.get(name, ""), coefficient(value), *known])
        columns = ["law", "parameter", "unit", "value", "90% interval", "identified"]
        tables.append(Table(f"Parameters, loss on {corpus}", columns, rows, left=3))
    columns = ["loss on", "law", "points", "runs", "from step", "from ratio", "R²", "mean error, nats"]
    return [Table("Fits", columns, fits, _INTERVALS, left=2), *tables]


def held_out_table(evidence: Evidence) -> Table | None:
    """The errors of each law on held-out points; None before there are any."""
    if evidence.tested is None or evidence.tested.empty:
        return None
    errors, rows = evidence.tested, []
    for corpus, colour in zip(evidence.corpora, CORPUS_COLOURS):
        for (split, words), law in itertools.product(SPLITS.items(), evidence.laws):
            chosen = (errors["corpus"] == corpus) & (errors["split"] == split) & (errors["law"] == law)
            own = errors[chosen]
            if not own.empty:
                largest = own["relative_error"].abs().max()
                cells = (f"{mean_error(own):.2%}", f"{largest:.2%}", f"{len(own):,}")
                rows.append([(corpus, colour), words, (law, evidence.colours[law]), *cells])
    columns = ["corpus", "held out", "law", "mean error", "largest error", "points"]
    return Table("Held-out errors of the laws", columns, rows, _REFITTED, left=3)


def spent(evidence: Evidence, target: RecommendedRun) -> tuple[str, str]:
    """What the answer cost against one run of its target, in the unit of the plan, and in all, for a card."""
    own = [run for run in evidence.plan if run.model == target.model]
    if not own:
        return "not known", "the plan has no run of that model"
    by, cost = _cost_of_runs(evidence)
    # Without such a run in the plan, in proportion to the tokens.
    tokens = round(1e9 * target.D)
    whole = [cost(run) for run in own if run.spec.phase == "continual" and run.spec.tokens == tokens]
    one = max(whole, default=cost(own[0]) * tokens / own[0].spec.tokens)
    of_fit = [run for run in evidence.plan if run.role != "confirm"]
    times = sum(map(cost, of_fit)) / one
    pretraining = ", with pre-training" if any(run.role == "pretrain" for run in of_fit) else ""
    parts = [f"{times:.3g} for the fit{pretraining}"]
    if confirm := sum(cost(run) for run in evidence.plan if run.role == "confirm"):
        parts.append(f"{confirm / one:.3g} to confirm")
        times += confirm / one
    if seconds := sum(_seconds(evidence).values()):
        parts.append(f"{duration(seconds)} of all processes, measured without starts")
    if by == "device-hours":
        by += " at the speed that prepare measured, with starts"
    return f"{times:.3g} times the answer's run", f"by {by}: {'; '.join(parts)}"


def _cost_of_runs(evidence: Evidence) -> tuple[str, Callable[[PlannedRun], float]]:
    """The unit in which cptlaw plan states the cost, and the cost of a run; FLOPs where a speed is not known."""
    context, by = evidence.context, evidence.context.once(unit)
    speeds = context.machine.speeds if context.machine else {}
    if by == "device-hours" and not all(speeds.get(run.model) for run in evidence.plan):
        return "FLOPs", lambda run: run_flops(run.spec)
    return by, partial(own_cost, context)


def dates(evidence: Evidence) -> tuple[str, str]:
    """The day of the last run, and the first start and last end, for a card."""
    times = _times(evidence)
    if not times:
        return "not known", "the runs are not here" if evidence.kept_steps else "no run has been started"
    first, last = (time[:16].replace("T", " ") for time in (min(times), max(times)))
    return max(times)[:10], f"runs from {first} to {last}, cptlaw {version('cptlaw')}"


def _times(evidence: Evidence) -> list[str]:
    every = itertools.chain(*evidence.attempts.values())
    return [time for record in every for side in ("start", "end") if (time := record.get(side))]


def _seconds(evidence: Evidence) -> dict[tuple[str, str], float]:
    """Role and model -> seconds of all attempts that ended."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for run in evidence.plan:
        for record in evidence.attempts[run.name]:
            if "start" in record and "end" in record:
                start, end = (datetime.datetime.fromisoformat(record[side]) for side in ("start", "end"))
                seconds[run.role, run.model] += (end - start).total_seconds()
    return seconds


def record(evidence: Evidence) -> dict[str, Table | bool]:
    """Cost and provenance, as templates/provenance.html shows it."""
    software, started = _software(evidence)
    tables = {"cost": _measured_cost(evidence), "software": software, "texts": _texts(evidence)}
    return {**tables, "started": started, "kept": evidence.kept_steps is not None}


def _measured_cost(evidence: Evidence) -> Table:
    last, seconds = evidence.kept_steps, _seconds(evidence)
    done: Counter[tuple[str, str]] = Counter()
    for run in evidence.plan:
        whole = evidence.study.state(run) == "done" if last is None else last.get(run.name) == run.spec.steps
        done[run.role, run.model] += whole
    groups = evidence.costs
    keys = [(group.role, group.model) for group in groups]
    times = [*(seconds.get(key, 0.0) for key in keys), sum(seconds.values())]
    rows = [
        [*cells, duration(time) if last is None else "not here"]
        for cells, time in zip(cost_rows(groups, [done[key] for key in keys]), times)
    ]
    columns = ["role", "model", "N (non-embedding)", "runs done", "tokens", "FLOPs", "measured time"]
    return Table("Runs, tokens, operations and time", columns, rows, _COUNTED, left=2)


def _software(evidence: Evidence) -> tuple[Table, bool]:
    """Software, machine and time of the runs, and whether any attempt tells of them."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in itertools.chain(*evidence.attempts.values()):
        facts: dict[str, str | float | None] = dict(record.get("packages", {}))
        for name in ("python", "git", "device", "engine", "precision", "threads"):
            facts[_FACTS.get(name, name)] = record.get(name)
        for name, value in facts.items():
            if value is not None:
                seen[name][str(value)] += 1
    times = _times(evidence)
    seeds = sorted({run.spec.seed for run in evidence.plan})
    rows = [["study", evidence.study.folder.resolve().name], ["seeds", ", ".join(map(str, seeds))]]
    if times:
        rows.append(["runs, first start to last end", f"{min(times)} to {max(times)}"])
    for name, values in seen.items():
        counted = [f"{value} ({count} attempts)" for value, count in values.most_common()]
        rows.append([name, "; ".join(counted if len(values) > 1 else values)])
    rows.append(["this page written by", f"cptlaw {version('cptlaw')}"])
    return Table("Software, machine and time of the runs", ["item", "value"], rows, left=2, words=True), bool(seen)


def _texts(evidence: Evidence) -> Table:
    """The corpora by their fingerprints, which change with any token, the tokenizer or the split."""
    try:
        recorded = Corpora.read(evidence.study).corpora
    except StudyError:
        recorded = {}
    rows = []
    for name, fingerprint in {name: of for run in evidence.plan for name, of in run.spec.corpora.items()}.items():
        corpus, known = recorded.get(name), ["not recorded"] * 3
        # The plan names what the runs read; what else is recorded must be of the same text.
        if corpus and corpus.fingerprint == fingerprint:
            counts = (f"{corpus.tokens.get(split, 0):,}" for split in ("train", "validation"))
            known = [corpus.revision or "none", *counts]
        rows.append([name, fingerprint, *known])
    columns = ["corpus", "fingerprint of its tokens", "commit on the hub", "training tokens", "validation tokens"]
    return Table("Corpora", columns, rows, left=3)
