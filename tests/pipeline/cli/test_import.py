"""Losses of runs made elsewhere: each kind of log gives the same points, which fit and recommend read."""

import csv
import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest

from fitting import areas
from pipeline.cli.main import run
from pipeline.goals.registry import question_of_study
from pipeline.plan.write import write_plan
from pipeline.study.collect import read_points
from pipeline.study.context import context_of
from pipeline.study.folder import Study, StudyError
from tests.pipeline.cli.trainer_logs import BEFORE, FACTS, LOSS_BEFORE, STEPS, facts_file, losses, trainer_state
from tests.pipeline.small import refused
from training.schedule import Piece, learning_rates


def words(tmp_path: Path, *more: str) -> list[str]:
    return [f"studies={tmp_path / 'studies'}", "name=elsewhere", *FACTS, *more]


def imported(tmp_path: Path, *given: str) -> pd.DataFrame:
    assert run(["import", *words(tmp_path, *given)]) == 0
    return read_points(Study(tmp_path / "studies" / "elsewhere"))


@pytest.fixture
def states(tmp_path: Path) -> Mapping[float, Path]:
    return {ratio: trainer_state(tmp_path / f"r{ratio}" / "checkpoint-40", ratio) for ratio in (0.0, 0.3, 0.6, 0.9)}


@pytest.mark.parametrize(
    ("name", "between", "end", "encoding"),
    [
        ("a.csv", ";", "\n", "utf-8"),
        ("a.csv.gz", "\t", "\r\n", "utf-8-sig"),
        ("a.TSV.ZST", "\t", "\n", "utf-16"),
        ("a.CSV", " , ", "\r", "utf-16-le"),
    ],
)
def test_a_table_as_spreadsheets_write_it(name: str, between: str, end: str, encoding: str, tmp_path: Path) -> None:
    rows = [(step, corpus, loss) for step in (0, *STEPS) for corpus, loss in losses(0.3, step).items()]
    lines = [between.join(map(str, row)) + end for row in [("step", "corpus", "loss"), *rows]]
    compression = {".gz": "gzip", ".zst": "zstd"}.get(Path(name).suffix.lower())
    with pyarrow.output_stream(tmp_path / name, compression=compression) as file:
        file.write("".join(lines).encode(encoding))
    table = imported(tmp_path, str(tmp_path / name), "domain_ratio=0.3")
    assert table["loss"].tolist() == pytest.approx([loss for *_, loss in sorted(rows, key=lambda row: row[:2])])


def test_runs_of_the_trainer_become_points(states: Mapping[float, Path], tmp_path: Path, capsys) -> None:
    files = [str(path) for path in states.values()]
    table = imported(tmp_path, *files, facts_file(tmp_path, states))
    assert table["run"].nunique() == 4
    assert sorted(table["step"].unique()) == [0, *STEPS]
    row = table[(table["step"] == 20) & (table["corpus"] == "domain") & (table["ratio"] == 0.3)].iloc[0]
    assert row["loss"] == losses(0.3, 20)["domain"]
    assert (row["N"], row["D"], row["loss_before"], row["r"]) == (0.1, 20 * 2048 / 1e9, 4.0, 0.3)
    rates = learning_rates([Piece("linear", 0.0, 2e-4, steps=4), Piece("cosine", end=2e-5)], 40)
    s1, s2 = areas(rates, 0.999)
    assert (row["s1"], row["s2"]) == (pytest.approx(s1[19]), pytest.approx(s2[19]))
    laws = question_of_study(tmp_path / "studies" / "elsewhere", []).law
    assert [*laws] == ["transfer-open-saturating", "transfer-open", "transfer-open-read"]
    # A second import of one more run keeps those that are there.
    more = trainer_state(tmp_path / "more", 0.45)
    assert imported(tmp_path, str(more), "domain_ratio=0.45", *LOSS_BEFORE)["run"].nunique() == 5
    law = ["domain=law", "losses={eval_general_loss: general, eval_domain_loss: law}"]
    law.append("loss_before={general: 3, law: 4}")
    error = refused(["import", *words(tmp_path, str(more), "domain_ratio=0.45", *law)], capsys, 3)
    assert "its corpora are domain and general" in error


