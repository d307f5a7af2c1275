"""Numbers in tables as spreadsheets of all languages write them."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.points_file import read_table
from pipeline.study.folder import StudyError


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("r;loss\n0,25;2,715\n0,5;2,6e0", {"r": [0.25, 0.5], "loss": [2.715, 2.6]}),
        ("sep=;\nrun;loss\n001;inf\n1,0;2,71", {"run": ["001", "1,0"], "loss": [float("inf"), 2.71]}),
        ('D,note\n"1,536,000",a\n"12,000","b, c"', {"D": [1_536_000, 12_000], "note": ["a", "b, c"]}),
        ("r,note\n25%,5%\n.5 %,a", {"r": [0.25, 0.005], "note": ["5%", "a"]}),
        ("D;loss\n536.000;2,71", {"D": ["536.000"], "loss": [2.71]}),
        ("step,loss\n0.000,3\n1.000,2", {"step": [0.0, 1.0], "loss": [3, 2]}),
        ("step,loss\n500.000,3\n1000.000,2", {"step": [500.0, 1000.0], "loss": [3, 2]}),
        ("step,loss\n1.0,3\n2.0,2", {"step": [1.0, 2.0], "loss": [3, 2]}),
        ("# of May\nr,loss\n0.5,2.7", {"r": [0.5], "loss": [2.7]}),
        ("# of May\n# r,loss\n0.5,2.7e0", {"r": [0.5], "loss": [2.7]}),
        ('r,D\n30.5%,"1,048,576"\n5%,"2,048,576"', {"r": [0.305, 0.05], "D": [1_048_576, 2_048_576]}),
        ("r;D\n30,5%;1048576,0\n5%;2048576,0", {"r": [0.305, 0.05], "D": [1_048_576, 2_048_576]}),
    ],
)
def test_commas_in_numbers(lines: str, expected: dict[str, list[Any]], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines)
    table = read_table(tmp_path / "t.csv", {})
    assert {name: table[name].tolist() for name in table} == expected
    assert table.index[0] == 2 + lines.startswith(("sep=", "# of May"))


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("t.csv", "# of May\nr,loss\n\n0.5,2\n  \n0.6,3\n", [4, 6]),
        ("t.csv", '\nr,note,loss\n0.5,"two\n\nlines",2\n0.6,x,3\n', [3, 6]),
        ("t.tsv", 'r\tloss\r\n\r\n0.5\t2\r\n0.6\t"3"\r\n', [3, 4]),
        ("t.jsonl", '{"loss": 2}\n\n{"loss": NaN}\n', [1, 3]),
    ],
)
def test_rows_are_named_by_their_line(name: str, text: str, rows: list[int], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert read_table(tmp_path / name, {}, ["loss"]).index.tolist() == rows


def test_numbers_of_json_lines_are_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"run": "001", "date": 7, "loss": 3.0189229151312826}\n{"loss": 2}\n')
    table = read_table(tmp_path / "t.jsonl", {})
    assert table["loss"].tolist() == [3.0189229151312826, 2]
    assert table["date"].tolist()[0] == 7
    assert table["run"].tolist()[0] == "001"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("loss;D\n2,715;1", "2,715 may be 2.715 or 2715: remove the comma"),
        ("step,loss\n1.000,2\n2.000,1", "1.000 in column step may be 1 or 1000: write it without the point"),
        ("train/global_step;loss\n0;2,5\n500;2,4\n1.500;2,3", "1.500 in column train/global_step may be 1.5 or 1500"),
        ("r,loss, loss\n1,2,3", "two columns are called loss: rename one, or remove it"),
        ("r,loss\n0,25,2,71", "rows have more cells than there are names of columns, by 2: remove them; where"),
    ],
)
def test_commas_that_may_mean_two_things_are_refused(lines: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines)
    with pytest.raises(StudyError, match=re.escape(said)):
        read_table(tmp_path / "t.csv", {})
