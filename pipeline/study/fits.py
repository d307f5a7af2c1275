"""Every law of the question fitted to every corpus, and how well each predicts what it did not see."""

import contextlib
import dataclasses
import hashlib
import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, Fold, LawAverage, PointsError, advise, fit, fit_shared, folds, held_out, law_weights
from fitting.fitted import saved_fields
from fitting.law_average import AVERAGE, LEAST_LOSS, counted_at, errors_in_common
from fitting.parallel import over_cores
from fitting.schedule import Schedules
from fitting.uncertainty.misfit import NEXT
from fitting.uncertainty.spread import Spread
from pipeline.question.messages import MissingError
from pipeline.question.schema import LawConfig, Question
from pipeline.study.collect import read_parquet
from pipeline.study.earlier import BETWEEN_DOMAINS
from pipeline.study.fitted_points import law_on, left_out, open_columns, points_digest, points_for, selected
from pipeline.study.folder import Study, StudyError
from pipeline.study.target import find_target
from training.durable import FileError, read_file, read_record, read_text, write_whole

SPLITS = ("size", "tokens", "ratio", "size-and-tokens")
"""What `back_test` holds out: one fold of each kind, as a recommendation is asked (`fitting.folds`)."""
HELD_OUT = ("run", "step", "predicted", "measured", "relative_error", "law", "corpus", "split")
"""Columns of held_out.parquet."""
POINTS = "fits/points.txt"
"""Holds `points_digest` of the points that the fits have read, and the laws that they do not suffice for."""
_FitFile = dataclasses.make_dataclass("_FitFile", saved_fields().items())
"""The keys of a file of a fit, and their types."""


def fit_all(
    study: Study, question: Question, points: pd.DataFrame, schedules: Schedules, log: Callable[[str], object]
) -> dict[str, dict[str, Fit]]:
    """Fit each law to each corpus and write fits/<corpus>-<law>.json; what was made of other points is removed.

    The runs may be of one size, or fewer than a law has parameters: the prior decides the rest. A law that cannot be
    fitted to both corpora is left out, with a line that says why. Returns corpus -> law -> fit. Raises StudyError: no
    law can be fitted to both corpora; one line for each law and corpus that cannot.
    """
    corpora = (question.corpora.general, question.corpora.domain)
    fits: dict[str, dict[str, Fit]] = {corpus: {} for corpus in corpora}
    problems, warned = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)

    def fit_one(corpora_and_law: tuple[tuple[str, ...], str]) -> list[tuple[str, str, str]]:
        """Corpus, law, and its fit as JSON, which goes between processes as laws do not; or why there is none."""
        together, name = corpora_and_law
        chosen = pd.concat([points_for(points, corpus, question, name) for corpus in together])
        unknown = open_columns(question, name)
        options = {"seed": question.seed, "bootstrap": question.bootstrap, "unknown": unknown, "few": True}
        try:
            if common := LAWS[name].shared:
                of_corpus = fit_shared(chosen, name, common, schedules=schedules, **options)
            else:
                laws = {corpus: law_on(question, corpus, name) for corpus in together}
                of_corpus = {corpus: fit(chosen, law, schedules=schedules, **options) for corpus, law in laws.items()}
        except PointsError as error:
            line = f"{name} on {' and '.join(together)} ({len(chosen)} points): {error}"
            return [(corpus, name, line) for corpus in together]
        return [(corpus, name, of_corpus[corpus].to_json()) for corpus in together]

    def keep(corpus: str, name: str, text: str) -> None:
        if not text.startswith("{"):
            problems[name].append(text)
            return
        unseen = BETWEEN_DOMAINS if question.general_from and corpus == question.corpora.general else 0.0
        fitted = fits[corpus][name] = dataclasses.replace(Fit.from_json(text), unseen=unseen)
        path = fit_file(study, corpus, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, fitted.to_json() + "\n")
        quality = f"R2 {fitted.metrics['r2']:.4f}, mean error {fitted.metrics['mae']:.4f} nats"
        counted = f"{fitted.n_points} points of {fitted.n_runs} runs"
        read = ", ".join(filter(None, (counted, left_out(points, corpus, question, name))))
        log(f"{name} on {corpus}: {quality}, {read}{_not_asked(name, fitted, question, points)}")
        for warning in fitted.warnings:
            warned[warning].append(f"{name} on {corpus}")

    over_cores(fit_one, fitted_together(question, corpora), each=lambda results: [keep(*one) for one in results])
    if problems.keys() >= question.law.keys():
        raise StudyError("\n".join(itertools.chain(*problems.values())))
    for warning, names in warned.items():
        log(f"  {warning} ({', '.join(names) if len(names) < sum(map(len, fits.values())) else 'every fit'})")
    for name, lines in problems.items():
        log(f"left out: {'; '.join(lines)}; the other laws answer, for both corpora")
        for corpus in corpora:
            fits[corpus].pop(name, None)
            fit_file(study, corpus, name).unlink(missing_ok=True)
    digest, file = points_digest(points), study.folder / study.fitted(POINTS)
    if file.exists() and _of_last_fit(study)[:1] != [digest]:
        # Laws that are not fitted now read other points, and other points were held out.
        own = {fit_file(study, corpus, name) for corpus, of_law in fits.items() for name in of_law}
        for path in {*file.parent.glob("*.json"), held_out_file(study)} - own:
            path.unlink(missing_ok=True)
    write_whole(file, " ".join((digest, *problems)) + "\n")
    return fits


