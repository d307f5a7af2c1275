"""Files are whole after any failure."""

import os

import pytest

from training.durable import (
    FileError,
    append_flushed,
    cut_lines,
    folder_to_fill,
    leading_lines,
    locked_folder,
    read_json,
    read_lines_whole,
    whole_folder,
    write_whole,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_write_whole_replaces_and_keeps_line_ends(tmp_path):
    path = tmp_path / "a.txt"
    write_whole(path, "old\r\n")
    write_whole(path, "né\r\n")
    assert path.read_bytes() == "né\r\n".encode()
    write_whole(path, b"\xff")
    assert path.read_bytes() == b"\xff"
    assert names(tmp_path) == ["a.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_append_adds_and_creates_and_all_lines_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    append_flushed(path, '{"a": 1}\n')
    append_flushed(path, '{"a": "é"}\n')
    assert read_lines_whole(path) == [{"a": 1}, {"a": "é"}]
    path.write_bytes(b"")
    assert read_lines_whole(path) == []
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_lines_whole(path)


@pytest.mark.parametrize("torn", ['{"a": 2', '{"a": 2}', "{", "é".encode()[:1].decode("latin-1")])
def test_an_unfinished_last_line_is_left_out(tmp_path, torn):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + torn.encode("latin-1"))
    assert read_lines_whole(path) == [{"a": 1}]


@pytest.mark.parametrize("bad", [b'{"a": 2', b"\xff"])
def test_a_malformed_finished_line_is_named(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + bad + b'\n{"a": 3}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl line 2: not a JSON line"):
        read_lines_whole(path)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda path: path.mkdir(), "a folder, not a file"),
        (os.mkfifo, "a pipe or device, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "a pipe or device, not a file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.write_bytes(b"\xff{}"), "not JSON"),
        (lambda path: path.write_bytes(b"[" * 10**5), r"not JSON \(nested too deeply\)"),
        (lambda path: path.write_text("1" * 5000), "not JSON"),
        (lambda path: path.write_text(r'{"a": "\ud800"}'), "not JSON .*surrogates not allowed"),
        (lambda path: path.write_text("[1]"), r"\[1\] is not a JSON object"),
    ],
    ids=range(9),
)
def test_whatever_is_at_a_path_is_one_line(tmp_path, make, wrong):
    path = tmp_path / "a.json"
    make(path)
    with pytest.raises(FileError, match=f"^{path}: {wrong}") as error:
        read_json(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (os.mkfifo, "a pipe or device, not a file"),
        (lambda path: path.mkdir(), "a folder, not a file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
)
def test_only_a_file_has_lines(tmp_path, make, wrong):
    path = tmp_path / "a.jsonl"
    make(path)
    for change in (lambda: append_flushed(path, "{}\n"), lambda: cut_lines(path, 1), lambda: leading_lines(path, [{}])):
        with pytest.raises(FileError, match=f"^{path}: {wrong}$"):
            change()


def test_a_whole_folder_appears_at_the_end(tmp_path):
    folder = tmp_path / "deep" / "store"
    with whole_folder(folder) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "a").write_text("x")
        assert not folder.exists()
    assert (folder / "inner" / "a").read_text() == "x"
    assert names(folder.parent) == ["store"]


def test_a_failed_whole_folder_leaves_nothing(tmp_path):
    def fail():
        with whole_folder(tmp_path / "store") as temporary:
            (temporary / "a").write_text("x")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(tmp_path) == []


def test_a_whole_folder_never_replaces(tmp_path):
    (tmp_path / "store").mkdir()
    with pytest.raises(FileExistsError), whole_folder(tmp_path / "store"):
        pass

    def overtaken():
        with whole_folder(tmp_path / "late") as temporary:
            (temporary / "a").write_text("mine")
            (tmp_path / "late").mkdir()
            (tmp_path / "late" / "a").write_text("theirs")

    with pytest.raises(FileExistsError):
        overtaken()
    assert (tmp_path / "late" / "a").read_text() == "theirs"
    assert names(tmp_path) == ["late", "store"]


def test_a_folder_in_which_nothing_was_written_is_removed(tmp_path):
    folder = tmp_path / "studies" / "one"
    with pytest.raises(ZeroDivisionError), folder_to_fill(folder), locked_folder(folder):
        1 // len(names(folder)[1:])
    assert not (tmp_path / "studies").exists()
    with folder_to_fill(folder):
        (folder / "file").write_text("kept")
    (folder / "file").unlink()
    # It was there before.
    with folder_to_fill(folder), folder_to_fill(folder / "two"):
        pass
    assert folder.exists()
    assert not (folder / "two").exists()
