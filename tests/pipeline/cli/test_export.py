"""The recommended run in each trainer's configuration: documented keys, the mixture, and the same learning rates."""

import ast
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from transformers import TrainingArguments, get_scheduler

from conf import WORDS
from pipeline.cli.json_output import json_of
from pipeline.cli.main import run
from pipeline.cli.trainers.formats import FORMATS, scheduler
from pipeline.cli.trainers.plan import TrainerCorpus, TrainerSchedule, TrainingPlan, schedule_of
from pipeline.goals.registry import goal_of, read_question
from pipeline.question.messages import ConfigError
from pipeline.study.artifacts import Confirmation, Interval, Machine, PredictedLoss, RecommendedRun
from pipeline.study.folder import question_yaml, study_of
from tests.pipeline.goals.ratio.examples import confirmation_row, recommendation
from tests.pipeline.small import refused
from training.corpora.source import Source
from training.schedule import Piece, learning_rates
from training.spec import Optimizer

PLAN = TrainingPlan(
    study="law-study",
    model="org/base",
    corpora=(
        TrainerCorpus("general", Source("hub", name="org/web", subset="en"), 0.6, 2 * 10**6, 10**9),
        TrainerCorpus("law", Source("files", path="law.jsonl", column="body"), 0.4, 10**6, 10**9),
    ),
    steps=1000,
    global_batch=64,
    micro_batch=4,
    devices=8,
    sequence_length=2048,
    peak=2e-4,
    schedule=TrainerSchedule(50, "linear", 200, 0.1, 1.0, 0.0),
    optimizer=Optimizer(),
    precision="bf16",
    seed=3,
    facts=(),
)
NEAR, WIDE = ({of: PredictedLoss(2.01, *ends) for of in ("general", "domain")} for ends in ((2.0, 2.02), (1.9, 2.1)))
ANSWERED: dict[str, Any] = {
    "mixture": {"general": 0.7, "domain": 0.3},
    "loss_before": {"general": 2.0, "domain": 3.0},
    "predicted": NEAR,
}
TRAINER = {
    *("output_dir", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "weight_decay", "adam_beta1", "adam_beta2"),
    *("adam_epsilon", "max_grad_norm", "bf16", "seed"),
}
"""Of transformers.TrainingArguments, which the test itself asks."""
DOCUMENTED = {
    # Read back by LLaMA-Factory 0.9.5's own parser (llamafactory.hparams.parser) when this was written.
    "llama-factory": (
        "https://github.com/hiyouga/LLaMA-Factory/tree/main/src/llamafactory/hparams",
        {"model_name_or_path", "stage", "do_train", "finetuning_type", "dataset_dir", "dataset", "cutoff_len"}
        | {"packing", "mix_strategy", "interleave_probs"} | TRAINER,
    ),
    # By TRL 1.16.0's TrlParser.
    "trl": (
        "https://huggingface.co/docs/trl/sft_trainer#trl.SFTConfig",
        {"model_name_or_path", "datasets", "dataset_text_field", "max_length", "packing", "packing_strategy"} | TRAINER,
    ),
    # By axolotl 0.19.0's AxolotlInputConfig.
    "axolotl": (
        "https://docs.axolotl.ai/docs/config-reference.html",
        {"base_model", "datasets", "sequence_len", "sample_packing", "micro_batch_size", "optimizer", "lr_scheduler"}
        | TRAINER - {"per_device_train_batch_size", "optim", "lr_scheduler_type"},
    ),
    "megatron": (
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py",
        {"load", "seq-length", "micro-batch-size", "global-batch-size", "train-iters", "lr", "min-lr"}
        | {"lr-decay-style", "lr-decay-iters", "lr-warmup-iters", "lr-wsd-decay-style", "lr-wsd-decay-iters"}
        | {"optimizer", "weight-decay", "adam-beta1", "adam-beta2", "adam-eps", "clip-grad", "seed", "data-path"}
        | {"finetune", "bf16", "split", "eval-iters"},
    ),
    "nemo": (
        "https://github.com/NVIDIA/NeMo/blob/v1.23.0/examples/nlp/language_modeling/conf/megatron_gpt_config.yaml",
        {"trainer.devices", "trainer.precision", "trainer.max_steps", "trainer.gradient_clip_val"}
        | {"trainer.limit_val_batches", "model.data.splits_string"}
        | {f"model.{key}" for key in ("micro_batch_size", "global_batch_size", "encoder_seq_length", "seed")}
        | {f"model.optim.{key}" for key in ("name", "lr", "weight_decay", "betas", "eps")}
        | {f"model.optim.sched.{key}" for key in ("name", "warmup_steps", "min_lr", "hold_steps", "power")}
        | {"model.data.data_prefix", "restore_from_path"},
    ),
    "torchtitan": (
        "https://github.com/pytorch/torchtitan/blob/v0.3.0/torchtitan/config/configs.py",
        {"hf_assets_path", "optimizer", "lr_scheduler", "training", "dataloader", "lr", "betas", "eps", "weight_decay"}
        | {"warmup_steps", "decay_ratio", "decay_type", "min_lr_factor", "local_batch_size", "global_batch_size"}
        | {"seq_len", "max_norm", "steps", "mixed_precision_param", "seed", "stopping_strategy", "sources"}
        | {"dataset", "dataset_path", "weight", "path", "data_files", "split", "streaming", "loader"}
        | {"sample_processor"},
    ),
}  # fmt: skip
"""Format -> where its keys are documented, and those that an export may write."""


