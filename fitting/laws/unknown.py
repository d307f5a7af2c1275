"""A column that nobody knows becomes a parameter: S1 of the pre-training of an open model, say."""

from dataclasses import replace

import numpy as np

from fitting.laws.law import Columns, Law, Parameter

UNKNOWN = {
    "s1_pretrain": Parameter(
        "s1_pretrain", "sum of learning rates", 1e-4, 1e6, linear=False, start=(0.1, 1e3), scale="log"
    ),
    "rho": Parameter("rho", "share", 1e-6, 1.0, linear=False, start=(1e-3, 1.0), scale="log"),
}
"""Columns that may be fitted as one number for all points."""


def with_unknown(law: Law, name: str) -> Law:
    """The law with a column of `UNKNOWN` as its last nonlinear parameter."""

    def filled(x: Columns, psi: np.ndarray) -> dict[str, np.ndarray]:
        return {**x, name: np.full(len(next(iter(x.values()))), psi[-1])}

    return replace(
        law,
        parameters=(*law.parameters, UNKNOWN[name]),
        columns=tuple(column for column in law.columns if column != name),
        varies={column: parameter for column, parameter in law.varies.items() if column != name},
        positive=tuple(column for column in law.positive if column != name),
        basis=lambda x, psi: law.basis(filled(x, psi), psi[:-1]),
        offset=lambda x, psi: law.offset(filled(x, psi), psi[:-1]),
        slopes=None,
    )
