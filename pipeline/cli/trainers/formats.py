"""The formats of `cptlaw export`: each writes a plan as the configuration of a trainer, and what it cannot express.

LLaMA-Factory, TRL and axolotl extend the Trainer of transformers, and their mixture counts documents: by weights, or
for axolotl, which has none, by slices. The weights of Megatron-LM, NeMo and torchtitan count tokens.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

import yaml

from pipeline.cli.trainers.plan import TrainerCorpus, TrainingPlan
from pipeline.cli.trainers.texts import Loader

Settings = dict[str, object]
Config = tuple[str, list[str]]
"""The text of a configuration, and what it cannot express, a line each."""


def llama_factory(plan: TrainingPlan) -> Config:
    """YAML for `llamafactory-cli train`: stage pt, with interleaved data sets."""
    names = [corpus.name for corpus in plan.corpora]
    values = {
        "model_name_or_path": plan.model,
        "stage": "pt",
        "do_train": True,
        "finetuning_type": "full",
        "dataset_dir": plan.data_folder or ".",
        "dataset": ",".join(names),
        "cutoff_len": plan.sequence_length,
        "packing": True,
        **_trainer_arguments(plan),
    }
    missing = scheduler(plan)[2]
    if len(names) > 1:
        # datasets.interleave_datasets refuses a sum that is not 1 within 1.5e-8.
        ratios = ",".join(f"{one:.12g}" for one in _document_ratios(plan))
        values |= {"mix_strategy": "interleave_over", "interleave_probs": ratios}
        missing += _by_document(plan, "interleave_probs")
    if plan.data_folder:
        return _yaml(values), missing
    entries = "".join(f"# {line}\n" for line in dataset_info(plan).splitlines())
    return _yaml(values) + f"# dataset_info.json in dataset_dir needs these entries:\n{entries}", missing


def dataset_info(plan: TrainingPlan) -> str:
    """Text of the dataset_info.json that LLaMA-Factory reads in its dataset_dir."""
    keys = ("hf_hub_url", "subset", "split")
    columns = {corpus.name: {"columns": {"prompt": corpus.source.column}} for corpus in plan.corpora}
    # It lists the files of a folder itself.
    info = {one.name: _dataset(one, keys, {"file_name": one.source.path}) | columns[one.name] for one in plan.corpora}
    return json.dumps(info, indent=2, ensure_ascii=False) + "\n"


def trl(plan: TrainingPlan) -> Config:
    """YAML for `trl sft`: packed sequences of plain text."""
    column, mixed, datasets = plan.corpora[0].source.column, len(plan.corpora) > 1, []
    for one, part in zip(plan.corpora, _document_ratios(plan)):
        # It takes no document twice, so that a corpus too short for the run would cut, and repeat, all the others.
        times = one.times_begun(plan.tokens) if mixed and _documents_are_known(plan) else 1
        files = {"path": _loader(one), "data_files": one.text, "split": "train"}
        fraction = {"fraction": float(f"{part / times:.6g}")} if mixed else {}
        # Other columns may differ between corpora, which cannot be joined then.
        datasets += [{**_dataset(one, _HUB, files), "columns": [column], **fraction} for _ in range(times)]
    values = {
        "model_name_or_path": plan.model,
        "datasets": datasets,
        "dataset_text_field": column,
        "max_length": plan.sequence_length,
        "packing": True,
        # The default drops what a document has beyond max_length; this one joins documents and cuts, as cptlaw does.
        "packing_strategy": "wrapped",
        **_trainer_arguments(plan),
    }
    parser = "fraction was read back by TRL 1.16.0; older releases may lack it"
    mixes = [f"{line}; {_FIRST}" for line in _by_document(plan, "fraction")]
    return _yaml(values), scheduler(plan)[2] + ([*mixes, parser] if mixed else [])


def axolotl(plan: TrainingPlan) -> Config:
    """YAML for `axolotl train`: full training on completions, packed."""
    renamed = {
        "per_device_train_batch_size": "micro_batch_size",
        "optim": "optimizer",
        "lr_scheduler_type": "lr_scheduler",
    }
    mixed, datasets = len(plan.corpora) > 1, []
    sliced = mixed and _documents_are_known(plan)
    for one in plan.corpora:
        files = {"path": one.source.path, "ds_type": _loader(one)} | ({"data_files": one.text} if one.ending else {})
        dataset = {"type": "completion", "field": one.source.column, **_dataset(one, _HUB, files)}
        datasets += [dataset | {"split": split} for split in _slices(one, plan.tokens)] if sliced else [dataset]
    values = {
        "base_model": plan.model,
        "datasets": datasets,
        "sequence_len": plan.sequence_length,
        "sample_packing": True,
        **{renamed.get(key, key): value for key, value in _trainer_arguments(plan).items()},
    }
    half = "precision: axolotl keeps the weights themselves in bf16, which loses small updates; cptlaw in fp32"
    missing = [*scheduler(plan)[2], *[half] * (plan.precision == "bf16")]
    if sliced:
        missing += [f"{line}; {_FIRST}" for line in _by_document(plan, "split")]
    elif mixed:
        wanted = ", ".join(f"{corpus.weight * plan.tokens:,.0f} tokens of {corpus.name}" for corpus in plan.corpora)
        missing.append(f"the mixture: axolotl has no weights of data sets; give it files of {wanted}")
    return _yaml(values), missing


def _slices(corpus: TrainerCorpus, tokens: int) -> list[str]:
    """Slices of the split that together are the documents of the corpus in a run of so many tokens."""
    there = (corpus.documents or 0) + corpus.validates
    documents = max(round(corpus.weight * tokens * corpus.per_token), 1)
    counts = [there] * (documents // there) + [documents % there] * (documents % there > 0)
    return [f"{corpus.source.split}[:{count}]" for count in counts]


def megatron(plan: TrainingPlan) -> Config:
    """Arguments of Megatron-LM's pretrain_gpt.py, one a line."""
    schedule, missing = plan.schedule, []
    shapes = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "minus_sqrt"}
    style, flags = "constant", Settings()
    if schedule.decay in ("linear", "cosine") and not plan.stable:
        style = schedule.decay
    elif schedule.decay in shapes:
        style = "WSD"
        flags = {"lr-wsd-decay-style": shapes[schedule.decay], "lr-wsd-decay-iters": schedule.decay_steps}
    elif schedule.decay != "none":
        missing.append(_peak_held(plan, after=True))
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
        "seed": plan.positive_seed,
        "split": _SPLIT,
        "eval-iters": 0,
    }
    blend = " ".join(f"{corpus.weight:.6g} {_tokenised(corpus)}" for corpus in plan.corpora)
    command = "python tools/preprocess_data.py --tokenizer-type HuggingFaceTokenizer --tokenizer-model"
    lines = [f"--{key} {value}" for key, value in given.items()] + [f"--data-path {blend}", "--finetune"]
    lines += ["--bf16"] * (plan.precision == "bf16")
    missing += [*_tokenise_first(plan, command), "load: Megatron's format; convert the Hugging Face directory first"]
    return "\n".join(lines) + "\n", missing


