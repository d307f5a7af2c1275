"""The formats of `cptlaw export`: a template of each in templates/, what it reads beside the plan, and what it lacks.

LLaMA-Factory, TRL and axolotl extend the Trainer of transformers, and their mixture counts documents: by weights, or
for axolotl, which has none, by slices. The weights of Megatron-LM, NeMo and torchtitan count tokens.
"""

import functools
import json
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.cli.trainers.plan import TrainerCorpus, TrainingPlan
from pipeline.cli.trainers.texts import Loader

Settings = dict[str, object]
Values = tuple[Settings, list[str]]
"""What a template reads beside the plan, and what the format cannot express, a line each."""


def _llama_factory(plan: TrainingPlan) -> Values:
    """Stage pt, with interleaved data sets."""
    values: Settings = {"ratios": "", "dataset_info": dataset_info(plan)}
    if len(plan.corpora) == 1:
        return values, []
    # datasets.interleave_datasets refuses a sum that is not 1 within 1.5e-8.
    ratios = ",".join(f"{one:.12g}" for one in _document_ratios(plan))
    return values | {"ratios": ratios}, _by_document(plan, "interleave_probs")


def dataset_info(plan: TrainingPlan) -> str:
    """Text of the dataset_info.json that LLaMA-Factory reads in its dataset_dir."""
    keys = ("hf_hub_url", "subset", "split")
    columns = {corpus.name: {"columns": {"prompt": corpus.source.column}} for corpus in plan.corpora}
    # It lists the files of a folder itself.
    info = {one.name: _dataset(one, keys, {"file_name": one.source.path}) | columns[one.name] for one in plan.corpora}
    return json.dumps(info, indent=2, ensure_ascii=False) + "\n"


def _trl(plan: TrainingPlan) -> Values:
    """Packed sequences of plain text."""
    mixed, datasets = len(plan.corpora) > 1, []
    for one, part in zip(plan.corpora, _document_ratios(plan)):
        # It takes no document twice, so that a corpus too short for the run would cut, and repeat, all the others.
        times = one.times_begun(plan.tokens) if mixed and _documents_are_known(plan) else 1
        files = {"path": _loader(one), "data_files": one.text, "split": "train"}
        fraction = {"fraction": float(f"{part / times:.6g}")} if mixed else {}
        # Other columns may differ between corpora, which cannot be joined then.
        column = {"columns": [plan.corpora[0].source.column]}
        datasets += [{**_dataset(one, _HUB, files), **column, **fraction} for _ in range(times)]
    parser = "fraction was read back by TRL 1.16.0; older releases may lack it"
    part = "it is the part of all documents that are read, not of a file;"
    mixes = [f"{line}; {part} {_FIRST}" for line in _by_document(plan, "fraction")]
    return {"datasets": datasets}, [*mixes, parser] if mixed else []


def _axolotl(plan: TrainingPlan) -> Values:
    """Full training on completions, packed."""
    mixed, datasets = len(plan.corpora) > 1, []
    sliced = mixed and _documents_are_known(plan)
    for one in plan.corpora:
        files = {"path": one.source.path, "ds_type": _loader(one)} | ({"data_files": one.text} if one.ending else {})
        dataset = {"type": "completion", "field": one.source.column, **_dataset(one, _HUB, files)}
        datasets += [dataset | {"split": split} for split in _slices(one, plan.tokens)] if sliced else [dataset]
    half = "precision: axolotl keeps the weights themselves in bf16, which loses small updates; cptlaw in fp32"
    missing = [half] * (plan.precision == "bf16")
    if sliced:
        missing += [f"{line}; {_FIRST}" for line in _by_document(plan, "split")]
    elif mixed:
        wanted = ", ".join(f"{corpus.weight * plan.tokens:,.0f} tokens of {corpus.name}" for corpus in plan.corpora)
        missing.append(f"the mixture: axolotl has no weights of data sets; give it files of {wanted}")
    return {"datasets": datasets}, missing


def _slices(corpus: TrainerCorpus, tokens: int) -> list[str]:
    """Slices of the split that together are the documents of the corpus in a run of so many tokens."""
    there = (corpus.documents or 0) + corpus.validates
    documents = max(round(corpus.weight * tokens * corpus.per_token), 1)
    counts = [there] * (documents // there) + [documents % there] * (documents % there > 0)
    return [f"{corpus.source.split}[:{count}]" for count in counts]


def _megatron(plan: TrainingPlan) -> Values:
    """Arguments of Megatron-LM's pretrain_gpt.py, one a line."""
    schedule, missing = plan.schedule, []
    shapes = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "minus_sqrt"}
    style = "constant"
    if schedule.decay in ("linear", "cosine") and not plan.stable:
        style = schedule.decay
    elif schedule.decay in shapes:
        style = "WSD"
    elif schedule.decay != "none":
        missing.append(_peak_held(plan, after=True))
    blend = " ".join(f"{corpus.weight:.6g} {_tokenised(corpus)}" for corpus in plan.corpora)
    command = "python tools/preprocess_data.py --tokenizer-type HuggingFaceTokenizer --tokenizer-model"
    missing += [*_tokenise_first(plan, command), "load: Megatron's format; convert the Hugging Face directory first"]
    return {"style": style, "shape": shapes.get(schedule.decay), "blend": blend, "split": _SPLIT}, missing