def law_limit(name: str) -> str:
    """How far from the fitted tokens a law counts beside other laws, in words; empty: at any distance.

    >>> law_limit("dcpt"), law_limit("transfer-replay")
    ('counts only up to 6 times', '')
    """
    if LAWS[name].nearest:
        return f"counts only beyond {LAWS[name].nearest:g} times"
    return f"counts only up to {LAWS[name].furthest:g} times" if np.isfinite(LAWS[name].furthest) else ""


def _not_asked(name: str, fitted: Fit, question: Question, points: pd.DataFrame) -> str:
    """That a law does not count at the length of the run asked about, as the end of a line on its fit.

    Empty: it does, or the goal chooses the length.
    """
    with contextlib.suppress(StudyError):
        target = find_target(question, points)
        counted = counted_at(question.law, fitted.spread.horizon(target.N, target.D))
        if name not in counted and question.goal_kind.design_question == "trade_off":
            return f"; it {law_limit(name)} the fitted tokens, so not in this answer"
    return ""


def fitted_together(question: Question, corpora: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """The corpora that each fit takes together, and its law: all, where the law has parameters in common."""
    parts = {name: [corpora] if LAWS[name].shared else [(corpus,) for corpus in corpora] for name in question.law}
    return [(part, name) for name, of_law in parts.items() for part in of_law]


def fit_file(study: Study, corpus: str, law: str) -> Path:
    """Where the fit of a law to a corpus is."""
    return study.folder / study.fitted("fits") / f"{corpus}-{law}.json"


def refuse_other_points(study: Study, digest: str) -> None:
    """Raise StudyError where the fits read points of another digest than there are now; studies of old do not say."""
    path = study.folder / study.fitted(POINTS)
    if path.exists() and _of_last_fit(study)[:1] != [digest]:
        raise StudyError(f"{path.parent}: fitted to other points than there are now; run cptlaw fit {study.word}")


def unfitted_laws(study: Study) -> set[str]:
    """The laws that the last fit left out, since the points do not suffice for them; studies of old do not say."""
    return {*_of_last_fit(study)[1:]}


def _of_last_fit(study: Study) -> list[str]:
    """Digest of its points, and the laws that it left out; of a damaged file they are others than those of now."""
    path = study.folder / study.fitted(POINTS)
    try:
        return read_file(path).decode(errors="replace").split() if path.exists() else []
    except FileError:
        return []


def fits_digest(study: Study) -> str:
    """A text that changes with any fit on disk; empty: there is none."""
    files = sorted((study.folder / study.fitted("fits")).glob("*.json"))
    return hashlib.blake2b(b"".join(map(read_file, files)), digest_size=8).hexdigest() if files else ""


def held_out_file(study: Study) -> Path:
    """Where the predictions of held-out points are."""
    return study.folder / study.fitted("fits") / "held_out.parquet"


def read_fits(study: Study, question: Question) -> dict[str, dict[str, Fit]]:
    """Corpus -> law -> fit, of laws that are fitted to both corpora. Raises StudyError: none, or of another schema."""
    corpora = (question.corpora.general, question.corpora.domain)
    fits: dict[str, dict[str, Fit]] = {corpus: {} for corpus in corpora}
    for name in question.law:
        paths = {corpus: fit_file(study, corpus, name) for corpus in corpora}
        if not all(path.exists() for path in paths.values()):
            continue
        for corpus, path in paths.items():
            try:
                read_record(path, _FitFile)
                fits[corpus][name] = Fit.from_json(read_text(path))
            except FileError as error:
                raise StudyError(f"{error}; run cptlaw fit {study.word} again") from None
            except PointsError as error:
                raise StudyError(f"{path}: {error}; run cptlaw fit {study.word} again") from None
    if not fits[corpora[0]]:
        raise MissingError(fit_file(study, corpora[0], next(iter(question.law))), "fit", study.folder)
    return fits


def back_test(study: Study, question: Question, points: pd.DataFrame, schedules: Schedules) -> pd.DataFrame:
    """Fit each law to a part of the points and ask it for the rest, each of SPLITS in turn; writes held_out.parquet.

    Only points that every law's section admits are judged. Returns a row a held-out point: law, corpus, split, run,
    step, predicted, measured, relative_error.
    """
    sections = question.law.values()
    least_step = max((law.from_step for law in sections), default=0)
    shared = LawConfig(least_step, max((law.min_ratio for law in sections), default=0.0))

    def test_one(of: tuple[str, tuple[str, ...], str]) -> pd.DataFrame | None:
        split, together, name = of
        own = pd.concat([points_for(points, corpus, question, name) for corpus in together], ignore_index=True)
        shared_points = pd.concat([selected(points, corpus, shared) for corpus in together], ignore_index=True)
        try:
            split_folds = shared_folds(own, shared_points, split, together[-1])
            unknown = open_columns(question, name)
            common = LAWS[name].shared
            law = law_on(question, together[-1], name)
            rows = held_out(own, law, split_folds, schedules, shared=common, unknown=unknown, few=True)
        except PointsError:
            return None
        keys = ["run", "step", "corpus"]
        judged = pd.MultiIndex.from_frame(shared_points[keys])
        rows = rows[pd.MultiIndex.from_frame(rows[keys]).isin(judged)]
        columns = ["run", "step", "corpus", "predicted", "measured", "relative_error"]
        in_order = pd.concat([rows.loc[rows["corpus"] == corpus, columns] for corpus in together])
        return in_order.assign(law=name, split=split)

    corpora = (question.corpora.general, question.corpora.domain)
    asked = [(split, *of) for split in SPLITS for of in fitted_together(question, corpora)]
    parts = [table for table in over_cores(test_one, asked) if table is not None]
    tested = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*HELD_OUT])
    held_out_file(study).parent.mkdir(parents=True, exist_ok=True)
    write_whole(held_out_file(study), tested.to_parquet(index=False, write_page_checksum=True))
    return tested