def written(name: str, plan: TrainingPlan) -> dict[str, Any]:
    """The keys of an export and their values."""
    text, _ = FORMATS[name].write(plan)
    if name == "megatron":
        return {line.split()[0][2:]: " ".join(line.split()[1:]) for line in text.splitlines()}
    if name == "torchtitan":
        pairs = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword)]
        return {pair.arg: ast.unparse(pair.value) for pair in pairs if pair.arg}
    values = yaml.safe_load(text)
    return dict(pd.json_normalize(values).iloc[0]) if name == "nemo" else values


@pytest.mark.parametrize("name", FORMATS)
def test_every_key_is_documented_by_the_trainer(name: str) -> None:
    address, known = DOCUMENTED[name]
    assert set(written(name, PLAN)) == known, address


@pytest.mark.parametrize(("name", "key"), [("megatron", "seed"), ("nemo", "model.seed")])
def test_seeds_are_above_0_where_the_trainer_asks_for_that(name: str, key: str) -> None:
    assert [int(written(name, dataclasses.replace(PLAN, seed=seed))[key]) for seed in (0, 1)] == [1, 2]


def test_arguments_of_transformers_are_those_of_its_class() -> None:
    assert {item.name for item in dataclasses.fields(TrainingArguments)} >= TRAINER


@pytest.mark.parametrize("name", ["llama-factory", "trl", "axolotl"])
def test_transformers_trainers_get_batch_steps_and_optimizer(name: str) -> None:
    values = written(name, PLAN)
    batch = values.get("per_device_train_batch_size") or values["micro_batch_size"]
    assert batch * values["gradient_accumulation_steps"] * PLAN.devices == 64
    assert (values["max_steps"], values["learning_rate"], values["warmup_steps"]) == (1000, 2e-4, 50)
    assert (values["weight_decay"], values["adam_beta2"], values["bf16"], values["seed"]) == (0.1, 0.95, True, 3)


def test_documents_are_weighed_where_the_trainer_counts_documents() -> None:
    assert written("llama-factory", PLAN)["interleave_probs"] == "0.75,0.25"
    assert [one["fraction"] for one in written("trl", PLAN)["datasets"]] == [0.75, 0.25]
    unknown = dataclasses.replace(PLAN, corpora=tuple(dataclasses.replace(one, documents=None) for one in PLAN.corpora))
    text, missing = FORMATS["trl"].write(unknown)
    assert [one["fraction"] for one in yaml.safe_load(text)["datasets"]] == [0.6, 0.4]
    assert any("fraction counts documents" in line for line in missing)
    assert [one["split"] for one in written("axolotl", PLAN)["datasets"]] == ["train[:157286]", "train[:52429]"]
    text, missing = FORMATS["axolotl"].write(unknown)
    assert "train[" not in text
    assert any(line.startswith("precision: axolotl keeps the weights themselves in bf16") for line in missing)
    assert "78,643,200 tokens of general, 52,428,800 tokens of law" in missing[-1]


