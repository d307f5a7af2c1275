"""A rehearsal is the same question in small: every experiment has one, which says what it changed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conf import options
from pipeline.cli.main import run
from pipeline.goals.registry import goal_of, load_question, read_question
from pipeline.plan.runs import estimate
from pipeline.question.messages import ConfigError
from pipeline.question.presets import models
from pipeline.question.rehearsal import BATCH, BYTES, LENGTH, LONGEST, TOLERANCE
from pipeline.study.folder import question_yaml, study_of
from tests.conftest import write_text
from tests.pipeline.question.test_loading import NEEDED
from tests.pipeline.small import refused

IN_CI = {"autoscale-paper-bert": ["weights.methods=[ddo,uniform]"]}
"""Experiment whose rehearsal takes some 20 seconds on two free cores -> what makes it so."""


@pytest.mark.slow
@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_composes_and_has_a_small_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CPTLAW_CORPORA", raising=False)
    assert not read_question([f"experiment={name}", *NEEDED.get(name, "").split()]).rehearsal
    question = read_question([f"experiment={name}", "rehearsal=true"])
    context = estimate(question)
    runs = goal_of(question).runs(context)
    assert question.name.endswith("-rehearsal")
    assert runs
    for spec in (one.spec for one in runs):
        layers = {spec.model.get("num_hidden_layers"), spec.model.get("n_layer")}
        assert layers == {2, None}
        assert (spec.global_batch, spec.sequence_length) == (BATCH, LENGTH)
        assert spec.steps <= LONGEST * (1.5 if name in ("dynamics-open", "dynamics-paper-open") else 1)
    assert len({one.model for one in runs}) <= len(context.models)
    for source in question.corpora.sources.values():
        assert source.kind in ("installed-python", "files")
        assert (source.max_bytes or 0) <= BYTES
    texts = {(source.kind, source.part, source.path) for source in question.corpora.sources.values()}
    assert len(texts) == len(question.corpora.sources)


def test_a_rehearsal_keeps_what_is_asked_and_says_what_it_changed() -> None:
    real, small = (read_question(["experiment=dcpt-paper", *more]) for more in ([], ["rehearsal=true"]))
    assert small.mixture == real.mixture
    assert small.goal == replace(real.goal, tolerance=TOLERANCE)
    assert small.corpora.domains == real.corpora.domains
    assert [one.model_type for one in models(small)[0]] == ["qwen2"] * 3
    assert small.model.name == small.ladder[-1] == "tiny-qwen2-64"
    # In proportion, and a base model is pre-trained first.
    assert (small.target.steps, small.continual.steps, small.pretrain.steps) == (LONGEST,) * 3
    assert small.tables.from_step == 1
    text = "\n".join(small.rehearsal_changes)
    assert "tiny-qwen2-32 for qwen1.5-0.5b" in text
    assert "200,000 steps are 120" in text
    assert "peak learning rates are 100 times as high" in text
    assert "law: graphs of the installed Python" in text
    jobs = read_question(["experiment=own", "rehearsal=true", "launcher=slurm", "launcher.slurm.gpus=h100:8"])
    one = "a run of a tiny model is one process, on one device"
    assert f"processes: launcher.slurm.gpus=h100:1 in place of h100:8; {one}" in jobs.rehearsal_changes
    own = read_question(["experiment=own", "rehearsal=true", "target.peak_learning_rate=0.01"])
    assert not any("as high" in line for line in own.rehearsal_changes)
    rates = [f"{phase}.peak_learning_rate" for phase in ("pretrain", "target", "continual")]
    with pytest.raises(ConfigError) as error:
        read_question(["experiment=own", "rehearsal=true", *(f"{key}=0" for key in rates)])
    assert {*error.value.lines} >= {f"{key}: 0.0; allowed: above 0, up to 10" for key in rates[:2]}


def test_a_cluster_gives_a_rehearsal_one_device_a_run() -> None:
    words = ["experiment=dcpt-paper", "rehearsal=true", "launcher=slurm", "launcher.slurm.nodes=2"]
    for given, kept in {"h100:8": "h100:1", "16": "1", "0": "0"}.items():
        small = read_question([*words, f"launcher.slurm.gpus={given}"])
        assert (small.launcher.slurm.gpus, small.launcher.slurm.nodes, small.parallel.processes) == (kept, 1, 1)
        line = "processes: parallel.processes=1 in place of 16, launcher.slurm.nodes=1 in place of 2"
        gpus = f", launcher.slurm.gpus={kept} in place of {given}" * (given != kept)
        assert f"{line}{gpus}; a run of a tiny model is one process, on one device" in small.rehearsal_changes


def test_train_says_what_a_rehearsal_changes(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("CPTLAW_CORPORA", raising=False)
    words = ["experiment=dcpt-paper", "rehearsal=true", "launcher=slurm", "launcher.slurm.gpus=8", "dry_run=true"]
    assert run(["train", *words, f"studies={tmp_path}", f"data={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "launcher.slurm.gpus=1 in place of 8; a run of a tiny model is one process" in printed
    assert "models, from scratch: tiny-qwen2-32 for " in printed


def test_budgets_shrink_with_the_run() -> None:
    words = ["experiment=usages-small", "goal=limited-data"]
    real, small = (read_question([*words, *more]) for more in ([], ["rehearsal=true"]))
    for question in (real, small):
        part = (question.goal.domain_tokens or 0.0) / (question.target.steps * question.tokens_per_step())
        assert part == pytest.approx((real.goal.domain_tokens or 0.0) / (400 * 16 * 128))


def test_texts_of_a_rehearsal_may_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=dynamics-paper", "rehearsal=true", f"rehearsal_corpora={tmp_path}"]
    (tmp_path / "knowledge-pile.jsonl.gz").touch()
    write_text(tmp_path / "fineweb", 1, documents=1)
    lines = refused(["plan", *words], capsys, 2)
    assert "has no pile-of-law, pile-of-law.jsonl.gz or the like" in lines
    assert "fineweb" not in lines
    (tmp_path / "pile-of-law.txt").touch()
    sources = read_question(words).corpora.sources
    assert {Path(source.path).name for source in sources.values()} == {
        *("fineweb", "knowledge-pile.jsonl.gz", "pile-of-law.txt")
    }
    own = read_question([*words, "rehearsal_corpora=own"]).corpora.sources
    assert [(source.kind, source.max_bytes) for source in own.values()] == [("hub", BYTES)] * 3


def test_a_study_is_rehearsed_from_its_start_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    small = read_question(["experiment=quickstart", "rehearsal=true"])
    file.write_text(question_yaml(small))
    # Nothing shrinks twice.
    assert load_question(file, ["rehearsal=true"]) == small
    file.write_text(question_yaml(read_question(["experiment=quickstart"])))
    with pytest.raises(ConfigError, match="allowed: False, as it was planned"):
        load_question(file, ["rehearsal=true"])


def _cases() -> Iterator[object]:
    """CI has time for the shortest ones. The others take minutes each: python -m pytest -m rehearsal."""
    for name in options("experiment"):
        yield pytest.param(name, [], marks=[pytest.mark.slow, pytest.mark.rehearsal], id=name)
    for name, words in IN_CI.items():
        yield pytest.param(name, words, marks=pytest.mark.slow, id=f"{name} in small")
    words = ["mixture.domain_ratio=[0.1,0.5,0.9]", "mixture.replicates=1", "confirm.around=[-0.3]", "confirm.seeds=1"]
    words += ["model=qwen2-0.15m", "ladder=[qwen2-0.05m,qwen2-0.15m]", "law=[dcpt,transfer-anchored]"]
    yield pytest.param("usages-small", words, marks=pytest.mark.slow, id="usages of three ratios")


@pytest.mark.parametrize(("name", "more"), [*_cases()])
def test_a_rehearsal_ends_with_a_report_that_says_what_it_is(
    name: str,
    more: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.delenv("CPTLAW_CORPORA", raising=False)
    if not request.node.get_closest_marker("rehearsal"):
        # Half of the time of a short one goes into its text.
        monkeypatch.setattr("pipeline.question.rehearsal.BYTES", 600_000)
        more = [*more, "corpora.validation_ratio=0.2"]
    words = [f"experiment={name}", "rehearsal=true", f"studies={tmp_path}", f"data={tmp_path / 'data'}", *more]
    assert run(["quickstart", *words]) == 0
    shown = capsys.readouterr().out
    study = study_of(read_question(words))
    assert f"{study.folder.name}: rehearsal, no result" in shown
    assert "-32 for " in shown
    page = study.folder / "report.html"
    page = page if page.exists() else study.folder / study.answer("report.html")
    assert "Rehearsal, no result: " in page.read_text()
    assert run(["tables", str(study.folder)]) == 0
    assert "rehearsal, no result: " in (study.folder / "tables.md").read_text()
    assert "a rehearsal, whose numbers say nothing" in refused(["export", str(study.folder), "format=trl"], capsys, 2)
