"""Tables of a study of fitted laws: cost, held-out errors, recommendation and confirmation."""

from collections.abc import Mapping, Sequence
from math import inf

import pandas as pd

from fitting.law_average import AVERAGE
from fitting.law_selection import error_percent
from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.plan.cost import ASSUMED_MFU, LAYER_LAUNCH, LAYER_REPLAY, Cost, costs
from pipeline.plan.duration import held_seconds, speed_of, wall_seconds, whose_speed
from pipeline.plan.processes import gpu_name, runs_on_device, workers
from pipeline.question.design import is_active
from pipeline.question.schema import Question
from pipeline.show.table import Table
from pipeline.study.artifacts import ConfirmationRow, LawAnswer, ModelCandidate, PredictedLoss, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, PlannedRun
from pipeline.study.number_format import (
    LEAST_WEIGHT,
    cost_in,
    domain_ratio_of,
    duration,
    laws_used,
    percent,
    quantity,
    signed,
    weights_used,
)

SPLITS = {
    "size": "the largest size",
    "tokens": "the last third of the tokens",
    "ratio": "every third ratio",
    "size-and-tokens": "size and tokens: a larger model, longer runs",
}
"""What a split holds out of the fit."""
_HELD = 1.05
"""So many times what runs use must their jobs hold to be worth a line."""
EVERY_RATIO = "every ratio is within the tolerance"
"""What an interval of nothing but 100% domain means."""


def cost_table(context: Context, runs: Sequence[PlannedRun]) -> Table:
    """What a plan costs, by role and model."""
    question = context.question
    count, groups = workers(question), costs(runs, speed_of(context, runs), question)
    launcher, sharing = question.launcher, runs_on_device(question)
    in_gpu_hours = launcher.elsewhere and launcher.slurm.has_gpus
    if launcher.elsewhere:
        gpus_a_run = question.parallel.processes / sharing if in_gpu_hours else 1.0
        times = _with_known_total([group.seconds and group.seconds * gpus_a_run for group in groups])
    else:
        times = [group.seconds and group.seconds / min(count, group.runs) for group in groups]
        times.append(wall_seconds(context, runs))
    assumed = _with_known_total([group.assumed_seconds for group in groups])

    def time(seconds: float | None, without_speed: float | None) -> str:
        if seconds is not None:
            return f"{cost_in('GPU-h', seconds / 3600)} GPU-h" if in_gpu_hours else duration(seconds)
        return "?" if without_speed is None else f"{cost_in('GPU-h', without_speed / 3600)} GPU-h*"

    peaks = [group.memory for group in groups]
    peaks = [None if peak is None else _bytes(peak) for peak in [*peaks, max(filter(None, peaks), default=None)]]
    disks = _with_total([group.disk for group in groups])
    rows = [
        [*cells, time(seconds, each), peak or "?", _bytes(disk)]
        for cells, seconds, each, peak, disk in zip(cost_rows(groups), times, assumed, peaks, disks)
    ]
    measured = any(group.seconds for group in groups)
    by = f", at the speed {whose_speed(context, runs)}" * measured
    end = "a simulated end, with starts and waits, so rows do not sum to it"
    how = f"Time of a row: its runs, without starts, over {count} workers of {launcher.threads} thread{by}; all: {end}"
    if any(assumed) and not measured:
        how = "Time: one run after the other, without starts"
    elif launcher.elsewhere:
        prepared = f" or that prepare measured on {context.machine.device}" if context.machine else ""
        by = f", at the speed of runs that are done{prepared}" * measured
        how = f"Time: one run after the other, without starts{by}"
        how += f", {sharing} at once on a GPU" if in_gpu_hours and sharing > 1 else ""
    note = f"N: non-embedding parameters. {how}. Memory: peak of a process. Disk: while training"
    if None in times[:-1] and not any(assumed):
        why = "cptlaw prepare measures it, or the first runs do"
        why = "the first runs do, launcher.device=H100 or another GPU assumes it" if in_gpu_hours else why
        note += f". ?: the speed is not known; {'a rehearsal is not measured' if question.rehearsal else why}"
    if any(assumed):
        least = f"at least {1e3 * LAYER_REPLAY:g} ms as a CUDA graph, else {1e3 * LAYER_LAUNCH:g} ms"
        peak = f"{ASSUMED_MFU:.0%} of the peak of {gpu_name(question)}"
        note += f". *: assumed, {peak}, a layer and micro-batch {least}"
    used, held = times[-1] if times[-1] is not None else assumed[-1], held_seconds(context, runs)
    if in_gpu_hours and used and held and held > used * _HELD:
        gpus = question.launcher.slurm.gpu_count * question.launcher.slurm.nodes
        each = f"each holds {gpus} GPU{'s' * (gpus > 1)} until the longest of its runs has ended"
        note += f". The jobs hold about {cost_in('GPU-h', held / 3600)} GPU-h in all, with starts: {each}"
    columns = ["role", "model", "N", "runs", "tokens", "FLOPs", "time", "memory", "disk"]
    title = "the runs that are chosen so far" if is_active(question) else ""
    return Table(title, columns, rows, note, left=2, rules=[len(groups)])


