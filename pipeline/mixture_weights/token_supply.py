"""What text there is of each domain, and weights that keep within it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pipeline.mixture_weights.setting import Setting


def target_tokens(setting: Setting) -> int:
    """Tokens of a run of weights.target steps."""
    return setting.question.weights.target * _a_step(setting)


def caps(setting: Setting) -> dict[str, float]:
    """Domain -> tokens that a run may read of it: its own, weights.passes times."""
    length = setting.phase.sequence_length or setting.question.sequence_length
    return {
        domain: setting.question.weights.passes
        * ((setting.manifest.corpora[domain].tokens["train"] - 1) // length * length)
        for domain in setting.domains
    }


def largest_shares(setting: Setting, steps: int) -> dict[str, float]:
    """Domain -> the largest share, at most 1, at which a run of so many steps finds text enough."""
    tokens = steps * _a_step(setting)
    # Shares are rounded before they are run, and the largest takes what that leaves.
    return {
        domain: 1.0 if have >= tokens else max(0.0, math.floor(1000 * have / tokens - 0.5) / 1000)
        for domain, have in caps(setting).items()
    }


def within(weights: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """Weights of which none is above its largest share; what that leaves goes to the others in their proportions.

    Largest shares that sum to less than 1 bind nobody: there is not text enough for any weights.

    >>> within({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.25, "b": 0.4, "c": 1.0})
    {'a': 0.25, 'b': 0.4, 'c': 0.35}
    """
    held: dict[str, float] = {}
    while sum(most.values()) >= 1:
        free = {domain: weight for domain, weight in weights.items() if domain not in held}
        scale = (1 - sum(held.values())) / sum(free.values())
        over = {domain: most[domain] for domain, weight in free.items() if weight * scale > most[domain]}
        if not over:
            # Untouched where nothing is held: no sum is exactly 1.
            return {domain: held.get(domain, weight * scale if held else weight) for domain, weight in weights.items()}
        held |= over
    return dict(weights)


def _a_step(setting: Setting) -> int:
    return setting.phase.global_batch * (setting.phase.sequence_length or setting.question.sequence_length)