def nemo(plan: TrainingPlan) -> Config:
    """YAML that overrides NeMo's megatron_gpt_config.yaml (megatron_gpt_pretraining.py)."""
    schedule, missing = plan.schedule, []
    blend = [item for one in plan.corpora for item in (one.weight, _tokenised(one))]
    sched: Settings = {"warmup_steps": schedule.warmup, "min_lr": schedule.final * plan.peak}
    if schedule.decay == "cosine" and not plan.stable:
        sched = {"name": "CosineAnnealing", **sched, "constant_steps": 0}
    elif schedule.decay in ("linear", "polynomial"):
        sched = {"name": "PolynomialHoldDecayAnnealing", **sched, "hold_steps": plan.stable, "power": schedule.power}
    else:
        sched = {"name": "WarmupPolicy", **sched}
        missing += [_peak_held(plan, after=True)] if schedule.decay != "none" else []
    values = {
        "trainer": {
            "devices": plan.devices,
            "precision": "bf16-mixed" if plan.precision == "bf16" else 32,
            "max_steps": plan.steps,
            "gradient_clip_val": plan.optimizer.clip,
            "limit_val_batches": 0,
        },
        "model": {
            "micro_batch_size": plan.micro_batch,
            "global_batch_size": plan.global_batch,
            "encoder_seq_length": plan.sequence_length,
            "seed": plan.positive_seed,
            "data": {"data_prefix": blend, "splits_string": _SPLIT},
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
    kinds = "--tokenizer-library=huggingface --dataset-impl=mmap --tokenizer-type"
    missing += _tokenise_first(plan, f"python preprocess_data_for_megatron.py {kinds}")
    missing.append("restore_from_path: NeMo's format; convert the Hugging Face directory first")
    return yaml.safe_dump(values, sort_keys=False), missing


def torchtitan(plan: TrainingPlan) -> Config:
    """Python settings for a model's config_registry.py of torchtitan 0.3."""
    schedule, missing = plan.schedule, []
    shapes = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "sqrt", "none": "linear"}
    held = schedule.decay == "none" or schedule.decay not in shapes
    if schedule.decay not in shapes:
        missing.append(_peak_held(plan, after=True))
    ratio = 0.0 if held else schedule.decay_steps / plan.steps if plan.stable else None
    sources, registered = "", ""
    for one in plan.corpora:
        name = f"cptlaw-{one.name.lower()}"  # It asks for lower case.
        sources += f"            HFDataSource(dataset={name!r}, dataset_path={one.text!r}, weight={one.weight:.6g}),\n"
        hub = {"name": one.source.subset, "split": one.source.split} if one.source.kind == "hub" else {}
        given = f"path, **{hub!r}" if hub else f"{_loader(one)!r}, data_files=path, split='train'"
        registered += f"""DATASETS[{name!r}] = DatasetConfig(
    path={one.text!r},
    loader=lambda path: load_dataset({given}, streaming=True),
    sample_processor=lambda sample: sample[{one.source.column!r}],
)
"""
    adam, precision = plan.optimizer, "float32" if plan.precision == "fp32" else "bfloat16"
    text = f"""from datasets import load_dataset
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import TrainingConfig
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS, HFDataSource, InterleavedHuggingFaceTextDataLoader

{registered}
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
    missing.append("documents are read in the order of their file, so shuffle a file whose order means something")
    missing.append("weight decay acts on norms and biases too, unless the optimizer gets parameter groups")
    missing.append("the weights: set checkpoint.initial_load_path and initial_load_in_hf of your model's configuration")
    return text, missing


def scheduler(plan: TrainingPlan) -> tuple[str, Settings, list[str]]:
    """Name and arguments of the learning-rate schedule in transformers, and what it cannot express."""
    schedule = plan.schedule
    if schedule.decay == "none":
        return "constant_with_warmup", {}, []
    if schedule.decay == "cosine" and not plan.stable:
        return "cosine_with_min_lr", {"min_lr_rate": schedule.final}, []
    if schedule.decay == "polynomial" and not plan.stable:
        return "polynomial", {"lr_end": schedule.final * plan.peak, "power": schedule.power}, []
    names = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "1-sqrt"}
    if schedule.decay not in names:
        return "constant_with_warmup", {}, [_peak_held(plan)]
    given: Settings = {"num_decay_steps": schedule.decay_steps, "decay_type": names[schedule.decay]}
    warm = ["the warm-up starts at the final learning rate, not at 0"] * bool(schedule.warmup and schedule.final)
    return "warmup_stable_decay", given | {"min_lr_ratio": schedule.final}, warm


def _trainer_arguments(plan: TrainingPlan) -> Settings:
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


def _peak_held(plan: TrainingPlan, after: bool = False) -> str:
    schedule = plan.schedule
    what = f"the {schedule.decay} decay of the last {schedule.decay_steps} steps to {schedule.final:g} of the peak"
    return f"{what}{f', after {plan.stable} steps at it' * after}: the peak is held instead"


def _documents_are_known(plan: TrainingPlan) -> bool:
    return all(corpus.per_token for corpus in plan.corpora)


def _document_ratios(plan: TrainingPlan) -> list[float]:
    known = _documents_are_known(plan)
    ratios = [corpus.weight * (corpus.per_token if known else 1) for corpus in plan.corpora]
    return [ratio / sum(ratios) for ratio in ratios]


def _by_document(plan: TrainingPlan, key: str) -> list[str]:
    if not _documents_are_known(plan):
        first = "divide by tokens per document (prepare the corpora first)"
        return [f"{key} counts documents, the mixture tokens: {first}"]
    weights = ", ".join(f"{corpus.name} {corpus.weight:.4g}" for corpus in plan.corpora)
    return [f"{key} counts documents; it was computed from the ratios of tokens ({weights}) and the mean lengths"]


_FIRST = "it takes the first ones, so shuffle a file whose order means something"
_SPLIT = "100,0,0"
"""All text is trained on: both hold out a part of it by default, which the mixture's tokens are counted with."""
_HUB = ("path", "name", "split")


def _dataset(corpus: TrainerCorpus, keys: tuple[str, ...], local: Mapping[str, object]) -> Settings:
    """The hub's name, subset and split of a corpus under these keys; of files `local`."""
    source = corpus.source
    if source.kind != "hub":
        return {**local}
    return {key: value for key, value in zip(keys, (source.name, source.subset, source.split)) if value}


def _tokenised(corpus: TrainerCorpus) -> str:
    """What preprocess_data.py of Megatron-LM and of NeMo call a tokenised corpus."""
    return f"{corpus.name}_{corpus.source.column}_document"


def _tokenise_first(plan: TrainingPlan, command: str) -> list[str]:
    return [
        f"{_tokenised(one)}: to be tokenised by {command} {shlex.quote(plan.model)} --input {shlex.quote(one.text)} "
        f"--json-keys {shlex.quote(one.source.column)} --output-prefix {one.name} --append-eod --workers 8"
        for one in plan.corpora
    ]


def _loader(corpus: TrainerCorpus) -> str:
    """The builder of the library datasets for the corpus' files."""
    return "parquet" if corpus.text.endswith(".parquet") else "json"


def _yaml(values: Settings) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)


