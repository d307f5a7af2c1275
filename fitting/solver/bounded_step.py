"""Steps of quadratic models within bounds."""

import numpy as np
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]


def bounded_step(hessian: np.ndarray, gradient: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray | None:
    """The minimiser of one quadratic model, as `bounded_steps`; None where the model has none."""
    steps, possible = bounded_steps(hessian[None], gradient[None], down[None], up[None])
    return steps[0] if possible[0] else None


def bounded_steps(
    hessians: np.ndarray, gradients: np.ndarray, down: np.ndarray, up: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The minimisers (models, p) of quadratic models in down <= step <= up, and which (models,) of them have one.

    A bound is not released once it is held. Clipping an unbounded step instead would zigzag wherever a bound is active:
    coefficients are strongly correlated.
    """
    models, p = gradients.shape
    diagonal = hessians.diagonal(0, 1, 2)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    hessians = hessians / (scale[:, None] * scale[:, :, None])
    hessians.reshape(models, p * p)[:, :: p + 1] += 1e-12
    gradients, down, up = gradients / scale, down * scale, up * scale
    held = (down >= 0) & (gradients > 0) | (up <= 0) & (gradients < 0)
    steps, possible = np.zeros((models, p)), np.ones(models, dtype=bool)
    for i in np.flatnonzero(~held.any(axis=1)).tolist():
        # numpy's Cholesky and solve do the same and take three times as long over so small a matrix.
        _, found, failed = dposv(hessians[i], gradients[i])
        if failed:
            possible[i] = False
        else:
            steps[i] = -found
    for i in np.flatnonzero((held | (steps < down) | (steps > up)).any(axis=1)):
        step = _held_step(hessians[i], gradients[i], down[i], up[i], held[i])
        possible[i] = step is not None
        steps[i] = 0.0 if step is None else step
    return steps / scale, possible


def _held_step(
    hessian: np.ndarray, gradient: np.ndarray, down: np.ndarray, up: np.ndarray, held: np.ndarray
) -> np.ndarray | None:
    """The minimiser of one quadratic model from which some bounds are held."""
    step = np.zeros(len(gradient))
    while not held.all():
        free = ~held
        part, rest = hessian, gradient
        if held.any():
            part, rest = hessian[free][:, free], gradient[free] + hessian[free][:, held] @ step[held]
        _, found, failed = dposv(part, rest)
        if failed:
            return None
        step[free] = -found
        outside = free & ((step < down) | (step > up))
        if not outside.any():
            break
        step = np.minimum(np.maximum(step, down), up)
        held |= outside
    return step
