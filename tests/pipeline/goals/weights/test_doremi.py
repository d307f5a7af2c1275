"""DoReMi on real corpora in small: plan, train, propose; and the arithmetic of its rounds."""

import dataclasses
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from pipeline.cli import verbs
from pipeline.goals.registry import read_question
from pipeline.goals.weights.artifacts import ProxyPath, WeightsRecommendation
from pipeline.goals.weights.methods.doremi import DOREMI, thinned
from pipeline.goals.weights.mixtures import Search, limit_weights
from pipeline.launch.slurm.arrays import submit_runs
from pipeline.plan.cost import run_flops
from pipeline.plan.runs import estimate
from pipeline.question.schema import Question
from pipeline.show.report.weights_figures import weights_by_step
from pipeline.study.folder import Study, study_of
from training.domain_weights import LoggedWeights, read_path
from training.run import Exit

QUIET = Console(quiet=True)
BASE = {"general": 0.8, "domain": 0.1, "third": 0.1}


def _question(words: list[str], *more: str) -> Question:
    doremi = ["name=doremi", "weights.methods=[doremi]", "weights.scales=[24]", "weights.target=60"]
    question = read_question([*words, *doremi, *more])
    question.weights.base = BASE
    return question


def test_it_wants_a_reference_and_a_proxy_that_waits_for_it(words: list[str], tmp_path: Path) -> None:
    keys = ("weights.rounds=3", "weights.seeds=2", "weights.doremi.step_size=0.5")
    search = Search(estimate(_question(words, *keys)))
    first, second, *proxies = DOREMI.runs(search)
    # The base run of ddo, by name and hash.
    assert first == search.run(search.base, 24, search.question.seed)
    for reference, proxy in zip((first, second), proxies, strict=True):
        assert proxy.after == reference.spec.hash
        assert proxy.parent is None
        assert proxy.spec.seed == reference.spec.seed
        assert set(proxy.spec.mixture.values()) == {"1/3"}
        assert (proxy.spec.reweighting.step_size, proxy.spec.reweighting.smoothing) == (0.5, 1e-3)
        plain = dataclasses.replace(proxy.spec, reweighting=None)
        assert run_flops(proxy.spec) > 1.2 * run_flops(plain)
    assert DOREMI.count(search) == (12, 12 * 24 * 6 * 16)
    Study(tmp_path).write_plan([first, proxies[0]])
    assert Study(tmp_path).read_plan() == [first, proxies[0]]


def test_a_cluster_starts_the_proxy_when_the_reference_is_done(words: list[str]) -> None:
    reference, proxy = DOREMI.runs(Search(estimate(_question(words))))
    sent: list[tuple[dict[str, int], str]] = []

    def send(kind: str, tasks: dict[str, int], after: str) -> str:
        sent.append((tasks, after))
        return str(len(sent))

    states = {reference.spec.hash: "open", proxy.spec.hash: "open"}
    assert submit_runs([proxy, reference], states, {}, 10, send) == []
    assert sent == [({reference.spec.hash: 0}, ""), ({proxy.spec.hash: 0}, "afterok:1_0")]


def test_a_continual_proxy_starts_where_its_reference_does(words: list[str]) -> None:
    search = Search(estimate(_question(words, "weights.phase=continual")))
    reference, proxy = DOREMI.runs(search)
    assert proxy.parent == reference.parent == search.pretraining.spec.hash
    assert proxy.start == reference.start
    assert proxy.after == reference.spec.hash


def test_weights_beyond_the_text_go_to_the_others() -> None:
    found = limit_weights({"a": 0.9, "b": 0.06, "c": 0.04}, {"a": 0.5, "b": 0.2, "c": 1.0})
    assert found == pytest.approx({"a": 0.5, "b": 0.2, "c": 0.3})
    free = {"a": 0.7, "b": 0.3}
    assert limit_weights(free, {"a": 1.0, "b": 0.4}) == free
    assert limit_weights(free, {"a": 0.3, "b": 0.4}) == free


def test_a_domain_that_was_not_read_yet_can_be_read_back() -> None:
    equal = {"a": 0.5, "b": 0.5}
    lines = [LoggedWeights(step=step, weights=equal, mean=equal, excess={"a": 0.1, "b": None}) for step in (1, 5)]
    path = TypeAdapter(ProxyPath)
    assert path.validate_json(path.dump_json(thinned(lines))) == thinned(lines)


@pytest.mark.slow
def test_two_rounds_from_the_plan_to_the_report(words: list[str]) -> None:
    question = _question(words, "weights.rounds=2")
    for verb in ("prepare", "train", "recommend", "report"):
        assert verbs.carry_out(verb, question, QUIET) == Exit.DONE
    study = study_of(question)
    plan = study.read_plan()
    assert {study.state(run) for run in plan} == {"done"}
    reference, proxy = plan[:2]
    assert proxy.after == reference.spec.hash
    content = WeightsRecommendation.read(study)
    (row,) = content.proposals
    assert row.tokens == 4 * 24 * 6 * 16
    assert row.lines[-1].startswith("2 of 2 rounds, ")
    first, second = row.details.rounds
    path = read_path(study.runs / proxy.name)
    assert [line["step"] for line in path] == list(range(1, 25))
    assert first.reference == BASE
    assert first.weights == pytest.approx(path[-1]["mean"], abs=1e-12)
    # The reference has hardly read the other two: the proxy, that reads all alike, is behind it in general.
    assert max(first.weights, key=lambda name: first.weights[name]) == "general"
    (thin,) = first.paths
    assert thin.steps == list(range(4, 25, 4))
    assert thin.weights["third"] == [line["weights"]["third"] for line in path[3::4]]
    # A second round starts from the first one's answer.
    assert second.reference == pytest.approx(first.weights, abs=1e-4)
    assert row.weights == second.weights
    assert [len(panel.spec["data"]) for panel in weights_by_step(content).panels] == [2 * len(BASE)] * 2
    assert "mean over the steps so far" in (study.folder / "report.html").read_text()