def cost_rows(groups: Sequence[Cost], done: Sequence[int] | None = None) -> list[list[str]]:
    """Role, model, N, runs, tokens and FLOPs of each role and model, and of all; `done`: runs of each that are done."""
    work = ([getattr(group, name) for group in groups] for name in ("runs", "tokens", "flops"))
    counts, tokens, flops = map(_with_total, work)
    if done is not None:
        counts = [f"{own} of {count}" for own, count in zip(_with_total(done), counts)]
    names = [[group.role, group.model, quantity(group.non_embedding)] for group in groups] + [["all", "", ""]]
    # "7.90e14": two characters less than Python writes, and the table fits a terminal of 80.
    powers = (f"{value:.2e}".replace("e+", "e") for value in flops)
    return [[*name, *cells] for name, *cells in zip(names, map(str, counts), map(quantity, tokens), powers)]


def mean_error(held_out: pd.DataFrame) -> float:
    """The mean over runs of the mean relative error of a run's held-out points, of which one may have more."""
    return float(held_out["relative_error"].abs().groupby(held_out["run"]).mean().mean())


def mean_errors_table(tested: pd.DataFrame) -> Table:
    """The mean error of each law on what it was not fitted to."""
    splits, rows = list(dict.fromkeys(tested["split"])), []
    for (corpus, law), own in tested.groupby(["corpus", "law"], sort=False):  # pyright: ignore[reportGeneralTypeIssues]
        errors = {split: error_percent(mean_error(rows)) for split, rows in own.groupby("split")}
        rows.append([str(corpus), str(law), *(errors.get(split, "") for split in splits)])
    names = {split: split.replace("-", " ") for split in splits}
    held = [f"{names[split]}: {SPLITS[split].split(': ')[-1]} held out" for split in splits if split in SPLITS]
    title = "mean relative error on points held out of the fit"
    return Table(title, ["corpus", "law", *names.values()], rows, "; ".join(held), left=2)


