"""Confirmation runs that were trained elsewhere: which of them are judged, and when their comparison is out of date."""

import html
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import question_of_study
from pipeline.show.conclusion import conclusion_of
from pipeline.show.report.evidence import Evidence
from pipeline.steps import STEPS
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.collect import read_points
from pipeline.study.context import Context
from pipeline.study.folder import Study
from pipeline.study.number_format import percent
from tests.pipeline.cli.trainer_logs import BEFORE, FACTS, LOSS_BEFORE, fitted_study, losses, trainer_state
from tests.pipeline.show.report.report_study import Page
from tests.pipeline.small import refused


@pytest.fixture(scope="module")
def made(tmp_path_factory, no_profiles) -> Study:
    return fitted_study(tmp_path_factory.getbasetemp() / "fitted")


@pytest.fixture
def study(made: Study, tmp_path: Path) -> Study:
    return Study(Path(shutil.copytree(made.folder, tmp_path / "my studies" / made.folder.name)))


def imported(study: Study, *logs: Path, given: Sequence[str]) -> pd.DataFrame:
    words = [f"studies={study.folder.parent}", "name=made", *FACTS, *LOSS_BEFORE, *given]
    assert run(["import", *map(str, logs), *words]) == 0
    return read_points(study)


def test_a_run_at_the_answer_confirms_it(study: Study, tmp_path: Path, capsys) -> None:
    quoted = f"'{study.folder}'"
    files = [study.folder / f"fits/{corpus}-transfer-open.json" for corpus in BEFORE]
    fits = [json.loads(file.read_text()) for file in files]
    assert fits[0]["params"]["C2"] == fits[1]["params"]["C2"], "what a high rate costs is the same on both"
    answer = Recommendation.read(study)
    assert (answer.target.steps, answer.target.N) == (40, 0.1)
    assert answer.predicted["domain"].loss == pytest.approx(
        losses((answer.mixture or {})["domain"], 40)["domain"], rel=0.02
    )
    assert run(["recommend", str(study.folder)]) == 0
    said, ratio = capsys.readouterr().out, (answer.mixture or {})["domain"]
    assert "import more runs" in said
    remedy = f"train the recommended run (domain_ratio={ratio:.3f}, 40 steps), which cptlaw export {quoted} writes"
    assert f"next: cptlaw export {quoted} format=trl" in said
    facts = f"runs=FACTS.yaml domain_ratio={ratio:.3f} role=confirm"
    assert f"then: {remedy}, then cptlaw import LOG name=made 'studies={study.folder.parent}' {facts}" in said
    assert f"no run to confirm with; {remedy}" in refused(["confirm", str(study.folder)], capsys, 3)

    error = refused(["confirm", str(study.folder), "goal.tolerance=0.5"], capsys, 3)
    assert "answers goal.tolerance=0.015, but goal.tolerance=0.5 is asked; give goal.tolerance=0.015 to have" in error
    assert error.endswith(f"or run cptlaw recommend {quoted} goal.tolerance=0.5 before")

    export = ["export", str(study.folder), "format=trl"]
    assert "whose steps have 2,048 tokens; give it and the sequences" in refused(export, capsys, 2)
    assert run([*export, "sequence_length=256", "target.global_batch=8"]) == 0
    said = capsys.readouterr()
    assert "max_length: 256" in said.out
    assert f"{facts} keeps its losses" in said.err
    assert re.findall(r"data_files: (\w+)", said.out) == ["general", "domain"]
    assert "optimizer and precision of the imported runs" in said.err
    assert f"; cptlaw follow {quoted} LOG compares its log, cptlaw import LOG name=made" in said.err
    line = "note: validation: not in this file, and cptlaw follow reads eval_general_loss and eval_domain_loss of a log"
    assert line in said.err
    assert f"# {line}" in said.out

    near, other = (trainer_state(tmp_path / f"own-{ratio}", ratio) for ratio in (0.65, 0.8))
    (tmp_path / "own.yaml").write_text(
        f"{{role: confirm, runs: {{{other}: {{domain_ratio: 0.8}}, {near}: {{domain_ratio: 0.65}}}}}}"
    )
    points = imported(study, other, near, given=[f"runs={tmp_path / 'own.yaml'}"])
    assert points.groupby("role")["run"].nunique().to_dict() == {"confirm": 2, "fit": 4}
    assert question_of_study(study.folder, []).mixture.domain_ratio == [0.0, 0.3, 0.6, 0.9]
    assert run(["confirm", str(study.folder)]) == 0
    assert "next: cptlaw report" in capsys.readouterr().out
    made = Confirmation.read(study)
    assert f"This run is at 65% domain, 40 steps, the answer is {percent(ratio)} domain, 40 steps: {remedy}" in (
        made.outcome.sentence
    )
    assert not re.search(r"confirm\.(seeds|around)", made.outcome.sentence)
    assert run(["report", str(study.folder)]) == 0
    assert f"next: cptlaw export {quoted}" in capsys.readouterr().out, "not confirm again"
    assert f"The confirmation runs are of another domain ratio, fit or question: {remedy}" in (
        html.unescape((study.folder / "report.html").read_text())
    )
    rows = made.confirmations
    measured = {(row.domain_ratio, row.corpus): row.measured for row in rows}
    wanted = {(r, corpus): loss for r in (0.65, 0.8) for corpus, loss in losses(r, 40).items()}
    assert measured == pytest.approx(wanted, rel=1e-12)
    assert rows[0].domain_ratio == 0.65, "the one nearest to the answer is judged"
    assert all(abs(row.relative_error) < 0.01 for row in rows)

    exact = trainer_state(tmp_path / "exact", ratio)
    keys = "losses={eval_general_loss: general, eval_domain_loss: domain}"
    for word in ([], [keys], ["domain_ratio=0.65"]):
        assert run(["follow", str(study.folder), str(exact), *word]) == 0
    after = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    bring = f"cptlaw import {exact} name=made 'studies={study.folder.parent}' {facts}"
    assert after[:2] == [f"next: {bring}", f"next: {bring} '{keys}'"]
    assert after[2].startswith("next: cptlaw export")
    imported(study, exact, given=[f"domain_ratio={ratio:.3f}", "role=confirm"])  # As it was printed.
    for verb in ("confirm", "report"):
        assert run([verb, str(study.folder)]) == 0
    said = capsys.readouterr().out
    assert "then: train" not in said
    assert "This run is at" not in said

    slow = trainer_state(tmp_path / "slow", 0.65, peak=1e-4)
    imported(study, slow, given=["domain_ratio=0.65", "role=confirm", "peak=1e-4"])
    assert "peak 0.0001, recommended 0.0002" in refused(["confirm", str(study.folder)], capsys, 3)


