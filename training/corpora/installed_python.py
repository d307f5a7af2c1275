"""Corpora that every machine able to run cptlaw already has: the prose and the code of installed Python."""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.corpora.documents import CorpusError, document_hash

PARTS = {
    "prose": ("networkx", "numpy", "pandas", "scipy", "sympy", "torch", "transformers"),
    "math": ("sympy",),
    "graphs": ("networkx",),
    "statistics": ("scipy/stats",),
    "tables": ("pandas",),
    "arrays": ("numpy",),
    "code": (),
}
"""Part -> the packages whose docstrings it holds; code holds the standard library's source without its
docstrings."""

# Raised whenever the rules below choose or cut text differently, so that stores made under the old ones are
# not reused.
_RULES = 1
_SHORTEST_PROSE = 200
_TEST_FOLDERS = {"test", "tests", "testing", "idle_test", "__pycache__"}
# Tables of characters, documentation as a dictionary, other people's wheels: no code that a person wrote.
_NOT_CODE = {"site-packages", "dist-packages", "encodings", "pydoc_data", "_bundled", "lib-dynload"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def installed_documents(
    part: str, exclude: Sequence[str] = (), max_bytes: int | None = None
) -> Iterator[tuple[str, str]]:
    """The documents of a part, sorted by id.

    Args:
        part: "prose" (docstrings of scipy, pandas, sympy, networkx, numpy, torch, transformers), "math"
            (sympy's), "graphs" (networkx'), "statistics" (scipy.stats'), "tables" (pandas'), "arrays" (numpy's)
            or "code" (the standard library without docstrings).
        exclude: of prose, the parts to leave out: any of the others but code.
        max_bytes: stop once the documents hold this many bytes of UTF-8; files are then taken in the order of
            a hash of their names, so that every package keeps its part. None takes all.

    Yields:
        (document id, text): "scipy/optimize/_minimize.py#minimize", of which the part before '#' is the file;
        a text comes once, under the first id that has it. Files are read and parsed, nothing is imported.

    Raises:
        CorpusError: no such part, or a package that is not installed.
    """
    files = _files(part, exclude)
    if max_bytes is not None:
        files.sort(key=lambda file: document_hash(file[0], "cap"))
    read = _code if part == "code" else _prose
    documents: list[tuple[str, str]] = []
    seen: set[str] = set()
    taken = 0
    with _quiet_parsing():
        for name, path in files:
            for document, text in read(name, path.read_bytes()):
                if text not in seen and (max_bytes is None or taken < max_bytes):
                    seen.add(text)
                    documents.append((document, text))
                    taken += len(text.encode("utf-8", "replace"))
            if max_bytes is not None and taken >= max_bytes:
                break
    yield from sorted(documents)


def installed_fingerprint(part: str, exclude: Sequence[str] = (), max_bytes: int | None = None) -> str:
    """Hash of all that decides `installed_documents`: versions of Python and of the packages, arguments.

    Cheap, as no file is read. 32 hexadecimal digits.

    Raises:
        CorpusError: as `installed_documents`.
    """
    _check(part, exclude)
    packages = sorted({place.split("/")[0] for place in PARTS[part]})
    description = {
        "rules": _RULES,
        "part": part,
        "exclude": sorted(set(exclude)),
        "max_bytes": max_bytes,
        # The parser decides what a docstring is, so Python's version counts for prose too.
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {package: _version(package) for package in packages},
    }
    return hashlib.blake2b(json.dumps(description, sort_keys=True).encode(), digest_size=16).hexdigest()


def _check(part: str, exclude: Sequence[str]) -> None:
    if part not in PARTS:
        raise CorpusError(f"part: {part!r} is no part of the installed Python; allowed: {', '.join(PARTS)}")
    allowed = [name for name in PARTS if name not in ("prose", "code")] if part == "prose" else []
    for name in exclude:
        if name not in allowed:
            raise CorpusError(f"exclude: {name!r} of part {part}; allowed: {', '.join(allowed) or 'nothing'}")


def _files(part: str, exclude: Sequence[str]) -> list[tuple[str, Path]]:
    """(name, path) of the source files of a part, sorted by name; names are the same on every machine."""
    _check(part, exclude)
    if part == "code":
        root = Path(sysconfig.get_path("stdlib"))
        found = _python_files(root, "", _TEST_FOLDERS | _NOT_CODE)
        # Written at build time, with the paths of the machine that built this Python.
        return [file for file in found if not file[0].startswith(("_sysconfigdata", "sitecustomize", "config-"))]
    left_out = tuple(f"{place}/" for name in exclude for place in PARTS[name])
    files = []
    for place in PARTS[part]:
        package, _, inner = place.partition("/")
        found = _python_files(_package_folder(package) / inner, f"{place}/", _TEST_FOLDERS)
        files += [file for file in found if not file[0].startswith(left_out)] if left_out else found
    return sorted(files)


def _python_files(root: Path, prefix: str, skipped: set[str]) -> list[tuple[str, Path]]:
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skipped]
        for name in names:
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():
                files.append((prefix + path.relative_to(root).as_posix(), path))
    return sorted(files)


