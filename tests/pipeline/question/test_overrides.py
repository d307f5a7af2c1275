"""Words of the command line are read as they were meant, or refused in one line; never an error of the program."""

import dataclasses
import io
import os
import random
import re
import shlex
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.registry import load_question, read_question
from pipeline.question.messages import ConfigError, keys_of, type_of
from pipeline.question.overrides import key_and_value, readable
from pipeline.question.presets import groups
from pipeline.question.schema import LawConfig
from pipeline.study.folder import question_yaml
from tests.pipeline.cli.trainer_logs import trainer_state
from tests.pipeline.show.report.report_study import make_study
from tests.pipeline.small import limited, refused
from training.corpora.source import Source

TEXTS = [
    *("a,b", "a=b", "a#b", "a[1].jsonl", "{a}", "001", "1e3", "true"),
    *("it's", 'say "x"', "été", "a;b|c", "x(1)", "a\\"),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart as its study.yaml has it."""
    path = tmp_path_factory.mktemp("stored") / "study.yaml"
    path.write_text(question_yaml(read_question(["experiment=quickstart"])))
    return path


def test_a_whole_number_may_have_an_exponent(stored: Path) -> None:
    words = ["target.steps=1.2e3", "confirm.seeds=3.0"]
    for question in (read_question(words), load_question(stored, words)):
        assert (question.target.steps, question.confirm.seeds) == (1200, 3)
    assert readable("sizes=[1e3, 2, 4.5e6]", list[int]) == "sizes=[1000,2,4500000]"
    with pytest.raises(ConfigError, match=r"target\.steps: 1\.5; allowed: a whole number"):
        read_question(["target.steps=1.5"])


def test_an_existing_study_takes_a_word_of_the_schedule(stored: Path) -> None:
    word = "schedule@target.schedule=wsd"
    before, changed = load_question(stored), load_question(stored, [word])
    assert changed.target.schedule == read_question([word]).target.schedule != before.target.schedule
    assert changed.continual.schedule == before.continual.schedule, "of the runs that are there"
    pieces = "target.schedule={pieces: [{shape: constant, start: 1.0}, {shape: linear, end: 0.1, share: 0.2}]}"
    for word, line in (
        ("schedule@target.schedule=wdd", r"schedule: 'wdd' does not exist; .*did you mean wsd\?"),
        ("schedule@target.shedule=wsd", r"target\.shedule: no such key; did you mean target\.schedule\?"),
        ("schedule=wsd", r"of which phase\? Give schedule@target\.schedule=wsd"),
        ("target.schedule=wsd", f"'wsd'; allowed: schedule@target.schedule=wsd, or .*'{re.escape(pieces)}'$"),
    ):
        with pytest.raises(ConfigError, match=line):
            load_question(stored, [word])
    assert len(load_question(stored, [pieces]).target.schedule.pieces) == 2


def test_text_is_the_text_that_was_given(stored: Path) -> None:
    of = {f"text-{number}": text for number, text in enumerate(TEXTS)}
    words = [f"corpora.sources={{{name}: {{kind: files, path: a}}}}" for name in of]
    words += [f"corpora.sources.{name}.path={text}" for name, text in of.items()]
    for question in (read_question(["experiment=quickstart", *words]), load_question(stored, words)):
        assert {name: question.corpora.sources[name].path for name in of} == of
    for text in TEXTS:
        if not set(text) & set(",[]{}'\"\\"):
            assert key_and_value(f"tags=[{text},b]", list[str]) == ("tags", [text, "b"])
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


@pytest.mark.parametrize("word", ["mixture.domain_ratio=[1,]", "evaluate.tasks=[a,,b]", "variants.x={seed: 1,}"])
def test_a_comma_without_an_element_is_refused(word: str) -> None:
    key, _, value = word.partition("=")
    with pytest.raises(ConfigError) as error:
        read_question(["experiment=quickstart", word])
    assert error.value.lines == [f"{key}: {value} lacks an element beside a comma; remove the comma"]


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
def test_a_path_that_does_not_exist_is_refused_by_plan(key: str, tmp_path: Path, capsys) -> None:
    texts = [f"corpora.sources.{name}.path={tmp_path}" for name in ("general", "domain")]
    words = ["experiment=own", f"studies={tmp_path}", f"data={tmp_path}", *texts, f"{key}={tmp_path}/none"]
    assert refused(["plan", *words], capsys, 3).startswith(f"{key}: ")


ODD = {
    "++law={loss: loss / 0}": "law: \"{'loss': 'loss / 0'}\" does not exist; allowed: ",
    "continual.part=1e400": "continual.part: inf; allowed: above 0, up to 1",
    "continual.part=nan": "continual.part: nan; allowed: above 0, up to 1",
    "+continual=${seed}": "+continual=${seed}: there is such a key; give it without +",
    "continual=${seed}": "continual: 0; allowed: {key: value, ...} with keys steps,",
    "pretrain=???": "pretrain: has no value; give pretrain=...",
    f"launcher.slurm.gpus={'9' * 5000}": f"launcher.slurm.gpus: '{'9' * 99}... (5,002 characters); allowed: a number",
    f"tracking={'x' * 5000}": f"tracking: '{'x' * 99}... (5,002 characters) does not exist; allowed: none, wandb",
    "pretrain.evaluation.decay=1e400": "pretrain.evaluation.decay: inf; allowed: 0 to 1,000",
    "rehearsal=-1": "rehearsal: '-1'; allowed: true or false",
    "rehearsal_changes=${no.such}": "rehearsal_changes: Interpolation key 'no.such' not found",
    "parallel=[[1]]": "parallel: '[[1]]' does not exist; allowed: ddp, ",
    "model=a/b": "model: 'a/b' does not exist; allowed: ",
    "mixture=???": "mixture: '???' does not exist; allowed: chosen, ",
    "design=${seed}": "design: '${seed}' does not exist; allowed: active, ",
    "schedule=wsd": "schedule=wsd: of which phase? Give schedule@target.schedule=wsd, or another phase in place of",
    "+schedule={null: a}": "schedule: '{null: a}' does not exist; allowed: constant, ",
    "+schedule=wsd": "+schedule=wsd: of which phase? Give schedule@target.schedule=wsd, or another phase in place of",
    "pretrain.phases.0.share=1": (
        "pretrain.phases.0.share: the list has no such element; give the whole list, pretrain.phases=[...]"
    ),
    "mixture.domain_ratio={a: 1}": "mixture.domain_ratio: {'a': 1}; allowed: a list, [...]",
    "~launcher.slurm.cpus={a: 1}": "~launcher.slurm.cpus: cannot be deleted; leave it out for its default, or set it:",
    "~ptimizer=1": "ptimizer: no such key; did you mean optimizer?",
    f"a[0]={'x' * 9000}": f"a[0]={'x' * 95}... (9,005 characters): not key=value, of 10,000 characters at most",
}


@pytest.mark.parametrize("word", ODD)
def test_an_odd_value_is_one_short_line(word: str, stored: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_question(["experiment=quickstart", word])
    (line,) = error.value.lines
    assert line.startswith(ODD[word])
    assert len(line) < 700
    with pytest.raises(ConfigError) as error:
        load_question(stored, [word])
    (line,) = error.value.lines
    assert len(line) < 700


@pytest.mark.parametrize("value", ["nowhere", "[1]", "{a: 1}"])
def test_a_study_refuses_an_experiment_that_there_is_not(value: str, stored: Path) -> None:
    load_question(stored, ["experiment=quickstart"])
    with pytest.raises(ConfigError, match=r"^experiment: .* does not exist; allowed: .*quickstart"):
        load_question(stored, [f"experiment={value}"])


def test_a_law_or_split_of_a_table_is_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "a.csv"
    table.write_text("N,D,loss\n" + "".join(f"{n},{d},{3 / n + 1 / d}\n" for n in (1, 2, 3) for d in (1, 2, 3)))
    for verb, *words in (
        ["fit", "law=${no.such}"],
        ["fit", "law=openai", "by=${no.such}"],
        ["predict", "tokens=1e9", "law=${no.such}"],
        ["predict", "tokens=1e9", "law=???"],
    ):
        assert run([verb, f"points={table}", *words]) == 2
        key, _, value = words[-1].partition("=")
        reason = "Interpolation key 'no.such' not found" if "no" in value else f"has no value; give {key}[0]=..."
        assert f"{key}[0]: {reason}" in capsys.readouterr().err


TOO_SMALL = {
    "design.budget=1": "design.budget: 1 tokens; allowed: 3.08e+05 or more, the cost of the cheapest run",
    "design.ratios=[0.5]": "design.ratios: [0.5]; allowed: two or more",
    "design.lengths=[1e-9]": "design.lengths: no candidate can teach the target: all have D",
    "law=[]": "law: empty; allowed: one or more",
    "model.hidden_size=7": "model.hidden_size: 7 is not divisible by num_attention_heads 4",
    "model.num_attention_heads=0": "model.num_attention_heads: 0 of qwen2-0.7m; allowed: 1 or more",
    "model.num_key_value_heads=3": "model.num_key_value_heads: 3; allowed: a divisor of num_attention_heads 4",
    "model.head_dim=7": "model.hidden_size: 128, 7 a head of qwen2-0.7m; allowed: an even number",
}


def test_the_least_budget_that_a_refusal_names_is_accepted(tmp_path: Path, capsys) -> None:
    """The cheapest run of a twentieth of the length is evaluated once, and laws need two lengths."""
    words = ["plan", "experiment=own", f"studies={tmp_path}", f"data={tmp_path}", "large.tokens=1e6"]
    words += ["corpora=installed-python"]
    for budget in ("1e-4", "0.0149"):
        line = refused([*words, f"large.budget={budget}"], capsys, 2)
        assert line.startswith(f"large.budget: {float(budget):g} of the run asked about; allowed: ")
        assert "the cheapest run that is evaluated at a second length costs, or shorter runs in large.lengths" in line
        (least,) = re.findall(r"allowed: (\S+) or more", line)
    assert run([*words, f"large.budget={least}"]) == 0


@pytest.mark.parametrize("word", TOO_SMALL)
def test_what_allows_no_run_is_refused_by_plan(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=quickstart", f"studies={tmp_path}", f"data={tmp_path}", word]
    assert refused(["plan", *words], capsys, 2).startswith(TOO_SMALL[word])


NUMBERS = [
    *("0", "-1", "1", "7", "0.5", "1.5", "1e28", "1e300", "-1e300", "1e-300", "1e9", "1e400", "nan", "inf", "-inf"),
    *("0x10", "1_000", "-0.0", "1e-320", ".5", "1,5", "٣", "²", "9" * 30, "9" * 5000, "01", "+1"),
]
VALUES = [
    *("null", "true", "''", "", "abc", "[]", "{}", "[0]", "[-1]", "[0.5,0.5]", "[1e300]", "[nan]", "[a,b]", "[null]"),
    *("[[1]]", "{a: 1}", "{a: null}", "{a: {b: 1}}", "{general: 1}", "[{}]", "[{steps: 1}]", "[{a: 1}]", "???"),
    *("${seed}", "${no.such}", "${oc.env:HOME}", "~/x", "a,b", "a=b", "'a b'", '"x\'y"', "[", "}", "$(touch x)"),
    *("../..", "/etc/passwd", "/dev/null", "/dev/zero", "a#b", "é", "-", "--x", "'a\nb'", "range(1,3)", "choice(1,2)"),
    *("int(3)", "'\\0'", "x" * 300, "[" * 60 + "]" * 60, "[" * 5000, "x" * 20000, "glob(*)", "[0.2,true]", "[0.1,a]"),
    *("{1: 2}", "{true: 1}", "{null: a}", "{'': 1}", "[0.5,{a: 1}]", "\ufeffa", "a\u202eb", "\ud800", "“a”", "[1,]"),
    *("{loss: log loss}", "{loss: loss / 0}", "{D: step * nan}", "{N: loss, N: r}", "{eval_loss: domain}", "all"),
    "none",
]
EXPERIMENTS = ["quickstart", "quickstart mixture=ratios", "own", "quickstart goal=limited-data goal.domain_tokens=3e5"]
COMMANDS = {
    # A verb, what it reads, and keys of its own beside those of a question.
    "plan": (14, "", ""),
    "plan --cfg job": (1, "", ""),
    "status": (1, "{study}", ""),
    "collect": (1, "{study}", ""),
    "recommend": (3, "{study}", ""),
    "train": (1, "{study}", "run retry_failed dry_run"),
    "prepare": (1, "experiment=own corpora.sources.general.path=none corpora.sources.domain.path=none", ""),
    "evaluate": (1, "{study}", "evaluate.tasks evaluate.limit"),
    "confirm": (2, "{study}", ""),
    "refine": (1, "{study}", ""),
    "continue": (1, "{study}", ""),
    "cancel": (1, "{study}", ""),
    "track sync": (1, "{study}", ""),
    "tables": (1, "{study}", "points tables.points"),
    "export": (3, "{study} format=trl", "format output devices micro_batch"),
    "predict": (3, "{study} domain_ratio=0.3", "domain_ratio target.steps law"),
    "predict points": (2, "points={table} tokens=1e9", "tokens law columns corpus points"),
    "follow": (3, "{study} {log}", "domain_ratio watch losses columns run losses.x columns.loss"),
    "import": (
        4,
        "{log} studies={imported} name=i domain_ratio=0.3 tokens_per_step=2 non_embedding=1e6 peak=1e-3",
        "domain_ratio tokens_per_step non_embedding peak steps warmup decay decay_steps final model_name role "
        "sequence_length seed loss_before loss_before.general name general domain losses columns runs",
    ),
    "fit": (
        3,
        "points={table} law=openai bootstrap=0",
        "law columns corpus every fix fix.E unknown weights by seed out points columns.loss",
    ),
    "laws": (1, "", "law"),
    "model": (1, "{model}", "data"),
    "advise": (1, "{model} dry_run=true", "data"),
}
"""Line of a verb -> (how often it is drawn, what it is given, keys of its own)."""


def _words(draw: random.Random, own: Sequence[str] = ()) -> Iterator[str]:
    """Words of a line: keys, some misspelt, with values of any kind, and groups."""
    keys = [re.sub(r"\.\*", lambda _: draw.choice([".0", ".a", ".general", "[0]", ""]), key) for key, *_ in keys_of()]
    sections = {key.partition(".")[0] for key in keys}
    keys = [key for key in keys if key.startswith(draw.choice([*sections]))] or keys
    for _ in range(draw.choice([1, 1, 2, 3, 5])):
        if draw.random() < 0.1:
            group = draw.choice(list(groups()))
            yield draw.choice(["", "", "~", "+", "++"]) + f"{group}={draw.choice([*groups()[group], *VALUES])}"
            continue
        key = draw.choice(own) if own and draw.random() < 0.6 else draw.choice(keys)
        if draw.random() < 0.1:
            at = draw.randrange(len(key))
            typed = draw.choice(["x", "q", ".", "=", "[", " ", "é", "'", "@", "\t"])
            key = draw.choice(
                [key[:at] + key[at + 1 :], key[:at] + typed + key[at:], f"~{key}", f"{key}.a", f"{key}@b"]
            )
        yield f"{draw.choice(['', '', '', '', '+', '++', '~'])}{key}={draw.choice(draw.choice([NUMBERS, VALUES]))}"


@pytest.fixture(scope="module")
def world(brought: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A study with an answer, a log, a table and a model."""
    folder = tmp_path_factory.mktemp("world")
    study, question = make_study(folder / "studies", bootstrap=4, law={"transfer-anchored": LawConfig()})
    nowhere = {name: Source("files", path=str(folder / "none")) for name in question.corpora.sources}
    question.corpora = dataclasses.replace(question.corpora, sources=nowhere)
    (study.folder / "study.yaml").write_text(question_yaml(question))
    shutil.copytree(study.folder, folder / "kept")
    trainer_state(folder / "log", 0.3)
    (folder / "table.csv").write_text(
        "run,step,corpus,N,D,loss\n" + "".join(f"a,{s},domain,1,{s},{4 / s}\n" for s in range(1, 9))
    )
    model = shutil.copytree(brought, folder / "base")
    places = {"study": study.folder, "kept": folder / "kept", "log": folder / "log", "table": folder / "table.csv"}
    return {**places, "model": model, "imported": folder / "imported"}


def _lines(draw: random.Random, world: Mapping[str, Path]) -> Iterator[tuple[str, list[str]]]:
    """Lines of all verbs: the verb, and its words."""
    verbs = list(COMMANDS)
    while True:
        (verb,) = draw.choices(verbs, [often for often, *_ in COMMANDS.values()])
        _, given, own = COMMANDS[verb]
        words = [word.format(**world) for word in given.split()]
        words += draw.choice(EXPERIMENTS).replace("quick", "experiment=quick", 1).split() if not given else []
        if draw.random() < 0.03:
            words = draw.sample(words, len(words) // 2)
        words += _words(draw, own.split())
        # What asks for minutes of fits, or for a command that does not end, is no hang.
        words = [word for word in words if not re.match(r"\W*(bootstrap|watch|law=.*transfer|law=.*dynam)", word)]
        yield verb, [*verb.removesuffix(" points").split(), *words]


@pytest.mark.slow
def test_no_line_of_overrides_ends_as_an_error_of_the_program(world: dict[str, Path], tmp_path, monkeypatch) -> None:
    """OVERRIDES=10000 tries as many lines, SEED=2 others."""
    monkeypatch.chdir(tmp_path)
    wrong, draw = [], random.Random(int(os.environ.get("SEED", "39")))
    for number, (verb, words) in zip(range(int(os.environ.get("OVERRIDES", "40"))), _lines(draw, world)):
        began, before = time.process_time(), _listing(world, tmp_path)
        with redirect_stdout(shown := io.StringIO()), redirect_stderr(told := io.StringIO()), limited(60):
            try:
                code = run(words)
            except BaseException:
                code, _ = 70, traceback.print_exc(file=told)
        seconds, error = time.process_time() - began, told.getvalue()
        after = _listing(world, tmp_path)
        slow = seconds > 5 and number and "output=" not in " ".join(words) and "sync" not in words
        odd_number = verb == "plan" and re.search(r"\b(nan|inf)\b", shown.getvalue().split("\nnext: ")[0])
        problems = {
            f"exit code {code}": code not in (0, 1, 2, 3) or (code == 1 and verb == "plan"),
            "error of the program": "--debug" in error or "Traceback" in error,
            "no word": code and not (error + shown.getvalue()).strip(),
            "nan": odd_number,
            f"{seconds:.1f} s": slow,
            f"changed {sorted(dict(before.items() ^ after.items()))}": code in (2, 3) and before != after,
        }
        if found := [problem for problem, holds in problems.items() if holds]:
            wrong.append(f"{number} {found} {[word[:200] for word in words]} {error[-700:]}")
            print(wrong[-1], flush=True)
        if before != after:
            shutil.rmtree(world["study"])
            shutil.copytree(world["kept"], world["study"])
            shutil.rmtree(world["imported"], ignore_errors=True)
            for path in tmp_path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not wrong, "\n".join(wrong)


def _listing(world: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Every file of the world, and of the folder in which the lines are given, with its size."""
    paths = [path for root in (world["kept"].parent, folder) for path in root.rglob("*")]
    # A report is written after a failure too, since what is known is shown.
    return {str(path): path.lstat().st_size for path in paths if not path.is_dir() and path.name != "report.html"}
