"""cptlaw fit points=FILE: a stranger's table, as a stranger would give it."""

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import given, settings
from hypothesis import strategies as st

import fitting
from pipeline.cli import fit_table
from pipeline.cli.fit_table import TableFit, thinned
from pipeline.cli.main import run
from pipeline.cli.points_file import renamed
from pipeline.question.messages import ConfigError
from pipeline.question.overrides import key_and_value
from tests.fitting.synthetic import TRUE, grid, measured

COLUMNS = "columns={N: params_b, D: tokens_b, loss: val_loss, run: name}"
RAW = "columns={N: params / 1e9, D: tokens / 1e9, r: percent / 100, loss: val_loss, run: name}"


@pytest.fixture(scope="module")
def points() -> pd.DataFrame:
    return measured(grid(evaluations=5, every=40_000), "dcpt", TRUE["dcpt"], 0.002, run_noise=0.001)


@pytest.fixture(scope="module")
def file(points: pd.DataFrame, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stranger") / "any.csv"
    names = {"N": "params_b", "D": "tokens_b", "loss": "val_loss", "run": "name"}
    points.rename(columns=names).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def raw(points: pd.DataFrame, tmp_path_factory) -> Path:
    """Two corpora, in a parquet file, in raw counts and percent."""
    path = tmp_path_factory.mktemp("stranger") / "two.parquet"
    table = points.assign(params=points["N"] * 1e9, tokens=points["D"] * 1e9, percent=100 * points["r"])
    table = table.rename(columns={"loss": "val_loss", "run": "name"}).drop(columns=["N", "D", "r"])
    both = [table.assign(corpus="law"), table.assign(corpus="a/b", val_loss=table["val_loss"] + 0.1)]
    pd.concat(both).to_parquet(path, index=False)
    return path


@pytest.fixture(autouse=True)
def wide(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def printed(capsys, code: int, *words: str) -> list[str]:
    """The lines on standard output, or on standard error where the command must fail."""
    assert run(["fit", *words]) == code
    captured = capsys.readouterr()
    return (captured.err if code else captured.out).splitlines()


@pytest.mark.slow
def test_one_corpus_is_compared_on_all_cores_with_the_same_result(raw: Path, capsys, monkeypatch) -> None:
    """In a process of its own, since one that has threads, as that of tests may have, is not forked."""
    program = """
import os, sys
from fitting import parallel
from pipeline.cli import fit_table
from pipeline.cli.main import run
parallel._cores, parallel.WORTH_FORKING, tried = lambda: 2, 0, fit_table.try_out
def try_out(*given, **how):
    print(f"by {os.getpid() == parent}", file=sys.stderr, flush=True)
    return tried(*given, **how)
parent, fit_table.try_out = os.getpid(), try_out
sys.exit(run(["fit", *sys.argv[1:]]))
"""
    words = [f"points={raw}", RAW, "corpus=law", "law=[chinchilla,openai]", "bootstrap=4", "by=[size,step-thirds]"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stderr.count("by False") == 2
    assert "laws compared on law" in done.stdout
    monkeypatch.setattr("fitting.parallel.WORTH_FORKING", 1e9)
    assert printed(capsys, 0, *words) == done.stdout.splitlines()


def test_a_csv_is_fitted_compared_and_written(file: Path, tmp_path: Path, points, capsys) -> None:
    words = [f"points={file}", "law=[chinchilla,openai]", COLUMNS, f"out={tmp_path}/fits", "bootstrap=8"]
    text = "\n".join(printed(capsys, 0, *words, "by=[step-thirds]"))
    fit = fitting.Fit.from_json((tmp_path / "fits" / "chinchilla.json").read_text())
    low, high = fit.intervals()["alpha"]
    for part in (
        "any.csv: 135 rows; N is params_b, D is tokens_b, loss is val_loss, run is name",
        "N: 0.5 to 4, taken as size of the model, billions of parameters",
        "taken as validation loss, nats per token (bits would go unnoticed)",
        "run: 27 runs",
        "corpus: no such column",
        "chinchilla: R2 0.",
        "│ alpha     │ exponent of N ",
        f"{fit.params['alpha']:.4g}",
        f"{low:.4g} to {high:.4g}",
        "chinchilla was fitted to 135 points of 27 runs",
        "laws compared",
        "step-thirds (steps that were not run): ",
        f"written to {tmp_path}/fits/openai.json",
    ):
        assert part in text
    assert fit.predict(points) == pytest.approx(points["loss"].to_numpy(), rel=0.2)


def test_a_column_schedule_is_not_read(tmp_path: Path, points, capsys) -> None:
    points.assign(schedule="wsd").to_csv(path := tmp_path / "points.csv", index=False)
    lines = printed(capsys, 0, f"points={path}", "law=chinchilla", "bootstrap=0")
    line = "schedule (wsd): not read; s1 and s2, or lr, the learning rate of each row, say it to the laws that read"
    assert f"  {line} them" in lines


def test_each_corpus_has_its_own_fit_and_columns_may_be_scaled(raw: Path, tmp_path: Path, points, capsys) -> None:
    lines = printed(capsys, 0, f"points={raw}", "law=dcpt", RAW, f"out={tmp_path}", "bootstrap=0")
    assert "  corpus: a fit for each of law, a/b" in lines
    fits = [fitting.Fit.from_json((tmp_path / f"{name}-dcpt.json").read_text()) for name in ("law", "a_b")]
    assert fits[0].params == pytest.approx(fitting.fit(points, "dcpt", bootstrap=0).params, rel=1e-6)
    assert (fits[1].predict(points) - fits[0].predict(points)).mean() == pytest.approx(0.1, abs=0.005)
    assert fits[0].ranges["D"][1] == pytest.approx(points["D"].max())
    text = "\n".join(printed(capsys, 0, f"points={raw}", "law=chinchilla", RAW, "bootstrap=0", "corpus=law"))
    assert "chinchilla on law: R2" in text
    assert "a/b: R2" not in text
    assert "corpus: empty or not selected in 135 rows, which were left out" in text
    assert "not known" in text


def test_columns_are_calculated() -> None:
    table = pd.DataFrame({"step": [441, 882], "r": [0.25, 0.5], "val loss": [1.0, 4.0], "train/loss": [2.0, 8.0]})
    given = {
        "step * 20 / 4410": [2, 4],
        "1 - (r + 1) / 2": [0.375, 0.25],
        "train/loss - val loss": [1, 4],
        "log val loss / 2": [0, math.log(2)],
        "-2 * r": [-0.5, -1],
        "0.135": [0.135, 0.135],
    }
    for source, values in given.items():
        assert renamed(table, {"D": source})[0]["D"].tolist() == pytest.approx(values)


def test_a_ratio_that_is_not_of_the_own_corpus_is_noticed(raw: Path, capsys) -> None:
    lines = printed(capsys, 0, f"points={raw}", "law=dcpt", RAW, "bootstrap=0")
    assert (
        "  r: the same for law and a/b in each run; if these are mixed, of one of them it is 1 - r: fit that one by "
        "itself, corpus=NAME columns='{r: 1 - percent / 100}'"
    ) in lines
    lines = printed(capsys, 0, f"points={raw}", "law=chinchilla", RAW, "bootstrap=0")
    assert not any(line.startswith("  r: the same") for line in lines)
    lines = printed(capsys, 0, f"points={raw}", "law=dcpt", RAW, "bootstrap=0", "corpus=law")
    assert not any(line.startswith("  r: the same") for line in lines)


def test_what_was_left_out_and_what_is_missing_is_said(points: pd.DataFrame, tmp_path: Path, capsys) -> None:
    start = points.groupby("run").head(1).assign(D=0.0)
    path = tmp_path / "points.jsonl"
    table = pd.concat([start, points]).drop(columns=["run", "step"])
    table.to_json(path, orient="records", lines=True)
    text = "\n".join(printed(capsys, 0, f"points={path}", "law=dcpt", "bootstrap=0", "fix={E: 0.9}"))
    assert "run: no such column, so every row counts as a run of its own" in text
    assert "step: no such column, so duplicate points go unnoticed" in text
    assert "27 points at D = 0 left out: dcpt has no value there" in text
    assert "dcpt was fitted to 135 points" in text
    assert "given" in text


def test_wrong_words_are_told_all_at_once(file: Path, capsys) -> None:
    words = ("law=[dctp,chinchila]", "boostrap=3", "seed=x", "by=often", "nonsense", "bootstrap=-1")
    assert printed(capsys, 2, f"points={file}", *words) == [
        "nonsense: not key=value; see cptlaw fit --help",
        "boostrap: no such key; did you mean bootstrap?",
        "seed: 'x'; allowed: a whole number, 0 to 4,294,967,295",
        "law: 'dctp'; allowed: a name that cptlaw laws lists; did you mean dcpt?",
        "law: 'chinchila'; allowed: a name that cptlaw laws lists; did you mean chinchilla?",
        "by: 'often'; allowed: ratio, tokens, size, size-and-tokens, each-size, step-thirds, "
        "ratio-pairs, domain-pairs, rolling-tokens, rolling-compute, horizon",
        "bootstrap: -1; allowed: 0 to 10,000",
    ]
    (line,) = printed(capsys, 2, f"points={file}")
    assert line.startswith("law: has no value; give law=..., one or a list of openai, chinchilla, power, power-offset")
    assert printed(capsys, 2, f"points={file}", "law={a: 1}", "by={a: 1}") == [
        "law[0]: Cannot convert 'dict' to string: '{'a': 1}'",
        "by[0]: Cannot convert 'dict' to string: '{'a': 1}'",
    ]


def test_wrong_points_are_told_all_at_once_with_the_line_of_the_file(file: Path, tmp_path: Path, capsys) -> None:
    table = pd.read_csv(file)
    table.loc[3, "val_loss"] = 3e9
    table.loc[7, "r"] = None
    pd.concat([table, table.iloc[[11]]]).to_csv(path := tmp_path / "bad.csv", index=False)
    assert path.read_text().splitlines()[5 - 1].count("3000000000.0") == 1, "line 5 of the file"
    assert printed(capsys, 2, f"points={path}", "law=[dcpt,chinchilla]", COLUMNS) == [
        "dcpt: column r is not finite in 1 of 136 points (first: row 9): leave them out",
        "loss = 3e+09 (row 5) is not a mean in nats per token, where blind guessing among 250,000 tokens has 12.4: is "
        "it a sum, or another column? Perplexities: columns='{loss: log COLUMN}'",
        "run 2, step 80000 is there twice (rows 13 and 137; 1 points in all): keep one of each, or give every run a "
        "name of its own",
    ]
    (line,) = printed(capsys, 2, f"points={file}", "law=dcpt")
    assert line.startswith("missing columns: N, D, loss; the table has params_b, r, step, name, tokens_b, val_loss")
    assert line.endswith("; name it with columns=, D like '{D: step * 65536 / 1e9}' of 65,536 tokens a step")


def test_corpora_that_would_share_a_file_are_refused(points: pd.DataFrame, tmp_path: Path, capsys) -> None:
    both = pd.concat([points.assign(corpus="a/b"), points.assign(corpus="A_b")])
    both.to_csv(path := tmp_path / "two.csv", index=False)
    given = [f"points={path}", "law=chinchilla", f"out={tmp_path}/fits", "bootstrap=0"]
    (line,) = printed(capsys, 2, *given)
    assert line == "out: 'A_b' and 'a/b' would be written to one file: rename one, or choose it with corpus="
    printed(capsys, 0, *given, "corpus=a/b")
    assert [file.name for file in (tmp_path / "fits").iterdir()] == ["a_b-chinchilla.json"]


def test_fix_and_unknown_are_for_the_laws_that_have_them(points: pd.DataFrame, tmp_path: Path, capsys) -> None:
    one_size = points[points["N"] == 0.5]
    areas = {"s1": one_size["step"] * 3e-4, "s2": one_size["r"] * 1e-3, "rho": 0.2, "loss_before": 4.0}
    one_size.assign(**areas).to_csv(path := tmp_path / "one.csv", index=False)
    given = [f"points={path}", "law=[power,dcpt,transfer-anchored]", f"out={tmp_path}", "bootstrap=0"]
    size, missing = printed(capsys, 2, *given)
    by = "by=[step-thirds]"
    assert "name it with columns=, fit one number for all with unknown=[s1_pretrain], or fit power, " in missing
    assert "fix={A: 0, alpha: 0.3} leaves out its term of sizes" in size
    text = "\n".join(printed(capsys, 0, *given, "fix={A: 0, alpha: 0.3}", "unknown=[s1_pretrain]", by))
    fits = [fitting.Fit.from_json((tmp_path / f"{law}.json").read_text()) for law in ("power", "dcpt")]
    assert [fit.fixed for fit in fits] == [[], ["A", "alpha"]]
    assert "transfer-anchored could not be judged" not in text
    assert "s1_pretrain" in fitting.Fit.from_json((tmp_path / "transfer-anchored.json").read_text()).params
    (line,) = printed(capsys, 2, *given, "fix={A: 0, alpha: 0.3, Z: 1}", "unknown=[s1_pretrain]")
    assert line.startswith("fix: 'Z' is in none of power, dcpt, transfer-anchored; allowed: E, B, beta, ")
    (line,) = printed(capsys, 2, *given, "fix={A: 0, alpha: 0.3, lambda: 0.9}", "unknown=[s1_pretrain]")
    assert line.startswith("fix: 'lambda' is in none of power, dcpt, transfer-anchored; allowed: E, B, beta, ")
    (line,) = printed(capsys, 2, f"points={path}", "law=[power,dcpt-l5]", "fix={A: 0, alpha: 0.3}", "unknown=[rho]")
    assert line == "unknown: 'rho' is in none of power, dcpt-l5; allowed: none"


def test_wrong_columns_are_told_all_at_once(raw: Path, capsys) -> None:
    columns = "columns={N: parms, D: tokens / 0, loss: corpus * 2, r: step / x, run: 'open(name)', k1: 'step ** 9'}"
    lines = printed(capsys, 2, f"points={raw}", "law=dcpt", columns)
    assert [line.split(";")[0] for line in lines] == [
        "columns.N: 'parms' is not in the file",
        "columns.D: 'tokens / 0' is a number in no row",
        "columns.loss: 'corpus' holds text, which cannot be scaled",
        "columns.r: 'x' of 'step / x' is not in the file",
        "columns.run: 'open(name)'",
        "columns.k1: 'step ** 9'",
    ]
    assert lines[-1].endswith("percent, corpus, log COLUMN, and + - * / ( ) of columns and numbers")
    (line,) = printed(capsys, 2, f"points={raw}", "law=dcpt", RAW, "corpus=music")
    assert line == "corpus: 'music' is not in the file; allowed: law, a/b"


def not_utf8() -> bytes:
    """A table whose text is no UTF-8."""
    stream = io.BytesIO()
    pd.DataFrame({"run": ["é"], "loss": [2.0]}).to_parquet(stream, compression=None)
    return stream.getvalue().replace("é".encode(), b"\xff\xff")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.csv", None, "does not exist"),
        ("any.xlsx", b"x", "unknown file type; allowed: .csv, .tsv, .parquet, .jsonl"),
        ("any.parquet", b"not parquet", "cannot be read as parquet"),
        ("odd.parquet", not_utf8(), "Invalid UTF8 sequence"),
        ("half.jsonl", b'{"step": 1}\n{"step": "\\ud800"}', "surrogates not allowed"),
        ("empty.csv", b"", "cannot be read as csv"),
    ],
)
def test_a_file_that_cannot_be_read_is_input_missing(name, content, said, tmp_path: Path, capsys) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (line,) = printed(capsys, 3, f"points={tmp_path / name}", "law=dcpt")
    assert line.startswith(f"{tmp_path / name}: ")
    assert said in line


def test_a_law_of_all_corpora_reads_the_columns_that_the_table_has(tmp_path: Path, capsys) -> None:
    weights = [(0.5, 0.3), (0.2, 0.5), (0.1, 0.1), (0.8, 0.1), (0.3, 0.3), (0.6, 0.2), (0.3, 0.6)]
    rows = [{"web": one, "code": two, "rest": 1 - one - two, "loss": 1 + math.exp(one - two)} for one, two in weights]
    pd.DataFrame(rows).to_csv(tmp_path / "mix.csv", index=False)
    columns = "columns={mixture.web: web, mixture.code: code, mixture.rest: rest}"
    lines = printed(capsys, 0, f"points={tmp_path / 'mix.csv'}", "law=data-mixing", columns, "bootstrap=0")
    assert "  mixture.code: 0.1 to 0.6, taken as ratio of the corpus in the training tokens, 0 to 1" in lines
    assert any("t.code" in line and "-1" in line for line in lines)


def test_perplexities_are_asked_about(points: pd.DataFrame, tmp_path: Path, capsys) -> None:
    points.assign(val_ppl=np.exp(points["loss"])).drop(columns="loss").to_csv(tmp_path / "ppl.csv", index=False)
    given = [f"points={tmp_path / 'ppl.csv'}", "law=dcpt", "bootstrap=0"]
    lines = printed(capsys, 0, *given, "columns={loss: val_ppl}")
    assert any(line.startswith("  loss: perplexities? its column is val_ppl; if so,") for line in lines)
    lines = printed(capsys, 0, *given, "columns={loss: log val_ppl}")
    assert not any("perplexities?" in line for line in lines)
    assert f"  loss: {points['loss'].min():.4g} to {points['loss'].max():.4g}, taken as" in "\n".join(lines)


def test_sizes_and_ratios_that_a_law_does_not_read_are_named(raw: Path, tmp_path: Path, capsys) -> None:
    def pooled(points: Path, law: str, *words: str) -> list[str]:
        lines = printed(capsys, 0, f"points={points}", f"law={law}", "bootstrap=0", "by=[]", *words)
        return [line.strip() for line in lines if " in one fit, where what it changes is error" in line]

    named = "columns={D: tokens / 1e9, loss: val_loss, run: name}"
    size, ratio = pooled(raw, "[power,rectified]", named)
    assert re.match(r"params: 3 values \(5e\+08, .*\) in one fit, .* not read by power, rectified; openai, ", size)
    assert re.search(r"^percent: .* dcpt-l1, .* would, with columns= that name N, r$", ratio)
    (ratio,) = pooled(raw, "chinchilla", RAW)
    assert ratio.startswith("r: ")
    assert ratio.endswith(" since it is not read by chinchilla; dcpt-l1, dcpt-l2, dcpt, dcpt-convex would")
    assert not pooled(raw, "dcpt", RAW)
    # What differs within runs, or is the same in all, is no setting of them.
    table = pd.read_parquet(raw)
    table.assign(params=1e8, percent=np.arange(len(table)) / len(table)).to_csv(
        file := tmp_path / "one.csv", index=False
    )
    assert not pooled(file, "power", named)


@pytest.fixture
def curve(tmp_path: Path) -> Path:
    """step, lr, loss and tokens of one run, whose learning rate falls in a line over its last fifth."""
    step = np.arange(100, 3001, 100)
    lr = np.minimum(3e-4, 3e-4 * (3000 - step) / 600 + 1e-5)
    table = pd.DataFrame({"step": step, "lr": lr, "loss": 2 + 3 * step**-0.3, "tokens": step * 500_000})
    table.to_csv(tmp_path / "curve.csv", index=False)
    return tmp_path / "curve.csv"


def test_the_areas_of_a_schedule_come_from_its_learning_rates(curve: Path, capsys) -> None:
    lines = printed(capsys, 0, f"points={curve}", "law=annealing", "bootstrap=0")
    assert lines[0] == f"{curve}: 30 rows; s1, s2: from lr of each run, in a line between its rows"
    rates = np.interp(np.arange(1, 3001), *pd.read_csv(curve)[["step", "lr"]].to_numpy().T)
    s1, s2 = fitting.areas(rates, before=rates[0])
    assert f"  s1: {s1[99]:.4g} to {s1[-1]:.4g}, taken as S1, summed learning rate of the run so far" in lines
    assert f" to {s2[-1]:.4g}, taken as S2, annealing area of the run so far" in "\n".join(lines)
    (line,) = printed(capsys, 2, f"points={curve}", "law=chinchilla", "columns={D: tokens / 1e9}")
    assert line.startswith("missing column: N; the table has ")
    assert line.endswith(
        "; name it with columns=, or fit power, power-offset, rectified, rectified-floorless, power-floorless, "
        "annealing"
    )


@pytest.mark.slow
def test_a_plain_curve_is_told_what_it_can_be_fitted_by(curve: Path, capsys) -> None:
    assert printed(capsys, 2, f"points={curve}") == [
        "law: has no value; give law=..., one or a list of annealing; cptlaw laws lists what others read"
    ]
    assert printed(capsys, 2, f"points={curve}", "law=chinchilla") == [
        "missing columns: N, D; the table has step, lr, loss, tokens; name it with columns=, "
        "D like '{D: step * 65536 / 1e9}' of 65,536 tokens a step, or fit annealing"
    ]


def test_the_losses_of_one_run_are_predicted_beyond_it(curve: Path, capsys) -> None:
    assert run(["predict", f"points={curve}", "tokens=[3e9,1.5e10]", "--json"]) == 0
    out, said = capsys.readouterr()
    first, last = pd.read_csv(curve)["lr"].iloc[[0, -1]]
    said = " ".join(said.split())
    assert f"lr: not used ({first:g} in the first row, {last:g} in the last), since laws of tokens alone" in said
    assert f"cptlaw fit points={curve} law=annealing" in said
    pd.read_csv(curve).drop(columns="lr").to_csv(without := curve.with_name("without.csv"), index=False)
    assert run(["predict", f"points={without}", "tokens=3e9"]) == 0
    no_rate = (
        "learning_rate: no such column; laws of tokens alone take the curve to go on as it began, so they miss what"
    )
    assert no_rate in " ".join(capsys.readouterr().out.split())
    content = json.loads(out)
    for row, step in zip(content["losses"], (6000, 30000), strict=True):
        assert row["horizon"] == pytest.approx(step / 3000)
        assert row["loss"] == pytest.approx(2 + 3 * step**-0.3, rel=0.01)
        assert row["low"] < 2 + 3 * step**-0.3 < row["high"]
    for words, message in {
        ("tokens=0",): "tokens: 0.0; allowed: above 0, up to 1e18, or a list: tokens=[1e9,1e10]",
        (): "tokens: has no value; allowed: above 0, up to 1e18, or a list: tokens=[1e9,1e10]",
        ("tokens=1e9", "law=dcpt"): "law: 'dcpt'; allowed: laws of tokens alone, power, power-offset, rectified,",
        ("tokens=1e9", "columns={loss: log loss, N: step}"): f"{curve}: several values of N; allowed: one run; cptlaw",
        ("tokens=1e9", "columns={loss: tokens}"): "loss: perplexities? 1.5e+09 is above 20, more than a model without",
    }.items():
        assert run(["predict", f"points={curve}", *words]) == 2
        assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(("column", "code"), [("loss", 2), ("tokens", 2), ("lr", 0)])
def test_a_word_among_the_numbers_of_a_curve_is_named(curve: Path, column: str, code: int, capsys) -> None:
    table = pd.read_csv(curve, dtype=str)
    table.loc[[0, 2], column] = "x"
    table.to_csv(curve, index=False)
    assert run(["predict", f"points={curve}", "tokens=3e9"]) == code
    out, said = capsys.readouterr()
    wrong = f"{curve}: column {column} holds something that is not a number: 'x' (row 2)\n"
    assert said == wrong if code else "lr: not used (nan in the first row, " in out


def test_laws_that_do_not_follow_a_curve_are_named(tmp_path: Path, capsys) -> None:
    """As Pythia-70M on the Pile at 12.5%: the loss rises, then falls; no law of tokens has that form."""
    step = np.arange(1000, 10_001, 1000)
    rising = [2.9037, 2.9201, 2.9295, 2.9295, 2.9339, 2.9334, 2.9297, 2.9278, 2.9266, 2.9262]
    table = pd.DataFrame({"step": step, "tokens": 2e6 * step, "run": "a"})
    both = [table.assign(corpus="pile", loss=rising), table.assign(corpus="code", loss=1.3 + 2 * step**-0.4)]
    pd.concat(both).to_csv(file := tmp_path / "curve.csv", index=False)
    assert run(["predict", f"points={file}", "tokens=4e10", "--json"]) == 0
    out, said = capsys.readouterr()
    said = " ".join(said.split())
    assert re.search(r"pile: no law follows the points, R2 -\S+ to -0\.\d\d: do not rely on it", said)
    assert "pile: the loss rises, from 2.9178 in the first third of its points to 2.9269 in the last, and 2.9" in said
    assert "code: " not in said
    assert [len(row["laws"]) for row in json.loads(out)["losses"]] == [5, 5]


def test_help_teaches_it(capsys) -> None:
    assert run(["fit", "--help", "all"]) == 0
    text = capsys.readouterr().out
    for key in (*TableFit.__dataclass_fields__, *fitting.LAWS, "loss_before, rho, r, s1, s2, s1_pretrain", "corpora"):
        assert key in text


def test_it_waits_for_no_library_but_those_of_fitting(file: Path) -> None:
    words = ["fit", f"points={file}", "law=chinchilla", COLUMNS, "bootstrap=0"]
    command = [sys.executable, "-X", "importtime", "-m", "pipeline.cli.main", *words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert {"numpy", "scipy", "pandas"} <= loaded
    assert not loaded & {"torch", "transformers", "hydra", "plotly", "wandb", "jinja2", "pydantic", "datasets"}


@settings(deadline=None)
@given(
    text=st.text("ab1-+._e0:,[]{}'\" \\/*()$%@?|~=!\t", max_size=8) | st.from_regex(r"\[(\w+,)*\w\]", fullmatch=True)
)
def test_a_value_is_read_as_hydra_reads_it(text: str) -> None:
    try:
        (expected,) = OverridesParser.create().parse_overrides([f"law={text}"])
        several = expected.is_sweep_override()
    except HydraException:
        several = True
    if several:
        with pytest.raises(ConfigError):
            key_and_value(f"law={text}")
    else:
        assert repr(key_and_value(f"law={text}")[1]) == repr(expected.value())


def test_a_table_of_many_rows_is_thinned_run_by_run(points: pd.DataFrame, tmp_path: Path, capsys, monkeypatch) -> None:
    few = thinned(points, 5)
    assert len(few) == pytest.approx(len(points) / 5, abs=1)
    assert {*few["run"]} == {*points["run"]}
    assert {*few["D"]} == {*points["D"]}
    assert len(thinned(points[["loss"]], 4)) == -(-len(points) // 4)
    path = tmp_path / "points.csv"
    points.to_csv(path, index=False)
    monkeypatch.setattr(fit_table, "MANY_ROWS", len(points) // 4)
    assert run(["fit", f"points={path}", "law=chinchilla", "bootstrap=0", "every=2"]) == 0
    shown = capsys.readouterr().out
    assert f"{len(points)} rows, {-(-len(points) // 2)} of them fitted" in shown
    assert f"every={2 * (2 if len(points) % 4 == 0 else 3)} fits fewer of each run" in shown
    assert printed(capsys, 2, f"points={path}", "law=chinchilla", "every=0") == [
        "every: 0; allowed: 1 to 1,000,000,000"
    ]
