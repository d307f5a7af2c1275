"""What a lent GPU is asked: is it right, how fast, how many small runs at once. Two to five minutes each on an H200.

    python -m tests.benchmarks.gpu correctness OUT     # losses, kill and resume, memory by formula, host reads
    python -m tests.benchmarks.gpu speed OUT           # MFU of .1, .5 and 1.8 B parameters by engine
    python -m tests.benchmarks.gpu packed OUT          # small models: CUDA graphs, several processes, stacked models
    python -m tests.benchmarks.gpu parallel OUT        # losses of a group of one process by NCCL, each kind of group
    python -m tests.benchmarks.gpu PART OUT --shape tiny --length 32 --seconds 20    # anywhere, to see that it runs

Needs torch 2.11, transformers 5.17, psutil and this folder. Each measurement is a line of OUT/PART.jsonl, written when
it is made; none begins after `--seconds`. The step is the product's own; a batch that runs out of memory is halved.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch
from transformers import PreTrainedModel

from training.corpora.manifest import Manifest
from training.corpora.prepare import tokenise_corpora
from training.corpora.source import Source, TokenizerChoice
from training.devices import memory
from training.devices.group import ALONE, join
from training.devices.memory import memory_of
from training.devices.out_of_memory import is_out_of_memory
from training.devices.placement import place_model
from training.devices.processor import device_name
from training.devices.single import Devices
from training.engines import build_engine
from training.evaluation_steps import EvaluationPolicy
from training.model import build_model
from training.objectives import Losses
from training.parameters import model_size, peak_flops
from training.run import RunFolders, run_once
from training.schedule import Piece
from training.spec import Execution, Initial, Parallel, RunSpec
from training.telemetry import peak_memory
from training.timing import on_random_tokens

SHAPES = {
    name: {"model_type": "qwen2", "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    | {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads}
    | {"intermediate_size": inner, "vocab_size": vocabulary, "tie_word_embeddings": tied}
    for name, width, layers, heads, inner, vocabulary, tied in (
        ("0.1B", 768, 12, 12, 2048, 32_000, True),
        ("0.5B", 1024, 24, 16, 2816, 151_936, True),
        ("1.8B", 2048, 24, 16, 5504, 151_936, False),
        ("small", 128, 3, 2, 352, 2_048, True),
        ("tiny", 64, 2, 2, 176, 512, True),
    )
}
# That of SmolLM2-135M.
SHAPES["135M"] = {
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49_152, "rope_theta": 100_000.0,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
KINDS = ("ddp", "fsdp2", "zero1", "zero2", "zero3")
GPU = torch.cuda.is_available()
SPAWN = multiprocessing.get_context("spawn")
Facts = dict[str, float | str | list[float] | None]


def main() -> None:
    """Take the measurements of one part that there is time for, and write a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("out", type=Path, help="folder for the lines")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="instead of the part's own")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=32, help="sequences of a step at first")
    parser.add_argument("--seconds", type=float, default=540.0, help="no measurement begins later")
    measure(parser.parse_args())


def measure(asked: argparse.Namespace) -> None:
    """As `main`, of parsed arguments."""
    asked.out.mkdir(parents=True, exist_ok=True)
    start, about = time.monotonic(), {"device": device_name(), "torch": torch.__version__}
    for name, work in PARTS[asked.part](asked):
        if time.monotonic() - start > asked.seconds:
            break
        before = time.monotonic()
        try:
            facts = work()
        except Exception as error:
            # One that fails must not take the lease of the others.
            facts = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
        line = json.dumps({"measured": name, **facts, **about, "took": round(time.monotonic() - before, 1)})
        print(line, flush=True)
        with open(asked.out / f"{asked.part}.jsonl", "a") as stream:
            stream.write(line + "\n")


Work = Iterator[tuple[str, Callable[[], Facts]]]


def _correctness(asked: argparse.Namespace) -> Work:
    shape = (asked.shape or ["small"])[0]
    for more in ((), ("documents",)):
        for precision in ("fp32", "bf16"):
            work = partial(_losses_against_cpu, shape, precision, asked.length, *more)
            yield ", ".join(["losses", precision, *more]), work
    yield "kill and resume", partial(_kill_and_resume, shape, asked.out)
    for checkpointing in (False, True):
        yield f"memory, {checkpointing=}", partial(_alone, _memory, (asked.shape or ["0.1B"])[0], asked, checkpointing)
    for graphs in (False, True):
        yield f"host reads in a step, {graphs=}", partial(_alone, _host_reads, shape, asked.length, graphs)


