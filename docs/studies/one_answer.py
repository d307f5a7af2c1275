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
from docs.studies.law_errors import DATA, DOMAINS, kept_points
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
    for form, domain, corpus in product(FORMS, DOMAINS, ("G", "D")):
        series = study.fitted(domain, corpus)
        fold = fitting.folds(series, "each-size")[next(which)]
        yield f"{form} {domain} {corpus} {fold.label}", form, series[fold.fitted], series[fold.judged]


def quickstart() -> Iterator[Part]:
    """The runs of a recommendation, by each direction of extrapolation."""
    points = kept_points("usages-small")
    splits, laws = ("ratio", "tokens", "size", "size-and-tokens"), ("dcpt", "transfer-anchored", "transfer-scaled")
    for (corpus, series), law, split in product(points.groupby("corpus"), laws, splits):
        for fold in fitting.folds(series, split):
            yield f"{law} {corpus} {fold.label}", law, series[fold.fitted], series[fold.judged]


def pile_python() -> Iterator[Part]:
    """Each pair of the five ratios of Pythia-70M left out, of Pile and of Python; none where the folder is absent."""
    file = DATA / "pile_python_cpt/ct_tidy.csv"
    if not file.exists():
        return
    table = pd.read_csv(file)
    for corpus in ("pile", "python"):
        series = table.assign(r=table[f"r_{corpus}"], loss=table[f"loss_{corpus}"], D=table["step"] / 1e3, N=0.07)
        series["run"] = series["r"]
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


def main() -> None:
    """Print how many folds agree over first guesses, and over them and kernels."""
    by_kernel = []
    with tempfile.TemporaryDirectory() as folder:
        for kernel in KERNELS:
            file = Path(folder) / f"{kernel}.npz"
            command = [sys.executable, "-m", "docs.studies.one_answer", str(file), str(SETS), "1"]
            subprocess.run(command, check=True, env={**os.environ, "OPENBLAS_CORETYPE": kernel})
            by_kernel.append(dict(np.load(file)))
    everything = {name: np.concatenate([one[name] for one in by_kernel]) for name in by_kernel[0]}
    for what, predicted in (("first guesses", by_kernel[0]), ("first guesses and kernels", everything)):
        apart = pd.Series({name: spread(losses) for name, losses in predicted.items()})
        print(f"over {what} {(apart <= 1e-4).sum()} of {len(apart)} folds agree to 1e-4; the worst {apart.max():.2g}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        main()
        sys.exit()
    file, sets, every = sys.argv[1], *map(int, sys.argv[2:])
    everything = parts()[::every]
    results = predictions(sets, everything)
    np.savez(file, **{part[0]: losses for part, losses in zip(everything, results, strict=True)})
    for part, losses in zip(everything, results, strict=True):
        print(f"{spread(losses):9.2g}  {part[0]}", flush=True)
