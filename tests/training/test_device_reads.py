"""What a GPU would be given: attention without a mask, and a step that reads nothing on the host."""

from functools import partial

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.nn import functional
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import training.model
from tests.conftest import SHAPE, tiny_spec
from training import objectives
from training.devices.single import Devices
from training.model import CAUSAL, build_model

pytestmark = pytest.mark.filterwarnings("ignore:.*grad attribute of a Tensor that is not a leaf:UserWarning")
LENGTH = 16
TINY = SHAPE | {"vocab_size": 64}
SHAPES = {
    "qwen2": TINY,
    "qwen3": TINY | {"model_type": "qwen3", "head_dim": 8},
    "llama": TINY | {"model_type": "llama"},
    "gpt2": TINY | {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2},
    "gemma3": TINY
    | {"model_type": "gemma3_text", "head_dim": 8, "num_hidden_layers": 2, "sliding_window": 8}
    | {"layer_types": ["sliding_attention", "full_attention"]},
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
WINDOW = [((1, 1, LENGTH, LENGTH), False)]


def _tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(1, 64, (3, length + 1), generator=torch.Generator().manual_seed(0))


@shapes
def test_attention_has_no_mask_but_a_windows_and_gives_the_losses_of_transformers(shape, monkeypatch) -> None:
    attention, seen = functional.scaled_dot_product_attention, []

    def watched(*given, attn_mask=None, is_causal=False, **options):
        seen.append((None if attn_mask is None else tuple(attn_mask.shape), is_causal))
        return attention(*given, attn_mask=attn_mask, is_causal=is_causal, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    ours, theirs = (build_model(shape, attention, seed=0) for attention in (CAUSAL, "sdpa"))
    losses = objectives.sequence_losses(ours, _tokens(), "fp32")
    assert seen == (WINDOW if "sliding_window" in shape else []) + [(None, True)]
    assert torch.equal(losses, objectives.sequence_losses(theirs, _tokens(), "fp32"))
    tokens = _tokens()
    tokens[0, [3, 4, 11]] = tokens[1, 7] = 0
    apart = [objectives.sequence_losses(model, tokens, "fp32", end_of_text=0) for model in (ours, theirs)]
    torch.testing.assert_close(*apart)
    assert not torch.allclose(apart[0][:2], objectives.sequence_losses(ours, tokens, "fp32")[:2])


def test_attention_of_an_architecture_without_sdpa_sees_no_later_token() -> None:
    # Their own code needs the mask that transformers makes for the implementations that it knows.
    for kind in ("bloom", "xglm", "gpt_oss", "gemma2"):
        shape = TINY | {"model_type": kind, "attn_logit_softcapping": 5.0}
        ours, eager = (
            objectives.sequence_losses(build_model(shape, attention, seed=0), _tokens(), "fp32")
            for attention in (CAUSAL, "eager")
        )
        torch.testing.assert_close(ours, eager, msg=kind)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "precision"), [("qwen2", "fp32"), ("gemma3", "bf16")])
def test_documents_attend_by_blocks_of_scores_that_no_mask_lists(kind, precision, monkeypatch) -> None:
    monkeypatch.setattr(training.model, "_has_blocks", lambda _: True)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)  # What is traced is computed plainly.
    length = 272
    shape, tokens = SHAPES[kind] | {"sliding_window": 150 if kind == "gemma3" else None}, _tokens(length)
    tokens[0, [5, 60, 140, 200]] = tokens[1, 128] = 0  # An end is at the border of a block, the third has none.
    names, large = [], []

    def noted(graph: torch.fx.GraphModule, _: object):
        for node in graph.graph.nodes:
            shown = [one for one in tree_iter(node.meta.get("val")) if isinstance(one, torch.Tensor)]
            large.extend(one.shape for one in shown if list(one.shape[-2:]) == [length, length])
            names.append(str(node.target))
        return make_boxed_func(graph)

    def result(attention: str) -> torch.Tensor:
        network = build_model(shape, attention, seed=0)
        if attention == CAUSAL:
            for block in network.modules():
                if type(block).__name__ in (network._no_split_modules or ()):
                    block.compile(dynamic=False, backend=aot_autograd(fw_compiler=noted, bw_compiler=noted))
        losses = objectives.sequence_losses(network, tokens, precision, end_of_text=0)
        losses.sum().backward()
        gradients = torch.cat([value.grad.flatten() for value in network.parameters() if value.grad is not None])
        return torch.cat([losses.detach() / losses.mean().item(), gradients / gradients.norm()])

    ours, masked = result(CAUSAL), result("sdpa")
    torch._dynamo.reset()
    assert (ours - masked).norm() < (1e-5 if precision == "fp32" else 0.02)
    assert not large
    assert not [name for name in names if "scalar_dense" in name or "nonzero" in name or "scaled_dot" in name]
    assert names.count("flex_attention") == names.count("flex_attention_backward") > 0


@shapes
@pytest.mark.parametrize("head", [None, objectives.losses_in_chunks], ids=["whole", "chunks"])
def test_a_step_reads_nothing_from_the_device(shape, head) -> None:
    reads = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "local_scalar_dense" in str(func) or "nonzero" in str(func):
                reads.append(str(func))
            return func(*args, **(kwargs or {}))

    model = build_model(shape, CAUSAL, seed=0)
    losses = partial(objectives.sequence_losses, head=head)
    devices = Devices(model, lambda tokens: losses(model, tokens, "bf16"), tiny_spec())
    for _ in range(2):
        with Watch():
            devices.backward(devices.losses(_tokens()).sum() / 48)
            norm = devices.update(1e-3)
        assert not reads
    with Watch():
        assert float(norm) > 0
    assert len(reads) == 1
