"""Numbers that an artifact may hold; another is refused as its file is read."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Interval, Predicate


def sums_to_1(ratios: Mapping[str, float]) -> bool:
    """Whether ratios of training tokens are a mixture."""
    return abs(sum(ratios.values()) - 1) < 1e-3


Number = Annotated[float, Interval(gt=-1e300, lt=1e300)]
"""A finite number."""
Positive = Annotated[float, Interval(gt=0, lt=1e300)]
"""A finite number above 0."""
Ratio = Annotated[float, Interval(ge=0, le=1)]
"""A ratio of training tokens."""
Mixture = Annotated[dict[str, Ratio], Predicate(sums_to_1)]
"""Corpus -> ratio of the training tokens."""
LearningRate = Annotated[float, Interval(gt=0, le=10)]
"""A peak learning rate that a run is trained with."""
Steps = Annotated[int, Interval(ge=1, le=10**9)]
"""Length of a run."""
