"""Direct data optimization: the loss as a function of the tokens of one domain.

Two curves often fit the same three runs; starts are near the one with the larger b (`mixtures.ddo` has the reason).
"""

from math import inf

import numpy as np

from fitting.laws.law import Columns, Law, Parameter


def _offset(x: Columns, psi: np.ndarray) -> np.ndarray:
    a, b = psi
    return (x["x"] + a) ** -b


DDO = Law(
    name="ddo",
    equation=r"L/L_{base} = (x + a)^{-b} + c",
    source="Kang et al. 2024, arXiv:2407.20177, algorithm 1, scaled as in the authors' code",
    parameters=(
        Parameter("c", "of the base run's loss", low=-inf),
        Parameter(
            "a", "of the domain's tokens in the base run", 1e-6, 1e3, linear=False, start=(1e-3, 10.0), scale="log"
        ),
        Parameter("b", "exponent of x + a", 0.0, 20.0, linear=False, start=(1.0, 3.0)),
    ),
    columns=("x",),
    varies={"x": "b"},
    basis=lambda x, psi: np.ones((len(x["x"]), 1)),
    offset=_offset,
    at_once=True,
)
