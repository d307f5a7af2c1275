"""Our value beside each claim of a paper's text: from the code, from the experiments, or from kept results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

import fitting
from docs.reproduction.book import Book
from fitting.answers.compute_optimal import closed_form
from fitting.solver.problem import DELTA
from pipeline.mixture_weights.methods.registry import METHODS as WEIGHTS
from pipeline.mixture_weights.setting import Setting
from pipeline.paper_tables.dcpt.fits import FORMS, METHODS, PARTS
from pipeline.plan.model_shape import configuration_of
from pipeline.plan.runs import placeholder_manifest
from pipeline.question.loading import read_question
from pipeline.question.presets import preset
from pipeline.question.schema import Question
from training.evaluation_steps import EvaluationPolicy, evaluation_steps
from training.parameters import model_size

SAME = "A count that follows from what is done; the code does the same."
SETTING = "A setting, not a finding; ours is beside it."


@dataclass(frozen=True)
class Fact:
    """Our value, whether it agrees with the paper's (None: no comparison is possible), and the reason, a sentence."""

    here: str
    agrees: bool | None
    why: str


@functools.cache
def asked(*overrides: str) -> Question:
    """The question of an experiment, without its texts."""
    return read_question([*overrides, "corpora.folder=."])


def six() -> Question:
    """The question of the six-domain study."""
    return asked("experiment=dcpt-six-annealed")


def seven() -> Question:
    """The question modelled on AutoScale's own: seven domains, one seed."""
    return asked("experiment=autoscale-redpajama", "weights.seeds=1")


@functools.cache
def _millions(name: str, count: str = "non_embedding") -> float:
    """Millions of parameters of a preset."""
    model = preset(name)
    return getattr(model_size(configuration_of(model, model.vocab_size or 0, 1024, 0), 1024), count) / 1e6


def settings() -> dict[str, str]:
    """Name in claims.csv -> our setting."""
    phase, weights = six().continual, asked("experiment=autoscale-small")
    tokens = phase.global_batch * six().sequence_length
    first, last = (steps * tokens / 1e6 for steps in (phase.evaluation.every, phase.steps))
    large, sizes = preset("gpt2-large"), [f"{_millions(name):.3g} million" for name in six().ladder]
    totals = [f"{name} {_millions(name, 'total'):.0f} million" for name in ("gpt2-large", "bert-base")]
    wide = f"{large.hidden_size} wide, {large.num_hidden_layers} layers, {large.num_attention_heads} heads"
    llamas = [f"{_millions(name):,.0f} million" for name in ("llama-106m", "llama-594m", "llama-1720m")]
    a_step = weights.pretrain.global_batch * weights.sequence_length / 1e6
    scales = "; ".join(f"{steps * a_step:.3g}" for steps in weights.weights.scales)
    return {
        "domains": ", ".join(six().corpora.domains),
        "sizes": "; ".join(sizes),
        "tokens": f"{first:.3g} to {last:.3g} million",
        "shares": "; ".join(f"{ratio:g}" for ratio in six().mixture.domain_ratio),
        "evaluations": f"every {phase.evaluation.every} of {phase.steps} steps, "
        f"a grid of {phase.steps // phase.evaluation.every}",
        "steps": f"{phase.steps:,}",
        "tokens-a-step": f"{tokens:,}",
        "delta": f"{DELTA:g}",
        "learnability": f"before training, over 5 and over 11 of {PARTS} parts of a run",
        "dynamics-sizes": f"presets: {', '.join(llamas)}",
        "model-presets": f"presets: {', '.join(totals)}; gpt2-large {wide}",
        "perturbation": ", ".join(weights.weights.factors),
        "methods": ", ".join(method for method in weights.weights.methods if method != "autoscale"),
        "autoscale-scales": f"{scales} million fitted, {weights.weights.target * a_step:.3g} million predicted",
    }


def eta(book: Book, claim: str) -> Fact:
    """The lower bound of eta."""
    low = next(parameter.low for parameter in fitting.LAWS[FORMS["L3"]].parameters if parameter.name == "eta")
    return Fact(f"eta at least {low:g}", None, "A constraint, kept by the fit.")


def first_part(book: Book, claim: str) -> Fact:
    """What k2 of a new domain costs."""
    ratio = book.number("dcpt-69") / book.number("dcpt-76")
    runs = len(six().ladder) * len(six().mixture.domain_ratio)
    here = f"{ratio:.2%} of every run of the domain, {ratio / runs:.2%} if one of {runs} is begun"
    return Fact(here, None, "The text does not say of what it is a percentage; neither reading gives it.")


