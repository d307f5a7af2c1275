"""Corpora without download: docstrings of installed packages, and code of the standard library."""

import ast
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from training.corpora.documents import CorpusError, document_hash, json_hash
from training.corpora.reader import Reader, Row, Shard
from training.loading import uncollected

PARTS = {
    "prose": ("networkx", "numpy", "pandas", "scipy", "sympy", "torch", "transformers"),
    "math": ("sympy",),
    "graphs": ("networkx",),
    "statistics": ("scipy/stats",),
    "tables": ("pandas",),
    "arrays": ("numpy",),
    "code": (),
}
"""Part -> packages whose docstrings it holds; code is the standard library without docstrings."""

# Increased when the rules below select other text, so that older stores are not reused.
_RULES = 1
# Such a text cannot be written as UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORTEST_PROSE = 200
_TEST_FOLDERS = {"test", "tests", "testing", "idle_test", "__pycache__"}
# Character tables, documentation as a dictionary, bundled wheels.
_NOT_CODE = {"site-packages", "dist-packages", "encodings", "pydoc_data", "_bundled", "lib-dynload"}
_Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.Module | _Named


class InstalledReader(Reader):
    """The documents of a part of installed Python, sorted by id, each text once.

    The id of a document is file#name, such as "scipy/optimize/_minimize.py#minimize". Files are parsed once a reader,
    not imported. With `max_bytes` they are read in the order of a hash of their names, until the documents hold so many
    bytes of UTF-8. No such part, or a package that is not installed, is a CorpusError.
    """

    def fingerprint(self) -> str:
        """Hash of the versions and settings that decide the documents."""
        part = self.source.part
        _check(part, self.source.exclude)
        packages = sorted({folder.split("/")[0] for folder in PARTS[part]})
        description = {
            "rules": _RULES,
            "part": part,
            "exclude": sorted(set(self.source.exclude)),
            "max_bytes": self.source.max_bytes,
            # The parser decides what a docstring is, so Python's version matters for prose too.
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "packages": {package: _version(package) for package in packages},
        }
        rules = self.source.filter_description()
        return json_hash([json_hash(description), rules]) if rules else json_hash(description)

    def state(self) -> str:
        return self.fingerprint()

    def rows(self, shard: Shard | None, after: int, state: Any) -> Iterator[Row]:
        for number, (name, text) in enumerate(self._documents[after:], start=after + 1):
            yield Row(name, self.source.text_alone(text), name, number / len(self._documents))

    @functools.cached_property
    def _documents(self) -> list[tuple[str, str]]:
        part, max_bytes = self.source.part, self.source.max_bytes
        files = _files(part, self.source.exclude)
        if max_bytes is not None:
            files.sort(key=lambda file: document_hash(file[0], "cap"))
        parse = _code if part == "code" else _prose
        documents: dict[str, str] = {}
        size = 0
        # Parsing creates millions of nodes without cycles; garbage collection doubles its time. Where warnings are
        # errors, an invalid escape sequence would drop its file and change the corpus.
        with uncollected(), warnings.catch_warnings(action="ignore"):
            for document, text in (one for name, path in files for one in parse(name, path.read_bytes())):
                if max_bytes is not None and size >= max_bytes:
                    break
                if text not in documents:
                    documents[text] = document
                    size += len(text.encode("utf-8", "replace"))
        return sorted((document, text) for text, document in documents.items())


def _check(part: str, exclude: Sequence[str]) -> None:
    if part not in PARTS:
        raise CorpusError(f"part: {part!r} is not a part of installed Python; allowed: {', '.join(PARTS)}")
    allowed = [name for name in PARTS if name not in ("prose", "code")] if part == "prose" else []
    for name in exclude:
        if name not in allowed:
            raise CorpusError(f"exclude: {name!r} of part {part}; allowed: {', '.join(allowed) or 'nothing'}")