@pytest.mark.slow
def test_an_offline_run_of_wandb_is_read_from_all_its_folders(tmp_path: Path) -> None:
    def rows(*steps: int, shift: float = 0.0) -> list[dict[str, float]]:
        named = {step: {f"eval/{c}_loss": v + shift for c, v in losses(0.5, step).items()} for step in steps}
        return [{"train/global_step": step, **measured} for step, measured in named.items()]

    # It died after step 20, and went on from a checkpoint of step 15.
    logged = [rows(10, 20, 25, shift=0.1), rows(20, 30, 40)]
    script = (
        "import sys, json, time, wandb\n"
        "for number, rows in enumerate(json.loads(sys.argv[2])):\n"
        "    time.sleep(1.1 * number)  # A folder is named by its second.\n"
        "    silent = wandb.Settings(silent=True)\n"
        "    run = wandb.init(mode='offline', id='x', dir=sys.argv[1], project='p', settings=silent)\n"
        "    for row in rows: run.log(row)\n"
        "    run.finish()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path), json.dumps(logged)], check=True, timeout=120)
    folders = sorted(map(str, (tmp_path / "wandb").glob("offline-run-*")), reverse=True)
    assert len(folders) == 2
    table = imported(tmp_path, *folders, "domain_ratio=0.5", *LOSS_BEFORE)
    assert sources(tmp_path) == ["wandb x"]
    measured = table[table["step"] > 0].pivot(index="step", columns="corpus", values="loss")
    wanted = [losses(0.5, step) for step in STEPS]
    wanted[0] = {corpus: loss + 0.1 for corpus, loss in wanted[0].items()}
    np.testing.assert_allclose(measured[["general", "domain"]], pd.DataFrame(wanted, index=STEPS), rtol=1e-12)


def test_what_is_missing_is_one_line(tmp_path: Path, capsys) -> None:
    folder = str(trainer_state(tmp_path / "run", 0.5))

    def line(*given: str) -> str:
        error = refused(["import", *words(tmp_path, *given)], capsys)
        assert not (tmp_path / "studies").exists()
        return error

    assert line(folder, *LOSS_BEFORE).startswith(
        f"{folder}: no domain_ratio; give domain_ratio=... on the command line"
    )
    assert "domain_ratio: 1.5; allowed: 0 to 1" in line(folder, "domain_ratio=1.5", *LOSS_BEFORE)
    given = ["domain_ratio=0.5", *LOSS_BEFORE]
    assert "no loss on 'domain' at step 0; give loss_before.domain=" in line(folder, "domain_ratio=0.5", LOSS_BEFORE[0])
    at_10 = "learning_rate=0.0001879 at step 10 in the log, but peak, warmup, decay and final give 0.0001667; "
    for word, part in (
        ("peak=-1", "peak: -1.0; allowed: above 0, up to 10"),
        ("non_embedding=0.494", "non_embedding: 0.494; allowed: 1,000 to "),
        ("non_embedding=1e30", "a count of parameters, not billions"),
        ("loss_before.domian=4", "loss_before.domian: no such corpus; allowed: general, domain"),
        ("seed=-1", "seed: -1; allowed: 0 to 4,294,967,295"),
        ("loss_before.general=inf", "loss_before.general: inf; allowed: a finite loss above 0"),
        ("steps=30", "steps=30, but it goes to step 40"),
        ("losses={eval_loss: domain}", "it has eval_domain_loss, eval_general_loss, loss; name"),
        (
            "domain=domian",
            "no losses on 'domian' after step 0; it has eval_domain_loss, eval_general_loss; see losses=",
        ),
        ("decay=steep", "decay: 'steep'; allowed: linear, cosine, none, "),
        ("decay=linear final=0", at_10),
        ("decay=linear", "; decay=cosine final=0.1 fits all of them"),
        ("peak=3e-4", "; peak=0.0002 decay=cosine final=0.1 fits all of them"),
        ("steps=80", "(steps=80); no decay of all steps after the warm-up (linear, cosine, "),
        ("steps=80", "give warmup, decay, final and decay_steps as the run was trained; of another shape cptlaw fit "),
        ("sequence_length=500", "sequence_length=500; allowed: a divisor of tokens_per_step=2048"),
        ("role=proof", "role: 'proof'; allowed: fit, confirm"),
        ("role=confirm", "nothing to confirm; import runs with role=fit first"),
    ):
        assert part in line(folder, *given, *(word.split() if "{" not in word else [word])), word
    for name, content, part in (
        ("nowhere.csv", None, "nowhere.csv: does not exist"),
        ("trainer_state.json", '{"log_history": [', "not a log of Trainer or wandb"),
        ("table.txt", "step,corpus,loss\n", "; a table ends in .csv, .tsv, .parquet, .jsonl"),
        ("upper.csv", "Step,corpus,loss\n", "no column step; it has Step, corpus, loss; name it"),
        ("plain.csv", "step,lr,loss\n", "no column corpus; it has step, lr, loss; name it with columns="),
        ("plain.csv", "step,lr,loss\n", "; losses on one corpus alone are for cptlaw fit points=FILE"),
    ):
        if content:
            (tmp_path / name).write_text(content)
        assert part in line(str(tmp_path / name), *given)
    bomb = [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)]
    for facts, part in (
        ("runs: {x: {ratio: 0.5}}\nratios: 3\n", "ratios: no such key"),
        (f"runs: {{{folder}: {{non_embedding: {10**30}}}}}\n", "a count of parameters, not billions"),
        ("runs: [x]\n", "runs: ['x']; allowed: below each file or run its facts, like {a.csv: {domain_ratio: 0.3}}"),
        ("runs: {x: 0.3}\n", "runs: {'x': 0.3}; allowed: below each file or run its facts, like {a.csv: {domain_"),
        ("0.3\n", "'0.3'; allowed: keys with values, like peak: 1e-3"),
        ("peak: 1\nwarmup: *x\tb: [\n", "line 2: "),
        ("[" * 5000, "nested too deeply"),
        ("a0: &a0 x\n" + "".join(bomb), "YAML aliases (*name) are not read"),
    ):
        (tmp_path / "facts.yaml").write_text(facts)
        assert part in line(folder, *given, f"runs={tmp_path / 'facts.yaml'}")
    assert refused(["import", folder], capsys, 2) == "name: has no value; give name=..."


