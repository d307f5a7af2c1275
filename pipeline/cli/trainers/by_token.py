"""Configurations of Megatron-LM, NeMo and torchtitan, whose mixture weights count tokens, not documents."""

from __future__ import annotations

from typing import Any

import yaml

from pipeline.cli.trainers.plan import Config, TrainingPlan


def megatron(plan: TrainingPlan) -> Config:
    """Arguments of Megatron-LM's pretrain_gpt.py, one a line."""
    schedule, stable, missing = plan.schedule, plan.schedule.stable(plan.steps), []
    style = {"none": "constant", "cosine": "cosine", "linear": "linear"}.get(schedule.decay, "")
    flags: dict[str, Any] = {}
    if schedule.decay != "none" and (stable or not style):
        shapes = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "minus_sqrt"}
        style = "WSD" if schedule.decay in shapes else "constant"
        if style == "WSD":
            flags = {"lr-wsd-decay-style": shapes[schedule.decay], "lr-wsd-decay-iters": schedule.decay_steps}
        else:
            missing.append(_no_decay(plan))
    given = {
        "load": plan.model,
        "seq-length": plan.sequence_length,
        "micro-batch-size": plan.micro_batch,
        "global-batch-size": plan.global_batch,
        "train-iters": plan.steps,
        "lr": plan.peak,
        "min-lr": schedule.final * plan.peak,
        "lr-decay-style": style,
        "lr-decay-iters": plan.steps,
        "lr-warmup-iters": schedule.warmup,
        **flags,
        "optimizer": "adam",
        "weight-decay": plan.optimizer.weight_decay,
        "adam-beta1": plan.optimizer.beta1,
        "adam-beta2": plan.optimizer.beta2,
        "adam-eps": plan.optimizer.epsilon,
        "clip-grad": plan.optimizer.clip,
        "seed": plan.seed,
    }
    blend = " ".join(f"{corpus.weight:.6g} {corpus.name}_text_document" for corpus in plan.corpora)
    lines = [f"--{key} {value}" for key, value in given.items()] + [f"--data-path {blend}", "--finetune"]
    lines += ["--bf16"] * (plan.precision == "bf16")
    missing.append("NAME_text_document: each corpus is to be tokenised by tools/preprocess_data.py --append-eod")
    missing.append("load: Megatron's format; convert the Hugging Face directory first")
    return "\n".join(lines) + "\n", missing


def nemo(plan: TrainingPlan) -> Config:
    """YAML that overrides NeMo's megatron_gpt_config.yaml (megatron_gpt_pretraining.py)."""
    schedule, stable, missing = plan.schedule, plan.schedule.stable(plan.steps), []
    sched: dict[str, Any] = {"warmup_steps": schedule.warmup, "min_lr": schedule.final * plan.peak}
    if schedule.decay == "cosine" and not stable:
        sched = {"name": "CosineAnnealing", **sched, "constant_steps": 0}
    elif schedule.decay in ("linear", "polynomial"):
        sched = {"name": "PolynomialHoldDecayAnnealing", **sched, "hold_steps": stable, "power": schedule.power}
    else:
        sched = {"name": "WarmupPolicy", **sched}
        missing += [_no_decay(plan)] if schedule.decay != "none" else []
    values = {
        "trainer": {
            "devices": plan.devices,
            "precision": "bf16-mixed" if plan.precision == "bf16" else 32,
            "max_steps": plan.steps,
            "gradient_clip_val": plan.optimizer.clip,
        },
        "model": {
            "micro_batch_size": plan.micro_batch,
            "global_batch_size": plan.global_batch,
            "encoder_seq_length": plan.sequence_length,
            "seed": plan.seed,
            "data": {
                "data_prefix": [
                    item for corpus in plan.corpora for item in (corpus.weight, f"{corpus.name}_text_document")
                ]
            },
            "optim": {
                "name": "fused_adam",
                "lr": plan.peak,
                "weight_decay": plan.optimizer.weight_decay,
                "betas": [plan.optimizer.beta1, plan.optimizer.beta2],
                "eps": plan.optimizer.epsilon,
                "sched": sched,
            },
        },
        "restore_from_path": f"{plan.model}.nemo",
    }
    missing.append("NAME_text_document: each corpus is to be tokenised by preprocess_data_for_megatron.py --append-eod")
    missing.append("restore_from_path: NeMo's format; convert the Hugging Face directory first")
    return yaml.safe_dump(values, sort_keys=False), missing


def torchtitan(plan: TrainingPlan) -> Config:
    """Python settings for a model's config_registry.py of torchtitan 0.3."""
    schedule, stable, missing = plan.schedule, plan.schedule.stable(plan.steps), []
    shapes = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "sqrt", "none": "linear"}
    held = schedule.decay == "none" or schedule.decay not in shapes
    if schedule.decay not in shapes:
        missing.append(_no_decay(plan))
    ratio = 0.0 if held else schedule.decay_steps / plan.steps if stable else None
    sources = "".join(
        f"            HFDataSource(dataset={one.name!r}, dataset_path={one.place!r}, weight={one.weight:.6g}),\n"
        for one in plan.corpora
    )
    adam = plan.optimizer
    precision = "float32" if plan.precision == "fp32" else "bfloat16"
    text = f"""from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import TrainingConfig
from torchtitan.hf_datasets.text_datasets import HFDataSource, InterleavedHuggingFaceTextDataLoader

# In config_registry.py of your model: dataclasses.replace(llama3_8b(), **SETTINGS)
SETTINGS = dict(
    hf_assets_path={plan.model!r},
    optimizer=default_adamw(
        lr={plan.peak!r},
        betas=({adam.beta1!r}, {adam.beta2!r}),
        eps={adam.epsilon!r},
        weight_decay={adam.weight_decay!r},
    ),
    lr_scheduler=LRSchedulersContainer.Config(
        warmup_steps={schedule.warmup},
        decay_ratio={ratio!r},
        decay_type={shapes.get(schedule.decay, "linear")!r},
        min_lr_factor={schedule.final!r},
    ),
    training=TrainingConfig(
        local_batch_size={plan.micro_batch},
        global_batch_size={plan.global_batch},
        seq_len={plan.sequence_length},
        max_norm={adam.clip!r},
        steps={plan.steps},
        mixed_precision_param={precision!r},
    ),
    dataloader=InterleavedHuggingFaceTextDataLoader.Config(
        seed={plan.seed},
        stopping_strategy="all_exhausted",
        sources=[
{sources}        ],
    ),
)
"""
    missing.append("the names of dataset= are to be registered in torchtitan/hf_datasets/text_datasets.py")
    missing.append("weight decay acts on norms and biases too, unless the optimizer gets parameter groups")
    missing.append("the weights: set checkpoint.initial_load_path and initial_load_in_hf of your model's configuration")
    return text, missing


def _no_decay(plan: TrainingPlan) -> str:
    schedule = plan.schedule
    what = f"the {schedule.decay} decay of the last {schedule.decay_steps} steps to {schedule.final:g} of the peak"
    return f"{what}, after {schedule.stable(plan.steps)} steps at it: the peak is held instead"
