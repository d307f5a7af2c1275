"""cptlaw predict: the losses of a run of any length, peak and mixture, or of a new domain, by laws that are fitted."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from omegaconf import MISSING
from rich.console import Console

from fitting import LAWS, PointsError, average, new_domain, out_of_domain
from fitting.answers.new_domain import LAW, MEASURED, PARTS, learnability, like_short
from fitting.laws.tokens import ONE_CURVE
from fitting.points import duplicated, not_numbers
from pipeline.cli.fit_table import JSON
from pipeline.cli.points_file import by_corpus, perplexity_question, read_table, renamed
from pipeline.cli.verbs import print_next
from pipeline.cli.words import names_and_keys, own_words, settings_of
from pipeline.goals.ratio.answer_warnings import beyond_peaks, beyond_ratios, faded, unfollowed
from pipeline.goals.ratio.answering_laws import ONE_RATIO, AnsweringLaws, answering_laws
from pipeline.goals.ratio.averaged_laws import left_out_lines
from pipeline.goals.registry import question_of_study, refuse_keys_of_answers
from pipeline.papers.dcpt.points import read_domain_points
from pipeline.papers.table import PaperStudy
from pipeline.question.messages import ConfigError
from pipeline.show.table import Table
from pipeline.show.terminal import print_items
from pipeline.study.artifacts import Recommendation, read_if_there
from pipeline.study.collect import read_points
from pipeline.study.context import Context, context_of
from pipeline.study.folder import StudyError, study_of
from pipeline.study.number_format import laws_used, percent, quantity, signed
from pipeline.study.target import Target, find_target, other_batch
from training.keys import Allowed
from training.run import Exit

HELP = {"laws": ONE_CURVE}


FITTED = 0.25
"""Part of the longest run from which on points are fitted; less where the short runs end before."""
LENGTHS = (0.25, 0.5, 1.0)
"""Parts of the run that is asked about at which its losses are predicted."""
FAR = 10.0
"""Times as far as was fitted from which a line warns: runs of our own were met at 3 times, and missed at 20."""
_SEEN = "docs/guide.md#what-should-i-not-trust"
_RATIO = Allowed("0 to 1, or a list: domain_ratio=[0.1,0.3]", at_least=0, at_most=1)
_OF_TOKENS = tuple(name for name, law in LAWS.items() if law.columns == ("D",))
_TOKENS = Allowed("above 0, up to 1e18, or a list: tokens=[1e9,1e10]", above=0, at_most=1e18)


Row = dict[str, Any]
"""What `--json` prints of a predicted loss: loss, low, high, and what they are of."""


@dataclass
class StudyPrediction:
    """The settings of `cptlaw predict STUDY_FOLDER`."""

    domain_ratio: list[Annotated[float, _RATIO]] = MISSING
    """Ratio of the domain corpus, or a list."""
    third: str | None = None
    """File of losses on text of neither corpus."""
    new: str | None = None
    """Study of short runs on a new domain, or a table of their losses."""


@dataclass
class PredictedTable:
    """The settings of `cptlaw predict points=FILE`."""

    points: str = MISSING
    """File of losses, one a row: .csv, .tsv, .parquet or .jsonl, also .gz or .zst."""
    tokens: list[Annotated[float, _TOKENS]] = MISSING
    """Tokens of the runs that are asked about, a number or a list."""
    columns: dict[str, str] = field(default_factory=dict)
    """As of cptlaw fit points=FILE."""
    corpus: str | None = None
    """Validation corpus to read; null: each one separately."""
    law: list[Annotated[str, Allowed(f"laws of tokens alone, {', '.join(_OF_TOKENS)}", choices=_OF_TOKENS)]] = field(
        default_factory=lambda: [*ONE_CURVE]
    )
    """Laws of the average."""


def carry_out(words: Sequence[str], console: Console, print_json: Callable[[JSON], object]) -> Exit:
    """Print the predictions that the words ask for."""
    if any(word.startswith("points=") for word in words):
        return _predict_table(words, console, print_json)
    folders, keys = names_and_keys(words)
    own, overrides = own_words(keys, StudyPrediction)
    if of_fit := [word.partition("=")[2] for word in overrides if word.startswith("mixture.domain_ratio=")]:
        raise ConfigError([f"mixture.domain_ratio: of the runs for the fit; write domain_ratio={of_fit[0]}"])
    refuse_keys_of_answers(overrides)
    problems = []
    if len(folders) != 1 and not (folders and any(word.startswith("new=") for word in own)):
        problems.append(f"cptlaw predict: {len(folders)} study folders; allowed: one, see cptlaw predict --help")
    asked = settings_of(StudyPrediction, own, problems)
    ratios = asked.domain_ratio
    if asked.new:
        return _predict_domains(folders, asked.new, ratios, overrides, console, print_json)
    question = question_of_study(Path(folders[0]), overrides)
    context = context_of(question)
    laws, answer = answering_laws(context), read_if_there(Recommendation, context.study)
    has_peak = any(word.startswith("target.peak_learning_rate=") for word in overrides)
    if answer and answer.peak_learning_rate and not has_peak:
        laws = laws.at_peak(answer.peak_learning_rate)
    target = find_target(laws.question, laws.points)
    peak = laws.question.target.peak_learning_rate
    run = f"{target.model}, {target.steps:,} steps, {quantity(target.D * 1e9)} tokens, peak {peak:g}"
    beyond = {ratio: beyond_ratios(laws, ratio) for ratio in ratios}
    known = [ratio for ratio in ratios if ONE_RATIO not in beyond[ratio]]
    rows = [
        {"domain_ratio": ratio, **ends_of(laws.loss(target, corpus, ratio))}
        | {"corpus": corpus, "before": target.before[corpus]}
        for ratio in known
        for corpus in laws.corpora
    ]
    horizon = dict(laws.distances(target))
    lines = [f"horizon: {times:.3g} times the {what} of a fitted run" for what, times in horizon.items()]
    lines += left_out_lines(laws.weights, laws.tested)
    if not (is_known := not (unknown := laws.untested(target))):
        lines.append(unknown)
        rows = []
    elif max(horizon.values(), default=1.0) >= FAR:
        lines.append(f"far: kept runs ten to thirty times as far were missed by 3 to 14% in the mean ({_SEEN})")
    less = [line for ratio in known for line in (*faded(laws, ratio), *_risen(laws, target, ratio))]
    limits = [*unfollowed(context, laws), *less, *beyond.values(), beyond_peaks(context, peak)]
    notes = dict.fromkeys(filter(None, [*limits, other_batch(context.plan, target.tokens_per_step)]))
    lines += [f"note: {line}" for line in notes]
    tables, combination = [_table(rows)] if rows else [], dict[str, object]()
    if asked.third and rows:
        combination, warnings = _third_losses(laws, Path(asked.third), rows)
        tables.append(_third_table(**combination))
        lines += warnings
    items = [question.marked(f"{run}: by {laws_used(laws.law, laws.weights)}"), *tables, *lines, *_newer_lines(context)]
    print_items(items, console)
    if is_known:
        # Of the study's own question, which the keys here do not change.
        verb = "recommend" if Recommendation.path(context.study).exists() else "fit"
        print_next(verb, [], question_of_study(Path(folders[0]), []), Exit.DONE, console)
    asked = {"study": folders[0], "model": target.model, "steps": target.steps, "tokens": target.D * 1e9}
    answered = {"peak": peak, "laws": {**laws.law}, "losses": rows, "horizon": horizon}
    answered |= {"tested": is_known and known == ratios, "notes": [*notes]}
    print_json({"schema": 1, **asked, **answered, **combination})
    return Exit.DONE


def _risen(laws: AnsweringLaws, target: Target, ratio: float) -> Iterator[str]:
    """That a longer run has a higher loss than one as long as was fitted, though no law of the average lets it rise."""
    for corpus in laws.corpora:
        longest = laws.fit(corpus).ranges.get("D", (0.0, target.D))[1]
        fitted = target.lasting(max(round(target.steps * longest / target.D), 1))
        if fitted.steps >= target.steps:
            continue
        sides = laws.at(target), laws.at(fitted)
        names = {name for side in sides for name in side.weights.get(corpus, {})}
        each = [replace(laws, law={**laws.law, corpus: name}) for name in names]
        far, near = ([of.loss(run, corpus, ratio)[0] for of in (laws, *each)] for run in (target, fitted))
        if names and far[0] > near[0] and all(end <= begin for end, begin in zip(far[1:], near[1:])):
            yield (
                f"at {percent(ratio)} {laws.corpora[1]} the loss on {corpus} is predicted above that of "
                f"{fitted.steps:,} steps, {near[0]:.4f}, though no law by itself predicts a rise: other laws count so "
                "far ahead"
            )


def ends_of(loss: Iterable[float]) -> Row:
    """A loss and the ends of its interval by name."""
    return dict(zip(("loss", "low", "high"), map(float, loss)))


def _third_losses(laws: AnsweringLaws, file: Path, rows: Sequence[Row]) -> tuple[Row, list[str]]:
    """Losses on text of neither corpus, as a combination of both that measured losses tell: what `--json` prints of
    them, and warnings.
    """
    table = read_table(file, {})
    sides: dict[str, str] = dict(zip(("pretrain", "domain"), laws.corpora))
    if lacking := [name for name in ("run", "step", "loss") if name not in table]:
        raise StudyError(f"{file}: no column {', '.join(lacking)}; allowed: run, step, loss, a measured loss a row")
    if table.empty:
        raise StudyError(f"{file}: no losses; give a measured loss a row")
    measured = table[["run", "step", "loss"]]
    line = not_numbers(table, "loss") or duplicated(measured)
    if line := line or perplexity_question(measured["loss"], "loss").partition("; if so")[0]:
        raise StudyError(f"{file}: {line}; allowed: losses on one text in nats per token, one of each run and step")
    measured = measured.rename(columns={"loss": "ood"})
    for side, corpus in sides.items():
        losses = laws.points.loc[laws.points["corpus"] == corpus, ["run", "step", "loss"]]
        measured = measured.merge(losses.rename(columns={"loss": side}), on=["run", "step"])
    if len(measured) < len(table):
        raise StudyError(
            f"{file}: {len(table) - len(measured)} of {len(table)} rows are of no run and step at which the study has "
            f"measured both corpora; the runs are those of points.parquet, like {laws.points['run'].iloc[-1]}"
        )
    third, found, warnings = [], None, list[str]()
    for ratio in dict.fromkeys(row["domain_ratio"] for row in rows):
        ends = {row["corpus"]: row for row in rows if row["domain_ratio"] == ratio}
        found = out_of_domain(measured, {side: ends[corpus]["loss"] for side, corpus in sides.items()}, intercept=True)
        loss = found.predicted["ood"]
        halves = [found[side] * (ends[of]["high"] - ends[of]["low"]) / 2 for side, of in sides.items()]
        half = float(np.linalg.norm([(loss.high - loss.low) / 2, *halves]))
        third.append({"domain_ratio": ratio, **ends_of((loss.value, loss.value - half, loss.value + half))})
        warnings += [line.replace("loss on pretrain", f"loss on {sides['pretrain']}") for line in found.warnings]
    assert found is not None
    weights = {sides.get(name, name): value._asdict() for name, value in found.values.items() if name != "r2"}
    return {"third": third, "weights": weights, "r2": found["r2"]}, [*dict.fromkeys(warnings)]


def _third_table(third: Sequence[Row], weights: dict[str, Row], r2: float) -> Table:
    parts = (f"{of['value']:.3f} {name} ({of['low']:.3f} to {of['high']:.3f})" for name, of in weights.items())
    cells = [
        [percent(row["domain_ratio"]), f"{row['loss']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}"] for row in third
    ]
    note = f"Loss = {' + '.join(parts)}, 90% intervals; R2 {r2:.3f}"
    return Table("Text of neither corpus", ["domain ratio", "predicted", "90% interval"], cells, note)


def _table(rows: Sequence[Row]) -> Table:
    columns = ["domain ratio", "loss on", "before", "predicted", "change", "90% interval"]
    cells = [
        [percent(row["domain_ratio"]), row["corpus"], f"{row['before']:.4f}", f"{row['loss']:.4f}"]
        + [signed(row["loss"] / row["before"] - 1), f"{row['low']:.4f} to {row['high']:.4f}"]
        for row in rows
    ]
    return Table("", columns, cells, left=2)


def _newer_lines(context: Context) -> Iterator[str]:
    """How many runs for the fit have ended since the points were collected that the fits have read."""
    study, collected = context.study, {*read_points(context.study)["run"]}
    fit_runs = [run for run in context.plan if run.role == "fit" and run.name not in collected]
    if newer := sum(study.state(run) == "done" for run in fit_runs):
        again = shlex.join(["cptlaw", "collect", str(study.folder)]), shlex.join(["cptlaw", "fit", str(study.folder)])
        yield f"{newer} newer run{'s are' if newer > 1 else ' is'} not in these fits: give {', then '.join(again)}"


def _predict_table(words: Sequence[str], console: Console, print_json: Callable[[JSON], object]) -> Exit:
    """Predict the losses of one model on one mixture by an average of laws of one curve, without a study."""
    names, keys = names_and_keys(words)
    problems = [f"{word}: not key=value; see cptlaw predict --help" for word in names]
    settings = settings_of(PredictedTable, keys, problems)
    laws, tokens = settings.law, settings.tokens
    table, notes = renamed(read_table(Path(settings.points), settings.columns), settings.columns)
    used = [name for name in ("tokens", "D", "loss") if name in table]
    if wrong := [f"{settings.points}: {line}" for name in used if (line := not_numbers(table, name))]:
        raise ConfigError(wrong)
    table = table.assign(D=table["tokens"] / 1e9) if "tokens" in table and "D" not in table else table
    if "D" in table and (left_out := int((pd.to_numeric(table["D"], errors="coerce") <= 0).sum())):
        notes.append(f"left out: {left_out} rows of 0 tokens or less")
    several = [name for name in ("N", "r", "run") if name in table and table[name].nunique() > 1]
    if several:
        allowed = "one run; cptlaw fit points=FILE fits several, cptlaw import makes a study of them"
        raise ConfigError([f"{settings.points}: several values of {', '.join(several)}; allowed: {allowed}"])
    if "loss" in table and (line := perplexity_question(table["loss"], settings.columns.get("loss", "loss"))):
        raise ConfigError([line])
    goes_on = "laws of tokens alone take the curve to go on as it began"
    if rate := next((name for name in ("lr", "learning_rate") if name in table), None):
        rates = pd.to_numeric(table[rate], errors="coerce")
        ends = f"{rates.iloc[0]:g} in the first row, {rates.iloc[-1]:g} in the last"
        notes.append(
            f"{rate}: not used ({ends}), since {goes_on}; a law that reads learning rates is fitted by "
            + shlex.join(["cptlaw", "fit", f"points={settings.points}", "law=annealing"])
        )
    else:
        notes.append(f"learning_rate: no such column; {goes_on}, so they miss what a decay of the rate brings")
    rows, answering = [], dict[str, None]()
    for corpus, points in by_corpus(table, settings.corpus).items():
        fitted = average(points.assign(run=0), laws)
        answering |= dict.fromkeys(fitted.fits)
        at = pd.DataFrame({"D": np.array(tokens, float) / 1e9})
        longest = float(points["D"].max())
        for count, *loss in zip(tokens, fitted.predict(at), *fitted.predict_interval(at)):
            row = {"corpus": corpus, "tokens": float(count), **ends_of(loss), "horizon": count / 1e9 / longest}
            rows.append(row | {"laws": [*fitted.fits]})
        lines = [*fitted.warnings, *_rising(points, fitted.predict(at))]
        notes += [f"{corpus}: {line}" if corpus else line for line in lines]
    cells = [
        [row["corpus"], quantity(row["tokens"]), f"{row['loss']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}"]
        + [f"{row['horizon']:.3g}"]
        for row in rows
    ]
    columns = ["loss on", "tokens", "predicted", "90% interval", "times the fitted tokens"]
    print_items([Table(f"By the average of {', '.join(answering)}", columns, cells), *notes], console)
    print_json({"schema": 1, "points": settings.points, "laws": laws, "losses": rows})
    return Exit.DONE


def _rising(points: pd.DataFrame, predicted: np.ndarray) -> Iterator[str]:
    """That a loss rises from the first third of its points to the last, while a fall is predicted."""
    losses = points.sort_values("D")["loss"].to_numpy(float)
    third = max(len(losses) // 3, 1)
    first, last = losses[:third].mean(), losses[-third:].mean()
    if first < last and predicted.min() < losses[-1]:
        yield (
            f"the loss rises, from {first:.4f} in the first third of its points to {last:.4f} in the last, and "
            f"{predicted.min():.4f} is below the last one: the laws take it to fall; a longer run would tell"
        )


def _predict_domains(
    folders: Sequence[str],
    new: str,
    ratios: Sequence[float],
    keys: Sequence[str],
    console: Console,
    print_json: Callable[[JSON], object],
) -> Exit:
    """Print the losses on each domain of `new`, a study or a table of losses, along the run that is asked about.

    `folders`: studies of the known domains; the first has the run, which `keys` change.
    """
    known = {name: points for folder in folders for name, points in _domains(folder)}
    short = dict(_domains(new))
    if both := [name for name in short if name in known]:
        raise ConfigError([f"new: {new} and the studies both have {', '.join(both)}; allowed: domains of one of them"])
    question = question_of_study(Path(folders[0]), keys)
    target = find_target(question, PaperStudy(study_of(question), question).points)
    longest = max(float(points["D"].max()) for points in known.values())
    points = [(target.N, target.D * part, float(r)) for r in ratios for part in LENGTHS]
    asked = pd.DataFrame(points, columns=["N", "D", "r"])
    losses, lines = list[pd.DataFrame](), list[str]()
    for name, points in short.items():
        start = min(FITTED * longest, 0.5 * float(points["D"].max()))
        own, *others = _measured([(name, points), *known.items()], points, longest / PARTS)
        others = [other[other["D"] >= start] for other in others]
        fitted = pd.concat([other.assign(short=like_short(other, points)) for other in others])
        answer = new_domain(fitted, own[own["D"] >= start])
        at = asked.assign(**own[["k1", "k2"]].iloc[0])
        low, high = answer.predict_interval(at)
        table = pd.DataFrame({"domain": name, "domain_ratio": asked["r"], "tokens": asked["D"] * 1e9})
        losses.append(table.assign(loss=answer.predict(at), low=low, high=high))
        errors = answer.errors.assign(missed=np.expm1(answer.errors["error"].abs()))
        missed = errors.groupby("domain")["missed"].mean()
        lines.append(
            f"{name}: {LAW} of {', '.join(known)}, times {np.exp(answer.shift):.4g} by the short runs; k1 "
            f"{own['k1'].iloc[0]:.3f}, k2 {own['k2'].iloc[0]:.3f}; each known domain, held out so, was missed by "
            f"{missed.min():.1%} to {missed.max():.1%}"
        )
    largest = max(float(points["N"].max()) for points in known.values())
    horizon = {"tokens": target.D / longest, "parameters": target.N / largest}
    rows = pd.concat(losses).to_dict("records")
    lines += [f"horizon: {far:.3g} times the most {what} of a known run" for what, far in horizon.items() if far > 1]
    cells = [
        [row["domain"], percent(row["domain_ratio"]), quantity(row["tokens"])]
        + [f"{row['loss']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}"]
        for row in rows
    ]
    columns = ["loss on", "domain ratio", "tokens", "predicted", "90% interval"]
    print_items([question.marked(f"{target.model}:"), Table("", columns, cells), *lines], console)
    answered = {"law": LAW, "known": [*known], "losses": rows, "horizon": horizon}
    print_json({"schema": 1, "study": [*folders], "new": new, "model": target.model, **answered})
    return Exit.DONE


def _domains(name: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each domain of a study or of a table of losses, and the points on it of runs that train on it."""
    if Path(name).is_dir() or not Path(name).suffix:
        question = question_of_study(Path(name), [])
        study = read_domain_points(PaperStudy(study_of(question), question))
        of = {domain: study.measured(domain, "D") for domain in study.domains}
    else:
        table = read_table(Path(name), {})
        numbers = [column for column in ("N", "D", "tokens", "r", "loss") if column in table]
        wrong = [line for column in numbers if (line := not_numbers(table, column))]
        if not wrong and "loss" in table and (line := perplexity_question(table["loss"], "loss")):
            wrong = [f"{line.partition('; if so')[0]}; give nats per token"]
        if wrong:
            raise StudyError(f"{name}: {wrong[0]}")
        table = table.assign(D=table["tokens"] / 1e9) if "tokens" in table and "D" not in table else table
        if lacking := [column for column in ("run", "N", "D", "r", "loss") if column not in table]:
            raise StudyError(f"{name}: no column {', '.join(lacking)}; allowed: run, N, D, r, loss, a loss a row")
        of = {corpus or Path(name).stem: points for corpus, points in by_corpus(table, None).items()}
    for domain, points in of.items():
        if (trained := points[points["r"] > 0]).empty:
            raise StudyError(f"{name}: no losses on {domain} of runs that train on it")
        # Runs of two domains may have one name.
        yield domain, trained.assign(domain=domain, run=trained["run"] + f" {domain}")