def _files(part: str, exclude: Sequence[str]) -> list[tuple[str, Path]]:
    """(name, path) of the source files of a part, sorted by name."""
    _check(part, exclude)
    if part == "code":
        root = Path(sysconfig.get_path("stdlib"))
        # Generated when this Python was built, with paths of that machine.
        left_out = ("_sysconfigdata", "sitecustomize", "config-")
        files = _python_files(root, "", _TEST_FOLDERS | _NOT_CODE)
        return [file for file in files if not file[0].startswith(left_out)]
    left_out = tuple(f"{folder}/" for name in exclude for folder in PARTS[name])
    files = []
    for folder in PARTS[part]:
        package, _, inner = folder.partition("/")
        files += _python_files(_package_folder(package) / inner, f"{folder}/", _TEST_FOLDERS)
    return sorted(file for file in files if not file[0].startswith(left_out))


def _python_files(root: Path, prefix: str, skipped: set[str]) -> list[tuple[str, Path]]:
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skipped]
        files += [path for name in names if name.endswith(".py") and (path := Path(folder, name)).is_file()]
    return sorted((prefix + path.relative_to(root).as_posix(), path) for path in files)


def _package_folder(package: str) -> Path:
    # find_spec locates a top-level package without running it.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package)
    return Path(next(iter(spec.submodule_search_locations)))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(package) from None


def _missing(package: str) -> CorpusError:
    return CorpusError(f"corpora: installed-python needs the package {package}; install it, or name other corpora")


def _prose(name: str, source: bytes) -> Iterator[tuple[str, str]]:
    tree = _parsed(source) if b'"""' in source or b"'''" in source else None
    if tree is None:
        return
    used = Counter[str]()
    for qualified, node in _documented(tree):
        text = ast.get_docstring(node)
        if text is None or len(text) < _SHORTEST_PROSE or _SURROGATE.search(text):
            continue
        # Overloads and properties repeat a name within a file.
        used[qualified] += 1
        repeat = f":{used[qualified]}" if used[qualified] > 1 else ""
        yield f"{name}#{qualified}{repeat}", text + "\n"


def _code(name: str, source: bytes) -> Iterator[tuple[str, str]]:
    tree = _parsed(source)
    text = without_docstrings(source, tree).decode("utf-8") if tree else ""
    if text.strip():
        yield name, text


def without_docstrings(source: bytes, tree: ast.Module | None = None) -> bytes:
    r"""Python source (UTF-8) without its docstrings; one that is the only statement becomes `pass`.

    Raises:
        SyntaxError: not Python.

    >>> without_docstrings(b'def f():\n    "Twice."\n    return 2  # two\n')
    b'def f():\n    return 2  # two\n'
    """
    lines = source.splitlines(keepends=True)
    # Backwards, so that earlier positions stay valid.
    for _, node in reversed(list(_documented(ast.parse(source) if tree is None else tree))):
        first = node.body[0] if node.body else None
        if ast.get_docstring(node, clean=False) is None or first is None:
            continue
        start, end = first.lineno - 1, (first.end_lineno or first.lineno) - 1
        before, after = lines[start][: first.col_offset], lines[end][first.end_col_offset :]
        alone = not before.strip() and not after.strip()
        gone = alone and (len(node.body) > 1 or isinstance(node, ast.Module))
        lines[start : end + 1] = [] if gone else [before + b"pass" + after]
    return b"".join(lines)


def _documented(node: ast.AST, outer: str = "") -> Iterator[tuple[str, _Documented]]:
    """(qualified name, node) of the module and its classes and functions, in source order."""
    if isinstance(node, _Documented):
        yield outer, node
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, field, ())
        # The body of a lambda or conditional expression is not a list.
        for child in children if isinstance(children, list) else ():
            name = f"{outer}.{child.name}".strip(".") if isinstance(child, _Named) else outer
            yield from _documented(child, name)


def _parsed(source: bytes) -> ast.Module | None:
    try:
        # Also rejects other encodings, which are rare.
        source.decode("utf-8")
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None