def table_file(path: Path, names: tuple[str, ...] = ("a", "b", "c"), last: int = 40) -> list[dict[str, object]]:
    """A table of a run of each name, written as .csv; returns its rows."""
    rows = [
        {"run": name, "step": step, "corpus": corpus, "loss": loss, "domain_ratio": (1 + 3 * number) / 10}
        for number, name in enumerate(names)
        for step in range(0, last + 1, 10)
        for corpus, loss in losses((1 + 3 * number) / 10, step).items()
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return rows


def sources(tmp_path: Path) -> list[str]:
    return [planned.source for planned in Study(tmp_path / "studies" / "elsewhere").read_plan()]


@pytest.mark.parametrize(
    ("row", "column", "value", "part"),
    [
        (7, "loss", "NA", "row 7, column loss is empty; allowed: a finite loss above 0"),
        (8, "loss", "inf", "row 8, column loss is inf"),
        (8, "loss", "-1", "row 8, column loss is -1"),
        (9, "loss", "3,02", "row 9, column loss is 3,02"),
        (9, "loss", "True", "row 9, column loss is True"),
        (10, "step", "", "row 10, column step is empty; allowed: a whole number, 0 to"),
        (10, "step", "10.5", "row 10, column step is 10.5"),
        (11, "step", "1e18", "row 11, column step is 1e+18"),
        (11, "run", "", "row 11, column run is empty; allowed: a name"),
        (12, "corpus", "", "row 12, column corpus is empty"),
        (4, "step", "0", "rows 2 and 4 are both of run a, step 0, corpus general"),
        (4, "domain_ratio", "0.3", "rows 2 and 4 have domain_ratio 0.1 and 0.3; allowed: one value for a run"),
    ],
)
def test_a_wrong_value_in_a_table_is_named_and_nothing_is_written(row, column, value, part, tmp_path, capsys) -> None:
    table = pd.DataFrame(table_file(tmp_path / "t.csv")).astype(str)
    table.loc[row - 2, column] = value
    table.to_csv(tmp_path / "t.csv", index=False)
    error = refused(["import", *words(tmp_path, str(tmp_path / "t.csv"))], capsys, 2)
    assert error.startswith(f"{tmp_path / 't.csv'}: ")
    assert part in error
    assert not (tmp_path / "studies").exists()


def test_the_loss_before_is_read_of_each_corpus(tmp_path: Path, capsys) -> None:
    rows = pd.DataFrame(table_file(tmp_path / "t.csv"))
    before = rows[rows["step"] == 0].set_index(["run", "corpus"])["loss"]
    rows["loss_before"] = [before[run, corpus] for run, corpus in zip(rows["run"], rows["corpus"])]
    rows[rows["step"] > 0].to_csv(tmp_path / "t.csv", index=False)
    points = imported(tmp_path, str(tmp_path / "t.csv"))
    assert (points["loss_before"] == points["corpus"].map(losses(0.1, 0))).all()
    error = refused(["import", *words(tmp_path, str(tmp_path / "t.csv"), "loss_before.general=2")], capsys, 2)
    assert error.endswith(
        "a: loss_before.general=2.0 is given, its table has 3.0; leave out the wrong one; and so in 2 more runs"
    ), "once, not a line each"


def test_whole_numbers_may_be_written_as_floats(tmp_path: Path) -> None:
    table = pd.DataFrame(table_file(tmp_path / "t.csv", ("a",))).assign(steps=40.0)
    table.assign(steps=table["steps"].where(table["step"] > 0)).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "facts.yaml").write_text("sequence_length: 2.56e2\nruns: {a: {seed: 1.0}}\n")
    assert len(imported(tmp_path, str(tmp_path / "t.csv"), f"runs={tmp_path / 'facts.yaml'}", "tokens_per_step=2.56e3"))
    spec = Study(tmp_path / "studies" / "elsewhere").read_plan()[0].spec
    assert (spec.steps, spec.sequence_length, spec.seed, spec.tokens_per_step) == (40, 256, 1, 2560)


def test_the_schedule_of_a_log_without_learning_rates_is_said(tmp_path: Path, capsys) -> None:
    pd.DataFrame(table_file(tmp_path / "t.csv")).assign(schedule="wsd").to_csv(tmp_path / "t.csv", index=False)
    imported(tmp_path, str(tmp_path / "t.csv"), "decay_steps=10")
    taken = "taken as 4 steps of warm-up, then cosine to 0.1 of the peak in the last 10 steps (column schedule, wsd, is"
    assert f"no learning rates in the log of 3 runs: {taken}" in capsys.readouterr().out
    imported(tmp_path, str(trainer_state(tmp_path / "log", 0.5)), "domain_ratio=0.5", *LOSS_BEFORE)
    assert "no learning rates" not in capsys.readouterr().out


