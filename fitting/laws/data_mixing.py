"""Data mixing law: the loss on one corpus from the mixture weights of all.

Weights sum to 1, so that adding a constant to every t is the same as scaling k: the last corpus's t is 0.
"""

from collections.abc import Iterable

import numpy as np

from fitting.laws.law import Columns, Law, Parameter, Slopes

PREFIX = "mixture."


def data_mixing(names: Iterable[str]) -> Law:
    """The law for points with these mixture columns, one a corpus, in this order."""
    columns = tuple(names)

    def basis(x: Columns, psi: np.ndarray) -> np.ndarray:
        power = sum((t * x[name] for t, name in zip(psi, columns, strict=False)), start=np.zeros(len(x[columns[0]])))
        return np.column_stack([np.ones_like(power), np.exp(power)])

    def slopes(x: Columns, psi: np.ndarray, made: np.ndarray) -> Slopes:
        return {(1, j): x[name] * made[:, 1] for j, name in enumerate(columns[:-1])}

    return Law(
        name="data-mixing",
        equation=r"L_i = c_i + k_i \exp\left(\sum_j t_{ij} w_j\right)",
        source="Ye et al. 2024, arXiv:2403.16952",
        parameters=(
            Parameter("c", "nats per token"),
            Parameter("k", "nats per token, at the last corpus alone"),
            *(
                Parameter(
                    f"t.{name.removeprefix(PREFIX)}",
                    "per unit of weight",
                    -50.0,
                    50.0,
                    linear=False,
                    start=(-2.0, 1.0),
                    # So wide that it does not matter which corpus is the last.
                    prior=(-100.0, 100.0),
                )
                for name in columns[:-1]
            ),
        ),
        columns=columns,
        varies={},
        basis=basis,
        slopes=slopes,
        at_once=True,
        for_corpora=data_mixing,
    )


DATA_MIXING = data_mixing((f"{PREFIX}first", f"{PREFIX}second"))
