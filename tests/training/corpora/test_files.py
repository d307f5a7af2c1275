"""Corpora from files: every kind read alike, every fault named with its place."""

import os

import pyarrow
import pytest
from pyarrow import parquet

from tests.training.corpora.rows import as_lines, file_reader, read, write
from training.corpora import files, reader
from training.corpora.documents import CorpusError, in_validation
from training.corpora.files import file_fingerprint

ROWS = [
    {"text": "One.\u2028Still one.\x85", "source": "a"},
    {"text": "2020-01-01", "source": "a"},
    {"text": "Thrée\r\nlines\n", "source": "b#1"},
]
LINES = as_lines(ROWS)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_rows_are_documents(tmp_path, name):
    path = write(tmp_path / name, LINES)
    expected = [(f"{name}:{number}", row["text"]) for number, row in enumerate(ROWS, start=1)]
    assert read(path) == expected
    assert [text for _, text in read(path, column="source")] == ["a", "a", "b#1"]
    grouped = [document for document, _ in read(path, group="source")]
    assert grouped == [f"a#{name}:1", f"a#{name}:2", f"b%231#{name}:3"]
    with pytest.raises(
        CorpusError, match=r"no column 'book'; its columns: text, source; give .* corpora\.sources\.a\.group"
    ):
        read(path, group="book")


def test_links_upper_case_and_other_kinds_are_read_or_named(tmp_path):
    texts, store = tmp_path / "texts", tmp_path / "store"
    (texts / "sub").mkdir(parents=True)
    (store / ".git").mkdir(parents=True)
    for name in ("a.jsonl", "b.JSONL", "c.ndjson", "sub/d.Txt", "e.json", ".f.jsonl", "g.jsonl.xz"):
        write(texts / name, b'{"text": "x"}\n')
    for name in ("a.jsonl", ".git/b.jsonl", "blob"):
        write(store / name, b'{"text": "y"}\n')
    os.mkfifo(texts / "pipe.txt")
    links = {"other": store, "again": texts / "sub", "above": tmp_path, "h.jsonl": store / "blob", "i.txt": "a.jsonl"}
    for name, target in links.items():
        (texts / name).symlink_to(target)
    assert [name.split(":")[0] for name, _ in read(texts)] == [
        *("a.jsonl", "b.JSONL", "c.ndjson", "h.jsonl", "other/a.jsonl", "sub/d.Txt")
    ]
    assert file_reader(texts).passed_over() == (
        "2 hidden, 3 links to what is read already, or to a folder around it, 3 not .jsonl, .parquet or .txt, "
        "1 no regular file (above/, again/, e.json, g.jsonl.xz, i.txt, 4 more)"
    )
    assert [name for name, _ in read(texts / "b.JSONL")] == ["b.JSONL:1"]
    with pytest.raises(CorpusError, match=r"pipe\.txt: neither a file nor a folder"):
        read(texts / "pipe.txt")
    for name in ("loop.jsonl", "gone"):
        (texts / name).symlink_to(name if name == "loop.jsonl" else "/nowhere/b")
    with pytest.raises(CorpusError, match=r"texts: links to nothing: gone, loop\.jsonl; mend or remove them"):
        file_fingerprint(texts)
    (tmp_path / "none").mkdir()
    write(tmp_path / "none" / "a.csv", b"")
    with pytest.raises(CorpusError, match=r"no file of a known kind in this folder, passed over are 1 not"):
        read(tmp_path / "none")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.txt", "folder"])
def test_a_document_that_is_too_long_is_refused_or_left_out_by_a_limit(tmp_path, name, monkeypatch):
    for module in (files, reader):
        monkeypatch.setattr(module, "DOCUMENT_BYTES", 100)
    monkeypatch.setattr(files, "_READ_BYTES", 7)
    texts = ["one", "long " * 50, "two"]
    if name == "folder":
        (tmp_path / name).mkdir()
        for number, text in enumerate(texts):
            write(tmp_path / name / f"{number}.txt", text.encode())
    else:
        rows = as_lines({"text": text} for text in texts)
        write(tmp_path / name, "\n\n".join(texts).encode() if name == "a.txt" else rows)
    with pytest.raises(
        CorpusError, match=r" [123]: longer than a document may be, 32 MB, or 3 million brackets of JSON; split it"
    ):
        read(tmp_path / name)
    documents = file_reader(tmp_path / name, max_characters=90).documents()
    assert [text.strip() for _, text in documents] == ["one", "two"]
    assert documents.dropped == {"max_characters": 1}