def test_runs_of_several_batches_are_noted(tmp_path: Path, capsys) -> None:
    table_file(tmp_path / "t.csv")
    imported(tmp_path, str(tmp_path / "t.csv"))
    said = capsys.readouterr().out
    assert "reads the batch" not in said
    assert "the same losses" not in said
    log = str(trainer_state(tmp_path / "log", 0.5))
    imported(tmp_path, log, "domain_ratio=0.5", "tokens_per_step=64", *LOSS_BEFORE)
    asked = "2,048 tokens a step are asked about, the runs for the fit have 64 and 2,048"
    assert f"note: no law reads the batch: {asked}" in capsys.readouterr().out


def test_a_given_fact_that_the_table_contradicts_is_refused(tmp_path: Path, capsys) -> None:
    table_file(tmp_path / "t.csv", ("a",))
    (tmp_path / "facts.yaml").write_text("domain_ratio: 0.5\n")
    for given in ("domain_ratio=0.5", f"runs={tmp_path / 'facts.yaml'}"):
        error = refused(["import", *words(tmp_path, str(tmp_path / "t.csv"), given)], capsys, 2)
        assert error.endswith("a: domain_ratio=0.5 is given, its table has 0.1; leave out the wrong one")
    error = refused(["import", *words(tmp_path, str(tmp_path / "t.csv"), "loss_before.general=3.1")], capsys, 2)
    assert error.endswith("a: loss_before.general=3.1, but it has 3 at step 0; leave out the wrong one")
    (tmp_path / "facts.yaml").write_text("runs: {a: {domain_ratio: 0.5}}\n")
    points = imported(tmp_path, str(tmp_path / "t.csv"), f"runs={tmp_path / 'facts.yaml'}", "domain_ratio=0.4")
    assert {*points["ratio"]} == {0.5}, "what is given for one run counts first"


def test_facts_of_no_run_are_named(tmp_path: Path, capsys) -> None:
    pd.DataFrame(table_file(tmp_path / "t.csv", ("a",))).drop(columns="domain_ratio").to_csv(tmp_path / "t.csv")
    log = trainer_state(tmp_path / "log", 0.5)
    runs = f"  A: {{domain_ratio: 0.1}}\n  {log}/: {{domain_ratio: 0.5, loss_before: {json.dumps(BEFORE)}}}\n"
    (tmp_path / "facts.yaml").write_text(f"runs:\n{runs}")
    given = [str(tmp_path / "t.csv"), f"runs={tmp_path / 'facts.yaml'}"]
    line = f"runs: {tmp_path / 'facts.yaml'}: A: no file or run that is given is called so"
    assert run(["import", *words(tmp_path, *given)]) == 2
    assert capsys.readouterr().err.endswith(f"or for this one in runs=FACTS.yaml\n{line}\n")
    imported(tmp_path, *given, "domain_ratio=0.1")
    assert f"note: {line}\n" in capsys.readouterr().out
    # The rest of the file is of runs that are imported at another time.
    (tmp_path / "facts.yaml").write_text(f"runs:\n{runs.replace('A:', 'a:')}")
    assert {*imported(tmp_path, str(log), given[1])["ratio"]} == {0.1, 0.5}
    assert "is called so" not in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_names_of_runs_are_text(suffix: str, tmp_path: Path) -> None:
    names = ("001", "1", "NA", "null", "1e3", "1000", "nan", "None")
    table = pd.DataFrame(table_file(tmp_path / "t.csv", names)).drop(columns="domain_ratio")
    if suffix != "csv":
        writers = {"jsonl": lambda path: table.to_json(path, orient="records", lines=True), "parquet": table.to_parquet}
        writers[suffix](tmp_path / f"t.{suffix}")
    facts = "".join(f"  {name}: {{domain_ratio: 0.{number}}}\n" for number, name in enumerate(names))
    (tmp_path / "facts.yaml").write_text(f"runs:\n{facts}")
    points = imported(tmp_path, str(tmp_path / f"t.{suffix}"), f"runs={tmp_path / 'facts.yaml'}")
    assert sources(tmp_path) == [*names]
    assert points.groupby("run", sort=False)["ratio"].first().tolist() == [number / 10 for number in range(8)]


