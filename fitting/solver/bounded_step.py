"""One step of a quadratic model within bounds."""

import numpy as np
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]


def bounded_step(hessian: np.ndarray, gradient: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray | None:
    """The minimiser of the quadratic model in down <= step <= up, but for releasing a bound once it is held.

    None where the model has none. Clipping an unbounded step instead would zigzag wherever a bound is active:
    coefficients are strongly correlated.
    """
    diagonal = hessian.diagonal()
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    hessian = hessian / (scale * scale[:, None])
    hessian.flat[:: len(scale) + 1] += 1e-12
    gradient, down, up = gradient / scale, down * scale, up * scale
    step = np.zeros(len(gradient))
    held = (down >= 0) & (gradient > 0) | (up <= 0) & (gradient < 0)
    while not held.all():
        free = ~held
        part, rest = hessian, gradient
        if held.any():
            part, rest = hessian[free][:, free], gradient[free] + hessian[free][:, held] @ step[held]
        # numpy's Cholesky and solve do the same and take three times as long over so small a matrix.
        _, found, failed = dposv(part, rest)
        if failed:
            return None
        step[free] = -found
        outside = free & ((step < down) | (step > up))
        if not outside.any():
            break
        step = np.minimum(np.maximum(step, down), up)
        held |= outside
    return step / scale
