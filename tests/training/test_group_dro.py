"""A run whose domain weights move: what it compares and what it weighs, on any devices."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.runs import all_done, assert_close, masked, together, train_run, trained
from training.batches import store_of, training_batches, training_corpora
from training.checkpoints.weights import load_weights
from training.devices.group import ALONE, Parallel, join, leave
from training.domain_weights import equal_weights, read_path, updated
from training.group_dro import GroupDro
from training.model import build_model
from training.spec import Reweighting, RunSpec, SpecError

KINDS = ("ddp", "zero3")


def test_the_domain_that_only_the_reference_has_read_rises(proxy_run):
    path = read_path(proxy_run)
    assert [line["step"] for line in path] == list(range(1, 21))
    code = [line["weights"]["code"] for line in path]
    assert code[0] > 0.5
    assert path[-1]["mean"]["code"] > 0.55
    assert path[-1]["mean"]["code"] == pytest.approx(np.mean(code), abs=1e-12)
    for line in path:
        assert sum(line["weights"].values()) == pytest.approx(1, abs=1e-12)


def test_the_first_excess_is_that_of_plain_transformers(proxy, manifest, reference, proxy_run):
    stores = {corpus: store_of(manifest, corpus, fingerprint) for corpus, fingerprint in proxy.corpora.items()}
    tokens, domains = next(training_batches(stores, proxy, 1)), next(training_corpora(stores, proxy, 1))
    by_token = []
    for weights in (None, reference):
        model = build_model(proxy.model, "eager", seed=proxy.seed)
        if weights is not None:
            load_weights(weights, model)
        with torch.no_grad():
            logits = model(input_ids=tokens[:, :-1]).logits
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        by_token.append(losses.double().numpy())
    behind = np.maximum(by_token[0] - by_token[1], 0)
    # Clipped by token: the mean of what is left is not what is left of the mean.
    excess = [behind[domains == place].mean() for place in (0, 1)]
    first = read_path(proxy_run)[0]
    assert [first["excess"]["code"], first["excess"]["general"]] == pytest.approx(excess, abs=1e-6)
    expected = updated(equal_weights(2), np.array(excess), Reweighting("")).now
    assert [first["weights"]["code"], first["weights"]["general"]] == pytest.approx(expected, abs=1e-6)


def test_a_sequence_counts_by_the_weight_of_its_domain_over_its_ratio(proxy, tmp_path):
    spec = dataclasses.replace(proxy, mixture={"general": "3/4", "code": "1/4"}, sequence_length=2, steps=2)
    losses = torch.tensor([[1.0, 3.0], [2.0, 2.0], [4.0, 0.0], [1.0, 1.0]], requires_grad=True)
    other = torch.tensor([[2.0, 2.0], [1.0, 1.0], [4.0, 0.0], [3.0, 3.0]])
    domains = np.array([0, 1, 1, 1])
    ends = []
    for cut in (4, 2, 1):
        rows = iter(other.split(cut))
        dro = GroupDro(spec, tmp_path, lambda _: next(rows), iter([domains, domains]), ALONE, 0, {})  # noqa: B023
        weighed = torch.cat([dro.weighed(part, part) for part in losses.split(cut)])
        # Half the weight for a quarter of what is read, and for three.
        torch.testing.assert_close(weighed, losses * torch.tensor([[2.0], [2 / 3], [2 / 3], [2 / 3]]))
        dro.step(1)
        # code: (0 + 1) / 2; general: (2 + 0 + 0) / 6.
        assert dro.weights.excess == pytest.approx([1 / 2, 1 / 3])
        ends.append(dro.weights.now.tolist())
    assert ends[0] == ends[1] == ends[2]


def test_what_a_step_had_in_excess_weighs_the_next_one(proxy, tmp_path):
    spec = dataclasses.replace(proxy, sequence_length=1, steps=2)
    domains = np.array([0, 1])
    dro = GroupDro(spec, tmp_path, lambda _: torch.zeros(2, 1), iter([domains] * 2), ALONE, 0, {})
    losses = torch.tensor([[np.log(3.0)], [0.0]])
    assert dro.weighed(losses, losses)[0] == pytest.approx(np.log(3.0))
    dro.step(1)
    assert dro.weighed(losses, losses)[0] == pytest.approx(2 * (0.999 * 0.75 + 0.0005) * np.log(3.0))


def test_a_masked_model_has_domains_too(spec, proxy, manifest, tmp_path):
    read = masked(spec, manifest, mixture={"general": "0", "code": "1"})
    weights = trained(read, manifest, tmp_path / "read") / "checkpoints" / "step-20"
    moving = dataclasses.replace(read, mixture=proxy.mixture, reweighting=Reweighting(read.hash))
    path = read_path(trained(moving, manifest, tmp_path / "moving", reference=weights))
    assert path[-1]["mean"]["code"] > 0.51
    assert all(value >= 0 for line in path for value in line["excess"].values())


def test_a_missing_reference_is_one_line(proxy, manifest, tmp_path):
    with pytest.raises(SpecError, match=r"its reference of code is not in the plan$"):
        train_run(proxy, tmp_path / "proxy", manifest)
    with pytest.raises(SpecError, match=r"no complete checkpoint here; remove .*DONE and give the same command again"):
        train_run(proxy, tmp_path / "proxy", manifest, reference=tmp_path / "nowhere")
    unread = dataclasses.replace(proxy, mixture={"general": "1", "code": "0"})
    with pytest.raises(SpecError, match=r"mixture\.code: 0 in a run with reweighting; allowed: above 0"):
        GroupDro(unread, tmp_path, lambda tokens: tokens, iter([]), ALONE, 0, {})


def _of_two(rank: int, spec: RunSpec, base: Path, manifest: Path, reference: Path) -> None:
    group = join(Parallel("ddp", 2, timeout=60.0))
    for kind in KINDS:
        parallel = Parallel(kind, 2, timeout=60.0)
        trained(spec, manifest, base / kind, reference=reference, group=group, parallel=parallel)
    leave(group)


@pytest.mark.slow
def test_two_processes_move_the_weights_of_one(proxy, manifest, reference, proxy_run, tmp_path):
    assert all_done(together(_of_two, proxy, tmp_path, manifest.folder, reference))
    for kind in KINDS:
        assert_close(tmp_path / kind, proxy_run)