def test_a_corrected_confirmation_run_is_to_be_compared_again(study: Study, tmp_path: Path, capsys) -> None:
    answer = Recommendation.read(study)
    ratio = (answer.mixture or {})["domain"]
    log, given = trainer_state(tmp_path / "exact", ratio), [f"domain_ratio={ratio:.3f}", "role=confirm"]
    points = imported(study, log, given=given)
    assert run(["confirm", str(study.folder)]) == 0

    def shown() -> tuple[bool, ...]:
        """Whether confirm is done, and whether report, export and conclusion show a measured loss."""
        context = Context(question_of_study(study.folder, []), study)
        assert run(["export", str(study.folder), "format=trl", "sequence_length=256", "target.global_batch=8"]) == 0
        exported = " measured, " in capsys.readouterr().out
        measured = exported, bool(Evidence(context).confirmations), " rose by " in conclusion_of(context).headline
        return STEPS["confirm"].is_done(context), *measured

    assert shown() == (True,) * 4
    state = json.loads((log / "trainer_state.json").read_text())
    state["log_history"][-2]["eval_general_loss"] *= 1.1
    (log / "trainer_state.json").write_text(json.dumps(state))
    assert len(imported(study, log, given=given)) == len(points)
    assert shown() == (False,) * 4
    assert run(["confirm", str(study.folder)]) == 0
    assert shown() == (True,) * 4