def _speed(asked: argparse.Namespace) -> Work:
    for shape in asked.shape or ("0.5B", "1.8B", "0.1B"):
        yield f"{shape} {_engine()}", partial(_alone, _utilisation, shape, _engine(), asked.batch, asked.length)
    shape = (asked.shape or ["0.5B"])[0]
    for engine in ("sdpa-chunked", "sdpa"):
        yield f"{shape} {engine}", partial(_alone, _utilisation, shape, engine, asked.batch, asked.length)


def _packed(asked: argparse.Namespace) -> Work:
    (shape, *_), length = asked.shape or ["small"], min(asked.length, 256)
    for graphs in (False, True)[: 1 + GPU]:
        yield f"1 processes, {graphs=}", partial(_processes, shape, 1, length, graphs)
    for graphs in (False, True) if GPU else ():
        yield f"135M, 8 x {length}, {graphs=}", partial(_alone, _utilisation, "135M", _engine(), 8, length, graphs)
    for count in (2,) if not GPU else (32, 128):
        yield f"{count} stacked", partial(_alone, _stacked, shape, count, length)
    for count in (2,) if not GPU else (4, 16):
        yield f"{count} processes, graphs={GPU}", partial(_processes, shape, count, length, GPU)


def _parallel(asked: argparse.Namespace) -> Work:
    shape = (asked.shape or ["small"])[0]
    for kind in KINDS:
        yield kind, partial(_alone, _losses_of_group, shape, kind, asked.length)


PARTS = {"correctness": _correctness, "speed": _speed, "packed": _packed, "parallel": _parallel}


def spec_of(shape: str, length: int, batch: int, precision: str = "bf16", **changes) -> RunSpec:
    """A run of a shape on made-up tokens."""
    model = SHAPES[shape] | {"max_position_embeddings": max(length, 64)} | changes.pop("model", {})
    schedule = (Piece("constant", 1e-3),)
    return RunSpec("pretrain", model, Initial(), changes.pop("corpora", {}), changes.pop("mixture", {}), length, batch,
                   changes.pop("steps", 1), schedule, precision=precision, **changes)  # fmt: skip


def _alone(work: Callable[..., Facts], *arguments) -> Facts:
    """In a process of its own, whose memory is free afterwards."""
    with ProcessPoolExecutor(1, SPAWN) as pool:
        return pool.submit(work, *arguments).result()


def _engine() -> str:
    return "sdpa-compiled" if GPU else "sdpa"


def _losses_against_cpu(
    shape: str, precision: str, length: int, boundaries: str = "none", parallel: Parallel | None = None
) -> Facts:
    """Eight steps on this device, against fp32 on the CPU: the same weights and tokens."""
    spec, length = spec_of(shape, min(length, 256), 4, precision, boundaries=boundaries), min(length, 256)
    ends = 0 if boundaries == "documents" else None
    # Few token ids, so that documents end within a sequence.
    tokens = torch.randint(40, (8, 4, length + 1), generator=torch.Generator().manual_seed(0))
    source, losses = build_model(spec.model, "sdpa", seed=0), {}
    # DeepSpeed would build later models in shards, so that of the CPU comes first.
    for name, of_device in (("cpu", replace(spec, precision="fp32")), ("here", spec)):
        here = name == "here"
        engine = _engine() if here and parallel is None else "sdpa"
        network, loss = build_engine(of_device, engine, torch.get_num_threads(), ends)
        network.load_state_dict(source.state_dict())
        place = partial(place_model, parallel=parallel or Parallel(), group=ALONE) if here else Devices
        devices, parts = place(network.train(), loss, of_device), []
        for number, of_step in enumerate(tokens, start=1):
            parts.append(float(devices.gradient(of_step, 4 * length)))
            devices.update(1e-3 / number)
        losses[name] = parts
    worst = max(abs(here / cpu - 1) for here, cpu in zip(losses["here"], losses["cpu"]))
    return {"largest_relative_difference": worst, "losses": losses["here"]}


