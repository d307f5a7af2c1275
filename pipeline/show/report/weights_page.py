"""The page of a question about mixture weights."""

from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.show import weights_tables as tables
from pipeline.show.report import weights_figures as figures
from pipeline.show.report.colours import series_colours
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.page import page
from pipeline.show.report.tables import record
from pipeline.study.artifacts import read_if_there
from pipeline.study.collect import read_points
from pipeline.study.number_format import percent, quantity

_NO_COMPARISON = "The weights are not compared yet: run cptlaw confirm {}."


def weights_page(evidence: Evidence) -> str:
    """The page as HTML, from what exists of a study; StudyError without a plan, or where a file is damaged."""
    study = evidence.study
    content, comparison = read_if_there(WeightsRecommendation, study), read_if_there(WeightsConfirmation, study)
    better = tables.better_reference(comparison) if comparison else None
    mixture = better.weights if better else content.mixture if content else {}
    ink = series_colours(list(mixture))
    collected = (study.folder / "points.parquet").exists()
    return page(
        "weights.html", (study.folder, "report.html"), evidence.context.question.marked(_headline(content, mixture)),
        _summary(content, comparison, study.word),
        parts=[(f"{percent(weight)} {domain}", weight, ink[domain]) for domain, weight in mixture.items()],
        content=content,
        by_method=content and figures.weights_by_method(content),
        weights=content and tables.weights_table(content),
        by_scale=content and figures.weights_by_scale(content),
        curves=content and figures.domain_curves(content),
        by_step=content and figures.weights_by_step(content),
        lines=tables.notes(content) if content else [],
        comparison=comparison,
        not_compared=_NO_COMPARISON.format(study.word),
        losses=comparison and figures.losses_by_method(comparison),
        compared=[*tables.comparison_tables(comparison), tables.domain_losses_table(comparison)] if comparison else [],
        training=figures.confirmation_curves(comparison, read_points(study)) if comparison and collected else None,
        **record(evidence),
    )  # fmt: skip


def _headline(content: WeightsRecommendation | None, mixture: dict[str, float]) -> str:
    if content is None:
        return "no recommendation of mixture weights yet"
    phase = "pre-train" if content.goal.phase == "pretrain" else "continue pre-training of"
    parts = [f"{percent(weight)} {domain}" for domain, weight in sorted(mixture.items(), key=lambda item: -item[1])]
    return f"{phase} {content.target.model} on {', '.join(parts)}"


def _summary(content: WeightsRecommendation | None, comparison: WeightsConfirmation | None, word: str) -> str:
    missing = [] if comparison else [_NO_COMPARISON.format(word)]
    if content is None:
        return " ".join([f"There is no recommendation yet: run cptlaw recommend {word}.", *missing])
    line = tables.reference_warning(comparison) if comparison else ""
    sentences = [f"{line}, as above."] if line else [f"These weights are {content.method}'s."]
    sentences.append(f"For {quantity(content.target.tokens)} tokens ({content.target.steps} steps).")
    if comparison is not None and not line:
        ranked, row = comparison.ranked, comparison.recommended
        if row and row.difference is not None:
            above = f"{row.above_best:.2%} above the lowest, {ranked[0].method}'s"
            best = f"the lowest of {len(ranked)} methods" if row is ranked[0] else above
            sentences.append(
                f"Measured with {comparison.seeds} seeds, their mean {comparison.average} over the domains is "
                f"{row.value:.4f}, {tables.difference(row)} beside {comparison.reference} and {best}."
            )
    return " ".join([*sentences, *missing])