def test_a_column_that_grows_without_bounds_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DOCUMENT_BYTES", 1000)
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 50, pyarrow.int32()), ["x" * 1_000_000])
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(CorpusError, match=r"a\.parquet: column text grows from \d+ to 1,000,\d+ bytes in 50 rows"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_rows_without_a_text_are_left_out_by_a_filter_and_counted(tmp_path, name):
    rows = [{"text": None, "ok": "no"}, {"text": "x", "ok": "yes"}, {"ok": "no"}, {"text": "x", "ok": "no"}]
    surrogate = b'{"text": "\\ud800", "ok": "no"}\n' if name == "a.jsonl" else b""
    path = write(tmp_path / name, as_lines(rows) + surrogate)
    documents = file_reader(path, where={"ok": ["yes"]}).documents()
    assert [text for _, text in documents] == ["x"]
    assert documents.dropped == {"where.ok": 4 if surrogate else 3}
    with pytest.raises(CorpusError, match=r"row 1: column text is NoneType"):
        read(path, where={"ok": ["no"]})


def test_text_files_are_documents_in_a_folder_and_paragraphs_alone(tmp_path):
    content = "\ufeffFirst,\r\nstill.\r\n\r\n \n\nSecond é.".encode()
    path = write(tmp_path / "a.txt", content)
    write(tmp_path / "b.txt", b"Other.\n")
    assert read(path) == [("a.txt:1", "First,\nstill.\n"), ("a.txt:6", "Second é.")]
    whole = [("a.txt", "First,\nstill.\n\n \n\nSecond é."), ("b.txt", "Other.\n")]
    # A group is a column of the corpus' other files.
    assert read(tmp_path) == read(tmp_path, column="body", group="book") == whole


def test_a_number_sign_in_the_name_of_a_file_is_no_group(tmp_path):
    path = write(tmp_path / "c#.jsonl", as_lines({"text": f"{number}"} for number in range(200)))
    held_out = sum(in_validation(name, 0.2) for name, _ in read(path))
    assert 20 < held_out < 60


def test_empty_texts_and_lines_are_passed_over_and_still_counted(tmp_path):
    path = write(tmp_path / "a.jsonl", b'{"text": ""}\n\n{"text": " \\n"}\n{"text": "x"}')
    assert read(path) == [("a.jsonl:4", "x")]


def test_many_rows_of_parquet_keep_their_numbers(tmp_path):
    path = write(tmp_path / "a.parquet", as_lines({"text": f"t{n}"} for n in range(2000)), row_group_size=300)
    assert read(path) == [(f"a.parquet:{n + 1}", f"t{n}") for n in range(2000)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "a.jsonl: no text in it"),
        ("a.txt", b" \n\n", "a.txt: no text in it"),
        ("a.csv", b"text\nx\n", "a.csv: unknown kind of file; allowed: .jsonl, .jsonl.gz, .jsonl.zst, .parquet, .txt"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n', "a.jsonl line 2: not UTF-8 at byte 24 of the file"),
        ("a.jsonl.gz", b'{"text": "x"}\n{"text": "\xff"}\n', "a.jsonl.gz line 2: not UTF-8 at byte 24 of the file"),
        ("a.txt", b"\xef\xbb\xbfx\n\ny\xff", "a.txt line 3: not UTF-8 at byte 7 of the file"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "y', "a.jsonl line 2: not JSON"),
        ("a.jsonl", b'["x"]\n', "a.jsonl line 1: list; allowed: a JSON object a line"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl line 1: not JSON (maximum recursion depth exceeded"),
        ("a.jsonl", b'{"body": "x", "n": 1}\n', "a.jsonl row 1: no column 'text'; its columns: body, n; give "
         "corpora.sources.a.column=body"),
        ("a.jsonl", b'{"by": "x", "body": "xyz"}\n', "give the one with the text, like corpora.sources.a.column=body"),
        ("a.jsonl", b"{}\n", "its columns: none; give the one with the text, like corpora.sources.a.column=..."),
        ("a.parquet", b'{"body": "x", "n": 1}\n', "a.parquet: no column 'text'; its columns: body, n"),
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}\n', "a.jsonl row 2: column text is int; allowed: a text"),
        ("a.jsonl", b'{"text": null}\n', "a.jsonl row 1: column text is NoneType"),
        ("a.parquet", b'{"text": 3}\n', "a.parquet row 1: column text is int"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "a.jsonl row 1: half of a surrogate pair"),
    ],
)  # fmt: skip
def test_faults_are_named_with_their_place(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(CorpusError) as error:
        read(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_file_is_named(tmp_path, name, damage):
    path = write(tmp_path / name, LINES.replace(b"\r", b"") * 200)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"garbage" + content)
    with pytest.raises(CorpusError, match=f"{name}: (cannot be read|not readable)"):
        read(path)


def test_fingerprint_follows_names_bytes_and_columns_but_not_the_place(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        write(folder / "a.jsonl", LINES)
        write(folder / "b.jsonl", b'{"text": "x"}\n')
    assert file_fingerprint(one) == file_fingerprint(two)
    prints = {file_fingerprint(one), file_fingerprint(one, column="source"), file_fingerprint(one, group="source")}
    prints.add(file_fingerprint(one / "a.jsonl"))
    write(two / "b.jsonl", b'{"text": "y"}\n')
    prints.add(file_fingerprint(two))
    (one / "b.jsonl").rename(one / "c.jsonl")
    prints.add(file_fingerprint(one))
    assert len(prints) == 6