def _losses_of_group(shape: str, kind: str, length: int) -> Facts:
    """As `_losses_against_cpu` in bf16, of a group of this process alone."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29513"}
    parallel = Parallel(kind, 1)
    join(parallel)
    return _losses_against_cpu(shape, "bf16", length, parallel=parallel)


def _kill_and_resume(shape: str, out: Path) -> Facts:
    """Losses of a run that was killed between two evaluations, against one that was not."""
    folder = out / "kill"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("general", "code"):
        (folder / "texts" / name).mkdir(parents=True)
        for number in range(60):
            words = " ".join(f"{name[(number + place) % 4]}{place * number % 97}" for place in range(300))
            (folder / "texts" / name / f"{number}.txt").write_text(words)
    sources = {name: Source(kind="files", path=str(folder / "texts" / name)) for name in ("general", "code")}
    manifest = tokenise_corpora(
        sources, TokenizerChoice(vocabulary=300), folder / "data", validation_ratio=0.1, progress=lambda _: None
    )
    corpora = {name: corpus.fingerprint for name, corpus in manifest.corpora.items()}
    changes = {"corpora": corpora, "mixture": {"general": "1/2", "code": "1/2"}, "validation_windows": 4}
    changes |= {"evaluation": EvaluationPolicy("explicit", steps=tuple(range(5, 45, 5)))}
    spec = spec_of(shape, 32, 4, steps=40, model={"vocab_size": manifest.vocabulary}, **changes)
    _train(spec, folder / "whole", manifest.folder)
    process = SPAWN.Process(target=_train, args=(spec, folder / "killed", manifest.folder))
    process.start()
    points, deadline = folder / "killed" / "points.jsonl", time.monotonic() + 240
    while process.is_alive() and time.monotonic() < deadline:
        if points.exists() and points.read_bytes().count(b"\n") > 4:
            os.kill(process.pid or 0, signal.SIGKILL)
            break
        time.sleep(0.01)
    process.join()
    _train(spec, folder / "killed", manifest.folder)
    texts = [(folder / name / "points.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    whole, killed = ([json.loads(line)["loss"] for line in text] for text in texts)
    worst = max(abs(one / other - 1) for one, other in zip(killed, whole, strict=True))
    return {"exit_code": str(process.exitcode), "points": len(whole), "largest_relative_difference": worst}


def _step_of(
    network: PreTrainedModel, losses: Losses, spec: RunSpec, batch: int, parallel: Parallel | None = None
) -> Callable[[], None]:
    """A whole step; arguments as of `on_random_tokens`."""
    devices, tokens = on_random_tokens(network, losses, spec, batch, parallel)

    def step() -> None:
        devices.gradient(tokens, batch * spec.sequence_length)
        float(devices.update(0.0))  # waits for a GPU

    return step


def _train(spec: RunSpec, folder: Path, data: Path) -> None:
    folders = RunFolders(folder, Manifest.open(data), folder / "memory")
    run_once(spec, folders, Execution(engine="sdpa", resume_every=3), log=lambda _: None)


def _memory(shape: str, asked: argparse.Namespace, checkpointing: bool) -> Facts:
    """Peak bytes of two steps, against the formula of `plan`."""
    parallel = Parallel(activation_checkpointing=checkpointing)
    batch, engine = max(asked.batch // 8, 1), "sdpa-chunked"
    spec = spec_of(shape, asked.length, batch)
    network, losses = build_engine(spec, engine, 1)
    step = _step_of(network, losses, spec, batch, parallel)
    for _ in range(4):
        step()
    formula = memory_of(spec, parallel, batch, engine, gpu=GPU)
    assert formula is not None
    return {"peak": peak_memory(), "formula": formula.total, "batch": batch}


def _host_reads(shape: str, length: int, graphs: bool) -> Facts:
    """What of a step, after the first ones, waits for the GPU."""
    spec = spec_of(shape, min(length, 256), 4)
    network, losses = build_engine(spec, _engine(), 1)
    _set_graphs(graphs)
    devices = place_model(network.train(), losses, spec, Parallel(), ALONE)
    tokens = torch.zeros((4, spec.sequence_length + 1), dtype=torch.int64).to(ALONE.device)
    for number in range(5):
        if GPU and number == 3:
            torch.cuda.set_sync_debug_mode("error")
        devices.gradient(tokens, tokens.numel())
        devices.update(1e-3)
    if GPU:
        torch.cuda.set_sync_debug_mode("default")
    return {"reads": 0}


def _set_graphs(wanted: bool) -> None:
    memory.GRAPHED_FLOPS = memory.GRAPHED_FLOPS if wanted else 0.0


def _utilisation(shape: str, engine: str, batch: int, length: int, graphs: bool = True) -> Facts:
    """Tokens a second, MFU and peak memory of a shape by an engine, at the largest batch that fits by the formula."""
    _set_graphs(graphs)
    while batch > 1 and GPU and _formula(spec_of(shape, length, batch), engine) > torch.cuda.mem_get_info()[0]:
        batch //= 2
    while True:
        try:
            spec = spec_of(shape, length, batch)
            step = _step_of(*build_engine(spec, engine, torch.get_num_threads()), spec, batch)
            start = time.perf_counter()
            step()
            first = time.perf_counter() - start
            for _ in range(3):
                step()
            seconds = _median_seconds(step)
            break
        except Exception as error:
            if not is_out_of_memory(error) or batch == 1:
                raise
        batch //= 2
        torch.cuda.empty_cache()
    speed, peak = batch * length / seconds, peak_flops(device_name())
    mfu = speed * model_size(spec.model, length).flops_per_token / peak if peak else None
    peaks = {"memory": peak_memory(), "formula": _formula(spec, engine)}
    return {"batch": batch, "tokens_per_second": speed, "mfu": mfu, **peaks, "first_step": first}


def _formula(spec: RunSpec, engine: str) -> float:
    formula = memory_of(spec, Parallel(), spec.global_batch, engine, gpu=GPU)
    return formula.total if formula else 0.0


def _median_seconds(step: Callable[[], object], limit: float = 4.0) -> float:
    times, end = [], time.perf_counter() + (limit if GPU else 1.0)
    while len(times) < 3 or (len(times) < 20 and time.perf_counter() < end):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


_ready: Barrier


def _wait_for(barrier: Barrier) -> None:
    global _ready
    _ready = barrier


def _processes(shape: str, count: int, length: int, graphs: bool) -> Facts:
    """Tokens a second of several processes on one device, in the same seconds."""
    with ProcessPoolExecutor(count, SPAWN, _wait_for, (SPAWN.Barrier(count),)) as pool:
        futures = [pool.submit(_one_of_many, shape, length, graphs) for _ in range(count)]
        speeds = [future.result() for future in futures]
    return {"tokens_per_second": sum(speeds), "of_each": speeds}


def _one_of_many(shape: str, length: int, graphs: bool, batch: int = 16) -> float:
    spec = spec_of(shape, length, batch)
    _set_graphs(graphs)
    step = _step_of(*build_engine(spec, _engine(), 1), spec, batch)
    for _ in range(4):
        step()
    _ready.wait(timeout=200)
    start, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < (5.0 if GPU else 1.0):
        step()
        steps += 1
    return steps * batch * length / spent


def _stacked(shape: str, count: int, length: int) -> Facts:
    """Tokens a second of models of one shape as one, by torch.func, each with its clipped gradient and its update."""
    spec = spec_of(shape, length, 16)
    network = build_model(spec.model, "eager", seed=0).to(ALONE.device)  # pyright: ignore[reportArgumentType]
    weights = {name: torch.stack([value.detach()] * count) for name, value in network.named_parameters()}
    tokens = torch.zeros((count, 16, length + 1), dtype=torch.int64, device=ALONE.device)
    optimizer = torch.optim.AdamW(list(weights.values()), lr=0.0, fused=True)

    def loss(own: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        inputs = {"input_ids": rows[:, :-1], "use_cache": False, "attention_mask": {"full_attention": mask}}
        logits = torch.func.functional_call(network, own, (), inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())

    hidden = torch.ones((length, length), dtype=torch.bool, device=ALONE.device).triu(1)
    mask = torch.zeros((1, 1, length, length), device=ALONE.device).masked_fill(hidden, -1e9)
    gradient = torch.func.vmap(torch.func.grad(loss))

    def step() -> None:
        with torch.autocast(ALONE.device.type, torch.bfloat16):
            gradients = gradient(weights, tokens)
        squares = sum(value.flatten(1).square().sum(1) for value in gradients.values())
        factor = (1 / squares.sqrt()).clamp(max=1)  # pyright: ignore[reportAttributeAccessIssue]
        for name, value in gradients.items():
            weights[name].grad = value * factor.view(-1, *[1] * (value.ndim - 1))
        optimizer.step()
        if GPU:
            torch.cuda.synchronize()

    return {"tokens_per_second": count * 16 * length / _median_seconds(step)}


if __name__ == "__main__":
    main()