def test_a_second_import_of_a_run_replaces_it(tmp_path: Path, capsys) -> None:
    study = Study(tmp_path / "studies" / "elsewhere")
    table_file(tmp_path / "t.csv", last=30)
    imported(tmp_path, str(tmp_path / "t.csv"))
    capsys.readouterr()
    rows = table_file(tmp_path / "corrected.csv", ("a", "b", "c", "d"))
    rows[-1]["loss"] = 3.25
    pd.DataFrame(rows).to_csv(tmp_path / "corrected.csv", index=False)
    points = imported(tmp_path, str(tmp_path / "corrected.csv"))
    assert "replaced 3 runs that were imported before: a, b, c\n" in capsys.readouterr().out
    assert (sources(tmp_path), len(points)) == (["a", "b", "c", "d"], len(rows))
    assert points.set_index(["ratio", "step", "corpus"]).at[(1.0, 40, "domain"), "loss"] == 3.25
    assert {path.name for path in study.runs.iterdir()} == {*points["run"]}, "nothing of the first import is left"
    # A seed or a model of its own makes it another run.
    points = imported(tmp_path, str(tmp_path / "corrected.csv"), "seed=1")
    assert points["run"].nunique() == 8
    assert "have the same losses at every step that both have, and so 3 more pairs: one run" in capsys.readouterr().out
    # The log of a Trainer that went on, by another spelling of its folder.
    given = ["domain_ratio=0.5", *LOSS_BEFORE]
    folder = trainer_state(tmp_path / "log" / "checkpoint-40", 0.5)
    imported(tmp_path, str(folder), *given)
    longer = folder.rename(folder.with_name("checkpoint-50"))
    state = json.loads((longer / "trainer_state.json").read_text())
    state["log_history"].insert(0, {"step": 5, "eval_general_loss": 3.0, "eval_domain_loss": 3.9})
    (longer / "trainer_state.json").write_text(json.dumps(state))
    points = imported(tmp_path, str(tmp_path / "log" / ".." / "log" / "checkpoint-50"), *given)
    assert points["run"].nunique() == 9
    assert sources(tmp_path)[-1] == str(tmp_path / "log")
    shutil.copytree(longer, tmp_path / "log" / "checkpoint-60")
    both = [str(tmp_path / "log" / f"checkpoint-{step}") for step in (50, 60)]
    again = imported(tmp_path, *both, *given)
    pd.testing.assert_frame_equal(points.drop(columns="run"), again.drop(columns="run"))
    # The folder itself, where the newest checkpoint has the log so far.
    trainer_state(tmp_path / "log" / "checkpoint-9", 0.0)
    again = imported(tmp_path, str(tmp_path / "log"), *given)
    pd.testing.assert_frame_equal(points.drop(columns="run"), again.drop(columns="run"))
    (tmp_path / "begun.csv").write_text("run,step,corpus,loss\na,0,general,3.0\na,40,general,3.0\na,0,domain,4.0\n")
    error = refused(["import", *words(tmp_path, str(tmp_path / "begun.csv"), "domain_ratio=0.5")], capsys, 2)
    assert "no losses on 'domain' after step 0" in error
    table_file(tmp_path / "a.csv", ("a",))
    tables = [str(tmp_path / name) for name in ("a.csv", "corrected.csv")]
    assert "a: two logs of one run; give one alone" in refused(["import", *words(tmp_path, *tables)], capsys, 2)


def test_imported_runs_are_not_trained(tmp_path: Path, capsys) -> None:
    table_file(tmp_path / "t.csv")
    points, study = imported(tmp_path, str(tmp_path / "t.csv")), Study(tmp_path / "studies" / "elsewhere")
    for verb in ("prepare", "train", "refine", "continue"):
        error = refused([verb, str(study.folder)], capsys, 3)
        assert f": its runs were imported, {verb} cannot train more; cptlaw import LOG name=elsewhere" in error
    with pytest.raises(StudyError, match="its runs were imported, and would be lost; plan under another name="):
        write_plan(context_of(question_of_study(study.folder, [])), [])
    # Lost points are imported again.
    file = study.runs / points["run"].iloc[0] / "points.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    for first in ("", "{}\n"):
        file.write_text("".join([first, *lines[1:]]))
        error = refused(["collect", str(study.folder)], capsys, 3)
        assert "import it again" in error
        assert "train" not in error


def test_perplexities_are_asked_about(tmp_path: Path, capsys) -> None:
    rows = pd.DataFrame(table_file(tmp_path / "t.csv"))
    rows.assign(loss=np.exp(rows["loss"])).to_csv(tmp_path / "t.csv", index=False)
    imported(tmp_path, str(tmp_path / "t.csv"))
    assert "loss: perplexities? 54.6 is above 20, more than a model without training has" in capsys.readouterr().out
    points = imported(tmp_path, str(tmp_path / "t.csv"), "columns={loss: log loss}")
    output = capsys.readouterr().out
    assert "perplexities?" not in output
    low, high = rows["loss"].min(), rows["loss"].max()
    assert f"loss: {low:.4g} to {high:.4g}, taken as validation loss, nats per token" in output
    assert sorted(points["loss"]) == pytest.approx(sorted(rows["loss"]))


def test_perplexities_in_a_row_a_step_are_asked_about_by_their_keys(tmp_path: Path, capsys) -> None:
    exported_history().rename(columns={"general": "ppl"}).to_csv(tmp_path / "t.csv", index=False)
    imported(tmp_path, str(tmp_path / "t.csv"), "losses={ppl: general, domain: domain}", "domain_ratio=0.3")
    remedy = "its column is ppl; if so, give their logarithm: losses='{log ppl: general, ...}'"
    assert remedy in capsys.readouterr().out


