"""Which points of a study a law is fitted to, and as which law."""

from collections.abc import Mapping

import pandas as pd

from fitting import LAWS
from pipeline.question.schema import LawConfig, Question

EARLY = 1 / 8
"""Fraction of a pre-training whose points are not fitted: laws of both phases do not hold for its first steps."""


def open_columns(question: Question, law: str) -> tuple[str, ...]:
    """Columns of a law that are fitted as a parameter: rho of a model whose pre-training text is not known."""
    return ("rho",) if question.model.path and "rho" in LAWS[law].columns else ()


def selected(points: pd.DataFrame, corpus: str, law: LawConfig) -> pd.DataFrame:
    """The points that a law is fitted to: of the corpus, of runs planned for fitting, as the law's section says."""
    own = _for_the_fit(points, corpus)
    return own[(own["step"] >= first_step(points, corpus, law)) & (own["r"] >= law.min_ratio)]


def first_step(points: pd.DataFrame, corpus: str, law: LawConfig) -> int:
    """The step from which points are fitted: as the law's section says, and at most a quarter of the longest run.

    Where several studies count it is that of the one whose runs are shortest.
    """
    own = _for_the_fit(points, corpus)
    longest = own.groupby("study")["step"].max().min() if "study" in own else own["step"].max()
    return max(min(law.from_step, int(longest) // 4) if len(own) else 0, 1)


def left_out(points: pd.DataFrame, corpus: str, question: Question, law: str) -> str:
    """Why a law reads fewer points of a corpus than another law of the question, in words; empty: it does not."""
    first = {name: first_step(points, corpus, section) for name, section in question.law.items()}
    section, own = question.law[law], _for_the_fit(points, corpus)
    why = [f"before step {first[law]}"] if first[law] > min(first.values()) else []
    why += [f"of runs below {section.min_ratio:.0%} {corpus}"] if (own["r"] < section.min_ratio).any() else []
    return f"without those {' and '.join(why)}" if why else ""


def _for_the_fit(points: pd.DataFrame, corpus: str) -> pd.DataFrame:
    points = first_mixture(points)
    return points[(points["role"] == "fit") & (points["corpus"] == corpus)]


def points_for(points: pd.DataFrame, corpus: str, question: Question, law: str) -> pd.DataFrame:
    """The points that a law of the question is fitted to on a corpus.

    A law of pre-training and CPT as one curve also reads the pre-training, of the target's model alone unless it knows
    sizes.
    """
    if "s2_pretrain" not in LAWS[law].columns:
        return selected(points, corpus, question.law[law])
    own = points if "N" in LAWS[law].columns else points[points["model"] == question.model.name]
    past = own[(own["phase"] == "pretrain") & (own["corpus"] == corpus)]
    past = past[past["step"] >= EARLY * past.groupby("run")["step"].transform("max")]
    # Splits by tokens part continual runs; no such law reads D.
    return pd.concat([past.assign(D=0.0), selected(own, corpus, question.law[law])], ignore_index=True)


def law_on(question: Question, corpus: str, law: str) -> str:
    """The law that is fitted to a corpus where a study has `law`: eq. 8 differs between the old and the new corpus."""
    return LAWS[law].on_domain or law if corpus == question.corpora.domain else law


def are_all_fitted(fit_points: Mapping[str, Mapping[str, int]], points: pd.DataFrame, question: Question) -> bool:
    """Whether fits (corpus -> law -> number of points) read all points that there are now; by counts, not by clocks."""
    return all(
        law in question.law and count == len(points_for(points, corpus, question, law))
        for corpus, of_law in fit_points.items()
        for law, count in of_law.items()
    )


def points_digest(points: pd.DataFrame) -> str:
    """A text that changes with any point of a run for the fit, whatever their order."""
    rows = first_mixture(points[points["role"] == "fit"])[["run", "corpus", "step", "loss"]]
    return f"{len(rows)}-{int(pd.util.hash_pandas_object(rows, index=False).sum()):016x}"


def first_mixture(points: pd.DataFrame) -> pd.DataFrame:
    """The points before their run's mixture has changed, since laws know runs of one mixture."""
    return points[points["mixture_phase"] == 1] if "mixture_phase" in points else points