def test_tokens_are_weighed_where_the_trainer_counts_tokens() -> None:
    assert written("megatron", PLAN)["data-path"] == "0.6 general_text_document 0.4 law_body_document"
    # By default they hold out 3.1 and 10% of the text, of which the mixture's tokens are then not trained on.
    assert written("megatron", PLAN)["split"] == written("nemo", PLAN)["model.data.splits_string"] == "100,0,0"
    assert written("nemo", PLAN)["model.data.data_prefix"] == [0.6, "general_text_document", 0.4, "law_body_document"]
    assert "weight=0.6" in FORMATS["torchtitan"].write(PLAN)[0]
    styles = {key: value for key, value in written("megatron", PLAN).items() if key.startswith("lr-")}
    assert styles["lr-decay-style"] == "WSD"
    assert (styles["lr-wsd-decay-style"], styles["lr-wsd-decay-iters"]) == ("linear", "200")
    assert written("torchtitan", PLAN)["decay_ratio"] == "0.2"


@pytest.mark.parametrize("name", WORDS["schedule"])
def test_transformers_walks_our_learning_rates(name: str) -> None:
    pieces = [Piece(**piece) for piece in WORDS["schedule"][name]["pieces"]]
    plan = dataclasses.replace(PLAN, peak=1.0, schedule=schedule_of(pieces, 100, 1.0, 0.0), steps=100)
    kind, arguments, missing = scheduler(plan)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    walked = get_scheduler(kind, optimizer, plan.schedule.warmup, 100, scheduler_specific_kwargs=arguments)
    rates = []
    for _ in range(100):
        optimizer.step()
        walked.step()
        rates.append(walked.get_last_lr()[0])
    ours = learning_rates(pieces, 100)
    warmup = plan.schedule.warmup if missing else 0
    np.testing.assert_allclose(rates[warmup:], ours[warmup:], atol=1e-9)


def test_a_decay_that_a_trainer_does_not_have_is_said() -> None:
    plan = dataclasses.replace(PLAN, schedule=dataclasses.replace(PLAN.schedule, decay="exponential"))
    for name, one in FORMATS.items():
        assert any("exponential decay of the last 200 steps" in line for line in one.write(plan)[1]), name
    assert written("trl", plan)["lr_scheduler_type"] == "constant_with_warmup"
    assert written("megatron", plan)["lr-decay-style"] == "constant"
    with pytest.raises(ConfigError, match=r"^target\.schedule: cosine constant; allowed here: a warm-up"):
        schedule_of([Piece("cosine", 1.0, 0.1, steps=5), Piece("constant")], 9, 1.0, 0.0)


