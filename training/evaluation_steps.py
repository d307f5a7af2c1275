"""The steps at which a run is evaluated, as a pure function of a policy and the run's length."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from training.keys import MOST_STEPS, Seed, between

POLICIES = ("dense", "sparse", "sectional", "decay", "explicit")


# Not frozen: OmegaConf would make it read-only in a question.
@dataclass(unsafe_hash=True)
class EvaluationPolicy:
    """At which steps to evaluate: methods M1 to M4 of the D-CPT law, appendix I.1, or a list.

    >>> evaluation_steps(EvaluationPolicy("sparse", every=10), 120)
    [0, 50, 100, 120]
    """

    policy: str = "dense"
    """dense (M1): every `every` steps. sparse (M2): every 5 x `every`. sectional (M3): every 4 x `every` in the first
    60% of the steps and every 8 x `every` after. decay (M4): a thinning subset of the dense grid. explicit: `steps`."""
    every: int = 1000
    """Spacing of the dense grid, steps, 1 to 10,000,000."""
    decay: Annotated[float, between(0, 1000)] = 0.02
    """Policy decay: point x of the dense grid (1, 2, ...) is kept with density exp(-decay x); 0 keeps all."""
    bernoulli: bool = False
    """Policy decay: true draws each x with that probability; false takes x where the running sum of the densities
    passes a whole number."""
    seed: Seed = 0
    """Policy decay with bernoulli: seed of the draw. A longer run repeats the draws of a shorter one."""
    steps: tuple[int, ...] = ()
    """Policy explicit: the steps in any order, none beyond the last of the run."""

    def __post_init__(self) -> None:
        # OmegaConf and JSON have lists.
        self.steps = tuple(self.steps)


def evaluation_steps(policy: EvaluationPolicy, steps: int) -> list[int]:
    """The evaluation steps in increasing order, with step 0 (before training) and the last step.

    Args:
        policy: which steps.
        steps: length of the run, 0 or more.

    Raises:
        ValueError: an invalid setting; one line with the key, its value and what is allowed.

    >>> len(evaluation_steps(EvaluationPolicy("decay", every=1000, decay=0.02), 200_000))
    50
    """
    if not 0 <= steps <= MOST_STEPS:
        raise ValueError(f"steps: {steps!r} is not a number of steps; allowed: 0 to {MOST_STEPS:,}")
    if policy.policy not in POLICIES:
        raise ValueError(f"evaluation.policy: {policy.policy!r} is not a policy; allowed: {', '.join(POLICIES)}")
    if not 1 <= policy.every <= MOST_STEPS:
        raise ValueError(f"evaluation.every: {policy.every!r} is not a spacing; allowed: 1 to {MOST_STEPS:,} steps")
    if policy.policy == "explicit":
        if outside := [step for step in policy.steps if not 0 <= step <= steps]:
            raise ValueError(f"evaluation.steps: {outside[0]!r} is not in the run; allowed: 0 to {steps}")
        taken = [int(step) for step in policy.steps]
    elif policy.policy == "decay":
        if not 0.0 <= policy.decay < float("inf"):
            raise ValueError(f"evaluation.decay: {policy.decay!r} is not a rate of decay; allowed: 0 or more")
        grid = np.arange(1, steps // policy.every + 1)
        density = np.exp(-policy.decay * grid)
        if policy.bernoulli:
            kept = np.random.Generator(np.random.PCG64(policy.seed)).random(grid.size) < density
        else:
            kept = np.diff(np.floor(np.cumsum(density)), prepend=0.0) > 0
        taken = (grid[kept] * policy.every).tolist()
    elif policy.policy == "sectional":
        # In integers, so that the border is the same step on every machine.
        dense = range(4 * policy.every, steps * 6 // 10 + 1, 4 * policy.every)
        taken = [*dense, *range((dense[-1] if dense else 0) + 8 * policy.every, steps + 1, 8 * policy.every)]
    else:
        spacing = policy.every * (5 if policy.policy == "sparse" else 1)
        taken = list(range(spacing, steps + 1, spacing))
    return sorted({0, *taken, steps})
