"""Configurations of LLaMA-Factory, TRL and axolotl, which extend the Trainer of transformers."""

from __future__ import annotations

from typing import Any

import yaml

from pipeline.cli.trainers.plan import Config, TrainerCorpus, TrainingPlan


def llama_factory(plan: TrainingPlan) -> Config:
    """YAML for `llamafactory-cli train`: stage pt, with interleaved data sets."""
    names = [corpus.name for corpus in plan.corpora]
    info = {corpus.name: _dataset_info(corpus) for corpus in plan.corpora}
    values = {
        "model_name_or_path": plan.model,
        "stage": "pt",
        "do_train": True,
        "finetuning_type": "full",
        "dataset_dir": ".",
        "dataset": ",".join(names),
        "cutoff_len": plan.sequence_length,
        "packing": True,
        **_trainer_arguments(plan),
    }
    missing = _missing(plan)
    if len(names) > 1:
        values |= {
            "mix_strategy": "interleave_over",
            "interleave_probs": ",".join(f"{one:.6g}" for one in _document_ratios(plan)),
        }
        missing += _by_document(plan, "interleave_probs")
    entries = "".join(f"# {line}\n" for line in yaml.safe_dump(info, sort_keys=False).splitlines())
    return _yaml(values) + f"# dataset_info.json in dataset_dir needs these entries, as JSON:\n{entries}", missing


def trl(plan: TrainingPlan) -> Config:
    """YAML for `trl sft`: packed sequences of plain text."""
    parts = _document_ratios(plan)
    datasets = [_dataset(corpus) for corpus in plan.corpora]
    if len(datasets) > 1:
        datasets = [one | {"fraction": float(f"{part:.6g}")} for one, part in zip(datasets, parts)]
    values = {
        "model_name_or_path": plan.model,
        "datasets": datasets,
        "dataset_text_field": plan.corpora[0].source.column,
        "max_length": plan.sequence_length,
        "packing": True,
        **_trainer_arguments(plan),
    }
    return _yaml(values), _missing(plan) + (_by_document(plan, "fraction") if len(datasets) > 1 else [])


def axolotl(plan: TrainingPlan) -> Config:
    """YAML for `axolotl train`: full training on completions, packed."""
    arguments = _trainer_arguments(plan)
    renamed = {
        "per_device_train_batch_size": "micro_batch_size",
        "optim": "optimizer",
        "lr_scheduler_type": "lr_scheduler",
    }
    values = {
        "base_model": plan.model,
        "datasets": [
            {"type": "completion", "field": corpus.source.column} | _axolotl_dataset(corpus) for corpus in plan.corpora
        ],
        "sequence_len": plan.sequence_length,
        "sample_packing": True,
        **{renamed.get(key, key): value for key, value in arguments.items()},
    }
    missing = _missing(plan)
    if len(plan.corpora) > 1:
        wanted = ", ".join(f"{corpus.weight * plan.tokens:,.0f} tokens of {corpus.name}" for corpus in plan.corpora)
        missing.append(f"the mixture: axolotl has no weights of data sets; give it files of {wanted}")
    return _yaml(values), missing


def scheduler(plan: TrainingPlan) -> tuple[str, dict[str, Any], str]:
    """Name and arguments of the learning-rate schedule in transformers, and what it cannot express."""
    schedule, stable = plan.schedule, plan.schedule.stable(plan.steps)
    if schedule.decay == "none":
        return "constant_with_warmup", {}, ""
    if schedule.decay == "cosine" and not stable:
        return "cosine_with_min_lr", {"min_lr_rate": schedule.final}, ""
    if schedule.decay == "polynomial" and not stable:
        return "polynomial", {"lr_end": schedule.final * plan.peak, "power": schedule.power}, ""
    names = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "1-sqrt"}
    if schedule.decay not in names:
        what = f"the {schedule.decay} decay of the last {schedule.decay_steps} steps to {schedule.final:g} of the peak"
        return "constant_with_warmup", {}, f"{what}: the peak is held instead"
    given = {"num_decay_steps": schedule.decay_steps, "decay_type": names[schedule.decay]}
    warm = "the warm-up starts at the final learning rate, not at 0" if schedule.warmup and schedule.final else ""
    return "warmup_stable_decay", given | {"min_lr_ratio": schedule.final}, warm


def _trainer_arguments(plan: TrainingPlan) -> dict[str, Any]:
    name, arguments, _ = scheduler(plan)
    return {
        "output_dir": f"{plan.study}-run",
        "max_steps": plan.steps,
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
        "learning_rate": plan.peak,
        "lr_scheduler_type": name,
        "lr_scheduler_kwargs": arguments,
        "warmup_steps": plan.schedule.warmup,
        "optim": "adamw_torch",
        "weight_decay": plan.optimizer.weight_decay,
        "adam_beta1": plan.optimizer.beta1,
        "adam_beta2": plan.optimizer.beta2,
        "adam_epsilon": plan.optimizer.epsilon,
        "max_grad_norm": plan.optimizer.clip,
        "bf16": plan.precision == "bf16",
        "seed": plan.seed,
    }


def _missing(plan: TrainingPlan) -> list[str]:
    return [line for line in (scheduler(plan)[2],) if line]


def _document_ratios(plan: TrainingPlan) -> list[float]:
    return [corpus.weight if corpus.documents is None else corpus.documents for corpus in plan.corpora]


def _by_document(plan: TrainingPlan, key: str) -> list[str]:
    if plan.corpora[0].documents is None:
        return [
            f"{key} counts documents, the mixture tokens: divide by tokens per document (prepare the corpora first)"
        ]
    weights = ", ".join(f"{corpus.name} {corpus.weight:.4g}" for corpus in plan.corpora)
    return [f"{key} counts documents; it was computed from the ratios of tokens ({weights}) and the mean lengths"]


def _dataset_info(corpus: TrainerCorpus) -> dict[str, Any]:
    source = corpus.source
    columns = {"columns": {"prompt": source.column}}
    if source.kind == "hub":
        given = {"hf_hub_url": source.name, "subset": source.subset, "split": source.split}
        return {key: value for key, value in given.items() if value} | columns
    return {"file_name": corpus.place} | columns


def _dataset(corpus: TrainerCorpus) -> dict[str, Any]:
    source = corpus.source
    if source.kind == "hub":
        given = {"path": source.name, "name": source.subset, "split": source.split}
        return {key: value for key, value in given.items() if value}
    return {"path": _loader(corpus), "data_files": corpus.place, "split": "train"}


def _axolotl_dataset(corpus: TrainerCorpus) -> dict[str, Any]:
    source = corpus.source
    if source.kind == "hub":
        given = {"path": source.name, "name": source.subset, "split": source.split}
        return {key: value for key, value in given.items() if value}
    return {"path": corpus.place, "ds_type": _loader(corpus)}


def _loader(corpus: TrainerCorpus) -> str:
    """The builder of the library datasets for the corpus' files."""
    kinds = {".parquet": "parquet", ".txt": "text"}
    return next((kind for suffix, kind in kinds.items() if corpus.place.endswith(suffix)), "json")


def _yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)