def keep_errors(study: Study, fits: Mapping[str, Mapping[str, Fit]], tested: pd.DataFrame) -> None:
    """Write into the file of each fit what the back test missed by, so that its intervals know it in Python too."""
    for corpus, of_law in fits.items():
        for name, fitted in of_law.items():
            known = dataclasses.replace(fitted, held_out=held_out_errors(tested, corpus, {name: 1.0}))
            write_whole(fit_file(study, corpus, name), known.to_json() + "\n")


def shared_folds(points: pd.DataFrame, shared: pd.DataFrame, split: str, corpus: str = "") -> list[Fold]:
    """The folds of a law's points that hold out what `fitting.folds`, which may raise, names among those of all laws.

    Where the points are on several corpora, those of `corpus` are parted, and the others alike, by run and step.
    """
    own, of_all = (table[table["corpus"] == corpus] if corpus else table for table in (points, shared))
    if split != "ratio":
        parted = folds(own, split)
    else:
        # A law that is fitted from a higher ratio on would otherwise have other ratios held out.
        judged = [(fold.label, own["r"].isin(of_all["r"][fold.judged]).to_numpy()) for fold in folds(of_all, split)]
        parted = [Fold(label, ~mask, mask) for label, mask in judged]
    if len(own) == len(points):
        return parted
    places = pd.MultiIndex.from_frame(points[["run", "step"]])
    of_corpus = pd.MultiIndex.from_frame(own[["run", "step"]])
    return [Fold(one.label, *(places.isin(of_corpus[mask]) for mask in (one.fitted, one.judged))) for one in parted]


def trust(tested: pd.DataFrame) -> list[str]:
    """Which law errs least in the back test of what, a line for each corpus and split (`fitting.advise`)."""
    folds = tested.assign(by=tested["split"], row=tested["step"])
    return [f"{corpus}, {line}" for corpus, rows in folds.groupby("corpus", sort=False) for line in advise(rows)]


def read_back_test(study: Study) -> pd.DataFrame:
    """The predictions of held-out points that `back_test` wrote. Raises StudyError: missing or damaged."""
    path = held_out_file(study)
    try:
        table, _ = read_parquet(path, ("run", *HELD_OUT[-3:]))
    except FileNotFoundError:
        raise MissingError(path, "fit", study.folder) from None
    except FileError as error:
        raise StudyError(f"{error}; run cptlaw fit {study.word} again") from None
    if lacking := [name for name in HELD_OUT if name not in table]:
        raise StudyError(f"{path}: no column {', '.join(lacking)}; run cptlaw fit {study.word} again")
    return table


