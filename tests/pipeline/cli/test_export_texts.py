"""Every export loads, by the calls of its trainer, the documents that cptlaw reads."""

import dataclasses
import gzip
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
import pyarrow
import pytest
import yaml
from pyarrow import parquet

from pipeline.cli.trainers.formats import FORMATS, dataset_info
from pipeline.cli.trainers.plan import TrainerCorpus
from pipeline.cli.trainers.texts import loadable
from pipeline.question.messages import ConfigError
from tests.pipeline.cli.test_export import PLAN
from training.corpora.documents import CorpusError, in_validation
from training.corpora.readers import open_reader
from training.corpora.source import Source


def write(path: Path, content: Any) -> None:
    """Rows, as the ending says, or the content of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(content), path)
        return
    text = "".join(json.dumps(row) + "\n" for row in content) if isinstance(content, list) else content
    path.write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Source]:
    """A corpus of each kind that trainers read in ways of their own."""
    rows = [{"text": "one", "meta": 1}, {"text": "two\nlines \u2028 in it", "meta": 2}]
    more = [{"text": "three", "meta": 3}]
    files = {
        "file.jsonl": rows,
        **{"flat/a.jsonl": rows, "flat/b.jsonl": more},
        **{"deep/a.jsonl": rows, "deep/below/b.jsonl": more},
        **{"parquet/a.parquet": rows, "parquet/below/b.parquet": more},
        "packed/a.jsonl.gz": gzip.compress(b'{"text": "one"}\n'),
        **{"text/a.txt": "one\n\nstill one\n", "text/b.txt": "two\nlines\n"},
        "paragraphs.txt": "one\nstill one\n\ntwo\n",
        **{"mixed/a.jsonl": rows, "mixed/b.parquet": more},
        **{"unlike/a.jsonl": rows, "unlike/b.jsonl": [{"text": "three", "other": "x"}]},
        "a [draft]/a.jsonl": rows,
        **{"hidden/a.jsonl": rows, "hidden/__b.jsonl": more},
        **{"upper/A.jsonl": rows, "upper/readme.md": "none of the documents"},
        "blank.jsonl": '{"text": "one"}\n\n{"text": "two"}\n',
    }
    texts = tmp_path / "texts"
    for name, content in files.items():
        write(texts / name, content)
    write(texts / "body.jsonl", [{"body": "one"}, {"body": ""}])
    names = sorted({name.split("/")[0] for name in files})
    return {
        **{f"c{number}": Source(path=str(texts / name)) for number, name in enumerate(names)},
        "filtered": Source(path=str(texts / "flat"), where={"meta": [2, 3]}),
        "column": Source(path=str(texts / "body.jsonl"), column="body"),
        "installed": Source("installed-python", part="statistics", max_bytes=4000),
    }


Texts = list[list[str]]
"""The documents of each corpus."""


def load(kind: str, files: str | list[str], cache: Path, split: str = "train") -> Any:
    return datasets.load_dataset(kind, data_files=files, split=split, cache_dir=str(cache))


def by_trl(text: str, cache: Path) -> Texts:
    """As trl.scripts.utils.get_dataset."""
    values = yaml.safe_load(text)
    loaded = [load(one["path"], one["data_files"], cache) for one in values["datasets"]]
    columns = [one.select_columns(given["columns"]) for one, given in zip(loaded, values["datasets"], strict=True)]
    assert len(datasets.concatenate_datasets(columns)) == sum(map(len, loaded))
    return [list(one[values["dataset_text_field"]]) for one in columns]


def by_llama_factory(text: str, cache: Path) -> Texts:
    """As llamafactory.data.loader._load_single_dataset."""
    values = yaml.safe_load(text)
    folder, texts = Path(values["dataset_dir"]), []
    info = json.loads((folder / "dataset_info.json").read_text())
    for name in values["dataset"].split(","):
        path = folder / info[name]["file_name"]
        files = [*path.iterdir()] if path.is_dir() else [path]
        (kind,) = {{".jsonl": "json", ".parquet": "parquet"}[file.suffix] for file in files}
        texts.append(list(load(kind, [*map(str, files)], cache)[info[name]["columns"]["prompt"]]))
    return texts


def by_axolotl(text: str, cache: Path) -> Texts:
    """As axolotl.utils.data.shared."""
    given = yaml.safe_load(text)["datasets"]
    assert all(Path(one["path"]).is_dir() == ("data_files" in one) for one in given)
    files = [(one, one.get("data_files", one["path"]), one.get("split", "train")) for one in given]
    return [list(load(one["ds_type"], path, cache, split)[one["field"]]) for one, path, split in files]


def by_torchtitan(text: str, monkeypatch) -> Texts:
    """As torchtitan.hf_datasets.text_datasets, which is not installed here: its names stand for it."""
    registered: dict[str, dict[str, object]] = {}
    settings: dict[str, object] = {}

    class Names(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(name)
            kept = Names(name)
            kept.__dict__["Config"] = lambda **given: given
            return {"DATASETS": registered, "DatasetConfig": dict, "HFDataSource": dict}.get(name, kept)

        def __call__(self, **given: object) -> dict[str, object]:
            return given

    for name in ("", ".config", ".components", ".components.optimizer", ".hf_datasets", ".hf_datasets.text_datasets"):
        monkeypatch.setitem(sys.modules, f"torchtitan{name}", Names(f"torchtitan{name}"))
    exec(text, settings)
    texts = []
    for source in settings["SETTINGS"]["dataloader"]["sources"]:  # pyright: ignore[reportIndexIssue]
        one = registered[source["dataset"].lower()]
        loader, processor = one["loader"], one["sample_processor"]
        assert isinstance(loader, Callable)
        assert isinstance(processor, Callable)
        texts.append([processor(sample) for sample in loader(source["dataset_path"])])
    return texts


def by_megatron(missing: list[str]) -> Texts:
    """As tools/preprocess_data.py, called as the export says."""
    texts = []
    for line in (line for line in missing if "--json-keys" in line):
        words = shlex.split(line)
        path, key = (words[words.index(flag) + 1] for flag in ("--input", "--json-keys"))
        name = words[words.index("--output-prefix") + 1]
        assert line.startswith(f"{name}_{key}_document: ")
        texts.append([json.loads(row)[key] for row in Path(path).read_text().split("\n") if row])
    return texts


@pytest.mark.parametrize("apart", [None, 1e-9])
@pytest.mark.parametrize("name", FORMATS)
def test_a_trainer_loads_the_documents_that_cptlaw_reads(name, apart, sources, tmp_path, monkeypatch) -> None:
    """Also where all text is written anew, without validation documents, of which there are none here."""
    # A real prepare counts what it leaves out of each corpus.
    corpora = [TrainerCorpus(key, source, 1.0, None, None) for key, source in sources.items()]
    corpora = [dataclasses.replace(one, dropped=1) if one.name == "column" else one for one in corpora]
    corpora = [dataclasses.replace(one, available=1, validates=1 if apart else 0) for one in corpora]
    folder, lines = tmp_path / "out" / "law-data", []
    plan = dataclasses.replace(PLAN, corpora=tuple(corpora), data_folder=str(folder))
    plan, missing = loadable(plan, FORMATS[name].loader, folder, lines.append, apart)
    assert not missing
    # Only what the loader reads otherwise is written again.
    in_place = {Path(one.source.path).name for one in plan.corpora if not Path(one.source.path).is_relative_to(folder)}
    if apart:
        assert not in_place
    else:
        assert in_place >= {"file.jsonl"} | ({"flat"} if FORMATS[name].loader.folders != "none" else set())
        assert ({"deep", "parquet", "packed"} <= in_place) == (FORMATS[name].loader.folders == "any")
    text, missing = FORMATS[name].write(plan)
    (folder / "dataset_info.json").write_text(dataset_info(plan))
    cache = tmp_path / "cache"
    loaded = {
        "llama-factory": lambda: by_llama_factory(text, cache),
        "trl": lambda: by_trl(text, cache),
        "axolotl": lambda: by_axolotl(text, cache),
        "torchtitan": lambda: by_torchtitan(text, monkeypatch),
    }.get(name, lambda: by_megatron(missing))()
    assert len(loaded) == len(sources)
    for (key, source), texts in zip(sources.items(), loaded, strict=True):
        documents = [text for _, text in open_reader(key, source).documents()]
        assert sorted(texts) == sorted(documents), (source.path, lines)


def test_what_cannot_be_written_is_said(sources: dict[str, Source], tmp_path: Path) -> None:
    corpora = (
        TrainerCorpus("general", sources["filtered"], 0.6, None, None),
        TrainerCorpus("far", Source(path="/far/law.jsonl"), 0.2, None, None),
        TrainerCorpus("hub", Source("hub", name="org/web", min_characters=5), 0.2, None, None),
    )
    plan = dataclasses.replace(PLAN, corpora=corpora)
    loaded, missing = loadable(plan, FORMATS["trl"].loader, None, print)
    assert [one.text for one in loaded.corpora] == ["TEXT-OF-general.jsonl", "/far/law.jsonl", "org/web"]
    assert missing == [
        "general: the filters where are cptlaw's; give output=FILE, and cptlaw writes its documents to a .jsonl file "
        "beside that; else write them yourself to TEXT-OF-general.jsonl, which the configuration names",
        "far: /far/law.jsonl is not on this machine, so its files were not checked",
        "hub: the filters min_characters are cptlaw's",
    ]
    folder = dataclasses.replace(corpora[1], source=Source(path=str(tmp_path / "texts" / "flat")))
    (line,) = loadable(dataclasses.replace(PLAN, corpora=(folder,)), FORMATS["megatron"].loader, None, print)[1]
    assert line.startswith("far: the trainer reads one .jsonl file only; give output=FILE, ")
    texts = dataclasses.replace(corpora[1], name="texts", source=Source(path=str(tmp_path / "texts" / "text")))
    of_body = dataclasses.replace(corpora[0], source=sources["column"])
    (line,) = loadable(dataclasses.replace(PLAN, corpora=(of_body, texts)), FORMATS["trl"].loader, None, print)[1]
    assert line.startswith("texts: the trainer reads files of one kind only, .jsonl or ")
    wrong = dataclasses.replace(corpora[1], source=Source(path=str(tmp_path / "texts" / "flat"), column="body"))
    with pytest.raises(CorpusError, match=r"flat/a\.jsonl: no column 'body'; .*sources\.far\.column=text"):
        loadable(dataclasses.replace(PLAN, corpora=(wrong,)), FORMATS["trl"].loader, None, print)
    with pytest.raises(ConfigError, match=r"output: .*\[1\]-data has one of"):
        loadable(plan, FORMATS["trl"].loader, tmp_path / "[1]-data", print)


def test_validation_text_is_left_out_where_asked(sources: dict[str, Source], tmp_path: Path) -> None:
    """By the rule that prepare splits by: of 25 documents those of the validation split, and no other."""
    write(file := tmp_path / "many.jsonl", [{"text": f"document {n}"} for n in range(25)])
    documents = [*open_reader("law", source := Source(path=str(file))).documents()]
    apart = [text for name, text in documents if in_validation(name, 0.3)]
    corpus = TrainerCorpus("law", source, 1.0, None, 1000, validates=len(apart))
    plan = dataclasses.replace(PLAN, corpora=(corpus,))
    lines: list[str] = []
    loaded, missing = loadable(plan, FORMATS["trl"].loader, tmp_path / "data", lines.append, 0.3)
    assert not missing
    assert lines == [
        f"law: {len(apart)} of its documents are the study's to validate; {25 - len(apart)} documents written to "
        f"{tmp_path / 'data' / 'law.jsonl'}"
    ]
    written = [json.loads(line)["text"] for line in (tmp_path / "data" / "law.jsonl").read_text().splitlines()]
    assert 0 < len(apart) < 25
    assert written == [text for _, text in documents if text not in apart]
    # The file says it no more, and without the key it is the user's own.
    assert loaded.corpora[0].validates == 0
    kept, _ = loadable(plan, FORMATS["trl"].loader, tmp_path / "data", lines.append)
    assert kept.corpora[0].source.path == str(file)
    # What it cannot leave out it says.
    for changes, line in (({"available": None}, "not prepared here"), ({"like": 3, "validates": 0}, "3 of its docu")):
        plan = dataclasses.replace(PLAN, corpora=(dataclasses.replace(corpus, **changes),))
        assert loadable(plan, FORMATS["trl"].loader, None, lines.append, 0.3)[1][0].startswith(f"law: {line}")


def test_axolotl_loads_the_mixture(tmp_path: Path) -> None:
    """40% of 1,000 tokens are half of a corpus of 800 in 40 documents, 60% two and a half times one of 240 in 12."""
    corpora = []
    for name, weight, documents, tokens, validates in (("general", 0.4, 40, 800, 2), ("law", 0.6, 12, 240, 0)):
        write(file := tmp_path / f"{name}.jsonl", [{"text": f"{name} {n}"} for n in range(documents + validates)])
        corpora.append(TrainerCorpus(name, Source(path=str(file)), weight, documents, tokens, validates=validates))
    plan = dataclasses.replace(PLAN, corpora=tuple(corpora), steps=5, global_batch=2, sequence_length=100)
    text, missing = FORMATS["axolotl"].write(plan)
    assert list(map(len, by_axolotl(text, tmp_path / "cache"))) == [20, 12, 12, 6]
    assert missing[-1].startswith("split counts documents; it was computed from the ratios of tokens (general 0.4, ")


def test_trl_takes_the_mixture_of_one_run(tmp_path: Path) -> None:
    """A corpus that the run reads twice and a half is named three times, so that the other one is not cut for it."""
    corpora = [
        TrainerCorpus(name, Source(path=f"{name}.jsonl"), weight, documents, tokens)
        for name, weight, documents, tokens in (("general", 0.4, 100, 800), ("law", 0.6, 12, 240))
    ]
    plan = dataclasses.replace(PLAN, corpora=tuple(corpora), steps=5, global_batch=2, sequence_length=100)
    given = yaml.safe_load(FORMATS["trl"].write(plan)[0])["datasets"]
    documents = {f"{one.name}.jsonl": one.documents or 0 for one in corpora}
    # As trl.scripts.utils.get_dataset cuts the mixture to the corpus that is used up first.
    total = min(documents[one["data_files"]] / one["fraction"] for one in given)
    taken = [(one["data_files"], round(one["fraction"] * total)) for one in given]
    assert taken == [("general.jsonl", 60), *[("law.jsonl", 12)] * 3]


def test_llama_factory_gets_probabilities_that_sum_to_1() -> None:
    """To datasets.interleave_datasets, which refuses others."""
    one = datasets.Dataset.from_dict({"text": ["a", "b"]})
    for documents in range(3, 40):
        general, law = PLAN.corpora
        plan = dataclasses.replace(PLAN, corpora=(general, dataclasses.replace(law, documents=documents * 10**5)))
        ratios = yaml.safe_load(FORMATS["llama-factory"].write(plan)[0])["interleave_probs"].split(",")
        mixed = datasets.interleave_datasets([one, one], [*map(float, ratios)], stopping_strategy="all_exhausted")
        assert {*mixed["text"]} == {"a", "b"}
