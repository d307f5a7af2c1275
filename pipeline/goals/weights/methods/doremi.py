"""DoReMi: a proxy's weights follow its excess loss over a reference; their mean over the steps is proposed.

Xie et al. 2023, arXiv 2305.10429: the reference is trained at the base weights. The proxy, of the same size and length,
reads all domains equally and is trained with group DRO on the excess loss. The next round's reference is trained at the
weights found (iterated DoReMi, section 2), until they no longer change.
"""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

from pipeline.goals.weights.artifacts import Details, Proposal, ProxyPath, ProxyRound
from pipeline.goals.weights.mixtures import Method, Search, exact_weights, limit_weights, proposal_of
from pipeline.study.folder import PlannedRun
from training.domain_weights import LoggedWeights, read_path
from training.spec import Reweighting

SETTLED = 1e-3
"""Largest change of a weight in a round at which the rounds end, as in the paper."""
THIN = 4
"""The report keeps every so many steps of a proxy."""


@dataclasses.dataclass(frozen=True)
class Round:
    """A reference and its proxy for every seed."""

    weights: dict[str, Fraction]
    """Weights of the reference."""
    pairs: list[tuple[PlannedRun, PlannedRun]]
    """(reference, proxy), one a seed."""

    @property
    def runs(self) -> list[PlannedRun]:
        """References before proxies."""
        return [*(reference for reference, _ in self.pairs), *(proxy for _, proxy in self.pairs)]

    def paths(self, search: Search) -> list[list[LoggedWeights]]:
        """The logs of the proxies' weights, one a seed."""
        return [read_path(search.study.runs / proxy.name) for _, proxy in self.pairs]


def proxy_run(search: Search, reference: PlannedRun) -> PlannedRun:
    """The proxy of a reference: the same length, equal parts of all domains, and weights that change in training."""
    asked = search.settings.doremi
    equal = {domain: Fraction(1, len(search.domains)) for domain in search.domains}
    plain = search.run(equal, reference.spec.steps, reference.spec.seed)
    reweighting = Reweighting(reference.spec.hash, asked.step_size, asked.smoothing)
    spec = dataclasses.replace(plain.spec, reweighting=reweighting)
    return dataclasses.replace(plain, name=f"{plain.name[:-9]}-proxy-{spec.hash[:8]}", spec=spec)


def rounds(search: Search) -> Iterator[tuple[Round, dict[str, float] | None]]:
    """The rounds, each with its weights; the first one with open runs is the last, without weights."""
    asked, seed, weights = search.settings, search.question.seed, search.base
    most = search.largest_weights(asked.scales[0])
    for _ in range(asked.rounds):
        references = [search.run(weights, asked.scales[0], seed + number) for number in range(asked.seeds)]
        round_ = Round(weights, [(reference, proxy_run(search, reference)) for reference in references])
        if not all(search.is_done(run) for run in round_.runs):
            yield round_, None
            return
        ends = [path[-1]["mean"] for path in round_.paths(search)]
        mean = {domain: sum(end[domain] for end in ends) / len(ends) for domain in search.domains}
        yield round_, mean
        before, weights = weights, exact_weights(limit_weights(mean, most))
        if _change(before, weights) < SETTLED:
            return


def thinned(path: list[LoggedWeights]) -> ProxyPath:
    """A proxy's weights for a figure, of some 50 steps."""
    lines = path[(len(path) - 1) % THIN :: THIN]
    domains = lines[-1]["weights"]
    return ProxyPath(
        [line["step"] for line in lines],
        weights={domain: [line["weights"][domain] for line in lines] for domain in domains},
        mean={domain: [line["mean"][domain] for line in lines] for domain in domains},
        excess={domain: [line["excess"][domain] for line in lines] for domain in domains},
    )


def _change(before: dict[str, Fraction], after: dict[str, Fraction]) -> float:
    return max(abs(float(after[domain] - before[domain])) for domain in after)


def _runs(search: Search) -> list[PlannedRun]:
    return [run for round_, _ in rounds(search) for run in round_.runs]


def _propose(search: Search) -> list[Proposal]:
    known = [(round_, mean) for round_, mean in rounds(search) if mean is not None]
    last, free = known[-1]
    weights, lines = search.within_text(free)
    if (most := search.settings.rounds) > 1:
        change = _change(last.weights, exact_weights(free))
        ended = "settled" if change < SETTLED else f"not settled: the last one moved a weight by {change:.3f}"
        lines.append(f"{len(known)} of {most} rounds, {ended}")
    details = [
        ProxyRound(
            reference={domain: float(weight) for domain, weight in round_.weights.items()},
            weights=mean,
            paths=[thinned(path) for path in round_.paths(search)],
        )
        for round_, mean in known
    ]
    runs = [run for round_, _ in known for run in round_.runs]
    return [proposal_of("doremi", weights, runs, lines=tuple(lines), details=Details(rounds=details))]


def _count(search: Search) -> tuple[int, int]:
    asked = search.settings
    runs = 2 * asked.rounds * asked.seeds
    return runs, runs * search.run(search.base, asked.scales[0], search.question.seed).spec.tokens


DOREMI = Method(_propose, _runs, _count)
"""Searches at the first of weights.scales, and proposes these weights for the target."""