def test_a_study_without_names_of_its_runs_keeps_them_all(tmp_path: Path) -> None:
    table_file(tmp_path / "t.csv")
    imported(tmp_path, str(tmp_path / "t.csv"))
    study = Study(tmp_path / "studies" / "elsewhere")
    study.write_plan([dataclasses.replace(planned, source="") for planned in study.read_plan()])
    table_file(tmp_path / "more.csv", ("x",))
    assert imported(tmp_path, str(tmp_path / "more.csv"))["run"].nunique() == 4


@pytest.mark.parametrize("value", ["NaN", "-1", '"x"'])
def test_a_loss_in_a_log_that_is_none(value: str, tmp_path: Path, capsys) -> None:
    folder = trainer_state(tmp_path / "run", 0.5)
    text = (folder / "trainer_state.json").read_text()
    loss = json.dumps(losses(0.5, 30)["domain"])
    (folder / "trainer_state.json").write_text(text.replace(loss, value))
    error = refused(["import", *words(tmp_path, str(folder), "domain_ratio=0.5", *LOSS_BEFORE)], capsys, 3)
    assert error.startswith(f"{folder / 'trainer_state.json'}: ")
    assert not (tmp_path / "studies").exists()
    # All losses of a log have the step of the optimizer.
    (folder / "trainer_state.json").write_text(text.replace('"step": 40, "eval', '"_step": 40, "eval'))
    error = refused(["import", *words(tmp_path, str(folder), "domain_ratio=0.5", *LOSS_BEFORE)], capsys, 3)
    assert "has no step; log step with every loss" in error


def exported_history() -> pd.DataFrame:
    """A history as wandb's API gives it: its own count of calls beside the optimizer's steps."""
    rows = [{"_step": 3 * step, "train/global_step": step, **losses(0.3, step)} for step in (0, *STEPS)]
    return pd.DataFrame(rows).assign(general=lambda table: np.exp(table["general"]))


def test_the_step_of_the_optimizer_counts(tmp_path: Path, capsys) -> None:
    exported_history().to_parquet(tmp_path / "t.parquet")
    given = (str(tmp_path / "t.parquet"), "losses={log general: general, domain: domain}", "domain_ratio=0.3")
    points = imported(tmp_path, *given)
    assert "wandb's own count" not in capsys.readouterr().out
    assert sorted({*points["step"]}) == [0, *STEPS]
    measured = points[points["corpus"] == "general"].sort_values("step")["loss"]
    assert measured.tolist() == pytest.approx([losses(0.3, step)["general"] for step in (0, *STEPS)])


@pytest.mark.parametrize("kind", ["history", "chart", "Trainer"])
def test_of_a_log_that_goes_back_the_later_losses_count(kind: str, tmp_path: Path, capsys) -> None:
    at = [10, 20, 25, 30, 20, 30, 40]
    rows = [
        {f"eval/{of}_loss": loss + (number in (1, 2, 3)) for of, loss in losses(0.3, step).items()}
        for number, step in enumerate(at)
    ]
    rates = learning_rates([Piece("linear", 0.0, 2e-4, steps=4), Piece("cosine", end=2e-5)], 40)
    rows = [
        {"step": step, "lr": rates[step - 1] / (1 + (number == 2)), **row}
        for number, (step, row) in enumerate(zip(at, rows))
    ]
    log = tmp_path / "trainer_state.json"
    log.write_text(json.dumps({"log_history": rows}))
    if kind != "Trainer":
        log, table = tmp_path / "history.csv", pd.DataFrame(rows).rename_axis("_step")
        if kind == "chart":
            names = {"step": "train/global_step", "lr": "train/learning_rate"}
            table = table.rename(columns=lambda name: f"r30 - {names.get(name, name)}").rename_axis("Step")
        table.to_csv(log)
    points = imported(tmp_path, str(log), "domain_ratio=0.3", *LOSS_BEFORE)
    measured = points[points["corpus"] == "general"].set_index("step")["loss"]
    assert measured.to_dict() == pytest.approx({step: losses(0.3, step)["general"] for step in (0, *STEPS)})
    assert f"note: {log}: goes back to step 20, as after a restart: " in capsys.readouterr().out


def test_the_index_of_a_frame_is_a_column(tmp_path: Path) -> None:
    table = exported_history().rename(columns={"train/global_step": "step"}).set_index("step")
    table.to_parquet(tmp_path / "t.parquet")
    given = ("losses={general: general, domain: domain}", "domain_ratio=0.3")
    points = imported(tmp_path, str(tmp_path / "t.parquet"), *given)
    assert sorted({*points["step"]}) == [0, *STEPS]


@pytest.mark.parametrize("value", ["x", "-1", "0"])
def test_a_perplexity_without_a_logarithm_is_named(value: str, tmp_path: Path, capsys) -> None:
    table = exported_history().astype(str)
    table.loc[2, "general"] = value
    table.to_csv(tmp_path / "t.csv", index=False)
    given = (str(tmp_path / "t.csv"), "losses={log general: general, domain: domain}", "domain_ratio=0.3")
    error = refused(["import", *words(tmp_path, *given)], capsys, 2)
    assert error.startswith(f"{tmp_path / 't.csv'}: row 4, column loss is {value}")


