"""A run that is trained for real, read from its log: where it leaves its prediction, and its end anew."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from math import exp, log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.cli.main import run
from pipeline.study.folder import Study
from tests.pipeline.cli.trainer_logs import BEFORE, STEPS, fitted_study, losses, trainer_state
from tests.pipeline.small import refused, wait_until
from training.schedule import Piece, learning_rates

RATIO = 0.45
LAWS = ("transfer-open", "transfer-anchored", "transfer-two-mixtures")


@pytest.fixture(scope="module")
def made(tmp_path_factory, no_profiles) -> Study:
    return fitted_study(tmp_path_factory.getbasetemp() / "fitted")


@pytest.fixture
def study(made: Study, tmp_path: Path) -> Study:
    return Study(Path(shutil.copytree(made.folder, tmp_path / made.folder.name)))


@pytest.fixture(scope="module")
def several(made: Study, tmp_path_factory) -> Study:
    """The study with fits of several laws, to read."""
    study = Study(Path(shutil.copytree(made.folder, tmp_path_factory.mktemp("several") / made.folder.name)))
    assert run(["fit", str(study.folder), f"law=[{','.join(LAWS)}]", "bootstrap=0"]) == 0
    return study


def table(path: Path, last: int, change: Callable[[str, int], float] = lambda corpus, step: 1.0) -> Path:
    """points.jsonl of a run at RATIO up to a step; `change` is a factor of its losses."""
    rows = [
        {"step": step, "tokens": 2048 * step, "corpus": corpus, "loss": loss * change(corpus, step)}
        for step in (0, *STEPS)
        if step <= last
        for corpus, loss in losses(RATIO, step).items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def followed(study: Study, log: Path, capsys, *words: str) -> tuple[Mapping, str]:
    """What --json and the terminal say."""
    capsys.readouterr()
    assert run(["follow", str(study.folder), str(log), f"domain_ratio={RATIO}", "--json", *words]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_some_of_the_fitted_laws_answer(several: Study, tmp_path: Path, capsys) -> None:
    """Each of all, two and one that are given."""
    log = table(tmp_path / "log.jsonl", 20)
    ends = []
    for given in ((), LAWS[:2], LAWS[:1]):
        words = [f"law=[{','.join(given)}]"] * bool(given)
        content, _ = followed(several, log, capsys, *words)
        ends.append(content["corpora"]["domain"]["end"]["loss"])
    assert len({*ends}) == 3


def test_a_run_as_predicted_stays_in_its_interval(study: Study, tmp_path: Path, capsys) -> None:
    files = {path: path.read_bytes() for path in study.folder.rglob("*") if path.is_file()}
    content, text = followed(study, table(tmp_path / "points.jsonl", 20), capsys)
    assert (content["step"], content["steps"], content["tolerance"]) == (20, 40, 0.015)
    for corpus, of in content["corpora"].items():
        assert [row["step"] for row in of["losses"]] == [10, 20]
        assert all(row["inside"] for row in of["losses"])
        assert of["losses"][1]["loss"] == pytest.approx(losses(RATIO, 20)[corpus])
        assert of["end"]["loss"] == pytest.approx(losses(RATIO, 40)[corpus], rel=0.01)
    assert "domain: 2 of 2 losses inside, the last one too: .." in text
    assert "stay within the tolerance: +0." in text
    assert "horizon: the end has 2 times the steps so far" in text
    assert content["rest"] == []
    assert {path: path.read_bytes() for path in files} == files
    # From later on the way is shorter.
    for of in followed(study, table(tmp_path / "points.jsonl", 30).parent, capsys)[0]["corpora"].values():
        now, before = (of[name]["high"] / of[name]["low"] for name in ("end", "predicted_end"))
        assert now < before


def test_the_end_is_moved_by_the_last_error_and_its_interval_reaches_where_the_errors_go(
    study: Study, tmp_path: Path, capsys
) -> None:
    def end(error, until: int = 30) -> dict[str, float]:
        path = table(tmp_path / f"{until}.jsonl", until, lambda _, step: exp(error(step)) if step else 1.0)
        return followed(study, path, capsys)[0]["corpora"]["domain"]["end"]

    def width(of: dict[str, float]) -> float:
        return log(of["high"] / of["low"])

    as_predicted, above = end(lambda _: 0.0), end(lambda _: 0.012)
    assert log(above["loss"] / as_predicted["loss"]) == pytest.approx(0.012, abs=1e-6)
    assert width(as_predicted) < width(above)
    # An error that grows with the logarithm of the steps.
    growing = end(lambda step: 0.012 * log(step / 10) / log(3))
    assert log(growing["loss"] / above["loss"]) == pytest.approx(0.0, abs=1e-6)
    assert width(above) < width(growing)
    at_end = losses(RATIO, 40)["domain"] * exp(0.012 * log(4) / log(3))
    assert growing["low"] < at_end < growing["high"]
    # What was measured at the end is the end.
    assert end(lambda _: 0.012, until=40)["loss"] == pytest.approx(losses(RATIO, 40)["domain"] * exp(0.012), rel=1e-6)


def test_a_corpus_that_is_measured_less_often_is_known_as_far_as_its_own_losses(study: Study, tmp_path, capsys) -> None:
    def end(last_domain: int) -> tuple[float, float]:
        path = table(tmp_path / f"{last_domain}.jsonl", last_domain, lambda _, step: 1.01 if step else 1.0)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [row for row in rows if row["corpus"] == "domain" or row["step"] <= 10]
        path.write_text("".join(json.dumps(row) + "\n" for row in kept))
        of = followed(study, path, capsys)[0]["corpora"]["general"]["end"]
        return of["low"], of["high"]

    assert end(30) == end(10)


def test_a_run_that_drifts_inside_its_interval_is_named(study: Study, tmp_path: Path, capsys) -> None:
    def said(error: Callable[[int], float]) -> str:
        rows = [
            {"step": step, "corpus": corpus, "loss": loss * exp(error(step) if step else 0.0)}
            for step in (0, *range(10, 29, 2))
            for corpus, loss in losses(RATIO, step).items()
        ]
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return followed(study, path, capsys)[1]

    text = said(lambda step: 0.008 * log(step / 8))
    line = (
        r"general: drifts above its prediction: its last 10 losses are all on that side, by 0\.\d+% first and 1\.\d+%"
    )
    assert re.search(line, text)
    assert re.search(r"at this pace by 1\.\d+% at the end \(3\.\d+, \+\d\.\d+% from before the run\), ", text)
    assert "general: drifts " not in said(lambda step: 0.0)
    assert "general: drifts " not in said(lambda step: 0.004 + 0.002 * (-1) ** (step // 2)), "not farther"


def test_a_loss_before_the_run_that_moves_a_printed_digit_is_named(study: Study, tmp_path: Path, capsys) -> None:
    moved = table(tmp_path / "log.jsonl", 20, lambda *where: 1.0002 if where == ("domain", 0) else 1.0)
    text = followed(study, moved, capsys)[1]
    assert "general: 3" not in text
    assert "domain: 4.0008 before the run, 4.0000 in the study; predictions shifted by +0.0008" in text
    assert "predictions shifted" not in followed(study, table(tmp_path / "same.jsonl", 20), capsys)[1]


def test_losses_count_from_where_points_are_fitted(study: Study, tmp_path: Path, capsys) -> None:
    """The law's first step, but no later than a quarter of the runs for the fit."""
    late = "law.transfer-open.from_step=1000"
    file = table(tmp_path / "points.jsonl", 20)
    assert "not compared" not in followed(study, file, capsys, late)[1]
    early = {"step": 5, "tokens": 2048 * 5, "corpus": "general", "loss": losses(RATIO, 10)["general"]}
    file.write_text(file.read_text() + json.dumps(early) + "\n")
    content, said = followed(study, file, capsys, late)
    assert [row["step"] for row in content["corpora"]["general"]["losses"]] == [10, 20]
    assert "general: 1 loss before step 10, where the laws begin, not compared" in said
    assert "the page has all" not in said
    _, text = followed(study, table(tmp_path / "points.jsonl", 0), capsys, late)
    assert "general: no loss yet at step 10 or later" in text
    assert "no loss on general counts yet: its end is as it was predicted" in text
    assert "within the tolerance" not in text


