"""Tokenizers: a byte-level BPE trained on the corpora, or one from a Hugging Face directory; texts become tokens."""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from training.corpora.documents import CorpusError, json_hash
from training.corpora.near_duplicates import KEPT, Screen
from training.durable import FileError, read_file, read_json, whole_folder, write_whole
from training.stop import environment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
PIECE_CHARACTERS = 1 << 20
"""Longer texts are tokenised in pieces, since a character takes up to 600 bytes of memory."""
_TRAINING_CHARACTERS = 1 << 10
_ONE_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]+|\s+")
MOST_LONG_WORDS = 1 << 12
"""Pieces of words longer than a piece that a tokenizer learns from: DNA, base64. 29 MB of them took 86 s and 2.4 GB."""
# Where no tokenizer of the field has a token across; the first that is in a text counts.
_CUTS = [
    re.compile(rf".*(?<=[^\W\d_])(?={cut})", re.DOTALL)
    for cut in (r" [^\W\d_]", r"[\n.,;:!?\u3001\u3002\uff0c\uff1a\uff1b\uff01\uff1f]")
] + [re.compile(r".*(?<=\S)(?=\s)", re.DOTALL)]

SEPARATOR = "document_separator"
"""Key of tokenizer_config.json: the token between documents, where it is not the end-of-sequence token."""
ENDS = ("bos_token", "eos_token")
"""Its keys of the tokens before and after a document."""