def history_with_rates(tmp_path: Path, end: int) -> str:
    """A history as wandb exports it: learning rates in rows without losses, the last one at step `end`."""
    rates = learning_rates([Piece("linear", 0.0, 2e-4, steps=4), Piece("cosine", end=2e-5)], end)
    named = {f"eval/{corpus}_loss": corpus for corpus in ("general", "domain")}
    rows = [{"step": step, **{key: losses(0.3, step)[of] for key, of in named.items()}} for step in (0, *STEPS)]
    rows += [{"step": step, "train/learning_rate": rates[step - 1]} for step in range(5, end + 1, 5)]
    pd.DataFrame(rows).to_csv(tmp_path / "history.csv", index=False)
    return str(tmp_path / "history.csv")


def test_rates_and_length_are_those_of_rows_without_losses_too(tmp_path: Path, capsys) -> None:
    points = imported(tmp_path, history_with_rates(tmp_path, 55), "domain_ratio=0.3")
    rates = learning_rates([Piece("linear", 0.0, 2e-4, steps=4), Piece("cosine", end=2e-5)], 55)
    assert points.loc[points["step"] == 40, "learning_rate"].tolist() == pytest.approx([rates[39]] * 2)
    assert "no learning rates in the log" not in capsys.readouterr().out
    other = ["import", history_with_rates(tmp_path, 55), *words(tmp_path, "domain_ratio=0.3", "decay=linear")]
    assert "at step 10 in the log, but peak, warmup, decay and final give" in refused(other, capsys)


def test_the_tokens_of_a_log_are_not_those_that_are_given(states: Mapping[float, Path], tmp_path: Path, capsys) -> None:
    file = states[0.3] / "trainer_state.json"
    state = json.loads(file.read_text()) | {"num_input_tokens_seen": 40 * 4096, "global_step": 40}
    file.write_text(json.dumps(state))
    rows = [(step, step * 4096, corpus, loss) for step in (0, *STEPS) for corpus, loss in losses(0.3, step).items()]
    pd.DataFrame(rows, columns=["step", "tokens", "corpus", "loss"]).to_csv(tmp_path / "t.csv", index=False)
    for log in (file, tmp_path / "t.csv"):
        given = ["import", str(log), *words(tmp_path, "domain_ratio=0.3", *LOSS_BEFORE)]
        assert "tokens_per_step=2048, but its log has 4,096 a step; give those" in refused(given, capsys)
        assert run([*given, "tokens_per_step=4096"]) == 0


def test_runs_of_one_model_that_begin_at_other_losses_are_named(tmp_path: Path, capsys) -> None:
    for name, factor in (("a", 1.0), ("b", 1.1)):
        rows = [(step, of, factor * loss) for step in (0, *STEPS) for of, loss in losses(0.3, step).items()]
        pd.DataFrame(rows, columns=["step", "corpus", "loss"]).to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    line = "begin at losses on domain of 4.0000 to 4.4000: answers are for a run that begins at 4.0000; give runs of an"
    imported(tmp_path, files[0], "domain_ratio=0.3")
    imported(tmp_path, files[1], "domain_ratio=0.3", "model_name=other")
    assert "begin at losses" not in capsys.readouterr().out
    imported(tmp_path, files[1], "domain_ratio=0.3", "seed=1")
    assert f"note: runs of model {line}" in capsys.readouterr().out


def chart_file(path: Path, corpus: str, ends: Mapping[str, int], step: str = "Step", key: str = "eval/{}_loss") -> str:
    """What a chart of wandb's web page exports: a column for each run, and the bounds of what it averaged."""
    table, ratios = {step: [0, *STEPS]}, {"r10": 0.1, "r50": 0.5}
    for name, end in ends.items():
        values = [losses(ratios[name], at)[corpus] if at <= end else None for at in (0, *STEPS)]
        head = f"{name} - {key.format(corpus)}"
        table |= {head: values, f"{head}__MIN": values, f"{head}__MAX": values}
    pd.DataFrame(table).to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    return str(path)


@pytest.mark.parametrize("step", ["Step", "train/global_step"])
def test_a_chart_of_wandbs_page_has_a_run_a_column_and_a_metric_a_file(step: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "facts.yaml").write_text("runs: {r10: {domain_ratio: 0.1}, r50: {domain_ratio: 0.5}}")
    files = [chart_file(tmp_path / f"{of}.csv", of, {"r10": 40, "r50": 30}, step) for of in BEFORE]
    points = imported(tmp_path, *files, f"runs={tmp_path / 'facts.yaml'}")
    assert sources(tmp_path) == ["r10", "r50"]
    said = "steps are those of Step, wandb's own count, taken for the optimizer's; "
    assert capsys.readouterr().out.count(said) == 2 * (step == "Step"), "once a file"
    of_r10 = points[(points["ratio"] == 0.1) & (points["step"] == 40)].set_index("corpus")["loss"]
    assert of_r10.to_dict() == pytest.approx(losses(0.1, 40))
    assert points.groupby("ratio")["step"].max().to_dict() == {0.1: 40, 0.5: 30}
    # Of one file alone, and of one file twice.
    alone = ["import", *words(tmp_path, files[0], "domain_ratio=0.5")]
    error = refused(alone, capsys, 2)
    assert "no losses on 'domain' after step 0; it has eval/general_loss; see losses=, general=" in error
    assert "two logs of one run" in refused([*alone, *files], capsys, 2)
    web = chart_file(tmp_path / "web.csv", "general", {"r10": 40}, step, key="eval/web_loss")
    error = refused(["import", *words(tmp_path, web, "domain_ratio=0.1")], capsys, 2)
    assert error.endswith("name the key of each corpus: losses='{KEY: general, KEY: domain}'")
    (tmp_path / "facts.yaml").write_text("losses: {eval/web_loss: general, eval/domain_loss: domain}")
    law = chart_file(tmp_path / "law.csv", "domain", {"r10": 40}, step)
    facts = [f"runs={tmp_path / 'facts.yaml'}", "domain_ratio=0.1", "name=web"]
    assert run(["import", *words(tmp_path, web, law, *facts)]) == 0


