"""The formula of peak memory against PyTorch itself, by fake tensors, which take none; and what fits by it."""

import resource
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from torch import distributed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from conf import CONF
from tests.conftest import tiny_spec
from tests.training.runs import all_done, in_process, losses_of, together, train_run, trained
from training import objectives
from training.attempt import attempts
from training.devices.group import Group, join, leave
from training.devices.memory import _kept, _sizes, fitted, memory_of, most_graphed
from training.devices.out_of_memory import keep_smaller, within_memory
from training.devices.placement import place_model
from training.durable import read_json
from training.engines import build_engine
from training.evaluation_steps import EvaluationPolicy
from training.model import CAUSAL, build_model
from training.spec import Architecture, Execution, Objective, Parallel, RunSpec, SpecError

SINGLE = Parallel()


@pytest.fixture(autouse=True)
def linear_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have no values by which it is seen; all shapes here have one."""
    monkeypatch.setattr("training.engines.has_linear_head", lambda _: True)


class _Peak(TorchDispatchMode):
    """Bytes of the storages that live at once, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._live: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> None:
        storage = _local(tensor).untyped_storage()
        if storage._cdata not in self._live:
            weakref.finalize(storage, self._drop, storage._cdata)
        # FSDP2 frees and allocates the storages of gathered weights.
        self.now += storage.nbytes() - self._live.get(storage._cdata, 0)
        self._live[storage._cdata] = storage.nbytes()
        self.peak = max(self.peak, self.now)

    def _drop(self, key: int) -> None:
        self.now -= self._live.pop(key)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in tree_iter(out):
            if isinstance(value, torch.Tensor):
                self.add(value)
        return out


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return getattr(tensor, "_local_tensor", tensor)


