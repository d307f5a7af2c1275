"""Words of the command line are read as they were meant, or refused in one line; never an error of the program."""

import io
import os
import random
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import load_question, read_question
from pipeline.question.messages import ConfigError, keys_of, type_of
from pipeline.question.overrides import key_and_value, readable
from pipeline.question.presets import groups
from pipeline.study.folder import question_yaml
from tests.pipeline.small import refused

TEXTS = [
    "a,b",
    "a=b",
    "a#b",
    "a[1].jsonl",
    "{a}",
    "001",
    "1e3",
    "true",
    "it's",
    'say "x"',
    "été",
    "a;b|c",
    "x(1)",
    "a\\",
]
FOLDER = ["experiment=own", "corpora.sources.general.path=general"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_the_text_that_was_given(text: str, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(question_yaml(read_question([*FOLDER, "corpora.sources.domain.path=a"])))
    word = f"corpora.sources.domain.path={text}"
    for question in (read_question([*FOLDER, word]), load_question(study, [word])):
        assert question.corpora.sources["domain"].path == text
    listed = f"tracking.tags=[{text},b]"
    if not set(text) & set(",[]{}'\"\\"):
        assert read_question([listed]).tracking.tags == [text, "b"]
    for quoted in ('"a, b"', "'a, b'"):
        assert key_and_value(f"path={quoted}", str) == ("path", "a, b")


def test_the_home_directory_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for text in ("~/law", '"~/law"', "'~/law'"):
        assert key_and_value(f"path={text}", str) == ("path", "/home/me/law")
        assert key_and_value(f"paths=[{text},a]", list[str]) == ("paths", ["/home/me/law", "a"])


ADVICE = {
    "mixture.domain_ratio=0.1,0.5": "mixture.domain_ratio=[0.1,0.5]",
    "evaluate.tasks=a,b": "evaluate.tasks=[a,b]",
    "law=dcpt,chinchilla": "law=[dcpt,chinchilla]",
    "corpora.sources.code.where={url: ^http, lang: [en,<de>]}": (
        'corpora.sources.code.where={url: "^http", lang: [en,"<de>"]}'
    ),
    "variants.x={ladder: [a b!]}": 'variants.x={ladder: ["a b!"]}',
}


@pytest.mark.parametrize("word", ADVICE)
def test_what_a_message_advises_is_read(word: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_question(["experiment=quickstart", word])
    (line,) = error.value.lines
    *_, advised = re.findall(r": ('.*')$", line)
    assert shlex.split(advised) == [ADVICE[word]]
    key = word.partition("=")[0]
    assert readable(ADVICE[word], type_of(key), is_group=key == "law")


def test_folders_and_files_of_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "studies" / "seed=1,a"
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text(question_yaml(read_question(["experiment=quickstart"])))
    for verb in ("status", "collect", "fit", "recommend", "report", "export", "track sync"):
        assert refused([*verb.split(), str(folder), *["format=trl"] * (verb == "export")], capsys).startswith(
            str(folder)
        )
    (tmp_path / "a,b=c.csv").write_text("N,D,loss\n1,2,x\n")
    for word in (f"points={tmp_path}/a,b=c.csv", f'points="{tmp_path}/a,b=c.csv"'):
        assert "loss" in refused(["fit", word, "law=chinchilla"], capsys)


@pytest.mark.parametrize("key", ["corpora.sources.domain.path", "corpora.tokenizer.path", "model.path"])
def test_a_path_that_does_not_exist_is_refused_by_plan(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"corpora.sources.{name}.path={tmp_path}" for name in ("general", "domain")]
    words = ["experiment=own", f"studies={tmp_path}", f"data={tmp_path}", *texts, f"{key}={tmp_path}/none"]
    assert refused(["plan", *words], capsys, 3).startswith(f"{key}: ")


TOO_SMALL = {
    "design.budget=1": "design.budget: 1 tokens; allowed: 3.07e+05 or more, the cost of the cheapest run",
    "design.ratios=[0.5]": "design.ratios: [0.5]; allowed: two or more",
    "design.lengths=[1e-9]": "design.lengths: no candidate can teach the target: all have D",
    "law=[]": "law: empty; allowed: one or more",
    "model.hidden_size=7": "model.hidden_size: 7 is not divisible by num_attention_heads 4",
    "model.num_attention_heads=0": "model.num_attention_heads: 0 of qwen2-0.7m; allowed: 1 or more",
    "model.num_key_value_heads=3": "model.num_key_value_heads: 3; allowed: a divisor of num_attention_heads 4",
    "model.head_dim=7": "model.hidden_size: 128, 7 a head of qwen2-0.7m; allowed: an even number",
}


@pytest.mark.parametrize("word", TOO_SMALL)
def test_what_allows_no_run_is_refused_by_plan(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=quickstart", f"studies={tmp_path}", f"data={tmp_path}", word]
    assert refused(["plan", *words], capsys, 2).startswith(TOO_SMALL[word])


NUMBERS = [
    *("0", "-1", "1", "7", "0.5", "1.5", "1e28", "1e300", "-1e300", "1e-300", "1e9", "1e400", "nan", "inf"),
    *("999999999999999999999999999999", "0x10", "1_000"),
]
VALUES = [
    *("null", "true", "''", "abc", "[]", "{}", "[0]", "[-1]", "[0.5,0.5]", "[1e300]", "[nan]", "[a,b]", "[null]"),
    *("[[1]]", "{a: 1}", "{a: null}", "{a: {b: 1}}", "{general: 1}", "[{}]", "[{steps: 1}]", "[{a: 1}]", "???"),
    *("${seed}", "${no.such}", "${oc.env:HOME}", "~/x", "a,b", "a=b", "'a b'", '"x\'y"', "[", "}", "$(touch x)"),
    *("../..", "/etc/passwd", "/dev/null", "a#b", "é", "-", "--x", "'a\nb'", "range(1,3)", "choice(1,2)", "glob(*)"),
    *("int(3)", "'\\0'", "x" * 300, "[" * 60 + "]" * 60, "[" * 5000, "x" * 20000),
]
EXPERIMENTS = ["quickstart", "quickstart mixture=ratios", "own", "quickstart goal=limited-data goal.domain_tokens=3e5"]


def _words(draw: random.Random) -> Iterator[str]:
    """Words of a line: keys, some misspelt, with values of any kind, and groups."""
    keys = [re.sub(r"\.\*", lambda _: draw.choice([".0", ".a", ".general", "[0]", ""]), key) for key, *_ in keys_of()]
    yield from f"experiment={draw.choice(EXPERIMENTS)}".split()
    for _ in range(draw.choice([1, 1, 2, 3])):
        if draw.random() < 0.1:
            group = draw.choice(list(groups()))
            yield draw.choice(["", "", "~", "+"]) + f"{group}={draw.choice([*groups()[group], *VALUES])}"
            continue
        key = draw.choice(keys)
        if draw.random() < 0.1:
            at = draw.randrange(len(key))
            key = draw.choice([key[:at] + key[at + 1 :], key[:at] + draw.choice("xq.=[ ") + key[at:], f"~{key}"])
        yield f"{draw.choice(['', '', '', '', '+', '++'])}{key}={draw.choice(draw.choice([NUMBERS, VALUES]))}"


@pytest.mark.slow
def test_no_line_of_overrides_ends_as_an_error_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OVERRIDES=10000 tries as many lines."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(39)
    for number in range(int(os.environ.get("OVERRIDES", "100"))):
        words, began = list(_words(draw)), time.process_time()
        with redirect_stdout(shown := io.StringIO()), redirect_stderr(told := io.StringIO()):
            code = run(["plan", *words])
        assert code in (0, 2, 3), (number, words, told.getvalue())
        assert "--debug" not in told.getvalue(), (number, words)
        assert code == 0 or told.getvalue().strip(), (number, words)
        # The next command repeats the words.
        assert not re.search(r"\b(nan|inf)\b", shown.getvalue().split("\nnext: ")[0]), (number, words)
        assert number == 0 or time.process_time() - began < 5, (number, words)
    assert list(tmp_path.iterdir()) == []