def test_a_chart_over_wandbs_own_steps_may_have_those_of_the_optimizer(tmp_path: Path, capsys) -> None:
    at = [0, *STEPS]
    measured = {f"r10 - eval/{of}_loss": [losses(0.1, step)[of] for step in at] for of in BEFORE}
    chart = pd.DataFrame({"Step": range(len(at)), "r10 - train/global_step": at, **measured})
    chart.to_csv(tmp_path / "t.csv", index=False)
    assert sorted({*imported(tmp_path, str(tmp_path / "t.csv"), "domain_ratio=0.1")["step"]}) == at
    assert "wandb's own count" not in capsys.readouterr().out


def test_runs_of_one_file_are_added_one_after_another(tmp_path: Path, capsys) -> None:
    tables = [pd.read_csv(chart_file(tmp_path / "t.csv", of, {"r10": 40, "r50": 40})) for of in BEFORE]
    both = tables[0].merge(tables[1])
    hand = both.rename(columns=lambda name: name.replace(" - eval/", "_")).rename(columns={"Step": "step"})
    for name, table, key in (("page", both, "{} - eval/{}_loss"), ("hand", hand, "{}_{}_loss")):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        for count, (run_name, ratio) in enumerate({"r10": 0.1, "r50": 0.5}.items(), start=1):
            keys = ", ".join(f"{key.format(run_name, of)}: {of}" for of in BEFORE)
            given = [f"losses={{{keys}}}", f"domain_ratio={ratio}", f"name={name}"]
            for _ in range(2):
                assert run(["import", *words(tmp_path, str(tmp_path / f"{name}.csv"), *given)]) == 0
            points = read_points(Study(tmp_path / "studies" / name))
            assert points["run"].nunique() == count
        assert "replaced 1 runs" in capsys.readouterr().out
        ends = points[points["step"] == 40].set_index(["ratio", "corpus"])["loss"]
        expected = {(ratio, of): loss for ratio in (0.1, 0.5) for of, loss in losses(ratio, 40).items()}
        assert ends.to_dict() == pytest.approx(expected)


def test_a_loss_that_is_nan_is_no_row_without_a_loss(tmp_path: Path, capsys) -> None:
    rows = pd.read_csv(history_with_rates(tmp_path, 40))
    nan = rows["step"].eq(40) & rows["eval/general_loss"].notna()
    general = rows["eval/general_loss"].astype(object).mask(nan, "NaN")
    rows.assign(**{"eval/general_loss": general}).to_csv(tmp_path / "a.csv", index=False)
    lines = [json.dumps({name: value for name, value in row.items() if value == value}) for _, row in rows.iterrows()]
    lines = [line.replace(json.dumps(losses(0.3, 40)["general"]), "NaN") for line in lines]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    chart = pd.read_csv(chart_file(tmp_path / "chart.csv", "general", {"r10": 40}))
    chart.replace(chart.iloc[2, 1], "NaN").to_csv(tmp_path / "chart.csv", index=False)
    for name in ("a.csv", "a.jsonl", "chart.csv"):
        error = refused(["import", str(tmp_path / name), *words(tmp_path, "domain_ratio=0.3")], capsys)
        assert "column loss is NaN; allowed: a finite loss above 0" in error


@pytest.mark.slow
def test_the_report_of_imported_runs_has_sliders_and_names_no_pretraining(
    states: Mapping[float, Path], tmp_path: Path, capsys, no_profiles
) -> None:
    """The saturating law answers nearby, transfer-open far away: both read areas of their own."""
    files = [str(path) for path in states.values()]
    imported(tmp_path, *files, facts_file(tmp_path, states), "target.steps=80")
    folder = str(tmp_path / "studies" / "elsewhere")
    for verb in ("fit", "recommend", "report"):
        assert run([verb, folder, "bootstrap=2"]) == 0
    page = Path(folder, "report.html").read_text()
    assert "No sliders" not in page
    assert "with pre-training" not in page
    assert " for the fit" in page
    said = refused(["recommend", folder, "model.name=llama"], capsys, 3)
    assert said.endswith("before the continual phase; give model.name= of a model that was imported: model")
