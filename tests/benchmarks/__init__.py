"""What is timed: `python -m tests.benchmarks [NAME ...]`; each module has measure(), which returns rows."""

from typing import Any

Row = dict[str, Any]
"""name, ours, peer, ratio, unit, meaning."""


def row(
    name: str, ours: float, unit: str, meaning: str, peer: float | None = None, lower_is_better: bool = False
) -> Row:
    """A row of the benchmarks' table; ratio: above 1 where ours is better than the peer, None without a peer."""
    ratio = None if peer is None else peer / ours if lower_is_better else ours / peer
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit, "meaning": meaning}