def test_a_run_of_the_study_is_followed_at_its_own_ratio(study: Study, tmp_path: Path, capsys) -> None:
    name = next(one.name for one in study.read_plan() if one.spec.mixture["domain"] == "3/10")
    (folder := tmp_path / name).mkdir()
    table(folder / "points.jsonl", 20)
    capsys.readouterr()
    assert run(["follow", str(study.folder), str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["domain_ratio"] == 0.3


def test_a_log_of_training_losses_alone_is_told_what_measures_others(study: Study, tmp_path: Path, capsys) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": [{"step": 1, "eval_general_loss": 3.0, "eval_law_loss": 3.0}]}))
    said = refused(["follow", str(study.folder), str(path)], capsys, 3)
    assert "no losses on domain; it has eval_general_loss, eval_law_loss: losses=" in said
    assert "checkpoints=" not in said, "the study was imported without its text"
    for row, remedy in (("loss", "log losses on both corpora"), ("eval_loss", "losses='{KEY: general, ")):
        path.write_text(json.dumps({"log_history": [{"step": 1, row: 3.0}]}))
        said = refused(["follow", str(study.folder), str(path)], capsys, 3)
        assert remedy in said
        assert "checkpoints=" not in said
    file = study.folder / "study.yaml"
    file.write_text(file.read_text().replace("path: imported", "path: base"))
    path.write_text(json.dumps({"log_history": [{"step": 1, "loss": 3.0}]}))
    said = refused(["follow", str(study.folder), str(path)], capsys, 3)
    assert "log losses on both corpora, checkpoints=FOLDER measures what was saved" in said


def test_a_run_that_leaves_its_interval_is_told_from_which_step_on(study: Study, tmp_path: Path, capsys) -> None:
    log = table(tmp_path / "points.jsonl", 30, lambda corpus, step: 1.1 if step > 10 and corpus == "general" else 1.0)
    content, text = followed(study, log, capsys)
    general = content["corpora"]["general"]
    last = general["losses"][-1]
    by = last["loss"] / last["high"] - 1
    assert f"general: above its 90% interval from step 20 on, by {by:.2%} at step 30: .++ " in text
    assert "outside from the first loss on" not in text
    assert [row["inside"] for row in general["losses"]] == [True, False, False]
    assert f"not hold for the loss on general of this run: it is at {last['loss'] / 3 - 1:+.2%}, 1.5% allowed" in text
    assert general["end"]["loss"] == pytest.approx(1.1 * general["predicted_end"]["loss"], rel=0.01)
    assert general["end"]["low"] < last["loss"] < general["end"]["high"]
    assert [content["corpora"][corpus]["refuted"] for corpus in BEFORE] == [True, False]
    assert content["rest"] == []
    page = (study.folder / "follow.html").read_text()
    assert "Model on 45% domain: step 30 of 40" in page
    assert "general: above its 90% interval from step 20 on" in page


@pytest.mark.slow
def test_the_rest_is_another_mixture_or_an_earlier_decay(several: Study, tmp_path: Path, capsys) -> None:
    log, law = table(tmp_path / "points.jsonl", 10), "law=[transfer-two-mixtures]"
    content, text = followed(several, log, capsys, law, "goal.tolerance=0.007")
    (mixture,) = content["rest"]
    assert mixture["what"].endswith("% domain after step 10")
    assert f"{mixture['what']} at 40" in text
    end = {corpus: of["end"]["loss"] for corpus, of in content["corpora"].items()}
    assert end["general"] < mixture["losses"]["general"][0] <= 3.0 * 1.007
    assert mixture["losses"]["domain"][0] < end["domain"]
    content, text = followed(several, log, capsys, law, "goal.tolerance=0.003")
    assert "the loss on general will probably exceed the tolerance" in text
    decay = content["rest"][-1]
    assert decay["what"] == f"decay in a line from step 10 to {decay['steps']}"
    assert 10 < decay["steps"] < 40
    assert decay["losses"]["general"][0] <= 3.0 * 1.003


def test_the_end_and_logs_of_other_trainers(study: Study, tmp_path: Path, capsys) -> None:
    content, text = followed(study, trainer_state(tmp_path / "trainer", RATIO), capsys)
    rise = losses(RATIO, 40)["general"] / 3.0 - 1
    assert f"the run has ended: the loss on general changed by {rise:+.2%}, 1.5% allowed" in text
    assert run(["status", str(study.folder)]) == 0
    assert (following := capsys.readouterr().out.splitlines()[-2:])[0].startswith("next: cptlaw export ")
    assert text.splitlines()[-2:] == following
    rows = table(tmp_path / "points.jsonl", 40).read_text().splitlines()
    (tmp_path / "points.jsonl").write_text("\n".join(row for row in rows if row != rows[-2]))
    rise = losses(RATIO, 30)["general"] / 3.0 - 1
    line = f"the loss on general changed by {rise:+.2%} until step 30, its last loss, 1.5% allowed"
    assert line in followed(study, tmp_path / "points.jsonl", capsys)[1]
    # As wandb exports a history: a row a step, perplexities under another name.
    wide = pd.DataFrame([{"_step": step, **losses(RATIO, step)} for step in STEPS])
    wide["train/learning_rate"] = rates()[wide["_step"] - 1]
    wide["domain"] = np.exp(wide["domain"])
    wide.to_csv(tmp_path / "history.csv", index=False)
    keys = "losses={general: general, log domain: domain}"
    exported, _ = followed(study, tmp_path / "history.csv", capsys, keys)
    for corpus in BEFORE:
        ours = [row["loss"] for row in exported["corpora"][corpus]["losses"]]
        assert ours == pytest.approx([row["loss"] for row in content["corpora"][corpus]["losses"]])


def rates() -> np.ndarray:
    return learning_rates([Piece("linear", 0.0, 2e-4, steps=4), Piece("cosine", end=2e-5)], 40)


def test_a_log_is_read_until_the_run_has_ended(study: Study, tmp_path: Path, capsys) -> None:
    log = table(tmp_path / "points.jsonl", 20)

    def train() -> None:
        page = study.folder / "follow.html"
        for read, last in ((20, 10), (10, 40)):
            wait_until(lambda step=read: page.exists() and f": step {step} of 40" in page.read_text())
            table(tmp_path / "new.jsonl", last).rename(log)

    trainer = threading.Thread(target=train)
    trainer.start()
    content, text = followed(study, log, capsys, "--watch", "1")
    trainer.join()
    assert content["step"] == 40
    assert f"{log}: the log ends at step 10, at the last reading at 20" in text


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (lambda t: t.assign(corpus=t["corpus"].replace("domain", "law")), [], "no losses on domain; it has"),
        (lambda t: t.assign(loss=2 * t["loss"]), [], "the loss on general before the run is 6, in the study 3"),
        (lambda t: t.assign(tokens=2 * t["tokens"]), [], "4,096 tokens a step, not 2,048 (target.global"),
        (lambda t: t, ["target.steps=30"], "of a run of 40 steps, not of target.steps=30; give target.steps="),
        (lambda t: t.assign(loss=np.exp(t["loss"])), [], "loss: perplexities? 54.6 is above 20"),
        (lambda t: t.assign(learning_rate=1e-3), [], "learning_rate=0.001 at step 10, not"),
        (lambda t: t.assign(domain_ratio=0.3), ["domain_ratio=0.4"], "domain_ratio=0.4 is given, its table has 0.3"),
        (lambda t: t.assign(steps=80), [], "of a run of 80 steps, not of target.steps=40; give target.steps="),
        (lambda t: t.assign(peak=1e-4), [], "peak=0.0001, not 0.0002; give target.peak_learning_rate="),
        (lambda t: t.assign(non_embedding=2e8), [], "non_embedding=200,000,000, not 100,000,000 of model; give model"),
        (lambda t: t[["step"]], [], "no column corpus, loss; it has step; name it with"),
        (lambda t: t[:0], [], "no rows"),
        (lambda t: t, ["watch=0"], "watch: 0; allowed: 1 to 86,400, seconds"),
        (lambda t: t, ["domain_ratio=2"], "domain_ratio: 2.0; allowed: 0 to 1"),
        (lambda t: t, ["run=other"], "run: other, but "),
    ],
)  # fmt: skip
def test_a_log_of_another_run_is_refused_in_a_line(study, tmp_path, capsys, change, words, message) -> None:
    points = pd.read_json(table(tmp_path / "points.jsonl", 40), lines=True)
    change(points).to_csv(tmp_path / "log.csv", index=False)
    assert message in refused(["follow", str(study.folder), str(tmp_path / "log.csv"), *words], capsys)


