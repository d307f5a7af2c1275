"""Our value beside each claim of a paper's text: a function per claim, from the code or from results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pandas as pd

import fitting
from docs.reproduction.book import Book
from docs.reproduction.settings import SETTINGS, Fact, seven, six
from fitting.answers.compute_optimal import closed_form
from training.evaluation_steps import EvaluationPolicy, evaluation_steps

SAME = "A count that follows from what is done; the code does the same."


def first_part(book: Book, claim: str) -> Fact:
    """What k2 of a new domain costs."""
    share = book.number("dcpt-69") / book.number("dcpt-76")
    runs = len(six().ladder) * len(six().mixture.domain_ratio)
    here = f"{share:.2%} of every run of the domain, {share / runs:.2%} if one of {runs} is begun"
    return Fact(here, None, "The text does not say of what it is a percentage; neither reading gives it.")


def size_folds(book: Book, claim: str) -> Fact:
    """Folds of the sizes."""
    return _counted(book, claim, "each-size", "{count} folds, a size each")


def step_folds(book: Book, claim: str) -> Fact:
    """Thirds of the steps."""
    own = _folds("step-thirds")
    shares = {f"{fold.fitted.mean():.3f}" for fold in own}
    return Fact(f"{len(own)} folds, fitted to {'; '.join(sorted(shares))} of the points", shares == {"0.667"}, SAME)


def ratio_folds(book: Book, claim: str) -> Fact:
    """Pairs of ratios."""
    own, shares = _folds("ratio-pairs"), len(six().mixture.domain_ratio)
    pairs = math.comb(shares, 2)
    return Fact(f"{len(own)} folds, {shares - 2} of {shares} ratios fitted", len(own) == pairs == 36, SAME)


def domain_folds(book: Book, claim: str) -> Fact:
    """Pairs of domains."""
    own = _folds("domain-pairs")
    fitted = {_grid()[fold.fitted]["domain"].nunique() for fold in own}
    here = f"{len(own)} folds, {'; '.join(map(str, fitted))} of {len(six().corpora.domains)} domains fitted"
    return Fact(here, len(own) == 15 and fitted == {4}, SAME)


def huber_below(book: Book, claim: str) -> Fact | None:
    """Huber loss of L3, fitted to all points."""
    return _of_l3(book, "huber", lambda values: None, "How the paper sums its Huber loss is not known.")


def r2_above(book: Book, claim: str) -> Fact | None:
    """R2 of L3, fitted to all points."""
    least = book.number(claim)
    return _of_l3(book, "r2", lambda values: bool(min(values) > least), "Mean over the domains, as in table 1.")


def fourth_size(book: Book, claim: str) -> Fact:
    """Mean relative error of a larger size, from the study of the transfer law."""
    own = book.transfer[(book.transfer["law"] == "dcpt") & (book.transfer["question"] == "a larger size")]
    own = own[own["section"] == "held-out"]
    here = ", ".join(f"{row.value:.1%} on {row.series}" for row in own.itertuples() if row.series != "all")
    why = "The paper prints no number. Ours: mean relative error of L3 on a model larger than those fitted"
    return Fact(here, None, f"{why} (docs/transfer-law.md).")


def threshold(book: Book, claim: str) -> Fact:
    """The general loss that the tolerance allows."""
    allowed = (1 + book.number("dcpt-27") / 100) * book.number("dcpt-29")
    return Fact(f"{allowed:.6f}", math.isclose(allowed, book.number(claim), rel_tol=1e-6), "Arithmetic.")


def epsilon(book: Book, claim: str) -> Fact | None:
    """Median eps of L3 over the domains and both corpora."""
    if "epsilon" not in book.measured:
        return None
    value, printed = book.measured["epsilon"], book.number(claim)
    why = "Median over the fits of L3 to each domain and corpus; within a factor of three is near."
    return Fact(f"{value:.3g}", printed / 3 <= value <= 3 * printed, why)


def least_tokens(book: Book, claim: str) -> Fact:
    """Billions of tokens at the first evaluation."""
    value = book.number("dcpt-13") * book.number("dcpt-15") / 1e9
    return Fact(f"{value:.4f}", abs(value - book.number(claim)) < 5e-5, "Their first evaluation, by their batch.")


def starts(book: Book, claim: str) -> Fact:
    """Starts of the printed grid."""
    count = 7**3 * 5 * 3**4 * 2
    return Fact(f"{count:,}", count == book.number(claim), "Arithmetic on the printed grid.")


def usage_3(book: Book, claim: str) -> Fact:
    """Size and tokens for the budget, from the printed a, b and G, in billions."""
    beta, alpha, G = (book.number(f"dcpt-{number}") for number in (63, 64, 65))
    law = {"E": 0.0, "A": G ** (alpha + beta) * beta / alpha, "B": 1.0, "alpha": alpha, "beta": beta}
    found = closed_form(law, book.number("dcpt-60") / 6e18)
    here = f"N {found['N']:.2f}, D {found['D']:.3f}"
    near = min(abs(found[name] / book.number(claim) - 1) for name in ("N", "D")) < 1e-3
    return Fact(here, near, "From the printed a, b and G, with N and D in billions; in other units it does not follow.")


def sampled(method: str) -> Callable[[Book, str], Fact]:
    """Steps that a policy keeps of the paper's runs."""

    def fact(book: Book, claim: str) -> Fact:
        every, last = int(book.number("dcpt-13")), int(book.number("dcpt-76"))
        policy = {"M1": "dense", "M2": "sparse", "M3": "sectional", "M4": "decay"}[method]
        kept = np.array(evaluation_steps(EvaluationPolicy(policy, every, book.number("dcpt-78")), last))
        counted, table = len(kept) - 1, book.csv("dcpt_table13_sampling_methods.csv")
        printed = int(table.loc[table["method"] == method, "n_points"].iloc[0])
        gaps = ", ".join(f"{gap:,}" for gap in dict.fromkeys(np.diff(kept))) if method != "M4" else ""
        here = f"{counted} points" + (f", {gaps} steps apart" if gaps else "")
        # The decay policy keeps a point with a probability: so many more or fewer in two of three draws.
        density = np.exp(-book.number("dcpt-78") * np.arange(1, last // every + 1))
        spread = float(np.sqrt((density * (1 - density)).sum())) if method == "M4" else 0.0
        drawn = f" Theirs is a draw of {density.sum():.1f} ± {spread:.1f}." if method == "M4" else ""
        return Fact(here, abs(counted - printed) <= 2 * spread, f"The paper counts {printed}.{drawn}")

    return fact


def annealing_decay(book: Book, claim: str) -> Fact | None:
    """lambda as a fit finds it on public curves."""
    if "annealing lambda" not in book.measured:
        return None
    here = f"{book.measured['annealing lambda']:.4f} fitted"
    return Fact(here, None, "A setting; fitted to three public curves of a model of 25 million parameters.")


def log_log(book: Book, claim: str) -> Fact | None:
    """How straight log tokens of a domain are over log tokens of all, on the published optima."""
    if "log-log R2" not in book.measured:
        return None
    value, least = book.measured["log-log R2"], book.measured["log-log R2, least"]
    why = "Over the domains of the published optima at three scales: two parameters to three points each."
    return Fact(f"median {value:.4f}, least {least:.4f}", value >= book.number(claim), why)


def ddo_runs(book: Book, claim: str) -> Fact:
    """Runs of a plan."""
    from pipeline.mixture_weights.methods.registry import METHODS
    from pipeline.mixture_weights.setting import Setting
    from pipeline.plan.runs import placeholder_manifest

    runs, _ = METHODS["ddo"].count(Setting(seven(), placeholder_manifest(seven()), "fp32", None))
    return Fact(f"{runs} (m={len(seven().corpora.sources)})", runs == 15, SAME)


def redpajama(book: Book, claim: str) -> Fact:
    """The given weights of the experiment that is modelled on the paper's."""
    given = seven().weights.given["llama"]
    printed = book.csv("autoscale_redpajama_proportions.csv")["proportion_percent"].tolist()
    # The domain that the paper does not list has the rest.
    listed = sorted(100 - np.nansum(printed) if np.isnan(share) else share for share in printed)
    # A setting: it can be wrong, and does not hold.
    agrees = None if np.allclose(sorted(100 * np.array([*given.values()])), listed) else False
    here = ", ".join(f"{name} {100 * share:g}" for name, share in given.items())
    return Fact(here, agrees, "A setting, our preset is the same; books, which the text does not list, have the rest.")


def remark_1(book: Book, claim: str) -> Fact:
    """The worked example."""
    rows = book.csv("autoscale_remark1_worked_example.csv")
    number = int(claim.split("-")[1]) - 39 if claim.startswith("autoscale-") else None
    first, second = (dict(a=rows["N_a"][at], b=rows["N_b"][at]) for at in (0, 1))
    own = rows if number is None else rows[rows["k"] == number]
    found = [fitting.autoscale(first, second, total) for total in own["N_total"]]
    near = all(np.allclose([ours["a"], ours["b"]], pair) for ours, pair in zip(found, own[["N_a", "N_b"]].to_numpy()))
    here = "; ".join(f"{ours['a']:,.0f} and {ours['b']:,.0f}" for ours in found[-1:])
    return Fact(here, near, "From the first two scales by `fitting.autoscale`.")


FACTS: dict[str, Callable[[Book, str], Fact | None]] = {
    **SETTINGS,
    **{
        function.__name__.replace("_", "-"): function
        for function in (
            *(first_part, size_folds, step_folds, ratio_folds, domain_folds, huber_below, r2_above, fourth_size),
            *(threshold, epsilon, least_tokens, starts, usage_3, annealing_decay, log_log, ddo_runs, redpajama),
            *(remark_1,),
        )
    },
    **{f"sampling-{method}": sampled(method) for method in ("M1", "M2", "M3", "M4")},
}
"""Name in claims.csv -> what finds it; None: not measured yet."""


@functools.cache
def _grid() -> pd.DataFrame:
    """A row a size, ratio, third of the steps and domain of the experiment."""
    question = six()
    parts = [range(len(question.ladder)), question.mixture.domain_ratio, range(1, 7), question.corpora.domains]
    return pd.MultiIndex.from_product(parts, names=["N", "r", "step", "domain"]).to_frame(index=False).assign(D=1.0)


def _folds(by: str) -> list:
    return fitting.folds(_grid(), by)


def _counted(book: Book, claim: str, by: str, words: str) -> Fact:
    count = len(_folds(by))
    return Fact(words.format(count=count), count == book.number(claim), SAME)


def _of_l3(book: Book, metric: str, agrees: Callable[[list[float]], bool | None], why: str) -> Fact | None:
    if "dcpt-1" not in book.tables:
        return None
    cells = book.tables["dcpt-1"][0].cells
    own = cells[(cells["parameterization"] == "L3") & (cells["metric"] == metric)].set_index("corpus")["ours"]
    here = f"{own['G']:.4f} general, {own['D']:.4f} domain"
    return Fact(here, agrees([float(own["G"]), float(own["D"])]), why)