@functools.cache
def _grid() -> pd.DataFrame:
    """A row a size, ratio, third of the steps and domain of the experiment."""
    parts = [range(len(six().ladder)), six().mixture.domain_ratio, range(1, 7), six().corpora.domains]
    return pd.MultiIndex.from_product(parts, names=["N", "r", "step", "domain"]).to_frame(index=False).assign(D=1.0)


def size_folds(book: Book, claim: str) -> Fact:
    """Folds of the sizes."""
    count = len(fitting.folds(_grid(), "each-size"))
    return Fact(f"{count} folds, a size each", count == book.number(claim), SAME)


def step_folds(book: Book, claim: str) -> Fact:
    """Thirds of the steps."""
    folds = fitting.folds(_grid(), "step-thirds")
    parts = {f"{fold.fitted.mean():.3f}" for fold in folds}
    return Fact(f"{len(folds)} folds, fitted to {'; '.join(sorted(parts))} of the points", parts == {"0.667"}, SAME)


def ratio_folds(book: Book, claim: str) -> Fact:
    """Pairs of ratios."""
    count, ratios = len(fitting.folds(_grid(), "ratio-pairs")), len(six().mixture.domain_ratio)
    here = f"{count} folds, {ratios - 2} of {ratios} ratios fitted"
    return Fact(here, count == math.comb(ratios, 2) == 36, SAME)


def domain_folds(book: Book, claim: str) -> Fact:
    """Pairs of domains."""
    folds = fitting.folds(_grid(), "domain-pairs")
    fitted = {_grid()[fold.fitted]["domain"].nunique() for fold in folds}
    here = f"{len(folds)} folds, {'; '.join(map(str, fitted))} of {len(six().corpora.domains)} domains fitted"
    return Fact(here, len(folds) == 15 and fitted == {4}, SAME)


def _of_l3(book: Book, metric: str) -> list[float]:
    """The metric of L3 on general and domain, fitted to all points and averaged over domains; empty: not kept."""
    if "dcpt-1" not in book.tables:
        return []
    cells = book.tables["dcpt-1"][0].cells.query("parameterization == 'L3' and metric == @metric")
    return cells.set_index("corpus")["ours"].loc[["G", "D"]].tolist()


def huber_below(book: Book, claim: str) -> Fact | None:
    """Huber loss of L3, fitted to all points."""
    here = "{:.4f} general, {:.4f} domain"
    values = _of_l3(book, "huber")
    return Fact(here.format(*values), None, "How the paper sums its Huber loss is not known.") if values else None


def r2_above(book: Book, claim: str) -> Fact | None:
    """R2 of L3, fitted to all points."""
    here, why = "{:.4f} general, {:.4f} domain", "Mean over the domains, as in table 1."
    values = _of_l3(book, "r2")
    return Fact(here.format(*values), min(values) > book.number(claim), why) if values else None


def fourth_size(book: Book, claim: str) -> Fact:
    """Mean relative error of a larger size, from the study of the transfer law."""
    rows = book.transfer.query("law == 'dcpt' and question == 'a larger size' and section == 'held-out'")
    here = ", ".join(f"{row.value:.1%} on {row.series}" for row in rows.itertuples() if row.series != "all")
    why = "The paper prints no number. Ours: mean relative error of L3 on a model larger than those fitted"
    return Fact(here, None, f"{why} (docs/laws.md).")


def threshold(book: Book, claim: str) -> Fact:
    """The general loss that the tolerance allows."""
    allowed = (1 + book.number("dcpt-27") / 100) * book.number("dcpt-29")
    return Fact(f"{allowed:.6f}", math.isclose(allowed, book.number(claim), rel_tol=1e-6), "Arithmetic.")


def epsilon(book: Book, claim: str) -> Fact | None:
    """Median eps of L3 over the domains and both corpora."""
    if (value := book.measured.get("epsilon")) is None:
        return None
    why = "Median over the fits of L3 to each domain and corpus; within a factor of three is near."
    return Fact(f"{value:.3g}", book.number(claim) / 3 <= value <= 3 * book.number(claim), why)


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
    optimum = closed_form(law, book.number("dcpt-60") / 6e18)
    here = f"N {optimum['N']:.2f}, D {optimum['D']:.3f}"
    near = min(abs(optimum[name] / book.number(claim) - 1) for name in ("N", "D")) < 1e-3
    return Fact(here, near, "From the printed a, b and G, with N and D in billions; in other units it does not follow.")