def recommendation_table(content: Recommendation, question: Question, is_known: bool = True) -> Table:
    """The recommendation: domain ratio, predicted losses, what binds, which is no fact where nothing else is known."""
    domain, general = question.corpora.domain, question.corpora.general
    rows = []
    if content.mixture:
        given = content.low == content.high == question.goal.domain_ratio
        interval = "given" if given else f"{content.low:.3f} to {content.high:.3f}"
        interval += f"\n{EVERY_RATIO}" if is_never_reached(content, content.goal.kind) else ""
        rows.append([domain_ratio_of(domain), f"{content.mixture[domain]:.3f}", interval])
        rows.append([f"replay ratio, {general}", f"{content.mixture[general]:.3f}", ""])
        chosen, peak = content.peak_learning_rate, (content.asked or question.target).peak_learning_rate
        if chosen is not None or question.model.path != IMPORTED:
            rows.append(["peak learning rate", f"{peak if chosen is None else chosen:g}", "given" * (chosen is None)])
        predicted = {} if is_too_far(content) else content.predicted
        rows += [[f"loss on {corpus}", f"{loss.loss:.4f}", _ends(loss)] for corpus, loss in predicted.items()]
        if loss := predicted.get(general):
            changes = (side / content.loss_before[general] - 1 for side in (loss.loss, loss.low, loss.high))
            value, low, high = (signed(change) for change in changes)
            rows.append([f"change on {general}", value, f"{low} to {high}"])
    for name, words in (("N", "best size"), ("D", "its tokens")):
        if best := content.optimum.get(name):
            sides = (quantity((side or 0.0) * 1e9) for side in (best.value, best.low, best.high))
            rows.append([words, next(sides), " to ".join(sides)])
    for row in (row for row in content.candidates if row.tested):
        words = f"{row.model}, {quantity(row.D * 1e9)} tokens, {row.domain_ratio:.3f}"
        rows.append([words, f"{row.predicted:.4f}", _ends(row)])
    for change in content.changes:
        none = change.before == change.after
        ratios = "none" if none else f"{change.before:.2f} to {change.after:.2f}"
        rows.append([f"change at {change.at:.0%}", ratios, "" if none else f"{change.difference:+.4f} on {domain}"])
    rows.append(["binding" if is_known else "binding, predicted", content.binding, ""])
    several = {corpus: of_law for corpus, of_law in content.weights.items() if len(of_law) > 1}
    rows += [[f"average on {corpus}", weights_used(of_law, "\n"), ""] for corpus, of_law in several.items()]
    target = content.target
    run = f"{target.model}, {target.steps:,} steps, {quantity(target.D * 1e9)} tokens"
    title = f"goal={content.goal.kind}: recommended with {laws_used(content.law, content.weights)} for {run}"
    return Table(title, ["", "value", "90% interval"], rows, words=True)


def is_never_reached(answer: Recommendation | LawAnswer, kind: str) -> bool:
    """Whether all of the interval of the ratio is 100% domain, which says nothing of how well it is known."""
    return kind == "trade-off" and answer.low == answer.high == 1.0


def ratio_interval(answer: Recommendation | LawAnswer, kind: str) -> str:
    """The 90% interval of the domain ratio that a goal of this kind has, in words."""
    if is_never_reached(answer, kind):
        return EVERY_RATIO
    return f"90% interval {answer.low or 0.0:.1%} to {answer.high or 0.0:.1%}"


def named_interval(content: Recommendation, domain: str, by_runs: float | None) -> str:
    """The same of an answer, with the predicted ratio, where confirmation runs give another to train on."""
    interval = ratio_interval(content, content.goal.kind)
    return interval if by_runs is None else f"predicted {percent((content.mixture or {})[domain])}, {interval}"


def is_too_far(content: Recommendation) -> bool:
    """Whether its run is too far from the fitted ones, or not at their one ratio, so that no loss is predicted."""
    return bool(one_ratio(content)) or any(line.startswith("not known: ") for line in content.warnings)


def answer_table(content: Recommendation, measured: Sequence[ConfirmationRow], colours: Mapping[str, str]) -> Table:
    """The losses that the answer predicts, and beside them those of confirmation runs at it."""
    rows = []
    for row in measured:
        loss = content.predicted[row.corpus]
        expected = (f"{row.before:.4f}", f"{loss.loss:.4f}", _ends(loss))
        found = (f"{row.measured:.4f}", signed(row.relative_error), signed(row.measured / row.before - 1))
        rows.append([(row.corpus, colours[row.corpus]), *expected, *found, "yes" if row.inside else "no"])
    for corpus, loss in content.predicted.items() if not measured else ():
        known = ("not known", "") if is_too_far(content) else (f"{loss.loss:.4f}", _ends(loss))
        before = f"{content.loss_before[corpus]:.4f}"
        rows.append([(corpus, colours[corpus]), before, *known, "not yet", "", "", ""])
    columns = ["loss on", "before", "predicted", "90% interval", "measured", "error", "measured change", "inside"]
    return Table(f"The answer, {content.target.model}", columns, rows, page_only=2)


