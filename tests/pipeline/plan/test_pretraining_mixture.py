"""Domains that are read in pre-training already: `pretrain.domain_ratio`."""

from pathlib import Path

import pytest

from pipeline.goals.registry import read_question
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.messages import ConfigError
from pipeline.study.collect import collect, of_domain
from pipeline.study.folder import Study
from tests.pipeline.small import write_losses

QUESTION = [
    *("experiment=dcpt-six-long", "corpora.folder=nowhere", "corpora.domains=[code,math]"),
    *("ladder=[qwen2-0.05m]", "model=qwen2-0.05m", "mixture.domain_ratio=[0.5]", "mixture.replicates=1"),
    "mixture.replicate_at=null",
]


def planned(*words: str):
    question = read_question([*QUESTION, *words])
    return planned_runs(estimate(question))


def test_general_takes_the_rest() -> None:
    (pretraining,) = (run for run in planned() if run.role == "pretrain")
    assert pretraining.spec.mixture == {"general": "47/50", "code": "3/100", "math": "3/100"}
    assert planned("pretrain.domain_ratio=0")[0].spec.mixture == {"general": "1", "code": "0", "math": "0"}


def test_points_know_what_the_model_had_read_and_every_domain_has_its_pretraining(tmp_path: Path) -> None:
    question = read_question(QUESTION)
    plan = planned_runs(estimate(question))
    study = Study(tmp_path / "six")
    study.write_plan(plan)
    for run in plan:
        write_losses(study, run, [(run.spec.steps, corpus, 3.0) for corpus in run.spec.corpora])
    points = collect(study, "general")
    first = points[points["phase"] == "continual"].drop_duplicates("corpus").set_index("corpus")
    assert first["rho"].to_dict() == pytest.approx({"general": 0.94, "code": 0.03, "math": 0.03})
    own = of_domain(points, question)
    assert own["run"].nunique() == 2
    assert set(own[own["phase"] == "pretrain"]["corpus"]) == {"general", "code"}


def test_what_is_allowed_is_said() -> None:
    with pytest.raises(ConfigError) as refused:
        read_question([*QUESTION, "pretrain.domain_ratio=0.6", "continual.domain_ratio=0.1"])
    assert refused.value.lines == [
        "pretrain.domain_ratio: 0.6; allowed: 0 to 0.5, of each of 2 domains",
        "continual.domain_ratio: 0.1; allowed: 0, the ratios of its runs are mixture.domain_ratio",
    ]