def test_a_run_of_another_length_is_named_and_not_judged(study: Study, tmp_path: Path, capsys) -> None:
    ratio = (Recommendation.read(study).mixture or {})["domain"]
    rows = [(step, corpus, loss) for step in (0, 10, 20) for corpus, loss in losses(ratio, step).items()]
    pd.DataFrame(rows, columns=["step", "corpus", "loss"]).to_csv(tmp_path / "short.csv", index=False)
    # Of another peak, too: what is not judged need not have the answer's learning rates.
    given = [f"domain_ratio={ratio:.3f}", "role=confirm"]
    imported(study, tmp_path / "short.csv", given=[*given, "peak=1e-4"])
    (short,) = (planned.name for planned in study.read_plan() if planned.role == "confirm")
    named = f"not judged, of another model or length: {short} (model, 20 steps)"
    assert f"no run to confirm with; {named}; train the recomm" in refused(["confirm", str(study.folder)], capsys, 3)
    imported(study, trainer_state(tmp_path / "exact", ratio), given=given)
    assert run(["confirm", str(study.folder)]) == 0
    made = Confirmation.read(study)
    assert {row.steps for row in made.confirmations} == {40}
    assert made.outcome.sentence.endswith(f" N{named[1:]}.")


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [0.01, -0.5])
def test_runs_at_one_ratio_answer_for_no_other(tolerance: float, tmp_path: Path, capsys, no_profiles) -> None:
    study = Study(tmp_path / "my studies" / "made")
    logs = [trainer_state(tmp_path / name, 0.3) for name in ("one", "two")]
    imported(study, *logs, given=["domain_ratio=0.3", "law=transfer-open", f"goal.tolerance={tolerance}"])
    assert run(["fit", str(study.folder), "bootstrap=2"]) == 0
    capsys.readouterr()
    assert run(["recommend", str(study.folder), "goal.domain_ratio=0.5"]) == (0 if tolerance > 0 else 1)
    line = "all runs for the fit are at one domain ratio, 30%: what the ratio does to the losses is not known"
    printed = capsys.readouterr().out
    assert "note: goal.domain_ratio: not read with goal.kind=trade-off; goal=compute reads it\n" in printed
    assert f"The domain ratio is not known yet: {line}.\n" in printed
    assert "What would tell: runs at other domain ratios, brought by cptlaw import.\n" in printed
    assert not re.search(
        "feasible|is flat|beyond the points|keeps to the tolerance is not|best near this ratio", printed
    )
    assert not re.search(r"1\.000|100%|replay ratio", printed)
    line_of_runs = "pretrain.steps=9: recommend cannot change the runs of the study; leave it out"
    assert refused(["recommend", str(study.folder), "pretrain.steps=9"], capsys, 2) == line_of_runs
    assert run(["report", str(study.folder)]) == 0
    words = " ".join(Page(study.folder / "report.html").words.split())
    assert "No sliders: " in words
    assert " is feasible for " not in words
    assert not re.search(r"[^-] ?100% (domain|general)|Domain ratio by one law alone", words)
    capsys.readouterr()
    for ratios, tested in (([0.3], True), ([0.3, 0.5, 1], False)):
        assert run(["predict", str(study.folder), f"domain_ratio={json.dumps(ratios)}", "--json"]) == 0
        predicted = json.loads(capsys.readouterr().out)
        assert predicted["tested"] == tested
        assert {row["domain_ratio"] for row in predicted["losses"]} == {0.3}
        assert (line in predicted["notes"]) != tested