def _package_folder(package: str) -> Path:
    # Of a package at the top, find_spec reads where it is without running it.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise CorpusError(f"corpora: installed-python needs the package {package}; install it, or name other corpora")
    return Path(next(iter(spec.submodule_search_locations)))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise CorpusError(
            f"corpora: installed-python needs the package {package}; install it, or name other corpora"
        ) from None


def _prose(name: str, source: bytes) -> Iterator[tuple[str, str]]:
    tree = _parsed(source) if b'"""' in source or b"'''" in source else None
    if tree is None:
        return
    used: dict[str, int] = {}
    for qualified, node in _documented(tree):
        text = ast.get_docstring(node)
        if text is None or len(text) < _SHORTEST_PROSE or not _writable(text):
            continue
        # Overloads and properties repeat a name within a file.
        used[qualified] = used.get(qualified, 0) + 1
        repeat = f":{used[qualified]}" if used[qualified] > 1 else ""
        yield f"{name}#{qualified}{repeat}", text + "\n"


def _code(name: str, source: bytes) -> Iterator[tuple[str, str]]:
    tree = _parsed(source)
    text = without_docstrings(source, tree).decode("utf-8") if tree else ""
    if text.strip():
        yield name, text


def without_docstrings(source: bytes, tree: ast.Module | None = None) -> bytes:
    r"""Python source with its docstrings cut out, comments and all else left as they are.

    A docstring that is all there is becomes `pass`, so that what is left still runs.

    Args:
        source: UTF-8.
        tree: the source parsed, if the caller has it.

    Raises:
        SyntaxError: not Python.

    >>> without_docstrings(b'def f():\n    "Twice."\n    return 2  # two\n')
    b'def f():\n    return 2  # two\n'
    """
    lines = source.splitlines(keepends=True)
    # From the end backwards, so that the earlier positions stay right.
    for _, node in reversed(list(_documented(ast.parse(source) if tree is None else tree))):
        first = node.body[0] if node.body else None
        if ast.get_docstring(node, clean=False) is None or first is None:
            continue
        start, end = first.lineno - 1, (first.end_lineno or first.lineno) - 1
        before, after = lines[start][: first.col_offset], lines[end][first.end_col_offset :]
        alone = not before.strip() and not after.strip()
        if alone and (len(node.body) > 1 or isinstance(node, ast.Module)):
            lines[start : end + 1] = []
        else:
            lines[start : end + 1] = [before + b"pass" + after]
    return b"".join(lines)


def _documented(
    tree: ast.Module,
) -> Iterator[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(qualified name, node) of the module and of all classes and functions in it, in the source's order."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        outer, node = waiting.pop()
        if isinstance(node, _DOCUMENTED):
            yield outer, node
        inner: list[tuple[str, ast.AST]] = []
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            children = getattr(node, field, ())
            # A lambda's body, or that of a conditional expression, is no list of statements.
            for child in children if isinstance(children, list) else ():
                name = f"{outer}.{child.name}".strip(".") if isinstance(child, _DOCUMENTED[1:]) else outer
                inner.append((name, child))
        waiting += reversed(inner)


def _parsed(source: bytes) -> ast.Module | None:
    try:
        # Also refuses what is not UTF-8: another coding is too rare to be worth its offsets.
        source.decode("utf-8")
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _quiet_parsing() -> Iterator[None]:
    enabled = gc.isenabled()
    # Parsing makes millions of nodes without cycles; looking for cycles doubles its time.
    gc.disable()
    try:
        with warnings.catch_warnings():
            # Where warnings are errors, a doubtful escape sequence would drop its file and change the corpus.
            warnings.simplefilter("ignore")
            yield
    finally:
        if enabled:
            gc.enable()