_AS_IT_IS = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names in `tokenizer_class` of what reads tokenizer.json as it is, in transformers 4 and 5."""
_SENTENCEPIECE = ("tokenizer.model", "spiece.model")
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", *_SENTENCEPIECE)
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
          "chat_template.jinja", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model")  # fmt: skip


def train_tokenizer(texts: Iterable[str], vocabulary: int, folder: Path) -> Path:
    """Train a byte-level BPE and save it as a Hugging Face directory; equal texts give equal files.

    Encoding and decoding any text is lossless. Little text may give fewer token ids than `vocabulary`; 8 MB take a
    second, and the bytes and the end of text are 257. The folder, which must not exist, is returned.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        # Sorted, because the order of the set differs between processes.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # In short pieces, since training takes time with the square of a word's length, and memory with that of 256 texts.
    pieces = (piece for text in texts for piece in text_pieces(text, _TRAINING_CHARACTERS))
    left = iter(range(MOST_LONG_WORDS))
    learnt = (piece for piece in pieces if not _is_long_word(piece) or next(left, None) is not None)
    tokenizer.train_from_iterator(learnt, trainer)
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END_OF_TEXT)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special, "clean_up_tokenization_spaces": False}
    with whole_folder(folder) as temporary:
        write_whole(temporary / "tokenizer.json", tokenizer.to_str(pretty=True))
        write_whole(temporary / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
    return folder


def _is_long_word(piece: str) -> bool:
    return len(piece) == _TRAINING_CHARACTERS and _ONE_WORD.fullmatch(piece) is not None


def copy_tokenizer(source: Path, folder: Path) -> Path:
    """Copy the tokenizer of a directory, converted if it has no tokenizer.json. Errors as `load_tokenizer`."""
    with whole_folder(folder) as temporary:
        if (source / "tokenizer.json").is_file():
            for name in _FILES:
                if (source / name).is_file():
                    write_whole(temporary / name, (source / name).read_bytes())
        else:
            load_tokenizer(source).save_pretrained(temporary)
    return folder


def load_tokenizer(folder: Path, by_model_type: bool = False) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a local Hugging Face directory; nothing is downloaded.

    A directory that declares no class of its own has tokenizer.json read as it is. `by_model_type` lets transformers 5
    take the class of config.json's model type all the same: Qwen2Tokenizer, which splits words by rules of its own.

    Raises:
        CorpusError: no such folder, or no tokenizer in it that transformers can load.
    """
    if not folder.is_dir():
        raise CorpusError(f"tokenizer: {folder} is not a folder; allowed: a local Hugging Face directory")
    # From a model's configuration alone transformers makes an empty tokenizer.
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise CorpusError(
            f"tokenizer: {folder} holds no tokenizer that transformers loads (none of {', '.join(_VOCABULARIES)})"
        )
    if not (folder / "tokenizer.json").is_file() and find_spec("sentencepiece") is None:
        for file in (path for name in _SENTENCEPIECE if (path := folder / name).is_file()):
            # A message of SentencePiece's protobuf begins so; one of tiktoken is text. transformers takes it for that.
            if read_file(file)[:1] == b"\n":
                raise CorpusError(f"tokenizer: {file} is of SentencePiece: pip install sentencepiece protobuf")
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    as_it_is = (folder / "tokenizer.json").is_file() and declared_tokens(folder, "tokenizer_class")[0] in _AS_IT_IS
    loader = PreTrainedTokenizerFast if as_it_is and not by_model_type else AutoTokenizer
    try:
        tokenizer = loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer("a")  # with a key of another type it loads, and ends here
    except Exception as error:  # what transformers raises here differs from version to version
        reason = " ".join(str(error).split())[:300]
        raise CorpusError(f"tokenizer: {folder} holds no tokenizer that transformers loads ({reason})") from error
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise CorpusError(f"tokenizer: {folder} has no tokenizers-library form; allowed: one with tokenizer.json")
    return tokenizer


def tokenizer_fingerprint(folder: Path) -> str:
    """Hash of the content of tokenizer.json, independent of its formatting; 32 hexadecimal digits.

    Raises:
        CorpusError: no tokenizer.json, or not JSON.
    """
    path = folder / "tokenizer.json"
    try:
        content = read_json(path)
    except OSError as error:
        raise CorpusError(f"tokenizer: {path} cannot be read ({error.strerror})") from error
    except FileError as error:
        raise CorpusError(f"tokenizer: {error}") from error
    # Truncation and padding are disabled when we tokenise.
    content.pop("truncation", None)
    content.pop("padding", None)
    return json_hash(content)


def declared_separator(folder: Path) -> str | None:
    """The token between documents that the tokenizer_config.json of a directory names under SEPARATOR, if any."""
    return declared_tokens(folder, SEPARATOR)[0]


def declared_tokens(folder: Path, *keys: str) -> list[str | None]:
    """The tokens that the tokenizer_config.json of a directory names under these keys, if any."""
    try:
        config = read_json(folder / "tokenizer_config.json")
    except (OSError, FileError):
        config = {}
    tokens = [config.get(key) for key in keys]
    # Some files say how a token is stripped, beside its text.
    tokens = [token.get("content") if isinstance(token, dict) else token for token in tokens]
    return [token if isinstance(token, str) else None for token in tokens]


def end_of_text_id(tokenizer: PreTrainedTokenizerFast, separator: str | None = None) -> int:
    """Token id between documents: of the separator, else of the end-of-sequence token, or BERT's separator.

    Raises:
        CorpusError: the separator is no token of the tokenizer, or the tokenizer has neither of the others.
    """
    if separator is not None:
        if separator in (vocabulary := tokenizer.get_vocab()):
            return vocabulary[separator]
        allowed = ", ".join(map(str, tokenizer.all_special_tokens)) or "a token of the tokenizer"
        raise CorpusError(f"corpora.tokenizer.separator: {separator!r} is not a token; allowed: {allowed}, or null")
    for token in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        if isinstance(token, int):
            return token
    raise CorpusError("tokenizer: neither an eos_token nor a sep_token; allowed: one that can end a document")


def id_count(tokenizer: PreTrainedTokenizerFast) -> int:
    """Number of rows that an embedding needs: the ids of some tokenizers have gaps."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def vocabulary_problem(token_ids: int, rows: int) -> str:
    """What is wrong with a tokenizer of so many token ids for an embedding of so many rows; empty: nothing.

    >>> vocabulary_problem(49152, 49152)
    ''
    """
    if token_ids <= rows:
        return ""
    numbers = f"the tokenizer has {token_ids:,} token ids, the embedding {rows:,} rows"
    return f"{numbers}: the tokenizer does not belong to the model; give the model's own"


def text_pieces(text: str, characters: int, without_space: bool = False) -> Iterator[str]:
    """A text in pieces of at most so many characters, cut between words; in a longer word anywhere.

    Their tokens are those of the text, if it has words. `without_space` leaves out the space at a cut, for a tokenizer
    that puts one before each text.

    >>> [*text_pieces("one two, three", 8), *text_pieces("one two", 5, without_space=True), *text_pieces("abcd", 3)]
    ['one', ' two', ', three', 'one', 'two', 'abc', 'd']
    """
    start = 0
    while len(text) - start > characters:
        found = next(filter(None, (cut.match(text, start + 1, start + characters) for cut in _CUTS)), None)
        end = found.end() if found else start + characters
        yield text[start:end]
        start = end + (without_space and text[end] == " ")
    yield text[start:]


class Chunk(NamedTuple):
    """Documents to tokenise, and a note of their reader after the last one."""

    names: list[str]
    texts: list[str]
    note: Any = None


class Encoded(NamedTuple):
    """The tokenised documents of a chunk, in their order."""

    tokens: list[np.ndarray]
    """(n,) uint32 token ids of each, without the end of text; empty for a dropped document."""
    sizes: list[int]
    """Bytes of each text, UTF-8."""
    verdicts: list[str]
    """Verdict of the screen on each: near_duplicates.KEPT, SAME or NEAR."""


class Encoder:
    """Tokenises texts, without special tokens or truncation, by a tokenizers-library tokenizer as JSON.

    The saved `Screen` of a folder drops documents; None: all are kept.
    """

    def __init__(self, tokenizer: str, screen: Path | None = None) -> None:
        from tokenizers import Tokenizer

        self._backend = Tokenizer.from_str(tokenizer)
        self._backend.no_truncation()
        self._backend.no_padding()
        # A special token written in a text is text: a page about <|endoftext|> does not end there.
        self._backend.encode_special_tokens = True
        self._screen = Screen.open(screen) if screen else None
        samples = ["one", "two", " two", "one two"]
        encodings = self._backend.encode_batch_fast(samples, add_special_tokens=False)
        one, two, second, both = (encoding.ids for encoding in encodings)
        self._adds_space = both == one + two != one + second

    def encode(
        self, chunks: Iterable[Chunk], screened: bool = True, wide: bool = False
    ) -> Iterator[tuple[Chunk, Encoded]]:
        """Each chunk with its tokens, in the order given; `wide` uses all threads of the tokenizers library."""
        if not wide:
            with environment("TOKENIZERS_PARALLELISM", "false"):
                for chunk in chunks:
                    yield chunk, self._encoded(chunk.texts, screened)
            return
        # The next chunk is read, and the last one written, meanwhile.
        waiting: deque[tuple[Chunk, Future[Encoded]]] = deque()
        with ThreadPoolExecutor(2) as pool:
            for chunk in chunks:
                waiting.append((chunk, pool.submit(self._encoded, chunk.texts, screened)))
                if len(waiting) > 2:
                    chunk, answer = waiting.popleft()
                    yield chunk, answer.result()
            for chunk, answer in waiting:
                yield chunk, answer.result()

    def _encoded(self, texts: list[str], screened: bool) -> Encoded:
        verdicts = self._screen.verdicts(texts) if self._screen and screened else [KEPT] * len(texts)
        kept = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict == KEPT]
        tokens = self._tokens(kept)
        nothing = np.array([], np.uint32)
        every = [next(tokens) if verdict == KEPT else nothing for verdict in verdicts]
        return Encoded(every, [len(text.encode()) for text in texts], verdicts)

    def _tokens(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Token ids of each text, tokenised some at once."""
        cut = [
            (number, piece)
            for number, text in enumerate(texts)
            for piece in text_pieces(text, PIECE_CHARACTERS, self._adds_space)
        ]
        sizes = itertools.accumulate(len(piece) for _, piece in cut)
        batches = itertools.groupby(zip(sizes, cut, strict=True), lambda one: one[0] // PIECE_CHARACTERS)
        of_text: list[list[np.ndarray]] = [[] for _ in texts]
        for _, batch in batches:
            numbers, parts = zip(*(piece for _, piece in batch), strict=True)
            for number, encoding in zip(numbers, self._backend.encode_batch_fast([*parts], add_special_tokens=False)):
                of_text[number].append(np.array(encoding.ids, np.uint32))
        return (np.concatenate(ids) for ids in of_text)
