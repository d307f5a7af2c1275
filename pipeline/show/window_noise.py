"""How far measured losses are from those on other text of a corpus."""

import math

from pipeline.plan.validation_noise import GENERAL
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED


def windows_line(context: Context) -> str:
    """On how few windows the losses of a study are means, and what that may change; empty where points do not say."""
    question = context.question
    if not (context.study.folder / "points.parquet").exists():
        return ""
    errors = context.points.groupby("corpus")["loss_stderr"].mean()
    off = [f"{errors[corpus]:.2g} on {corpus}" for corpus in context.corpora if errors.get(corpus, 0.0) > 0]
    if not off or question.rehearsal or question.model.path == IMPORTED:
        return ""
    windows, length = question.validation_windows, question.tokens_per_step() // question.target.global_batch
    change = f", and the change on {context.corpora[0]} about {100 * GENERAL / math.sqrt(windows):.1f} points"
    return (
        f"losses are means over at most {windows} windows of {length} tokens of each corpus: on other text they may be "
        f"off by {' and '.join(off)}{change} (standard errors, in no interval)"
    )
