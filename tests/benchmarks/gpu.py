"""Model FLOP utilisation of Qwen shapes on a GPU: plain and compiled, logits whole, by rows, chunked or by Liger.

    python -m tests.benchmarks.gpu                      # Qwen1.5 0.5B and 1.8B shapes, 2,048 tokens, bf16 autocast
    python -m tests.benchmarks.gpu --shape tiny --batch 2 --steps 3 --length 64   # anywhere, to see that it runs

Needs torch, transformers and this folder alone; torch 2.11 or newer. Each variant runs in a process of its own, so that
one that runs out of memory does not take the others along. Prints a Markdown table.
"""

import argparse
import importlib.util
import itertools
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch

from training.model import build_model
from training.objectives import losses_by_rows, losses_in_chunks, sequence_losses, sequence_losses_of_head
from training.parameters import model_size
from training.telemetry import peak_flops, peak_memory

SHAPES = {
    name: {"model_type": "qwen2", "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    | {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads}
    | {"intermediate_size": inner, "vocab_size": vocabulary, "tie_word_embeddings": tied}
    for name, width, layers, heads, inner, vocabulary, tied in (
        ("0.5B", 1024, 24, 16, 2816, 151_936, True),
        ("1.8B", 2048, 24, 16, 5504, 151_936, False),
        ("tiny", 64, 2, 2, 176, 2_048, True),
    )
}
HEADS = {
    "logits": sequence_losses,
    "rows": partial(sequence_losses_of_head, head=losses_by_rows),
    "chunked": partial(sequence_losses_of_head, head=losses_in_chunks),
}


def main() -> None:
    """Run every variant of the shapes asked for, and print a row of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="which; none: 0.5B and 1.8B")
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--length", type=int, default=2048, help="tokens a sequence")
    parser.add_argument("--steps", type=int, default=20, help="timed steps, after five to warm up")
    arguments = parser.parse_args()
    liger = torch.cuda.is_available() and importlib.util.find_spec("liger_kernel") is not None
    heads = [*HEADS, *(["liger"] if liger else [])]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{device}, torch {torch.__version__}, {arguments.batch} x {arguments.length} tokens, bf16 autocast\n")
    print("| shape | compiled | head | tokens/s | MFU | peak memory, GB | seconds to the first step |")
    print("|---|---|---|---|---|---|---|")
    # Compiling took 205 s for the chunked head of the tiny shape on a processor, 25 s for that by rows.
    variants = [("no", head) for head in heads] + [("yes", head) for head in ("logits", "rows")]
    for shape, (compiled, head) in itertools.product(arguments.shape or ["0.5B", "1.8B"], variants):
        sizes = (arguments.batch, arguments.length, arguments.steps)
        try:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                row = pool.submit(measured, shape, compiled, head, *sizes).result()
        except Exception as error:
            cells = f"{(str(error).strip().splitlines() or [type(error).__name__])[-1][:60]} | | |"
        else:
            mfu = "n/a" if row["mfu"] is None else f"{row['mfu']:.1%}"
            cells = f"{row['tokens_per_second']:,.0f} | {mfu} | {row['memory'] / 1e9:.1f} | {row['first']:.0f}"
        print(f"| {shape} | {compiled} | {head} | {cells} |", flush=True)


def measured(shape: str, compiled: str, head: str, batch: int, length: int, steps: int) -> dict[str, float | None]:
    """Tokens a second of forward, backward, clipping and AdamW; MFU by `model_size`'s operations; peak bytes."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    fields = SHAPES[shape] | {"max_position_embeddings": length}
    if head == "liger":
        from liger_kernel.transformers import apply_liger_kernel_to_qwen2  # pyright: ignore[reportMissingImports]

        apply_liger_kernel_to_qwen2()
    network = build_model(fields, "sdpa", seed=0).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, fields["vocab_size"], (batch, length + 1), device=device)

    def loss() -> torch.Tensor:
        if head == "liger":
            # Liger's own loss never makes the logits, and gives their mean alone.
            with torch.autocast(device.type, torch.bfloat16):
                return network(input_ids=tokens[:, :-1], labels=tokens[:, 1:], shift_labels=tokens[:, 1:]).loss
        return HEADS[head](network, tokens, "bf16").sum() / (batch * length)

    forward = torch.compile(loss, dynamic=False) if compiled == "yes" else loss

    def step() -> None:
        forward().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def seconds(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    first, _, timed = seconds(1), seconds(4), seconds(steps)
    speed = steps * batch * length / timed
    peak = peak_flops(torch.cuda.get_device_name()) if device.type == "cuda" else None
    flops = model_size(fields, length).flops_per_token
    mfu = speed * flops / peak if peak else None
    return {"tokens_per_second": speed, "mfu": mfu, "memory": peak_memory(), "first": first}


if __name__ == "__main__":
    main()