class Format(NamedTuple):
    """A format of `cptlaw export`."""

    write: Callable[[TrainingPlan], Config]
    loader: Loader
    command: str
    """What starts the run of {file} on so many {devices}, and what is to be done by hand before."""


_JSON_LINES = Loader((".jsonl",), folders="none")
FORMATS = {
    "llama-factory": Format(
        llama_factory, Loader((".jsonl", ".parquet"), folders="flat"), "llamafactory-cli train {file}"
    ),
    "trl": Format(trl, Loader(urls=True, one_column=True), "trl sft --config {file}"),
    "axolotl": Format(axolotl, Loader(), "axolotl train {file}"),
    "megatron": Format(
        megatron,
        _JSON_LINES,
        "torchrun --nproc-per-node {devices} pretrain_gpt.py $(grep -v '^#' {file}) MODEL, with its arguments of the "
        "model and the tokenizer for MODEL",
    ),
    "nemo": Format(
        nemo, _JSON_LINES, "python megatron_gpt_pretraining.py, with the keys of {file} in its megatron_gpt_config.yaml"
    ),
    "torchtitan": Format(
        torchtitan,
        Loader(urls=True),
        "NGPU={devices} MODULE=MODEL CONFIG=NAME ./run_train.sh, with {file} in config_registry.py of that model",
    ),
}
"""Name of a trainer -> what writes its configuration, which text it loads, and how it is started."""