def confirmation_table(rows: Sequence[ConfirmationRow]) -> Table:
    """Predicted against measured, every law."""
    noise = [f"sd of {len(rows[0].seeds)}"] if rows[0].sd is not None else []
    cells = [
        [
            *(row.corpus, _place(rows, row), row.law + _mark(row)),
            *(f"{row.predicted:.4f}", _ends(row)),
            *(f"{row.measured:.4f}{' ' if row.inside else '!'}", signed(row.relative_error)),
            *(["n/a" if row.sd is None else f"{row.sd:.4f}"] if noise else []),
            *(f"{row.perplexity:.2f}", "n/a" if row.bits_per_byte is None else f"{row.bits_per_byte:.4f}"),
        ]
        for row in rows
    ]
    columns = ["loss on", _places(rows), "law", "predicted", "90% interval", "measured", "error", *noise]
    note = "* the answer came from it; ! measured outside the interval"
    note += "; - not in the average at this place" * any(_mark(row) == " -" for row in rows)
    if _is_average_narrowest(rows):
        note += (
            "; the interval of the average may be narrower than those of its laws: on other studies it erred less than "
            "one law (docs/performance.md)"
        )
    title = "Confirmation: predicted before, measured after"
    return Table(title, [*columns, "perplexity", "bits per byte"], cells, note, left=3, group=2, page_only=2)


def _mark(row: ConfirmationRow) -> str:
    """Behind the name of a law: that the answer came from it, or that it has no part in it."""
    return " *" * row.recommended or " -" * (row.weight is not None and row.weight < LEAST_WEIGHT)


def _is_average_narrowest(rows: Sequence[ConfirmationRow]) -> bool:
    """Whether the interval of an average is narrower than those of all laws for the same loss."""
    widths: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        widths.setdefault((row.corpus, row.run), {})[row.law] = row.high - row.low
    return any(of.pop(AVERAGE, inf) < min(of.values(), default=-inf) for of in widths.values())


def candidates_table(content: Recommendation, domain: str, measured: Mapping[str, float]) -> Table:
    """The predicted and the measured loss of every model that goal=compute chooses among."""
    rows = [
        [
            *(row.model, quantity(row.N * 1e9), quantity(row.D * 1e9), percent(row.domain_ratio)),
            *((f"{row.predicted:.4f}", _ends(row)) if row.tested else ("not known", "")),
            f"{measured[row.model]:.4f}" if row.model in measured else "not yet",
        ]
        for row in content.candidates
    ]
    columns = ["model", "N (non-embedding)", "tokens", "domain ratio", "predicted", "90% interval", "measured"]
    return Table(f"The models within the compute budget, loss on {domain}", columns, rows)


def _places(rows: Sequence[ConfirmationRow]) -> str:
    """What tells the confirmation runs apart."""
    return "ratio" if len({row.model for row in rows}) == 1 else "model"


def _place(rows: Sequence[ConfirmationRow], row: ConfirmationRow) -> str:
    return f"{row.domain_ratio:.3f}" if _places(rows) == "ratio" else row.model


def _ends(of: PredictedLoss | ConfirmationRow | ModelCandidate) -> str:
    return f"{of.low:.4f} to {of.high:.4f}"


def _with_total(values: Sequence[float]) -> list[float]:
    return [*values, sum(values)]


def _with_known_total(values: Sequence[float | None]) -> list[float | None]:
    """The values and their sum; None: one is not known."""
    return [*values, None if None in values else sum(filter(None, values))]


def _bytes(count: float) -> str:
    """A size in MB or GB.

    >>> _bytes(999_400_000), _bytes(999_936_000)
    ('999 MB', '1.0 GB')
    """
    return f"{count / 1e6:.0f} MB" if round(count / 1e6) < 1000 else f"{count / 1e9:,.1f} GB"
