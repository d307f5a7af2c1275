"""What a step of the engine of a GPU would reach there, without one: a roofline over the graphs that are compiled.

    python -m tests.benchmarks roofline

An H100 in the limit: 620 TFLOP/s of bf16 products, 52 of fp32, 400 of attention forward and 350 backward, 2.8 TB/s,
4 us an operation. Layers and the chunks of the head are traced as `auto` compiles them, and partitioned as inductor
does. Of a graph each product and each attention is an operation; what is pointwise or a reduction is one with all such
operations that it is connected with, and reads and writes only what others made or use. Nothing is computed (fake
tensors). An optimistic bound, of vendor's peak (989 TFLOP/s): bars of .35, .40 and .45 at .1, .5 and 1.8 B parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tests.benchmarks import Row, row
from tests.benchmarks.gpu import spec_of
from training import objectives
from training.devices.memory import fitted
from training.model import CAUSAL, build_model
from training.parameters import model_size
from training.spec import Parallel

BANDWIDTH, BF16, FP32, FORWARD, BACKWARD, LAUNCH = 2.8e12, 620e12, 52e12, 400e12, 350e12, 4e-6
PEAK = 989e12
VIEWS = {
    *("view", "_unsafe_view", "t", "transpose", "expand", "slice", "unsqueeze", "squeeze", "alias", "detach"),
    *("permute", "select", "split", "reshape", "as_strided", "lift_fresh", "split_with_sizes", "empty", "getitem"),
}
PRODUCTS = {"mm", "addmm", "bmm"}


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; what is expanded is read once."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride()):
        count *= length if stride else 1
    return count * tensor.element_size()


def seconds_of(name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    """The time of one operation by itself."""
    moved = sum(map(size_of, inputs + outputs)) / BANDWIDTH
    if name in PRODUCTS:
        left, right = inputs[-2], inputs[-1]
        flops = 2 * left.numel() * right.shape[-1]
        return max(flops / (BF16 if left.dtype == torch.bfloat16 else FP32), moved, LAUNCH)
    if "scaled_dot" in name:
        backward = "backward" in name
        batch, heads, length, width = (inputs[1] if backward else inputs[0]).shape
        flops = 4 * batch * heads * length**2 * width / 2 * (2.5 if backward else 1)
        return max(flops / (BACKWARD if backward else FORWARD), LAUNCH)
    return max(moved, LAUNCH)


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", str(node.target)).split(".")[0]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in tree_iter(value) if isinstance(one, torch.Tensor)]


def _source(node: Node) -> Node:
    """What a view shows."""
    while _name(node) in VIEWS and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def graph_seconds(graph: GraphModule) -> float:
    """The time of a compiled graph, whose connected pointwise operations are one."""
    alone, group = 0.0, {}
    for node in graph.graph.nodes:
        name = _name(node)
        if node.op != "call_function" or name in VIEWS:
            continue
        inputs = [_source(one) for one in node.all_input_nodes]
        if name in PRODUCTS or "scaled_dot" in name:
            read = [tensor for one in node.all_input_nodes for tensor in _tensors(one.meta.get("val"))]
            alone += seconds_of(name, read, _tensors(node.meta.get("val")))
            continue
        joined = [group[one] for one in inputs if one in group]
        own = joined[0] if joined else set()
        for other in joined[1:]:
            own |= other
        own.add(node)
        group |= dict.fromkeys(own, own)
    for members in {id(own): own for own in group.values()}.values():
        read = {_source(one) for node in members for one in node.all_input_nodes} - members
        users = {node: _users(node) for node in members}
        written = [node for node in members if users[node] - members]
        moved = sum(size_of(tensor) for node in [*read, *written] for tensor in _tensors(node.meta.get("val")))
        alone += max(moved / BANDWIDTH, LAUNCH)
    return alone


def _users(node: Node) -> set[Node]:
    """What uses a node, or a view of it."""
    users = set()
    for user in node.users:
        users |= _users(user) if _name(user) in VIEWS and user.op == "call_function" else {user}
    return users


class Plain(TorchDispatchMode):
    """Adds the time of operations that are not compiled."""

    seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if func.namespace == "aten" and name not in VIEWS:
            self.seconds += seconds_of(name, _tensors((args, kwargs)), _tensors(out))
        return out


def compiled_seconds(model: dict[str, Any], micro_batch: int, length: int) -> float:
    """The time of the compiled graphs of a micro-batch, forward and backward."""
    spent = [0.0]

    def compiler(graph: GraphModule, _: object) -> Callable[..., Any]:
        seconds = graph_seconds(graph)

        def run(*given: Any) -> Any:
            spent[0] += seconds
            return graph(*given)

        return make_boxed_func(run)

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        network = build_model(model, CAUSAL, None)
        for block in network.modules():
            if type(block).__name__ in (network._no_split_modules or ()):
                block.compile(dynamic=False, backend=backend)
        compiled = functools.partial(torch.compile, dynamic=False, backend=backend)
        of_chunk = (compiled(objectives.chunk_losses), compiled(objectives.chunk_gradients))
        head = functools.partial(objectives.losses_in_chunks, of_chunk=of_chunk)
        tokens = torch.zeros((micro_batch, length + 1), dtype=torch.int64)
        objectives.sequence_losses(network, tokens, "bf16", head=head).sum().backward()
    return spent[0]


def plain_seconds(model: dict[str, Any], micro_batch: int, length: int) -> float:
    """The time of what is not compiled: embedding, positions, the last norm."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        network = build_model({**model, "num_hidden_layers": 0}, CAUSAL, None)
        tokens = torch.zeros((micro_batch, length + 1), dtype=torch.int64)
        with Plain() as plain:
            objectives.sequence_losses(
                network, tokens, "bf16", head=lambda hidden, *_: hidden.sum((1, 2))
            ).sum().backward()
    return plain.seconds


def utilisation(shape: str, micro_batch: int, length: int = 2048, accumulated: int = 16) -> float:
    """Model FLOPs utilisation of a step of `accumulated` micro-batches; one layer and two stand for all."""
    spec = spec_of(shape, length, micro_batch)
    one, two = (compiled_seconds({**spec.model, "num_hidden_layers": count}, micro_batch, length) for count in (1, 2))
    layers, size = spec.model["num_hidden_layers"], model_size(spec.model, length)
    step = one + (layers - 1) * (two - one) + plain_seconds(spec.model, micro_batch, length)
    # The clip reads gradients, AdamW reads and writes weights and moments, and gradients are cleared.
    update = 36 * size.total / BANDWIDTH / accumulated
    # The head's weight is cast, and its gradient begins as zeros.
    step += 10 * spec.model["vocab_size"] * spec.model["hidden_size"] / BANDWIDTH
    return micro_batch * length * size.flops_per_token / (step + update) / PEAK


def measure() -> list[Row]:
    """A row a shape, at the micro-batch that `auto` takes in 80 GB of a batch of 64."""
    rows = []
    for shape, bar in (("0.1B", 0.35), ("0.5B", 0.40), ("1.8B", 0.45)):
        spec = spec_of(shape, 2048, 64)
        batch = fitted(spec, Parallel(), 0, "sdpa-compiled", 80e9, gpu=True).micro_batch
        meaning = f"roofline of an H100, micro-batch {batch}; bar {bar}"
        rows.append(row(f"MFU of {shape} by roofline", utilisation(shape, batch), "of 989 TFLOP/s", meaning))
    return rows
