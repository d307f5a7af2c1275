"""The law of several corpora at once, with shared parameters."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fitting.laws.law import Cone, Law, Parameter, Slopes

GROUP = "group"
"""Column of the joint points: the number of each point's corpus."""


def joint_law(law: Law, shared: tuple[str, ...], codes: list[str]) -> Law:
    """The law of several corpora at once: a block of columns a corpus, by the column `GROUP`.

    Parameters in `shared` keep their names; the others are called `name[code]`.
    """
    count, tied = len(codes), law.cone or Cone(lambda psi, constants: np.eye(len(law.linear)))
    linear, linear_at = _numbered(law.linear, shared, codes)
    nonlinear, nonlinear_at = _numbered(law.nonlinear, shared, codes)

    known: list[np.ndarray] = []  # the last column of groups, and the rows of each: a fit asks thousands of times

    def parts(x):
        if not known or known[0] is not x[GROUP]:
            known[:] = [x[GROUP], *(np.flatnonzero(x[GROUP] == g) for g in range(count))]
        for g, rows in enumerate(known[1:]):
            yield g, rows, {name: values[rows] for name, values in x.items()}

    def basis(x, psi) -> np.ndarray:
        matrix = np.zeros((len(x[GROUP]), len(linear)))
        for g, rows, part in parts(x):
            matrix[np.ix_(rows, linear_at[g])] = law.basis(part, psi[nonlinear_at[g]])
        return matrix

    def offset(x, psi) -> np.ndarray:
        values = np.zeros(len(x[GROUP]))
        for g, rows, part in parts(x):
            values[rows] = law.offset(part, psi[nonlinear_at[g]])
        return values

    def slopes(x, psi, basis) -> Slopes:
        joint: Slopes = {}
        assert law.slopes is not None
        for g, rows, part in parts(x):
            slopes_of_part = law.slopes(part, psi[nonlinear_at[g]], basis[np.ix_(rows, linear_at[g])])
            for (k, j), slope in slopes_of_part.items():
                key = int(linear_at[g][k]), j if isinstance(j, str) else int(nonlinear_at[g][j])
                joint.setdefault(key, np.zeros(len(x[GROUP])))[rows] = slope
        return joint

    def constants(x) -> dict[str, float]:
        each = [part for _, _, part in parts(x)] if GROUP in x else [x] * count
        pairs = zip(codes, map(tied.constants, each), strict=True)
        return {f"{name}[{code}]": value for code, one in pairs for name, value in one.items()}

    def cone(psi, constants) -> np.ndarray:
        blocks = []
        for g, code in enumerate(codes):
            edges = tied.edges(psi[nonlinear_at[g]], constants_of(constants, code))
            block = np.zeros((len(linear), edges.shape[1]))
            block[linear_at[g]] = edges
            blocks.append(block)
        return np.hstack(blocks)

    def amplitudes(psi) -> np.ndarray:
        sizes = np.ones(len(linear))
        for g in range(count):
            assert law.solving.amplitudes is not None
            sizes[linear_at[g]] = law.solving.amplitudes(psi[nonlinear_at[g]])
        return sizes

    return replace(
        law,
        parameters=(*linear, *nonlinear),
        columns=(*law.columns, GROUP),
        basis=basis,
        offset=offset,
        slopes=slopes if law.slopes is not None else None,
        cone=Cone(cone, constants=constants) if law.cone is not None else None,
        solving=replace(law.solving, amplitudes=amplitudes if law.solving.amplitudes is not None else None),
        printed=None,
        at_once=False,
    )


def constants_of(constants: Mapping[str, float], code: str) -> dict[str, float]:
    """The constants of one corpus, by the names that its law has for them, and those that all have in common."""
    own = {name: v for name, v in constants.items() if name.endswith(f"[{code}]") or "[" not in name}
    return {name.removesuffix(f"[{code}]"): v for name, v in own.items()}


def _numbered(parameters: tuple[Parameter, ...], shared, codes) -> tuple[list[Parameter], list[np.ndarray]]:
    """All parameters of the joint law, and where those of each corpus are among them."""
    joint: list[Parameter] = []
    at: list[list[int]] = [[] for _ in codes]
    for p in parameters:
        copies = [p] if p.name in shared else [replace(p, name=f"{p.name}[{code}]") for code in codes]
        for g in range(len(codes)):
            at[g].append(len(joint) + (g if len(copies) > 1 else 0))
        joint += copies
    return joint, [np.array(places, dtype=int) for places in at]
