"""Whether another tokenizer makes the tokens of a study of its text, as the trainer of an exported run has to."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path

from pipeline.cli.trainers.plan import TrainingPlan
from pipeline.plan.runs import data_folder
from pipeline.question.schema import Question
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.corpora.tokenizer import Chunk, Encoder, load_tokenizer
from training.durable import write_whole

PASSAGES = 200
"""Of the validation text of each corpus, which both tokenise."""
_TOKENS = 500
"""Of each passage."""
_AS_IT_IS = {"trust_remote_code": True}
"""Key of tokenizer_config.json, by which the classes of transformers 5 read tokenizer.json as it is.

Nothing else reads it there: whether Python code of a directory may run is an argument, and there is none in it.
"""


def other_tokens(manifest: Manifest, tokenizer: str) -> str:
    """How a tokenizers-library tokenizer, as JSON, differs from the study's on validation text; empty: it does not.

    Raises:
        CorpusError: the prepared text or its tokenizer is damaged or gone.
    """
    counted, example = _unlike_passages(manifest, tokenizer)
    return f"{counted} than the study's: {example}" if counted else ""


def _unlike_passages(manifest: Manifest, tokenizer: str) -> tuple[str, str]:
    """How many passages of a corpus become other tokens, and the first of them; empty: none does."""
    own = load_tokenizer(manifest.tokenizer_path).backend_tokenizer
    ours, theirs = Encoder(own.to_str()), Encoder(tokenizer)
    for corpus in manifest.corpora:
        store = manifest.store(corpus)
        length = min(_TOKENS, max(store.tokens("validation") - 1, 1))
        rows = store.batch("validation", store.validation_positions(PASSAGES, length), length)
        ends = (row.tolist() + [store.meta.end_of_text] for row in rows)
        texts = [own.decode(row[: row.index(store.meta.end_of_text)]) for row in ends]
        texts = [text for text in texts if text]
        chunk = Chunk([""] * len(texts), texts)
        ((_, as_ours),), ((_, as_theirs),) = ours.encode([chunk], False), theirs.encode([chunk], False)
        pairs = zip(texts, as_ours.tokens, as_theirs.tokens)
        if unlike := [(text, a, b) for text, a, b in pairs if a.tolist() != b.tolist()]:
            text, a, b = unlike[0]
            begins = f"the one that begins with {text[:30]!r} becomes {len(b):,} tokens in place of {len(a):,}"
            return f"{len(unlike):,} of {len(texts):,} passages of {corpus} become other tokens", begins
    return "", ""


def tokenised_alike(
    plan: TrainingPlan, question: Question, folder: Path | None, as_it_is: bool = False
) -> tuple[TrainingPlan, list[str]]:
    """The plan with a model whose tokenizer its trainer loads as the study's, and a line if it does so otherwise.

    Trainers load by AutoTokenizer, or tokenizer.json `as_it_is`. Where that differs, `folder` gets a directory `model`:
    links to the files of the model's, and the study's tokenizer. Nothing is compared where the text is not prepared
    here, or the weights have no place yet.
    """
    try:
        manifest = Manifest.open(data_folder(question))
        if plan.model == "MODEL" or not manifest.tokenizer:
            return plan, []
        found, unlike = _loaded(manifest, plan.model, as_it_is, question.model.revision)
    except CorpusError:
        return plan, []
    if not unlike:
        return plan, [f"tokenizer: not compared with the study's: {found}"] * bool(found)
    reads = f"AutoTokenizer reads that of {plan.model} otherwise, as {found}"
    why = f"{f'that of {plan.model} is another' if as_it_is else reads} ({unlike})"
    if not Path(plan.model).is_dir():
        return plan, [f"tokenizer: give a directory as model.path, and output=FILE writes one with the study's: {why}"]
    if not folder:
        return plan, [f"tokenizer: output=FILE writes beside it a directory of the model with the study's: {why}"]
    made = _with_tokenizer(Path(plan.model), manifest, folder.resolve() / "model")
    if any(_loaded(manifest, str(made), as_it_is)):
        shutil.rmtree(made)
        return plan, [f"tokenizer: load that of the model by PreTrainedTokenizerFast in place of AutoTokenizer: {why}"]
    line = f"tokenizer: the model of this file is {made}, whose tokenizer is the study's, since {why}"
    saved = "; of what the trainer saves, load the tokenizer by PreTrainedTokenizerFast" * (not as_it_is)
    return dataclasses.replace(plan, model=str(made)), [line + saved]


def _loaded(manifest: Manifest, model: str, as_it_is: bool, revision: str | None = None) -> tuple[str, str]:
    """How the tokenizer of a model is loaded, or why not, and how it tokenises otherwise than the study."""
    from transformers import AutoTokenizer

    given = {"revision": revision} if revision and not Path(model).is_dir() else {}
    found, backend = "tokenizer.json", ""
    try:
        if as_it_is and Path(model).is_dir():
            backend = (Path(model) / "tokenizer.json").read_text()
        else:
            tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code=False, **given)
            found = type(tokenizer).__name__
            backend = tokenizer.backend_tokenizer.to_str()
    except Exception as error:  # what transformers raises here differs from version to version
        return f"that of {model} cannot be loaded ({' '.join(str(error).split())[:150]})", ""
    unlike, _ = _unlike_passages(manifest, backend)
    return (found, unlike) if unlike else ("", "")


def _with_tokenizer(model: Path, manifest: Manifest, folder: Path) -> Path:
    """A directory of links to the files of a model, with the tokenizer of the study, to be read as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    files = manifest.tokenizer_files()
    settings = json.loads(files.get("tokenizer_config.json", b"{}")) | _AS_IT_IS
    files["tokenizer_config.json"] = (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
    # A class that it declares may have other rules than the file, and the text was tokenised by the class.
    files["tokenizer.json"] = load_tokenizer(manifest.tokenizer_path).backend_tokenizer.to_str(pretty=True).encode()
    for path in (path for path in folder.iterdir() if path.is_symlink()):
        path.unlink()  # of an earlier model
    for path in (path for path in model.iterdir() if path.name not in files):
        (folder / path.name).symlink_to(path.resolve())
    for name, content in files.items():
        write_whole(folder / name, content)
    return folder


def saved_other_tokens(manifest: Manifest, folder: Path) -> str:
    """How the newest tokenizer beside the checkpoints in a folder differs from the study's; empty: it does not."""
    files = [path / "tokenizer.json" for path in (folder, *folder.iterdir())]
    # A trainer may remove one meanwhile.
    with contextlib.suppress(OSError, CorpusError):
        there = [file for file in files if file.is_file()]
        return other_tokens(manifest, max(there, key=lambda file: file.stat().st_mtime).read_text()) if there else ""
    return ""
