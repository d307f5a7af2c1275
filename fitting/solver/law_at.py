"""A law and its derivatives in the coordinates of the solvers, at one place or at several."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class LawAt:
    """The law at z (q,): basis (n, k), cone (k, m), held (k,), offset (n,) or 0, scaled rows (m, n), size (m,).

    At several places all have one more dimension before these, but for a cone, coefficients held and an offset that are
    the same everywhere. `one`: the same at one place, where that is all that there is.
    """

    z: np.ndarray
    psi: np.ndarray
    basis: np.ndarray
    cone: np.ndarray
    held: np.ndarray
    offset: np.ndarray | float
    rows: np.ndarray
    size: np.ndarray
    one: "LawAt | None" = None

    def loss(self, u: np.ndarray) -> np.ndarray:
        """The loss (..., n) at amounts u (..., m)."""
        return self.offset + (u[..., None, :] @ self.rows)[..., 0, :]

    def take(self, where: np.ndarray | slice) -> "LawAt":
        """The law at some of several places; a slice stands for all."""
        if isinstance(where, slice):
            return self
        cone, held = (v[where] if v.ndim > least else v for v, least in ((self.cone, 2), (self.held, 1)))
        offset = self.offset[where] if isinstance(self.offset, np.ndarray) and self.offset.ndim > 1 else self.offset
        z, psi, basis, rows, size = (v[where] for v in (self.z, self.psi, self.basis, self.rows, self.size))
        return LawAt(z, psi, basis, cone, held, offset, rows, size)

    def as_several(self) -> "LawAt":
        """The law at one place with the dimension of several."""
        z, psi, basis, rows, size = (v[None] for v in (self.z, self.psi, self.basis, self.rows, self.size))
        return LawAt(z, psi, basis, self.cone, self.held, self.offset, rows, size, self)


def together(each: Sequence[LawAt]) -> LawAt:
    """The law at several places from that at each."""
    arrays = {
        name: np.array([getattr(at, name) for at in each]) for name in LawAt.__dataclass_fields__ if name != "one"
    }
    return LawAt(**{**arrays, "offset": arrays["offset"].reshape(len(each), -1)})