def _preset(name: str, length: int, layers: int | None = None) -> Architecture:
    shape = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())
    shape |= {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": None, "max_position_embeddings": length}
    shape.setdefault("num_key_value_heads", shape["num_attention_heads"])
    del shape["name"]
    return shape | ({"num_hidden_layers": layers} if layers else {})


def _measured(spec: RunSpec, engine: str, batch: int, parallel: Parallel) -> list[int]:
    """Peak bytes until the end of each micro-batch of a step; the moments, which its update adds, are added."""
    peaks = []
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.MonkeyPatch.context() as patch:
        network, losses = build_engine(spec, engine, threads=1)
        # Fake weights cannot be moved, also not to where they are.
        network.to = lambda device: network  # pyright: ignore[reportAttributeAccessIssue]
        group = Group(0, parallel.processes)
        devices = place_model(network.train(), losses, spec, parallel, group)
        tokens = torch.zeros((batch, spec.sequence_length + 1), dtype=torch.int64)
        with _Peak() as peak:
            for name in ("alloc_storage", "free_storage"):
                resize = getattr(_fsdp_param, name)
                patch.setattr(_fsdp_param, name, lambda tensor, resize=resize: (resize(tensor), peak.add(tensor)))
            for parameter in network.parameters():
                peak.add(parameter)
            for _ in range(spec.global_batch // (batch * group.count)):
                devices.backward(devices.losses(tokens).sum())
                peaks.append(peak.peak)
    moments = 8 * sum(_local(parameter).numel() for parameter in network.parameters())
    return [bytes_ + moments for bytes_ in peaks]


def _check(shape: Architecture, length: int, batch: int, engine: str, parallel: Parallel, precision: str) -> None:
    specs = [
        tiny_spec(
            model=shape, sequence_length=length, global_batch=batch * micros * parallel.processes, precision=precision
        )
        for micros in (1, 2)
    ]
    first, second = _measured(specs[-1], engine, batch, parallel)
    if batch <= most_graphed(specs[0], parallel):
        # The gradients of a graph stay where they are, like those of an earlier micro-batch.
        first = second
    for spec, peak in zip(specs, (first, second), strict=True):
        expected = memory_of(spec, parallel, batch, engine, gpu=True)
        assert expected is not None
        assert expected.total == pytest.approx(peak, rel=0.1), spec.global_batch


checkpointed = pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch", "engine", "checkpointing", "layers"),
    [
        # One whole and two deep, since depth only multiplies; of each other shape the layers that show its peak.
        ("llama-106m", 8, "sdpa-chunked", False, None),
        ("qwen3-0.6b", 1, "sdpa", True, 20),
        ("llama-106m", 1, "sdpa", False, 4),
        ("qwen2.5-0.5b", 1, "sdpa-chunked", True, 4),
        ("qwen2.5-0.5b", 8, "sdpa", False, 4),
        ("qwen3-0.6b", 8, "sdpa-chunked", True, 4),
        ("qwen2.5-1.5b", 1, "sdpa-chunked", True, 4),
        ("llama-1720m", 8, "sdpa-chunked", True, 4),
        ("qwen3-4b", 1, "sdpa-chunked", True, 4),
        ("qwen3-4b", 8, "sdpa", False, 4),
        ("llama-1720m", 1, "sdpa", True, 8),
    ],
)
def test_the_formula_gives_the_peak_of_published_shapes(name, batch, engine, checkpointing, layers) -> None:
    parallel = Parallel(activation_checkpointing=checkpointing)
    _check(_preset(name, 2048, layers), 2048, batch, engine, parallel, "bf16")


@pytest.mark.slow
@checkpointed
@pytest.mark.parametrize(
    ("name", "engine", "precision"),
    [
        ("qwen2.5-0.5b", "sdpa-chunked", "bf16"),
        ("qwen3-4b", "sdpa-chunked", "bf16"),
        ("qwen2.5-1.5b", "sdpa", "fp32"),
        ("llama-106m", "eager", "fp32"),
        ("llama-106m", "eager", "bf16"),
        ("qwen2-0.7m", "eager", "bf16"),
        ("gpt2", "sdpa", "fp32"),
        ("gpt2", "eager", "bf16"),
    ],
)
def test_the_formula_gives_the_peak_of_other_engines_and_few_layers(name, engine, precision, checkpointing) -> None:
    length = 256 if engine == "eager" or name == "gpt2" else 2048
    shape = _preset(name, length, 2) | ({"vocab_size": 2048} if length == 256 else {})
    if name == "gpt2":
        names = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
        shape = {key: value for key, value in shape.items() if "_token_" in key or key in ("model_type", "vocab_size")}
        shape |= {ours: _preset(name, length, 2)[theirs] for ours, theirs in names.items()}
    _check(shape, length, 4, engine, Parallel(activation_checkpointing=checkpointing), precision)


@pytest.mark.slow
@checkpointed
def test_the_formula_gives_the_peak_of_one_of_eight_under_fsdp2(checkpointing, monkeypatch) -> None:
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    try:
        mesh = init_device_mesh("cpu", (8,))
        # Fake tensors have no values from which it would be made.
        monkeypatch.setattr("training.devices.accelerated.init_device_mesh", lambda *_: mesh)
        parallel = Parallel("fsdp2", 8, checkpointing)
        _check(_preset("qwen3-4b", 2048, 4), 2048, 1, "sdpa-chunked", parallel, "bf16")
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("width", "layers", "heads", "inner", "vocabulary", "tied", "batch", "measured"),
    [
        (768, 12, 12, 2048, 32_000, True, 32, 23_454_023_168),
        (1024, 24, 16, 2816, 151_936, True, 32, 64_994_762_752),
        (2048, 24, 16, 5504, 151_936, False, 16, 84_478_661_120),
    ],
)
def test_the_formula_gives_the_peak_of_compiled_layers_on_an_h200(
    width, layers, heads, inner, vocabulary, tied, batch, measured
) -> None:
    """`measured`: bytes by `python -m tests.benchmarks.gpu speed` (docs/performance.md)."""
    shape = {"model_type": "qwen2", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    shape |= {"num_key_value_heads": heads, "intermediate_size": inner, "vocab_size": vocabulary}
    shape |= {"tie_word_embeddings": tied, "max_position_embeddings": 2048}
    spec = tiny_spec(model=shape, sequence_length=2048, global_batch=batch, precision="bf16")
    formula = memory_of(spec, SINGLE, batch, "sdpa-compiled", gpu=True)
    assert formula is not None
    # Measured where no other work was, twice the same to the byte; what is left out are norms and rotations.
    assert formula.total == pytest.approx(measured, rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt2", "gemma3_text"])
def test_what_compiled_layers_keep_is_what_their_partition_saves(kind, precision) -> None:
    sizes = {"hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 768, "vocab_size": 64}
    sizes |= {"num_key_value_heads": 4, "head_dim": 32, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    if kind == "gpt2":
        sizes |= {"n_embd": 256, "n_head": 8, "n_inner": 768}
    torch.compiler.reset()
    kept = {}
    for length, layers in ((64, 1), (64, 2), (128, 1), (128, 2)):
        shape = sizes | {"model_type": kind, "num_hidden_layers": layers, "max_position_embeddings": length}
        shape |= {"n_layer": layers} if kind == "gpt2" else {}
        spec = tiny_spec(model=shape, sequence_length=length, precision=precision)
        kept[length, layers] = _saved_by_compiled_layers(spec)
    of_token = (kept[128, 2] - kept[128, 1] - kept[64, 2] + kept[64, 1]) / 64
    assert (named := _sizes(spec.model)) is not None
    # Beside matrices of its tokens a layer keeps a number a token or head of each norm and attention.
    assert _kept(spec, named, "sdpa-compiled") == pytest.approx(of_token, rel=0.02)


def _saved_by_compiled_layers(spec: RunSpec) -> int:
    """Bytes of the tensors that the layers of a model save in a forward pass of a sequence, weights left out."""
    network = build_model(spec.model, CAUSAL, seed=0)
    for block in network.modules():
        if type(block).__name__ in (network._no_split_modules or ()):
            block.compile(backend="aot_eager_decomp_partition", dynamic=False)
    weights = {value.untyped_storage().data_ptr() for value in network.parameters()}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage
        return tensor

    tokens = torch.zeros((1, spec.sequence_length), dtype=torch.int64)
    bf16 = torch.autocast("cpu", torch.bfloat16, enabled=spec.precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), bf16:
        network.base_model(input_ids=tokens, use_cache=False)
    return sum(storage.nbytes() for storage in saved.values())


@pytest.mark.parametrize(
    ("limit", "parallel", "expected"),
    [
        (None, SINGLE, (32, False)),
        (1000, SINGLE, (32, False)),
        (80, SINGLE, (16, False)),
        (20, SINGLE, (2, False)),
        (20, Parallel(activation_checkpointing=True), (32, True)),
        (15, SINGLE, (8, True)),
        (9, SINGLE, None),
        (9, Parallel("fsdp2", 8), (4, True)),
    ],
)
def test_the_micro_batch_is_the_largest_that_fits_and_checkpointing_comes_after(limit, parallel, expected) -> None:
    spec = tiny_spec(model=_preset("qwen2.5-0.5b", 2048), sequence_length=2048, global_batch=32, precision="bf16")
    fit = fitted(spec, parallel, 0, "auto", limit and 1e9 * limit, gpu=True)
    assert fit.fits is (expected is not None)
    assert (fit.micro_batch, fit.checkpointing) == (expected or (1, True))
    if limit and expected:
        assert fit.memory is not None
        assert fit.memory.total < 1e9 * limit


@pytest.mark.parametrize(
    ("name", "head", "objective"),
    [
        ("bert-base", {"vocab_size": 30_522}, Objective("masked", 0.15, 103)),
        ("qwen2.5-0.5b", {"final_logit_softcapping": 30.0}, Objective()),
    ],
    ids=["masked", "capped"],
)
def test_masked_tokens_and_a_head_that_is_more_than_a_matrix_have_whole_logits(name, head, objective) -> None:
    spec = tiny_spec(model=_preset(name, 512) | head, sequence_length=512, global_batch=32, objective=objective)
    assert memory_of(spec, SINGLE, 32, "sdpa", gpu=True) == memory_of(spec, SINGLE, 32, "sdpa-chunked", gpu=True)


def test_what_is_given_is_kept_and_an_unknown_architecture_is_computed_at_once() -> None:
    fit = fitted(tiny_spec(global_batch=32), Parallel(activation_checkpointing=False), 8, "auto", 1.0, gpu=True)
    assert (fit.micro_batch, fit.fits) == (8, False)
    odd = fitted(tiny_spec(model={"model_type": "mamba"}), SINGLE, 0, "auto", 1e9, gpu=True)
    assert (odd.micro_batch, odd.fits, odd.memory) == (4, True, None)


def _wide(spec: RunSpec) -> RunSpec:
    model = spec.model | {"hidden_size": 64, "intermediate_size": 512}
    return replace(spec, model=model, global_batch=512, steps=2, evaluation=EvaluationPolicy("explicit", steps=(1,)))


def _with_little_memory(spec: RunSpec, folder: Path, manifest: Path) -> None:
    import torch

    torch.set_num_threads(1)
    # Libraries and threads of a small run first: what they take is not of the micro-batch.
    train_run(replace(spec, global_batch=2), folder / "small", manifest)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**26, mapped + 2**26))
    train_run(spec, folder / "run", manifest)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and macOS does not limit addresses")
def test_a_run_that_runs_out_of_memory_goes_on_with_a_smaller_micro_batch(spec, manifest, tmp_path) -> None:
    spec = _wide(spec)
    expected = trained(spec, manifest, tmp_path / "expected")
    assert in_process(_with_little_memory, spec, tmp_path, manifest.folder) == 0
    record = read_json(tmp_path / "run" / "attempts" / "001.json")
    assert 1 <= record["micro_batch"] <= 256
    assert (tmp_path / "run" / "DONE").exists()
    assert losses_of(tmp_path / "run") == pytest.approx(losses_of(expected), abs=1e-6)
    (kept,) = (tmp_path / "run" / "memory").glob("*.json")
    # Another run of the shape begins with it.
    assert within_memory(spec, Execution(engine="eager"), kept).micro_batch == record["micro_batch"]


def _out_of_memory_in_one(rank: int, spec: RunSpec, folder: Path, manifest: Path) -> None:
    losses = objectives.sequence_losses

    def limited(network, tokens, *given, **named) -> torch.Tensor:
        if rank == 1 and len(tokens) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return losses(network, tokens, *given, **named)

    objectives.sequence_losses = limited
    group = join(Parallel("ddp", 2, timeout=30.0))
    train_run(spec, folder, manifest, group=group, resume_every=1, parallel=Parallel("ddp", 2))
    leave(group)


@pytest.mark.slow
def test_processes_that_are_started_again_with_less_have_not_failed(spec, manifest, tmp_path) -> None:
    spec, folder = replace(spec, global_batch=8), tmp_path / "run"
    sizes = []
    while not (folder / "DONE").exists():
        all_done(together(_out_of_memory_in_one, spec, folder, manifest.folder))
        sizes.append(attempts(folder)[-1]["micro_batch"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
        # The number of the last attempt that does not count.
        assert (folder / "RETRIED").read_text() == f"{min(len(sizes), 2)}\n"
    assert sizes == [4, 2, 1]
    assert losses_of(folder) == pytest.approx(losses_of(trained(spec, manifest, tmp_path / "one")), abs=1e-6)


def test_what_one_sequence_does_not_fit_is_computed_with_checkpointing_then_refused(spec, tmp_path) -> None:
    path = tmp_path / "engines" / "memory.json"
    execution = within_memory(spec, Execution(), path)
    assert execution.micro_batch == spec.global_batch == 4
    for sizes in ("4 of 16 tokens", "2 of 16 tokens", "1 of 16 tokens"):
        assert sizes in keep_smaller(spec, execution, path, None)
        execution = within_memory(spec, Execution(), path)
    assert (execution.micro_batch, execution.parallel.activation_checkpointing) == (4, True)
    alone = replace(execution, micro_batch=1)
    for asked, named in ((None, "parallel=fsdp2"), (False, "activation_checkpointing=true")):
        refused = replace(alone, parallel=replace(alone.parallel, activation_checkpointing=asked is None))
        with pytest.raises(SpecError, match=named) as caught:
            keep_smaller(spec, refused, path, asked)
        assert "launcher.micro_batch: 1 of 16 tokens ran out of memory; give" in str(caught.value)
        assert "sequence_length" in str(caught.value)
