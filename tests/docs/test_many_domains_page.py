"""The commands of docs/many-domains.md are understood, and its counts of steps are what the methods take."""

import pandas as pd
import pytest
from scipy.stats import spearmanr

from docs.studies.ddo_misses import misses, overlap
from docs.studies.law_errors import RESULTS
from pipeline.goals.registry import read_question
from pipeline.goals.weights.methods.registry import METHODS
from pipeline.goals.weights.mixtures import Search
from pipeline.plan.runs import estimate
from pipeline.study.folder import Study
from tests.docs.pages import commands, read

PAGE = read("many-domains.md")


@pytest.mark.parametrize("command", commands(PAGE), ids=" ".join)
def test_its_commands_are_questions_about_weights(command: list[str]) -> None:
    assert read_question(command[1:]).goal.kind == "weights"


def test_its_counts_are_those_of_the_methods() -> None:
    question = read_question(["experiment=autoscale-small", "weights.seeds=1"])
    search = Search(estimate(question))
    a_step = question.pretrain.global_batch * question.sequence_length
    m, (small, large) = len(question.corpora.sources), question.weights.scales
    assert METHODS["ddo"].count(search) == (1 + 2 * m, round(small * (2 * m + 7 / 3)) * a_step)
    assert METHODS["autoscale"].count(search) == (2 * (1 + 2 * m), round((small + large) * (2 * m + 7 / 3)) * a_step)


def test_every_method_has_its_row() -> None:
    assert {name for name in METHODS if f"| `{name}` |" in PAGE} == set(METHODS)


def test_why_a_loss_was_missed_is_what_the_kept_runs_say() -> None:
    falls, *lacking = overlap(pd.read_csv(RESULTS / "joint-domains.csv"))
    mean, low, high = (f"{value:.4f}"[1:] for value in lacking)
    said = (
        f"{mean} ({low} to {high}, four paired seeds)",
        f"less than each alone in sum, {lacking[0] / falls:.1%} of it",
    )
    tables = [misses(Study(RESULTS / name)) for name in ("autoscale-mix", "autoscale-unequal")]
    ranks = [f"{spearmanr(table['gain'], table['miss']).statistic:.2f}".replace("-0", "-") for table in tables]
    assert [one for one in (*said, *ranks) if one not in " ".join(PAGE.split())] == []
