"""How large a question may be: 20,000 runs, five million rows, 200 corpora, a million short documents."""

import random
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.study.folder import Study
from tests.benchmarks import Row, row
from tests.benchmarks.collect import write_points
from tests.benchmarks.scale import timed, words_of
from tests.conftest import write_text

RUNS, POINTS = 20_000, 250
CORPORA = 200
DOCUMENTS, WORDS = 1_000_000, 20
BAR = "bar: 60 s, 4 GiB"


def measure(runs: int = RUNS, corpora: int = CORPORA, documents: int = DOCUMENTS) -> list[Row]:
    """Seconds of each command as a process of its own; its processor's seconds and memory are in the meaning."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = _many_runs(folder, runs) | _many_corpora(folder, corpora) | _many_documents(folder, documents)
    return [
        row(f"limits {what}", seconds, "s", f"{processor:.1f} s of CPU, {memory / 1e6:,.0f} MB; {BAR}")
        for what, (seconds, processor, memory) in found.items()
    ]


def _many_runs(folder: Path, runs: int) -> dict[str, tuple[float, float, int]]:
    for seed, name in enumerate(("general", "code")):
        write_text(folder / name, seed)
    words = [word for word in words_of(folder, runs) if word != "launcher=slurm"]
    study, found = Study(folder / "studies" / "scale"), {}
    timed("prepare", words, folder)
    found[f"plan, {runs:,} runs"] = timed("plan", words, folder)
    plan = study.read_plan()
    for run in plan:
        (study.runs / run.name).mkdir(parents=True)
        write_points(study.runs / run.name, run.spec, range(1, POINTS // 2 + 1))
        (study.runs / run.name / "DONE").write_text('{"attempt": 1}\n')
    found[f"status, {runs:,} runs"] = timed("status", [str(study.folder)], folder)
    found[f"collect, {runs * POINTS:,} rows"] = timed("collect", [str(study.folder)], folder)
    write_table(folder / "rows.parquet", runs * POINTS)
    words = [f"points={folder / 'rows.parquet'}", "law=dcpt", f"every={POINTS}"]
    found[f"fit points=, {runs * POINTS:,} rows, every={POINTS}"] = timed("fit", words, folder)
    return found


def write_table(path: Path, rows: int) -> None:
    """A table of losses of runs of POINTS evaluations each, about the D-CPT law."""
    draw, runs = np.random.default_rng(0), rows // POINTS
    run, step = np.repeat(np.arange(runs), POINTS), np.tile(np.arange(1, POINTS + 1), runs)
    size, ratio = draw.choice([0.1, 0.3, 1.0], runs)[run], draw.uniform(0.05, 1, runs)[run]
    tokens = step * 0.01
    loss = 1.5 + 0.3 * size**-0.3 + 0.2 * ratio**0.6 * tokens**-0.4 + 0.15 * (ratio + 0.05) ** -0.3
    loss += 0.005 * draw.standard_normal(len(loss)) + 0.003 * draw.standard_normal(runs)[run]
    pd.DataFrame({"run": run, "step": step, "N": size, "D": tokens, "r": ratio, "loss": loss}).to_parquet(path)


def _many_corpora(folder: Path, corpora: int) -> dict[str, tuple[float, float, int]]:
    names = ["general", "domain", *(f"c{number}" for number in range(2, corpora))]
    for number, name in enumerate(names):
        write_text(folder / "corpora" / name, number, 60)
    sources = ", ".join(f"{name}: {{path: {folder / 'corpora' / name}}}" for name in names)
    words = ["goal=weights", "corpora=local", "name=corpora", "model=qwen2-0.05m", "precision=fp32"]
    words += [
        "weights.methods=[uniform]",
        "allow_repeats=true",
        "corpora.tokenizer.vocabulary=300",
        "corpora.validation_ratio=0.1",
    ]
    words += [f"studies={folder / 'studies'}", f"data={folder / 'data'}", f"corpora.sources={{{sources}}}"]
    return {f"{verb}, {corpora} corpora": timed(verb, words, folder) for verb in ("prepare", "plan")}


def _many_documents(folder: Path, documents: int) -> dict[str, tuple[float, float, int]]:
    draw = random.Random(0)
    known = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(5000)]
    for name, count in (("general", documents), ("domain", documents // 50)):
        with (folder / f"{name}.jsonl").open("w") as file:
            file.writelines(f'{{"text": "{" ".join(draw.choices(known, k=WORDS))}"}}\n' for _ in range(count))
    words = ["experiment=own", "name=documents", "model=qwen2-0.05m", "ladder=[]", "precision=fp32"]
    words += [f"studies={folder / 'studies'}", f"data={folder / 'data'}"]
    words += [f"corpora.sources.{name}.path={folder / name}.jsonl" for name in ("general", "domain")]
    return {f"prepare, {documents:,} documents": timed("prepare", words, folder)}
