"""The best change of the mixture at each of `goal.change_at`, and what to say of it."""

from collections.abc import Iterator

from fitting import Fit
from fitting.answers.mixture_change import TYPICAL_ERROR, mixture_change
from pipeline.goals.ratio.answering_laws import AnsweringLaws
from pipeline.question.design import target_steps
from pipeline.question.schema import Question
from pipeline.study.artifacts import RecommendedChange
from pipeline.study.target import find_target

LAW = "transfer-two-mixtures"


def mixture_changes(laws: AnsweringLaws) -> list[RecommendedChange]:
    """The best change at each of `goal.change_at` by `LAW`, which must be fitted; none where no mixture is tolerated.

    Raises:
        PointsError: the law cannot be asked this.
    """
    question, (general, domain) = laws.question, laws.corpora
    target = find_target(question, laws.points)
    of_general, of_domain = (laws.fits[corpus][LAW] for corpus in laws.corpora)
    assert isinstance(of_general, Fit)
    assert isinstance(of_domain, Fit)
    changes = []
    for at in question.goal.change_at:
        found = mixture_change(
            of_general, of_domain, target.summed_rate(at), question.goal.tolerance, target.before[general],
            general_at=target.columns(general, of_general),
            domain_at=target.columns(domain, of_domain),
        )  # fmt: skip
        if found is not None:
            predicted = {general: found.general, domain: found.domain}
            better = found.difference < -TYPICAL_ERROR
            changes.append(RecommendedChange(at, found.before, found.after, predicted, found.difference, better))
    return changes


def change_lines(question: Question, changes: list[RecommendedChange]) -> Iterator[str]:
    """What the changes come to: one mixture, or the run that tests the best of those that are better."""
    if not changes:
        return
    domain, best = question.corpora.domain, min(changes, key=lambda change: change.difference)
    error = f"such differences are missed by {TYPICAL_ERROR:g} nats"
    if not best.better:
        least = f"{-best.difference:.3f} nats at most" if best.before != best.after else "none"
        yield f"keep one mixture: a change lowers the loss on {domain} by {least}; {error} (docs/training.md)"
        return
    words = (
        f"ladder=[{question.model.name}] continual.steps={target_steps(question)} "
        f"'mixture.domain_ratio=[{best.before:.3f}]' "
        f"'continual.phases=[{{share: {best.at:g}}}, {{domain_ratio: {best.after:.3f}}}]'"
    )
    yield (
        f"a change after {best.at:.0%} of the steps, from {best.before:.3f} to {best.after:.3f} {domain}, may lower "
        f"its loss by {-best.difference:.3f} nats; {error}; to test it, train a study of its own with {words}"
    )
