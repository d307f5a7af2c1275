"""Of a study of several domains, the points that speak of one."""

from __future__ import annotations

import pandas as pd

from pipeline.question.schema import Question


def of_domain(points: pd.DataFrame, question: Question) -> pd.DataFrame:
    """The points on general and on `corpora.domain`, of runs that read no other domain of `corpora.domains`.

    Runs on general text alone, pre-training too, are every domain's. A study of one domain keeps all its points.
    """
    corpora = question.corpora
    columns = [f"mixture.{domain}" for domain in corpora.domains if domain != corpora.domain]
    if not columns:
        return points
    elsewhere = (points.reindex(columns=columns).fillna(0.0) > 0.0).any(axis=1)
    return points[~elsewhere & points["corpus"].isin([corpora.general, corpora.domain])]
