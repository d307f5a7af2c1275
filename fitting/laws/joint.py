"""The law of several corpora at once, so that they can have parameters in common."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fitting.laws.law import Law, Parameter, Slopes

GROUP = "group"
"""Column of the joint points: the number of each point's corpus."""


def several(law: Law, shared: tuple[str, ...], codes: list[str]) -> Law:
    """The law of several corpora at once: a block of columns a corpus, told apart by the column `GROUP`.

    Parameters in `shared` keep their names; the others are called `name[code]`.
    """
    count = len(codes)
    linear, linear_at = _numbered(law.linear, shared, codes)
    nonlinear, nonlinear_at = _numbered(law.nonlinear, shared, codes)

    def parts(x):
        for g in range(count):
            rows = np.flatnonzero(x[GROUP] == g)
            yield g, rows, {name: values[rows] for name, values in x.items()}

    def basis(x, psi) -> np.ndarray:
        made = np.zeros((len(x[GROUP]), len(linear)))
        for g, rows, part in parts(x):
            made[np.ix_(rows, linear_at[g])] = law.basis(part, psi[nonlinear_at[g]])
        return made

    def offset(x, psi) -> np.ndarray:
        made = np.zeros(len(x[GROUP]))
        for g, rows, part in parts(x):
            made[rows] = law.offset(part, psi[nonlinear_at[g]])
        return made

    def slopes(x, psi, basis) -> Slopes:
        found: Slopes = {}
        assert law.slopes is not None
        for g, rows, part in parts(x):
            own = law.slopes(part, psi[nonlinear_at[g]], basis[np.ix_(rows, linear_at[g])])
            for (k, j), slope in own.items():
                key = int(linear_at[g][k]), int(nonlinear_at[g][j])
                found.setdefault(key, np.zeros(len(x[GROUP])))[rows] = slope
        return found

    def constants(x) -> dict[str, float]:
        each = [part for _, _, part in parts(x)] if GROUP in x else [x] * count
        found = (law.constants(part) for part in each)
        return {f"{name}[{code}]": v for code, own in zip(codes, found, strict=True) for name, v in own.items()}

    def cone(psi, constants) -> np.ndarray:
        assert law.cone is not None
        made = []
        for g, code in enumerate(codes):
            edges = law.cone(psi[nonlinear_at[g]], own_constants(constants, code))
            block = np.zeros((len(linear), edges.shape[1]))
            block[linear_at[g]] = edges
            made.append(block)
        return np.hstack(made)

    return replace(
        law,
        parameters=(*linear, *nonlinear),
        columns=(*law.columns, GROUP),
        basis=basis,
        offset=offset,
        slopes=slopes if law.slopes is not None else None,
        constants=constants,
        cone=cone if law.cone is not None else None,
        turns=None,
        printed=None,
    )


def own_constants(constants: Mapping[str, float], code: str) -> dict[str, float]:
    """The constants of one corpus, by the names that its law has for them."""
    return {name.removesuffix(f"[{code}]"): v for name, v in constants.items() if name.endswith(f"[{code}]")}


def _numbered(parameters: tuple[Parameter, ...], shared, codes) -> tuple[list[Parameter], list[np.ndarray]]:
    """All parameters of the joint law, and where those of each corpus are among them."""
    made: list[Parameter] = []
    at: list[list[int]] = [[] for _ in codes]
    for p in parameters:
        own = [p] if p.name in shared else [replace(p, name=f"{p.name}[{code}]") for code in codes]
        for g in range(len(codes)):
            at[g].append(len(made) + (g if len(own) > 1 else 0))
        made += own
    return made, [np.array(places, dtype=int) for places in at]