def _measured(domains: Sequence[tuple[str, pd.DataFrame]], short: pd.DataFrame, part: float) -> Iterator[pd.DataFrame]:
    """The points of each domain with k1 and k2, of a run of the smallest short one's size and ratio."""
    of_smallest = short[short["N"] == short["N"].min()]
    reference = of_smallest.loc[(of_smallest["r"] - 0.5).abs().idxmin()]
    for name, points in domains:
        alike = points[np.isclose(points["N"], reference["N"])]
        if alike.empty:
            raise PointsError(f"{name}: no run of {reference['N'] * 1e3:.4g} million parameters, as the short one has")
        run = alike[alike["run"] == alike.loc[(alike["r"] - reference["r"]).abs().idxmin(), "run"]].sort_values("D")
        if run["D"].iloc[0] > 0 or run["D"].iloc[-1] < MEASURED * part * (1 - 1e-9):
            raise PointsError(
                f"{name}: {run['run'].iloc[0]} was measured from {quantity(run['D'].iloc[0] * 1e9)} to "
                f"{quantity(run['D'].iloc[-1] * 1e9)} tokens; k1 and k2 need 0 and {quantity(MEASURED * part * 1e9)}"
            )
        k = learnability(run["D"].to_list(), run["loss"].to_list(), part)
        yield points.assign(k1=k["k1"], k2=k["k2"])
