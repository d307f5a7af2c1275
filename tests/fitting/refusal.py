"""What cannot be used is refused in one line."""

from collections.abc import Callable
from typing import Any

import pytest

from fitting import PointsError


def refused(message: str, call: Callable, *given: Any, **named: Any) -> None:
    """Check that a call raises PointsError with one line that matches."""
    with pytest.raises(PointsError, match=message) as error:
        call(*given, **named)
    assert "\n" not in str(error.value)