def test_a_table_says_at_which_ratio_its_run_is_and_its_learning_rates(study: Study, tmp_path: Path, capsys) -> None:
    points = pd.read_json(table(tmp_path / "points.jsonl", 30), lines=True)
    points.assign(domain_ratio=RATIO, peak=2e-4, steps=40).to_csv(tmp_path / "log.csv", index=False)
    assert run(["follow", str(study.folder), str(tmp_path / "log.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["domain_ratio"] == RATIO
    # A run of another schedule is followed.
    points.assign(learning_rate=2e-4).to_csv(tmp_path / "log.csv", index=False)
    content, _ = followed(study, tmp_path / "log.csv", capsys, "schedule@target.schedule=constant", "model.name=model")
    assert content["step"] == 30


def test_a_run_outside_from_its_first_loss_on_may_be_another(study: Study, tmp_path: Path, capsys) -> None:
    log = table(tmp_path / "points.jsonl", 30, lambda corpus, step: 1.1 if step and corpus == "general" else 1.0)
    _, text = followed(study, log, capsys)
    assert "outside from the first loss on: perhaps another run than the one asked about, of 45% domain" in text


def test_names_that_are_lacking_are_asked_for(study: Study, capsys) -> None:
    line = f"cptlaw follow: {study.folder} alone; allowed: a study folder and a log, or checkpoints="
    assert line in refused(["follow", str(study.folder)], capsys, 2)
    assert "nowhere.json: does not exist" in refused(["follow", str(study.folder), "nowhere.json"], capsys, 3)
