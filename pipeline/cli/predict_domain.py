"""cptlaw predict new=SHORT: the losses of a new domain, by the cross-domain law of others and its own short runs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from fitting import PointsError, new_domain
from fitting.answers.new_domain import LAW, MEASURED, PARTS, learnability, like_short
from fitting.points import not_numbers
from pipeline.cli.fit_table import JSON
from pipeline.cli.points_file import by_corpus, perplexity_question, read_table
from pipeline.goals.registry import question_of_study
from pipeline.papers.dcpt.points import read_domain_points
from pipeline.papers.table import PaperStudy
from pipeline.question.messages import ConfigError
from pipeline.show.table import Table
from pipeline.show.terminal import print_items
from pipeline.study.folder import StudyError, study_of
from pipeline.study.number_format import percent, quantity
from pipeline.study.target import find_target
from training.run import Exit

FITTED = 0.25
"""Part of the longest run from which on points are fitted; less where the short runs end before."""
LENGTHS = (0.25, 0.5, 1.0)
"""Parts of the run that is asked about at which its losses are predicted."""


def predict_domains(
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