def test_a_study_is_exported_with_what_it_says_of_the_run(tmp_path: Path, monkeypatch, capsys) -> None:
    words = ["experiment=own", f"studies={tmp_path}", "name=law", "model=local", "model.path=org/base", "ladder=[]"]
    words += [f"corpora.sources.{name}.path={name}.jsonl" for name in ("general", "domain")]
    question = read_question([*words, "schedule@target.schedule=wsd", "target.global_batch=8", "target.steps=400"])
    study = study_of(question)
    folder = str(study.folder)
    study.folder.mkdir()
    monkeypatch.chdir(tmp_path)
    Path("studies/mine").mkdir(parents=True)
    Path("studies/mine/study.yaml").write_text("")
    line = refused(["export", "format=trl"], capsys)
    assert "0 study folders; allowed: one, see cptlaw export --help; studies here: studies/mine" in line
    for other in ("studies/mien", "mine"):
        assert "makes one; studies here: studies/mine" in refused(["export", other, "format=trl"], capsys, 3)
    assert "not a study" in refused(["export", folder, "format=trl"], capsys, 3)
    for verb, *more in (["predict", "domain_ratio=0.3"], ["predict", f"new={folder}", "domain_ratio=0.3"], ["status"]):
        assert "other: not a study" in refused([verb, str(tmp_path / "other"), *more], capsys, 3)
    (study.folder / "study.yaml").write_text(question_yaml(question))
    assert f"recommendation.json: missing; run cptlaw recommend {folder} first" in refused(
        ["export", folder, "format=trl"], capsys
    )
    target = RecommendedRun("base", 0.1, 400 * 8 * question.sequence_length / 1e9, 400)
    made = recommendation(**ANSWERED, target=target)
    made.write(study)
    # What this machine trains fastest says nothing of the one that trains the answer.
    Machine("fp32", {}, {"fp32": 2, "bf16": 1}, "a CPU").write(study)
    output = tmp_path / "out" / "trl.yaml"
    assert run(["export", folder, "format=trl", f"output={output}", "devices=2"]) == 0
    shown = capsys.readouterr()
    assert "note: fraction counts documents" in shown.err
    text = output.read_text()
    conclusion, *missing, following = shown.err.splitlines()
    assert conclusion.startswith("note: Train ")
    assert conclusion.endswith("no run has confirmed it yet.")
    assert all(f"# {line}" in text for line in missing)
    assert following.startswith(f"next: trl sft --config {output}, on 2 GPUs, where the text and the model are under ")
    values = yaml.safe_load(text)
    keys = ("model_name_or_path", "max_steps", "gradient_accumulation_steps", "bf16")
    assert [values[key] for key in keys] == ["org/base", 400, 4, True]
    assert [one["data_files"] for one in values["datasets"]] == ["general.jsonl", "domain.jsonl"]
    assert values["lr_scheduler_kwargs"] == {"num_decay_steps": 80, "decay_type": "linear", "min_lr_ratio": 0.1}
    assert "devices=3: do not divide target.global_batch=8" in refused(
        ["export", folder, "format=trl", "devices=3"], capsys
    )
    assert "did you mean trl?" in refused(["export", folder, "format=trk"], capsys)
    assert "# Train base on 30% domain and 70% general by prediction; no run has confirmed it yet." in text
    error = refused(["export", folder, "format=trl", "goal.domain_ratio=0.94"], capsys)
    assert "goal.domain_ratio: not read with goal.kind=trade-off; domain_ratio=... sets the ratio" in error
    for wrong, shown_as in {
        "1.2": "1.2; allowed:",
        "93.2%": "'93.2%'; allowed: a number,",
        "nan": "nan; allowed:",
    }.items():
        error = refused(["export", folder, "format=trl", f"domain_ratio={wrong}"], capsys)
        assert f"domain_ratio: {shown_as} 0 to 1" in error
    assert run(["export", folder, "format=megatron", f"output={output}", "domain_ratio=0.25"]) == 0
    given = "25% domain by domain_ratio=0.25, not by the study, whose answer is: train base on 30% domain and 70%"
    assert f"note: {given}" in capsys.readouterr().err
    text = output.read_text()
    assert f"# {given}" in text
    assert "--data-path 0.75 general_text_document 0.25 domain_text_document" in text
    assert "megatron: the run at a given domain ratio of law, " in text
    assert run(["export", folder, "format=trl", f"output={output}", "domain_ratio=0.25"]) == 0
    assert f"cptlaw follow {folder} domain_ratio=0.25 checkpoints=" in capsys.readouterr().err
    error = refused(["export", folder, "format=trl", "goal.tolerance=0.5"], capsys, 3)
    assert "answers goal.tolerance=0.03, but goal.tolerance=0.5 is asked" in error
    narrow, made = made, dataclasses.replace(made, predicted=WIDE)
    rows = [confirmation_row(corpus, 0.3, [2.0], model="base", steps=400) for corpus in ("general", "domain")]
    Confirmation(0.9, rows, goal_of(question).outcome(question, made, rows), None, made.identity).write(study)
    made.write(study)
    assert run(["export", folder, "format=trl"]) == 0
    line = "# domain: loss 2.0000 measured, 2.0100 predicted, 90% prediction interval 1.9000 to 2.1000"
    shown = capsys.readouterr()
    assert line in shown.out
    assert "keeps to the tolerance" not in shown.out
    content = json_of("confirm", question)
    assert content["outcome"]["verdict"] == "not determined"
    assert f"# confirmation: {content['confirmed']}; " in shown.out
    outcome = goal_of(question).outcome(question, made, rows)
    missed = dataclasses.replace(
        outcome, loss_increase=Interval(0.05, None, None), crossing=Interval(0.2849, None, None)
    )
    Confirmation(0.9, rows, missed, None, made.identity).write(study)
    assert run(["export", folder, "format=trl"]) == 0
    other = "domain_ratio=0.284 writes the ratio at which, on a line between runs, it is met"
    line = f"written is the predicted ratio, 30% domain, though it exceeded the tolerance; {other}"
    shown = capsys.readouterr()
    assert f"# {line}" in shown.out
    assert f"note: {line}" in shown.err
    assert "About 28.4% domain, not 30%, where the loss on general rose by 5.00%" in shown.err
    narrow.write(study)
    slightly = dataclasses.replace(missed, loss_increase=Interval(0.031, None, None))
    Confirmation(0.9, rows, slightly, None, narrow.identity).write(study)
    assert run(["export", folder, "format=megatron", f"output={output}"]) == 0
    shown = capsys.readouterr()
    assert "--data-path 0.716 general_text_document 0.284 domain_text_document" in output.read_text()
    assert "note: Train base on 28.4% domain and 71.6% general; by the runs this keeps to the tol" in shown.err
    line = "note: written is 28.4% domain; these losses are those of 30%; domain_ratio=0.3 writes the predicted ratio"
    assert line in shown.err
    assert f"cptlaw follow {folder} domain_ratio=0.284" in shown.err or f"follow {folder}" not in shown.err
    made = dataclasses.replace(made, low=0.0, high=1.0, identified=False)
    confirmation = Confirmation(0.9, rows, goal_of(question).outcome(question, made, rows), None, "an earlier one")
    confirmation.write(study)
    made.write(study)
    assert run(["export", folder, "format=trl", f"output={output}"]) == 0
    shown = capsys.readouterr()
    line = "The domain ratio is not known yet: 90% interval 0.0% to 100.0%"
    assert f"# {line}" in output.read_text()
    assert shown.err.count(line) == 1
    assert f"note: confirmation: of an earlier fit; run cptlaw confirm {folder} again" in shown.err
    assert "What would tell: cptlaw refine" in shown.err
    assert "next: trl sft" in shown.err
    answer = {"mixture": {"general": 0.6, "domain": 0.4}, "low": 0.3, "high": 0.5, "identified": True}
    dataclasses.replace(made, **answer, predicted=NEAR).write(study)
    assert run(["export", folder, "format=trl", f"output={output}"]) == 0
    assert f"next: cptlaw confirm {folder}; or, unconfirmed, trl sft" in capsys.readouterr().err
    dataclasses.replace(made, mixture={"general": 0.6, "domain": 0.4}).write(study)
    assert run(["export", folder, "format=trl"]) == 0
    assert f"# confirmation: of another answer; run cptlaw confirm {folder} again" in capsys.readouterr().out
    recommendation(**{**ANSWERED, "mixture": None}, target=target, binding="all too high").write(study)
    assert "no mixture meets the goal (all too high)" in refused(["export", folder, "format=trl"], capsys)


