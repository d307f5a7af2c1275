"""The two ways to the same loss, and which models allow the second."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.conftest import tiny_spec
from tests.pipeline.small import limited
from tests.training.test_device_reads import SHAPES, TINY
from training.checkpoints.weights import load_weights, save_weights, take_weights
from training.corpora.documents import CorpusError
from training.corpora.tokenizer import load_tokenizer
from training.devices.memory import is_head_linear
from training.engines import build_engine
from training.model import (
    build_model,
    has_linear_head,
    is_encoder,
    kept_buffers,
    model_from_directory,
    read_model_directory,
    sees_later_tokens,
)
from training.objectives import IGNORED, losses_by_rows, losses_in_chunks, mask_tokens, masked_losses, sequence_losses
from training.spec import Objective, SpecError

LLAMA = {"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA |= {"num_key_value_heads": 2, "intermediate_size": 24, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
by_rows, chunked = (partial(sequence_losses, head=head) for head in (losses_by_rows, losses_in_chunks))


@pytest.mark.parametrize("shape", [TINY, GPT2], ids=["tied", "gpt2"])
@pytest.mark.parametrize("other", [by_rows, chunked])
def test_the_loss_by_rows_or_chunks_and_its_gradient_are_those_of_the_logits(shape, other):
    model = build_model(shape, "eager", seed=0)
    assert has_linear_head(model)
    assert is_head_linear(shape)
    tokens = torch.randint(0, 64, (3, 9), generator=torch.Generator().manual_seed(0))
    gradients = []
    for losses in (sequence_losses, other):
        model.zero_grad()
        by_sequence = losses(model, tokens, "fp32")
        by_sequence.sum().backward()
        gradients.append([by_sequence.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for logits, rows in zip(*gradients, strict=True):
        torch.testing.assert_close(logits, rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("losses", [sequence_losses, by_rows, chunked])
def test_losses_by_token_are_those_that_are_summed(losses):
    model = build_model(TINY, "eager", seed=0)
    tokens = torch.randint(0, 64, (3, 9), generator=torch.Generator().manual_seed(0))
    by_token = losses(model, tokens, "fp32", by_token=True)
    assert by_token.shape == (3, 8)
    assert torch.equal(by_token.sum(1), losses(model, tokens, "fp32"))
    # Of its own token each: another last token changes the last loss alone.
    tokens[:, -1] = (tokens[:, -1] + 1) % 64
    other = losses(model, tokens, "fp32", by_token=True)
    assert (by_token != other).sum(0).tolist() == [0] * 7 + [3]


@pytest.mark.parametrize(
    "scaled",
    [
        {"model_type": "cohere", "logit_scale": 0.5},
        {"model_type": "gemma2", "final_logit_softcapping": 0.05, "head_dim": 8},
        {"model_type": "granite", "logits_scaling": 4.0},
        {"model_type": "phi"},
    ],
)
def test_a_model_that_scales_or_caps_its_logits_has_no_linear_head(scaled):
    assert not has_linear_head(build_model({**TINY, **scaled}, "eager", seed=0))
    assert not is_head_linear({**TINY, **scaled})


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("losses", [sequence_losses, by_rows, chunked])
def test_attention_within_documents_is_that_of_the_documents_alone(attention, losses):
    model = build_model(TINY, attention, seed=0)
    first, second = torch.tensor([[5, 9, 3, 0]]), torch.tensor([[8, 2, 7, 4, 6, 1]])
    together = torch.cat([first, second], dim=1)
    # The end of the first document predicts the start of the second, which neither holds alone.
    alone = losses(model, first, "fp32") + losses(model, second, "fp32")
    across = losses(model, torch.tensor([[5, 9, 3, 0, 8]]), "fp32") - losses(model, first, "fp32")
    apart = losses(model, together, "fp32", end_of_text=0)
    torch.testing.assert_close(apart, alone + across, rtol=1e-5, atol=1e-5)
    assert abs(losses(model, together, "fp32") - apart) > 1e-4


@pytest.mark.parametrize(
    "shape",
    [
        TINY | {"model_type": "gpt_oss", "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
        TINY | {"model_type": "mamba", "state_size": 4},
    ],
    ids=["mask", "state"],
)
def test_a_model_that_sees_across_documents_is_refused_them(shape):
    spec = tiny_spec(model=shape, boundaries="documents")
    build_engine(spec, "eager", 1)
    with pytest.raises(
        SpecError, match=r"boundaries: 'documents' with model_type \w+, which sees the documents before"
    ):
        build_engine(spec, "eager", 1, end_of_text=0)
    model = build_model(shape | {"initializer_range": 0.3}, "eager", seed=0)
    tokens = torch.tensor([[5, 9, 0, 8, 2, 7], [4, 6, 0, 8, 2, 7]])
    with torch.no_grad():
        one, other = sequence_losses(model, tokens, "fp32", end_of_text=0, by_token=True)[:, -2:]
    assert not torch.allclose(one, other)


def test_masks_hide_the_same_number_of_tokens_and_know_no_batch():
    objective = Objective("masked", mask_share=0.15, mask_token=64)
    tokens = np.random.default_rng(0).integers(0, 64, (400, 40))
    pairs = mask_tokens(tokens, np.arange(400), objective, vocabulary=64, seed=3)
    predicted = pairs[:, 1] != IGNORED
    assert (predicted.sum(1) == objective.predictions(40)).all()
    assert (pairs[:, 1][predicted] == tokens[predicted]).all()
    assert (pairs[:, 0][~predicted] == tokens[~predicted]).all()
    hidden = pairs[:, 0][predicted]
    assert np.mean(hidden == 64) == pytest.approx(0.8, abs=0.03)
    assert np.mean(hidden == tokens[predicted]) == pytest.approx(0.1 + 0.1 / 64, abs=0.02)
    # Every position is chosen about as often.
    assert predicted.mean(0).min() > 0.08
    np.testing.assert_array_equal(mask_tokens(tokens[7:9], np.array([7, 8]), objective, 64, seed=3), pairs[7:9])
    for other in (4, 3 + 2**24, 2**32 - 1):
        assert (mask_tokens(tokens, np.arange(400), objective, 64, seed=other)[:, 1] != pairs[:, 1]).any()


def test_the_masked_loss_is_that_of_the_hidden_tokens():
    shape = TINY | {"model_type": "bert", "vocab_size": 65}
    model = build_model(shape, "eager", seed=0, objective="masked")
    tokens = np.random.default_rng(0).integers(0, 64, (3, 12))
    pairs = torch.from_numpy(mask_tokens(tokens, np.arange(3), Objective("masked", 0.25, 64), 64, seed=0))
    losses = masked_losses(model, pairs, "fp32")
    expected = model(input_ids=pairs[:, 0], labels=pairs[:, 1].contiguous()).loss
    torch.testing.assert_close(losses.sum() / 9, expected)
    by_token = masked_losses(model, pairs, "fp32", by_token=True)
    assert torch.equal(by_token.sum(1), losses)
    assert ((by_token == 0) == (pairs[:, 1] == IGNORED)).all()


ENCODER = {"model_type": "roberta", "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1}
ENCODER |= {"num_attention_heads": 2, "intermediate_size": 24}


def test_a_model_that_sees_later_tokens_is_no_causal_one():
    seen = [sees_later_tokens(build_model(shape, "eager", seed=0)) for shape in (LLAMA, GPT2, TINY, ENCODER)]
    assert seen == [False, False, False, True]
    assert [is_encoder(name) for name in ("roberta", "xlm", "llama", "gemma3", "bart")] == [True, True] + [False] * 3


def test_no_model_drops_at_random(tmp_path):
    model = build_model(GPT2, "eager", seed=0)
    assert all(module.p == 0 for module in model.modules() if isinstance(module, torch.nn.Dropout))
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    model = build_model(TINY | experts | {"model_type": "mixtral", "router_jitter_noise": 0.5}, "eager", seed=0)
    tokens = torch.randint(0, 64, (3, 9))
    assert torch.equal(sequence_losses(model, tokens, "fp32"), sequence_losses(model, tokens, "fp32"))
    with pytest.raises(SpecError, match="model: model_type phimoe draws experts at random while it is trained, so"):
        build_model(TINY | experts | {"model_type": "phimoe"}, "eager", seed=0)
    folder = _changed(tmp_path, lambda weights: None, model_type="phimoe")
    with pytest.raises(SpecError, match=f"^{re.escape(str(folder))}: model_type phimoe draws experts at random"):
        read_model_directory(folder)


def _changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object], **config: object) -> Path:
    """A saved model whose weights and configuration were changed."""
    build_model(LLAMA, "eager", seed=0).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    content = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("lm_head.weight"), r"1 missing \(lm_head\.weight\); save or download"),
        (lambda weights: [weights.pop(name) for name in list(weights) if ".mlp." in name],
         r"3 missing \(model\.layers\.0\.mlp\.down_proj\.weight, .*up_proj\.weight\)"),
        (lambda weights: [weights.update({f"x.{name}": weights.pop(name)}) for name in list(weights)],
         r"12 missing \(lm_head.weight, [^;]*, \.\.\.\); 12 unknown to the architecture \(x\.lm_head"),
        (lambda weights: weights.update({"model.norm.weight": torch.ones(33)}),
         r"1 of another shape \(model\.norm\.weight \[33\], not \[16\]\)"),
        (lambda weights: weights.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}),
         r"1 unknown to the architecture \(model\.layers\.0\.self_attn\.q_proj\.bias\)"),
    ],
    ids=["head", "layer", "renamed", "shape", "bias"],
)  # fmt: skip
def test_weights_that_do_not_fit_the_architecture_are_one_line(change, message, tmp_path, capfd):
    folder = _changed(tmp_path, change)
    problem = f"{re.escape(str(folder))}: weights do not fit the architecture"
    for read in (read_model_directory, partial(model_from_directory, attention="eager")):
        with pytest.raises(SpecError, match=f"^{problem}: {message}"):
            read(folder)
    assert capfd.readouterr() == ("", "")


def test_a_number_in_a_configuration_that_no_plan_can_hold_is_refused(tmp_path):
    folder = _changed(tmp_path, lambda weights: None, architectures=[float("nan")])
    with pytest.raises(SpecError, match=r"config.json: architectures: NaN or Infinity, which no plan can hold; give "):
        read_model_directory(folder)


def test_a_missing_shard_or_a_cut_file_is_one_line(tmp_path):
    build_model(LLAMA, "eager", seed=0).save_pretrained(tmp_path / "shards", max_shard_size="4KB")
    model_from_directory(tmp_path / "shards", "eager")
    sorted((tmp_path / "shards").glob("*.safetensors"))[1].unlink()
    with pytest.raises(SpecError, match=r"shards: No such file or directory: .*model-00002-of"):
        read_model_directory(tmp_path / "shards")
    file = _changed(tmp_path / "cut", len) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(SpecError, match=r"cut: Error while deserializing header.*git lfs pull"):
        read_model_directory(tmp_path / "cut")
    os.mkfifo(pipe := _changed(tmp_path / "pipe", lambda weights: None) / "model-00001-of-00002.safetensors")
    with (
        limited(20),
        pytest.raises(SpecError, match=f"{pipe.parent}: {pipe.name} is no file; save or download it again"),
    ):
        read_model_directory(pipe.parent)


def test_a_tied_head_is_the_embedding_and_buffers_are_no_weights(tmp_path):
    tied = _changed(tmp_path / "tied", lambda weights: weights.pop("lm_head.weight"), tie_word_embeddings=True)
    model = model_from_directory(tied, "eager")
    head = model.get_output_embeddings()
    assert head is not None
    assert head.weight is model.get_input_embeddings().weight
    names = ("layers.0.self_attn.rotary_emb.inv_freq", "layers.0.self_attn.masked_bias", "pooler.dense.weight")
    buffer = {f"model.{name}": torch.ones(4) for name in names}
    model_from_directory(_changed(tmp_path / "buffer", lambda weights: weights.update(buffer)), "eager")
    both = _changed(tmp_path / "both", len, tie_word_embeddings=True)
    with pytest.raises(SpecError, match=r"both: the head's weights are not the embedding's, to which"):
        model_from_directory(both, "eager")


@pytest.mark.parametrize("model_type", ["llama", "own"])
def test_code_of_a_model_directory_never_runs(model_type, manifest, tmp_path, monkeypatch):
    asked = mock.Mock(return_value="y")
    monkeypatch.setattr("builtins.input", asked)
    names = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    folder = _changed(tmp_path / "model", len, model_type=model_type, auto_map=names)
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for file in manifest.tokenizer_path.iterdir():
        shutil.copy(file, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": names["AutoTokenizer"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if model_type == "own":
        with pytest.raises(SpecError, match=r"model: needs code of its own, which is not run; give one of an arch"):
            model_from_directory(folder, "eager")
    else:
        build_model(read_model_directory(folder)[0], "eager", seed=0)
        model_from_directory(folder, "eager")
    with contextlib.suppress(CorpusError):
        load_tokenizer(folder)
    assert not (tmp_path / "ran").exists()
    assert not asked.called


@pytest.mark.parametrize("name", SHAPES)
def test_weights_without_values_cost_no_random_numbers_and_are_filled_once(name):
    shape, tokens = SHAPES[name], torch.arange(18).view(2, 9)
    source = build_model(shape, "eager", seed=3)
    expected, state = sequence_losses(source, tokens, "fp32"), torch.get_rng_state()
    model = build_model(shape, "eager", seed=None)
    assert has_linear_head(model)
    take_weights(source, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(sequence_losses(model, tokens, "fp32"), expected)
    assert not list(source.parameters())


def test_kept_weights_of_several_files_are_read_back_and_each_file_is_checked(manifest, tmp_path, monkeypatch):
    saved = partialmethod(PreTrainedModel.save_pretrained, max_shard_size="8KB")
    monkeypatch.setattr(PreTrainedModel, "save_pretrained", saved)
    source, model = build_model(TINY, "eager", seed=3), build_model(TINY, "eager", seed=None)
    save_weights(tmp_path, 7, source, {})
    folder = tmp_path / "checkpoints" / "step-7"
    load_weights(folder, model)
    assert all(map(torch.equal, model.parameters(), source.parameters()))
    files = sorted(folder.glob("*.safetensors*"))
    assert len(files) == 3  # Two with weights, and their index.
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[:-1])
        with pytest.raises(SpecError, match="no complete checkpoint here"):
            load_weights(folder, model)
        file.write_bytes(content)


@pytest.mark.parametrize("full", [False, True], ids=["whole", "gathered"])
@pytest.mark.parametrize(
    "shape",
    [
        TINY | {"model_type": "apertus"},
        TINY
        | {"model_type": "glm4_moe", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
        | {"num_hidden_layers": 2, "first_k_dense_replace": 1, "head_dim": 8, "n_group": 1, "topk_group": 1},
    ],
    ids=["activation", "router"],
)
def test_buffers_and_experts_are_those_of_the_weights(shape, full, tmp_path):
    """They are no parameters, or are saved under other names than the model has."""
    source, tokens = build_model(shape | {"initializer_range": 0.3}, "eager", seed=3), torch.arange(18).view(2, 9)
    plain = sequence_losses(source, tokens, "fp32")
    for buffer in kept_buffers(source).values():
        buffer.add_(torch.arange(buffer.numel()).view(buffer.shape) + 1)
    expected = sequence_losses(source, tokens, "fp32")
    assert not torch.equal(plain, expected)
    save_weights(tmp_path, 7, source, {}, dict(source.named_parameters()) if full else None)
    saved, moved = (build_model(shape, "eager", seed=None) for _ in range(2))
    load_weights(tmp_path / "checkpoints" / "step-7", saved)
    take_weights(source, moved)
    for model in (saved, moved):
        torch.testing.assert_close(sequence_losses(model, tokens, "fp32"), expected)