def weights(tested: pd.DataFrame, corpus: str, kind: str, horizon: float = 1.0) -> dict[str, float]:
    """Law -> its weight in the average of the laws on a corpus, for a kind of extrapolation; empty without a test.

    At `horizon` times the fitted tokens only the laws that see so far count (`counted_at`).
    """
    tables = _common_errors_of(tested, corpus)
    errors = tables.get(weighing_split(tested, corpus, kind), pd.DataFrame())
    known = {str(law): errors[law].to_numpy() for law in errors}
    return law_weights(known, counted_at(known, horizon), horizon) if len(errors) else {}


def weighing_split(tested: pd.DataFrame, corpus: str, kind: str) -> str:
    """The split by whose errors laws are weighed on a corpus for a kind of extrapolation; empty: none was tested."""
    tables = _common_errors_of(tested, corpus)
    return next((split for split in NEXT[kind] if split in tables), "")


def horizon_weights(
    fits: Mapping[str, Mapping[str, Fit]], tested: pd.DataFrame, N: float, D: float
) -> dict[str, dict[str, float]]:
    """Corpus -> law -> its weight in the average that answers for a run of N and D, billions, by its own horizon."""
    spreads = {corpus: _widest(of_law, N, D) for corpus, of_law in fits.items()}
    return {corpus: weights(tested, corpus, of.kind(N, D), of.horizon(N, D)) for corpus, of in spreads.items()}


def _widest(fits: Mapping[str, Fit], N: float, D: float) -> Spread:
    """The spread of the law whose points reach farthest: another may leave out runs of a small ratio."""
    return min((fitted.spread for fitted in fits.values()), key=lambda spread: spread.horizon(N, D))


def with_average(
    fits: Mapping[str, Mapping[str, Fit]], weights: Mapping[str, Mapping[str, float]], tested: pd.DataFrame
) -> dict[str, dict[str, Fit | LawAverage]]:
    """The fits of each corpus, and where there are weights, each of a law that is fitted, their average."""
    made: dict[str, dict[str, Fit | LawAverage]] = {corpus: {**of_corpus} for corpus, of_corpus in fits.items()}
    for corpus, of_law in weights.items():
        if of_law:
            made[corpus][AVERAGE] = _average(fits[corpus], of_law, tested, corpus)
    return made


def _average(fits: Mapping[str, Fit], weight: Mapping[str, float], tested: pd.DataFrame, corpus: str) -> LawAverage:
    return LawAverage(
        {law: fits[law] for law in weight},
        weight,
        held_out=held_out_errors(tested, corpus, weight),
        in_common={split: errors_in_common(missed, of) for split, missed, of in _weighed(tested, corpus, weight)},
    )


def held_out_errors(tested: pd.DataFrame, corpus: str, weights: Mapping[str, float]) -> dict[str, float]:
    """Split -> root mean square of the log errors of the weighted laws, of the splits that most laws were tested on."""
    return {
        split: float(np.sqrt(np.mean((errors @ of) ** 2))) for split, errors, of in _weighed(tested, corpus, weights)
    }


def _weighed(
    tested: pd.DataFrame, corpus: str, weights: Mapping[str, float]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Split, log errors (n, laws) of points that all these laws predicted, and their weights (laws,)."""
    for split, errors in (_common_errors_of(tested, corpus, *weights) if weights else {}).items():
        yield split, errors.to_numpy(), np.array([weights[str(law)] for law in errors])


_COMMON: dict[int, dict[tuple[str, ...], dict[str, pd.DataFrame]]] = {}
"""Table of predictions that is in memory -> corpus and laws -> errors in common: a report asks hundreds of times."""


def _common_errors_of(tested: pd.DataFrame, *of: str) -> dict[str, pd.DataFrame]:
    """`_common_errors` of a corpus and laws, or of all laws; computed once, so the table must not change afterwards."""
    if id(tested) not in _COMMON:
        _COMMON[id(tested)] = {}
        weakref.finalize(tested, _COMMON.pop, id(tested))
    known, (corpus, *laws) = _COMMON[id(tested)], of
    if of not in known:
        rows = tested[tested["corpus"] == corpus]
        known[of] = _common_errors(rows[rows["law"].isin(laws)] if laws else rows)
    return known[of]


def _common_errors(tested: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split -> log errors of the points that all laws predicted, of the splits that most laws were tested on."""
    if tested.empty:
        return {}
    predicted = np.maximum(tested["predicted"].to_numpy(float), LEAST_LOSS)
    log_error = np.log(tested["measured"].to_numpy(float) / predicted)
    tables = {
        str(split): rows.pivot(index=["run", "step"], columns="law", values="log_error").dropna()
        for split, rows in tested.assign(log_error=log_error).groupby("split")
    }
    tables = {split: table for split, table in tables.items() if len(table)}
    most = max((len(table.columns) for table in tables.values()), default=0)
    return {split: table for split, table in tables.items() if len(table.columns) == most}