def test_text_is_found_from_another_folder_than_that_of_plan(tmp_path: Path, monkeypatch, capsys) -> None:
    names = ("general", "domain")
    words = [f"studies={tmp_path / 'made/studies'}", "model=local", "model.path=org/base", "ladder=[]"]
    texts = [f"corpora.sources.{name}.path={name}.jsonl" for name in names]
    question = read_question(["experiment=own", *words, *texts])
    study, batch = study_of(question), question.target.global_batch
    study.folder.mkdir(parents=True)
    (study.folder / "study.yaml").write_text(question_yaml(question))
    target = RecommendedRun("base", 0.1, 600 * batch * question.sequence_length / 1e9, 600)
    recommendation(**ANSWERED, target=target).write(study)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")

    def exported() -> list[str]:
        assert run(["export", "../made/studies/own", "format=trl", "output=trl.yaml"]) == 0
        return [one["data_files"] for one in yaml.safe_load(Path("trl.yaml").read_text())["datasets"]]

    assert exported() == ["general.jsonl", "domain.jsonl"]
    assert "note: domain: domain.jsonl is neither here nor in a folder around the study, so" in capsys.readouterr().err
    for folder in ("made", "other"):
        for name in names:
            (tmp_path / folder / f"{name}.jsonl").write_text('{"text": "one"}\n')
    assert exported() == [str(tmp_path / "made" / f"{name}.jsonl") for name in names]
    assert "neither here" not in capsys.readouterr().err
    study_words = ["export", "../made/studies/own", "format=trl"]
    assert run(study_words) == 0
    assert "next: trl sft --config FILE, on 1 GPU" in capsys.readouterr().err
    assert run([*study_words, "without_validation=true"]) == 0
    assert "without_validation=true output=FILE writes it" in capsys.readouterr().err
