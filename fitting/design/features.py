"""Random features whose combinations are the smooth functions by which a law may miss the loss."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

COUNT = 96
LENGTH = 0.7
"""Distance over which the misfit changes, in units of the range of a column."""


@dataclass(frozen=True, eq=False)
class Features:
    """Cosines that stand for a Gaussian process with a squared-exponential kernel (Rahimi & Recht 2007).

    `axes`: column -> (whether its logarithm is taken, lowest, range); `frequencies` (d, f), `phases` (f,).
    """

    axes: dict[str, tuple[bool, float, float]]
    frequencies: np.ndarray
    phases: np.ndarray

    @classmethod
    def of(cls, *tables: Mapping[str, np.ndarray]) -> "Features":
        """Features for columns that range as these tables do."""
        axes = {}
        for name in tables[0]:
            values = np.concatenate([table[name] for table in tables])
            log = bool(values.min() > 0 and values.max() > 10 * values.min())
            values = np.log(values) if log else values
            if np.ptp(values) > 0:
                axes[name] = (log, float(values.min()), float(np.ptp(values)))
        rng = np.random.default_rng(0)
        frequencies = rng.standard_normal((len(axes), COUNT)) / LENGTH
        return cls(axes, frequencies, rng.uniform(0, 2 * np.pi, COUNT))

    def __call__(self, x: Mapping[str, np.ndarray]) -> np.ndarray:
        """Features (n, f) of rows; their products are the kernel."""
        columns = [
            ((np.log(np.maximum(x[name], 1e-300)) if log else x[name]) - low) / length
            for name, (log, low, length) in self.axes.items()
        ]
        places = np.array(columns).reshape(len(columns), len(next(iter(x.values())))).T
        return np.sqrt(2 / COUNT) * np.cos(places @ self.frequencies + self.phases)