def sampled(book: Book, claim: str, method: str, policy: str) -> Fact:
    """Steps that a policy keeps of the paper's runs."""
    every, last, decay = int(book.number("dcpt-13")), int(book.number("dcpt-76")), book.number("dcpt-78")
    steps = np.array(evaluation_steps(EvaluationPolicy(policy, every, decay), last))
    counted, table = len(steps) - 1, book.csv("dcpt_table13_sampling_methods.csv")
    printed = int(table.loc[table["method"] == method, "n_points"].iloc[0])
    if policy != "decay":
        gaps = ", ".join(f"{gap:,}" for gap in dict.fromkeys(np.diff(steps)))
        return Fact(f"{counted} points, {gaps} steps apart", counted == printed, f"The paper counts {printed}.")
    # The decay policy keeps a point with a probability: so many more or fewer in two of three draws.
    density = np.exp(-decay * np.arange(1, last // every + 1))
    spread = float(np.sqrt((density * (1 - density)).sum()))
    why = f"The paper counts {printed}. Theirs is a draw of {density.sum():.1f} ± {spread:.1f}."
    return Fact(f"{counted} points", abs(counted - printed) <= 2 * spread, why)


def annealing_decay(book: Book, claim: str) -> Fact | None:
    """lambda as a fit finds it on public curves."""
    if (value := book.measured.get("annealing lambda")) is None:
        return None
    why = "A setting; fitted to three public curves of a model of 25 million parameters."
    return Fact(f"{value:.4f} fitted", None, why)


def log_log(book: Book, claim: str) -> Fact | None:
    """How straight log tokens of a domain are over log tokens of all, on the published optima."""
    if "log-log R2" not in book.measured:
        return None
    value, least = book.measured["log-log R2"], book.measured["log-log R2, least"]
    why = "Over the domains of the published optima at three scales: two parameters to three points each."
    return Fact(f"median {value:.4f}, least {least:.4f}", value >= book.number(claim), why)


def ddo_runs(book: Book, claim: str) -> Fact:
    """Runs of a plan."""
    runs, _ = WEIGHTS["ddo"].count(Setting(seven(), placeholder_manifest(seven()), "fp32", None))
    return Fact(f"{runs} (m={len(seven().corpora.sources)})", runs == 15, SAME)


def redpajama(book: Book, claim: str) -> Fact:
    """The given weights of the experiment that is modelled on the paper's."""
    given = seven().weights.given["llama"]
    printed = book.csv("autoscale_redpajama_proportions.csv")["proportion_percent"]
    # The domain that the paper does not list has the rest.
    listed = sorted(printed.fillna(100 - printed.sum()))
    # A setting: it can be wrong, and does not hold.
    agrees = None if np.allclose(sorted(100 * np.array([*given.values()])), listed) else False
    here = ", ".join(f"{name} {100 * ratio:g}" for name, ratio in given.items())
    return Fact(here, agrees, "A setting, our preset is the same; books, which the text does not list, have the rest.")


def remark_1(book: Book, claim: str) -> Fact:
    """The worked example."""
    rows = book.csv("autoscale_remark1_worked_example.csv")
    first, second = rows[["N_a", "N_b"]].rename(columns={"N_a": "a", "N_b": "b"}).head(2).to_dict("records")
    if claim.startswith("autoscale-"):
        rows = rows[rows["k"] == int(claim.split("-")[1]) - 39]
    ours = [fitting.autoscale(first, second, total) for total in rows["N_total"]]
    near = np.allclose([[at["a"], at["b"]] for at in ours], rows[["N_a", "N_b"]])
    here = f"{ours[-1]['a']:,.0f} and {ours[-1]['b']:,.0f}" if ours else ""
    return Fact(here, near, "From the first two scales by `fitting.autoscale`.")


_OWN = (
    *(eta, first_part, size_folds, step_folds, ratio_folds, domain_folds, huber_below, r2_above, fourth_size),
    *(threshold, epsilon, least_tokens, starts, usage_3, annealing_decay, log_log, ddo_runs, redpajama, remark_1),
)


@functools.cache
def facts() -> dict[str, Callable[[Book, str], Fact | None]]:
    """Name in claims.csv -> what finds it; None: not measured yet."""
    return {
        **{name: lambda book, claim, here=here: Fact(here, None, SETTING) for name, here in settings().items()},
        **{function.__name__.replace("_", "-"): function for function in _OWN},
        **{f"sampling-{name}": functools.partial(sampled, method=name, policy=METHODS[name]) for name in METHODS},
    }
