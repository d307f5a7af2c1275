"""The embedded corpora: real text, from files alone, the same every time."""

import re
import subprocess
import sys

import pytest

from training.corpora import installed_python
from training.corpora.documents import CorpusError
from training.corpora.installed_python import PARTS, InstalledReader, without_docstrings
from training.corpora.source import Source


def reader_of(part, exclude=(), max_bytes=None):
    return InstalledReader("a", Source("installed-python", part=part, exclude=exclude, max_bytes=max_bytes))


def installed_documents(*arguments, **keys):
    return list(reader_of(*arguments, **keys).documents())


@pytest.fixture(scope="module")
def graphs():
    return installed_documents("graphs")


def size(documents):
    return sum(len(text.encode()) for _, text in documents)


def test_prose_is_the_docstrings_of_a_package(graphs):
    texts = dict(graphs)
    shortest_path = texts["networkx/algorithms/shortest_paths/generic.py#shortest_path"]
    assert shortest_path.startswith("Compute shortest paths in the graph.\n\nParameters\n----------\n")
    assert 1_000_000 < size(graphs) < 10_000_000
    assert all(len(text) >= 200 for text in texts.values())


def test_ids_are_sorted_and_texts_are_unique(graphs):
    names = [name for name, _ in graphs]
    assert names == sorted(set(names))
    assert len({text for _, text in graphs}) == len(graphs)


def test_nothing_is_imported():
    program = (
        "import sys\n"
        "from training.corpora.installed_python import InstalledReader\n"
        "from training.corpora.source import Source\n"
        "reader = InstalledReader('a', Source('installed-python', max_bytes=30_000))\n"
        "assert len(list(reader.documents())) > 3\n"
        "reader.fingerprint()\n"
        f"print(sorted(set({PARTS['prose']!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_code_is_neither_tests_nor_tables_nor_installed_packages():
    names = [name for name, _ in installed_python._files("code", ())]
    folders = {folder for name in names for folder in name.split("/")[:-1]}
    assert {"asyncio", "email", "json"} <= folders
    assert not folders & {"test", "tests", "idle_test", "site-packages", "encodings", "__pycache__"}
    assert not any("sysconfigdata" in name for name in names)


def test_prose_without_the_parts_that_are_corpora_of_their_own():
    def files(part, exclude=()):
        return set(installed_python._files(part, exclude))

    prose, parts = files("prose"), ("math", "graphs", "statistics")
    assert {name.split("/")[0] for name, _ in prose} == set(PARTS["prose"])
    assert len(files("statistics")) > 50
    assert prose - files("prose", parts) == set().union(*map(files, parts))


def test_a_cap_takes_of_many_packages_and_a_larger_cap_adds_to_a_smaller():
    small = dict(installed_documents("prose", max_bytes=300_000))
    assert 300_000 <= size(small.items()) < 400_000
    assert len({name.split("/")[0] for name in small}) >= 4
    assert small.items() <= dict(installed_documents("prose", max_bytes=400_000)).items()


def test_fingerprint_follows_versions_and_arguments(monkeypatch):
    readers = [reader_of("prose"), reader_of("prose", ("math",)), reader_of("prose", max_bytes=10)]
    prints = [reader.fingerprint() for reader in [*readers, reader_of("math"), reader_of("code")]]
    assert reader_of("prose", ("math", "graphs")).fingerprint() == reader_of("prose", ("graphs", "math")).fingerprint()
    before = reader_of("graphs").fingerprint()
    monkeypatch.setattr(installed_python, "_version", lambda package: "0" if package == "sympy" else "1")
    prints.append(reader_of("math").fingerprint())
    monkeypatch.setattr(installed_python.platform, "python_version", lambda: "4.0")
    prints += [reader_of("code").fingerprint(), reader_of("graphs").fingerprint()]
    assert len({before, *prints}) == len(prints) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("poetry",), "part: 'poetry' is not a part of installed Python; allowed: prose, math"),
        (("prose", ("code",)), "exclude: 'code' of part prose; allowed: math, graphs, statistics, tables, arrays"),
        (("code", ("math",)), "exclude: 'math' of part code; allowed: nothing"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(CorpusError, match=message):
        installed_documents(*arguments)
    with pytest.raises(CorpusError, match=message):
        reader_of(*arguments).fingerprint()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(installed_python.PARTS, "math", ("no_such_package_here",))
    for read in (lambda part: reader_of(part).fingerprint(), installed_documents):
        with pytest.raises(CorpusError, match="needs the package no_such_package_here; install it"):
            read("math")


# «before|after»
CUTS = '''\
«"""Module."""
|»# A comment.
class A:
    «"""Only a docstring."""|pass»
class B:
«    r"""Two
    lines, é."""
|»    x = """not a docstring"""
    def f(self): «"one line"|pass»
    def g(self):
        «"""With a tail."""|pass»; y = 1
        return y
    async def h(self):
        «"Plain"|pass»  # a comment behind it
        def inner():
«            """Inner."""
|»            return f"""kept"""
        return inner
if B:
    try:
        pass
    except Exception:
        def deep():
«            """Deep."""
|»            return 0
match 1:
    case 1:
        def deeper():
«            """Deeper."""
|»            return lambda: 0
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_docstrings_are_cut_by_their_span(newline):
    texts = [re.sub("«(.*?)[|](.*?)»", rf"\{side}", CUTS, flags=re.DOTALL) for side in (1, 2)]
    source, expected = (text.replace("\n", newline).encode() for text in texts)
    assert without_docstrings(source) == expected


def test_a_file_that_is_no_python_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "good.py").write_text('"""' + "Words. " * 40 + '"""\n')
    (tmp_path / "bad.py").write_text('def (:\n"""' + "Words. " * 40 + '"""\n')
    (tmp_path / "latin.py").write_bytes(b'# coding: latin-1\n"""' + b"\xe9 words. " * 40 + b'"""\n')
    (tmp_path / "odd.py").write_text('"""' + r"A \d escape. " * 40 + '"""\n')
    (tmp_path / "half.py").write_text('"""' + "Words. " * 40 + r"\ud800" + '"""\n')
    monkeypatch.setattr(installed_python, "_package_folder", lambda package: tmp_path)
    names = [name for name, _ in installed_documents("graphs")]
    assert names == ["networkx/good.py#", "networkx/odd.py#"]
