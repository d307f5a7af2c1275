"""Questions that compose, and mistakes that are told in one line with key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.question.loading import (
    CONF,
    ConfigError,
    describe_keys,
    load_question,
    pieces,
    question_of_study,
    read_question,
)
from pipeline.study.folder import question_yaml

GROUPS = sorted(
    (path.parent.name, path.stem)
    for path in CONF.glob("*/*.yaml")
    if path.parent.name not in ("schedule", "evaluation", "wandb_sweeps")
)
NEEDED = {
    "bert-base": ["objective.kind=masked"],
    "compute": ["goal.flops=1e12", "ladder=[qwen2-0.05m]"],
    "dcpt-six": ["corpora.folder=there"],
    "dcpt-six-small": ["corpora.folder=there"],
    "dynamics-open": ["model.path=there"],
    "hub": ["corpora.sources.general.name=a/b", "corpora.sources.domain.name=c/d"],
    "hf": ["model.path=some/model"],
    "limited-data": ["goal.domain_tokens=1e6"],
    "local": ["model.path=there", "corpora.sources.general.path=a", "corpora.sources.domain.path=b"],
    "own": ["corpora.sources.general.path=a", "corpora.sources.domain.path=b"],
    "redpajama-like": ["corpora.folder=there"],
}


@pytest.mark.parametrize(("group", "name"), GROUPS)
def test_every_file_composes(group: str, name: str) -> None:
    own = (group, "objective", "ladder")
    needed = [word for word in NEEDED.get(name, []) if group == "experiment" or word.startswith(own)]
    value = f"[{name}]" if group == "law" else name
    assert read_question([f"{group}={value}", *needed])


@pytest.mark.parametrize("phase", ["pretrain", "continual"])
@pytest.mark.parametrize("path", sorted((CONF / "schedule").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_schedule_composes(path: Path, phase: str) -> None:
    question = read_question([f"schedule@{phase}.schedule={path.stem}"])
    assert pieces(getattr(question, phase))


@pytest.mark.parametrize("path", sorted((CONF / "evaluation").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_evaluation_composes(path: Path) -> None:
    name = read_question([f"evaluation@continual.evaluation={path.stem}"]).continual.evaluation.policy
    assert name == path.stem


MISTAKES = {
    "mixture.domian=0.3": ["mixture.domian: no such key", "mixture.domain_ratio"],
    "mixture.domain_ratio=[0.5,1.5]": ["mixture.domain_ratio: 1.5; allowed: 0 to 1"],
    "mixture.domain_ratio=-0.1": ["mixture.domain_ratio: -0.1; allowed: 0 to 1"],
    "mixture.domain_ratio=[]": ["mixture.domain_ratio: empty"],
    "mixture.replicate_at=0.33": ["mixture.replicate_at: 0.33; allowed: one of"],
    "continual.steps=many": ["continual.steps", "many", "Integer"],
    "continual.steps=0": ["continual.steps: 0; allowed: 1 or more"],
    "model=qwen9": ["model: 'qwen9' does not exist; allowed:", "qwen2-0.3m"],
    "ladder=[qwen2-0.3]": ["ladder: 'qwen2-0.3' is not a model", "did you mean qwen2-0.3m?"],
    "model=local": ["model.path: has no value", "give model.path=..."],
    "corpora.domain=law": ["corpora.domain: 'law' is not a source; allowed: general, code"],
    "corpora.domain=general": ["corpora.domain: 'general' is also the general corpus"],
    "precision=fp8": ["precision: 'fp8'; allowed: auto, fp32, bf16"],
    "engine=fast": ["engine: 'fast'; allowed: auto, sdpa"],
    "name='../out'": ["name: '../out'; allowed: letters"],
    "goal.tolerance=0": ["goal.tolerance: 0"],
    "launcher.kind=pbs": ["launcher.kind: 'pbs'; allowed: local, slurm"],
    "parallel=zero4": ["parallel: 'zero4' does not exist; allowed: ddp, fsdp2, single, zero1", "did you mean zero"],
    "parallel.kind=tensor": ["parallel.kind: 'tensor'; allowed: single, ddp"],
    "parallel.processes=2": ["parallel.processes: 2 with parallel.kind=single; allowed: 1"],
    "continual.checkpoints.steps=[9999]": ["continual.checkpoints.steps: 9999 is not in the run"],
    "law=[dcpt-l9]": ["law: 'dcpt-l9' does not exist; allowed:"],
    "continual.evaluation.policy=often": ["continual.evaluation.policy: 'often' is no policy; allowed: dense"],
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_one_line(override: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["plan", "experiment=quickstart", f"studies={tmp_path}", override]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1, error
    for part in MISTAKES[override]:
        assert part in error
    assert not list(tmp_path.iterdir())


def test_all_mistakes_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["plan", "mixture.domain_ratio=[2]", "precision=fp8", "continual.steps=0", "launcher.micro_batch=7"]) == 2
    )
    error = capsys.readouterr().err
    for key in ("mixture.domain_ratio", "precision", "continual.steps", "launcher.micro_batch"):
        assert f"{key}: " in error
    assert "7 does not divide pretrain.global_batch 20; allowed: 1, 2, 4, 5, 10, 20" in error


def test_what_cannot_be_spread_over_processes_is_refused() -> None:
    words = ["experiment=quickstart", "parallel=zero2", "parallel.processes=3", "+parallel.deepspeed.bf16.enabled=true"]
    with pytest.raises(ConfigError) as refused:
        read_question(words)
    assert refused.value.lines == [
        "parallel.deepspeed.bf16: not allowed; cptlaw decides it (see docs/devices.md)",
        "parallel.processes: 3 does not divide pretrain.global_batch 16; allowed: a divisor of it",
        "parallel.processes: 3 does not divide continual.global_batch 16; allowed: a divisor of it",
    ]
    with pytest.raises(ConfigError, match=r"engine: 'eager-compiled' with parallel\.kind=fsdp2; allowed: auto, sdpa"):
        read_question(["parallel=fsdp2", "engine=eager-compiled"])


def test_a_schedule_that_does_not_fill_the_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"continual\.schedule"):
        read_question(["continual.schedule.pieces=[{shape: constant, start: 1.0, steps: 400}]"])


def test_an_experiment_has_the_last_word_but_for_the_command_line() -> None:
    assert read_question(["experiment=quickstart"]).continual.peak_learning_rate == 6e-4
    assert (
        read_question(["experiment=quickstart", "continual.peak_learning_rate=1e-4"]).continual.peak_learning_rate
        == 1e-4
    )


def test_study_yaml_gives_the_question_back(tmp_path: Path) -> None:
    question = read_question(["experiment=quickstart", "mixture.domain_ratio=[0.2,0.4]", "mixture.replicate_at=null"])
    path = tmp_path / "study.yaml"
    path.write_text(question_yaml(question))
    assert load_question(path) == question
    assert load_question(path, ["goal.tolerance=0.05"]).goal.tolerance == 0.05
    other = load_question(path, ["law=[transfer-rate,dcpt]"])
    assert {name: section.from_step for name, section in other.law.items()} == {"transfer-rate": 5, "dcpt": 60}
    with pytest.raises(ConfigError, match=r"law: 'transfer-rat' is not a law; allowed: .*transfer-rate"):
        load_question(path, ["law=transfer-rat"])
    with pytest.raises(ConfigError, match="no such key"):
        load_question(path, ["goal.tolerence=0.05"])
    path.write_text(path.read_text().replace("ladder:", "leader:"))
    with pytest.raises(ConfigError, match="plan again"):
        load_question(path)


def test_every_key_is_documented() -> None:
    assert [key for key, _, note in describe_keys() if not note] == []


@pytest.mark.parametrize("words", [[], ["--help"], ["plan", "--help"], ["--version"]])
def test_help_teaches(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == (0 if words else 2)
    assert "cptlaw" in capsys.readouterr().out


def test_a_misspelt_verb_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reccomend"]) == 2
    assert "did you mean recommend?" in capsys.readouterr().err


def test_looking_does_not_load_torch() -> None:
    import subprocess
    import sys

    script = (
        "import sys; from pipeline.cli.main import run; run(['plan', 'experiment=quickstart', 'data=/nowhere']);"
        "import pipeline.cli.verbs, pipeline.study.fits, pipeline.study.collect, pipeline.study.status;"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules, 'torch was loaded'"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


def test_what_a_study_was_told_to_train_is_not_asked_again(tmp_path: Path) -> None:
    stored = tmp_path / "study.yaml"
    stored.write_text(question_yaml(read_question(["experiment=quickstart", "tables.run=true"])))
    assert not question_of_study(tmp_path, []).tables.run
    assert question_of_study(tmp_path, ["tables.run=true"]).tables.run
    stored.write_text("x: [")
    with pytest.raises(ConfigError, match=r"study\.yaml: cannot be read as a question \(while parsing"):
        question_of_study(tmp_path, [])
