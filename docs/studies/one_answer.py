"""How far the predictions of one fit lie apart over first guesses and processors, on points that no fit saw.

116 folds: five forms of the D-CPT law on the twelve series of dcpt-six-small, each with one size left out (as tables 2,
16 and 17 have it); the laws that a recommendation compares, on the runs of usages-small by ratio, tokens, size and
size and tokens; Pythia-70M on Pile and Python by pairs of ratios.

    python -m docs.studies.one_answer                    # 10 sets of first guesses x 3 kernels
    python -m docs.studies.one_answer FILE SETS EVERY    # this process's kernel alone, each EVERY-th fold
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pandas as pd

import fitting
from docs.studies import law_errors
from fitting.parallel import over_cores

WIDEST = "SkylakeX" if "avx512f" in Path("/proc/cpuinfo").read_text() else "Sandybridge"
"""Kernels with AVX512 end a process with SIGILL on a processor without it; Sandybridge's have no FMA."""
KERNELS = ("Haswell", "Zen", WIDEST)
FORMS = ("dcpt-l1", "dcpt-l2", "dcpt", "dcpt-l4", "dcpt-l5", "dcpt-free")
SETS = 10

Part = tuple[str, str, pd.DataFrame, pd.DataFrame]
"""Name, law, points that are fitted, points that are judged."""


def parts() -> list[Part]:
    """Every fold, in order."""
    return [*six_domains(), *quickstart(), *pile_python()]


def six_domains() -> Iterator[Part]:
    """A size left out, in turn, of each form of the law on each domain and corpus."""
    study = law_errors.six_domains(from_step=40)
    which = cycle(range(3))
    for form, domain, corpus in product(FORMS, law_errors.DOMAINS, ("G", "D")):
        series = study.fitted(domain, corpus)
        fold = fitting.folds(series, "each-size")[next(which)]
        yield f"{form} {domain} {corpus} {fold.label}", form, series[fold.fitted], series[fold.judged]


def quickstart() -> Iterator[Part]:
    """The runs of a recommendation, by each direction of extrapolation."""
    points = law_errors.kept_points("usages-small")
    splits, laws = ("ratio", "tokens", "size", "size-and-tokens"), ("dcpt", "transfer-anchored", "transfer-scaled")
    for (corpus, series), law, split in product(points.groupby("corpus"), laws, splits):
        for fold in fitting.folds(series, split):
            yield f"{law} {corpus} {fold.label}", law, series[fold.fitted], series[fold.judged]


def pile_python() -> Iterator[Part]:
    """Each pair of the five ratios of Pythia-70M left out, of Pile and of Python; none where the folder is absent."""
    for corpus in ("pile", "python") if (law_errors.DATA / "pile_python_cpt").exists() else ():
        series = law_errors.pile_python(corpus)
        series = series.assign(D=series["step"] / 1e3, run=series["r"])
        for fold in fitting.folds(series, "ratio-pairs"):
            yield f"dcpt pythia {corpus} {fold.label}", "dcpt", series[fold.fitted], series[fold.judged]


def predictions(sets: int, some: list[Part]) -> list[np.ndarray]:
    """The predicted losses (sets, judged points) of each part."""

    def predict(part: Part) -> np.ndarray:
        name, law, fitted, judged = part
        fix = {"alpha": 0.5} if "pythia" in name else None
        fits = (
            fitting.fit(fitted, law, method=fitting.VarPro(first_guesses=number), bootstrap=0, fix=fix)
            for number in range(sets)
        )
        return np.array([fit.predict(judged) for fit in fits])

    return over_cores(predict, some)


def spread(predicted: np.ndarray) -> float:
    """The largest relative distance (sets, n) of a prediction from the median of all."""
    return float(np.abs(predicted / np.median(predicted, axis=0) - 1).max())


def main(file: str = "", sets: str = str(SETS), every: str = "1") -> None:
    """Print how many folds agree over first guesses and kernels; with a file, the spread of some by this one's."""
    if file:
        some = parts()[:: int(every)]
        losses = {part[0]: losses for part, losses in zip(some, predictions(int(sets), some), strict=True)}
        np.savez(file, **losses)
        print(*(f"{spread(predicted):9.2g}  {name}" for name, predicted in losses.items()), sep="\n")
        return
    by_kernel = []
    with tempfile.TemporaryDirectory() as folder:
        for kernel in KERNELS:
            own = str(Path(folder) / f"{kernel}.npz")
            command = [sys.executable, "-m", "docs.studies.one_answer", own, sets, every]
            subprocess.run(command, check=True, env={**os.environ, "OPENBLAS_CORETYPE": kernel})
            by_kernel.append(dict(np.load(own)))
    everything = {name: np.concatenate([one[name] for one in by_kernel]) for name in by_kernel[0]}
    for what, predicted in (("first guesses", by_kernel[0]), ("first guesses and kernels", everything)):
        apart = pd.Series({name: spread(losses) for name, losses in predicted.items()})
        print(f"over {what} {(apart <= 1e-4).sum()} of {len(apart)} folds agree to 1e-4; the worst {apart.max():.2g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
