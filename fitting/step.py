"""One step of a quadratic model within bounds."""

import numpy as np


def bounded_step(hessian: np.ndarray, gradient: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray | None:
    """The minimiser of the quadratic model in down <= step <= up, but for releasing a bound once it is held.

    None where the model has none. Clipping an unbounded step instead would zigzag wherever a bound is active:
    coefficients are strongly correlated.
    """
    diagonal = np.diag(hessian)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    hessian = hessian / scale / scale[:, None]
    hessian[np.diag_indices(len(scale))] += 1e-12
    gradient, down, up = gradient / scale, down * scale, up * scale
    step = np.zeros(len(gradient))
    held = (down >= 0) & (gradient > 0) | (up <= 0) & (gradient < 0)
    while not held.all():
        free = np.flatnonzero(~held)
        rest = gradient[free] + hessian[free] @ step
        rest -= hessian[free][:, free] @ step[free]
        part = hessian[free][:, free]
        try:
            np.linalg.cholesky(part)
        except np.linalg.LinAlgError:
            return None
        step[free] = -np.linalg.solve(part, rest)
        outside = ~held & ((step < down) | (step > up))
        if not outside.any():
            break
        step = np.minimum(np.maximum(step, down), up)
        held |= outside
    return step / scale