def _nemo(plan: TrainingPlan) -> Values:
    """Keys over those of NeMo's megatron_gpt_config.yaml (megatron_gpt_pretraining.py)."""
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
    kinds = "--tokenizer-library=huggingface --dataset-impl=mmap --tokenizer-type"
    missing += _tokenise_first(plan, f"python preprocess_data_for_megatron.py {kinds}")
    missing.append("restore_from_path: NeMo's format; convert the Hugging Face directory first")
    return {"blend": blend, "split": _SPLIT, "sched": sched}, missing


def _torchtitan(plan: TrainingPlan) -> Values:
    """Python settings for a model's config_registry.py of torchtitan 0.3."""
    schedule, sources = plan.schedule, []
    shapes = {"linear": "linear", "cosine": "cosine", "one_minus_sqrt": "sqrt", "none": "linear"}
    missing = [] if schedule.decay in shapes else [_peak_held(plan, after=True)]
    held = schedule.decay == "none" or bool(missing)
    ratio = 0.0 if held else schedule.decay_steps / plan.steps if plan.stable else None
    for one in plan.corpora:
        hub = {"name": one.source.subset, "split": one.source.split} if one.source.kind == "hub" else {}
        named = {"name": f"cptlaw-{one.name.lower()}", "loader": _loader(one)}  # It asks for lower case.
        sources.append({"corpus": one, "hub": hub, "weight": float(f"{one.weight:.6g}"), **named})
    missing.append("documents are read in the order of their file, so shuffle a file whose order means something")
    missing.append("weight decay acts on norms and biases too, unless the optimizer gets parameter groups")
    missing.append("the weights: set checkpoint.initial_load_path and initial_load_in_hf of your model's configuration")
    decay_type = shapes.get(schedule.decay, "linear")
    return {"sources": sources, "decay_ratio": ratio, "decay_type": decay_type}, missing


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


_FIRST = "it takes the first ones of a file, so shuffle a file whose order means something"
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


def _in_yaml(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.removesuffix("...\n").strip()


@functools.cache
def _templates(writes: Callable[[object], str]) -> Environment:
    """The templates, in which every value is written by `writes` but for what is safe."""
    return Environment(
        loader=PackageLoader("pipeline.cli.trainers"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, finalize=lambda value: value if isinstance(value, Markup) else writes(value),
    )  # fmt: skip


class Format(NamedTuple):
    """A format of `cptlaw export`."""

    template: str
    values: Callable[[TrainingPlan], Values]
    loader: Loader
    command: str
    """What starts the run of {file} on so many {devices}, and what is to be done by hand before."""
    writes: Callable[[object], str] = _in_yaml
    """How a value is written."""
    extends_trainer: bool = False
    """Whether its learning rates are those of transformers, and its checkpoints Hugging Face directories."""
    reads_tokenizer_json: bool = False
    """Whether it reads tokenizer.json itself, without AutoTokenizer of transformers."""

    def write(self, plan: TrainingPlan) -> tuple[str, list[str]]:
        """The text of a configuration, and what it cannot express, a line each."""
        values, missing = self.values(plan)
        name, arguments, lacks = scheduler(plan)
        values |= {"plan": plan, "schedule": plan.schedule, "optimizer": plan.optimizer}
        values["scheduler"] = {"name": name, "arguments": arguments}
        text = _templates(self.writes).get_template(self.template).render(values)
        return text, [*(lacks if self.extends_trainer else ()), *missing]


_JSON_LINES = Loader((".jsonl",), folders="none")
FORMATS = {
    "llama-factory": Format(
        "llama-factory.yaml",
        _llama_factory,
        Loader((".jsonl", ".parquet"), folders="flat"),
        "llamafactory-cli train {file}",
        extends_trainer=True,
    ),
    "trl": Format(
        "trl.yaml", _trl, Loader(urls=True, one_column=True), "trl sft --config {file}", extends_trainer=True
    ),
    "axolotl": Format("axolotl.yaml", _axolotl, Loader(), "axolotl train {file}", extends_trainer=True),
    "megatron": Format(
        "megatron.txt",
        _megatron,
        _JSON_LINES,
        "torchrun --nproc-per-node {devices} pretrain_gpt.py $(grep -v '^#' {file}) MODEL, with its arguments of the "
        "model and the tokenizer for MODEL",
        writes=str,
    ),
    "nemo": Format(
        "nemo.yaml",
        _nemo,
        _JSON_LINES,
        "python megatron_gpt_pretraining.py, with the keys of {file} in its megatron_gpt_config.yaml",
    ),
    "torchtitan": Format(
        "torchtitan.txt",
        _torchtitan,
        Loader(urls=True),
        "NGPU={devices} MODULE=MODEL CONFIG=NAME ./run_train.sh, with {file} in config_registry.py of that model",
        writes=repr,
        reads_tokenizer_json=True,
    ),
}
"""Name of a trainer -> its template, which text it loads, and how it is started."""
