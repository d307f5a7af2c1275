"""Corpora from the command line: presets on real text, validation sets from models, mistakes in one line each."""

import contextlib
import gzip
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from pipeline.cli.main import run
from pipeline.goals.planning import planned_or_estimated
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.cost import budget_note, short_note
from pipeline.plan.prepared_corpora import prepare_corpora, progress_bar, sources_of
from pipeline.plan.runs import continual_run, data_folder, estimate, grid_runs, planned_runs
from pipeline.plan.token_supply import remedies, repeat_lines, short_ratios, supply_problems
from pipeline.plan.validation_noise import noise_lines
from pipeline.plan.write import write_plan
from pipeline.question.data import same_texts
from pipeline.question.messages import ConfigError
from pipeline.steps import next_steps
from pipeline.study.context import Context, context_of
from pipeline.study.folder import Study
from tests.pipeline.small import refused, small_words, study_in, with_tokens
from training.corpora.manifest import Manifest
from training.corpora.readers import open_reader

LINKED = "corpora.sources.domain.path=law-link.jsonl"
CORPORA = Path(os.environ.get("CPTLAW_CORPORA", "../shared/corpora"))


@pytest.mark.slow
@pytest.mark.skipif(not (CORPORA / "law.jsonl.gz").exists(), reason=f"no text in CPTLAW_CORPORA ({CORPORA})")
def test_the_six_domains_and_general_text_are_prepared_together(tmp_path: Path) -> None:
    domains = ("general", "code", "math", "law", "chemistry", "music", "medical")
    words = ["corpora=dcpt-six", "corpora.domain=law", f"corpora.folder={CORPORA}", f"data={tmp_path}"]
    words += ["corpora.tokenizer.vocabulary=300", "corpora.validation_ratio=0.2"]
    words += [f"corpora.sources.{name}.max_bytes={300_000 if name in ('law', 'code') else 200_000}" for name in domains]
    question = read_question([*words, "corpora.sources.law.min_characters=400"])
    lines: list[str] = []
    manifest = prepare_corpora(question, lines.append)
    assert set(manifest.corpora) == set(domains)
    for name in domains:
        assert manifest.store(name).tokens("train") > 10_000
        assert manifest.store(name).tokens("validation") > 0
    assert manifest.corpora["law"].dropped["min_characters"] > 100
    assert any(line.startswith("law: kept ") for line in lines)
    assert prepare_corpora(question, lines.append) == manifest


def test_text_shorter_than_the_runs_read_is_said_before_it_is_tokenised(tmp_path: Path) -> None:
    words = ["experiment=own", "model=qwen2-0.05m", "ladder=[]", "mixture.domain_ratio=[0.5]", "target.steps=200"]
    row = b'{"text": "%s"}' % (b"x" * 89_900)
    row += b" " * (90_000 - len(gzip.compress(row, 0)))
    for name, text in (("general.txt", b"x" * 9_000_000), ("domain.jsonl.gz", gzip.compress(row, 0))):
        (tmp_path / name).write_bytes(text)
        words.append(f"corpora.sources.{name.partition('.')[0]}.path={tmp_path / name}")
    words.append("continual.steps=120")
    planned = planned_or_estimated(context_of(read_question(words)))
    (line,) = planned.sizes
    guess = "compressed files of domain (.gz, .zst, .parquet) are taken for 3 times their bytes"
    start = "tokens, estimated from file sizes or max_bytes at 3 bytes each: "
    assert line == f"{start}general some 3 M, domain some 90 k; {guess}"
    (line,) = planned.text_lines()
    start, end = line.split(" tokens, continual-")
    # Without those to validate.
    assert start == "note, estimated: corpora.sources.domain: 85,376"
    fewer = "give more text, fewer steps (continual.steps=66), or allow_repeats=true; after prepare, plan refuses this"
    assert end.endswith(f"would read 153,600, 1.80 epochs; {fewer}")
    shorter = planned_or_estimated(context_of(read_question([*words, "corpora.sources.general.max_bytes=90000"])))
    assert "general some 30 k," in shorter.sizes[0]
    hub = [*words[:-2], "corpora.sources.domain={kind: hub, name: owner/set}", words[-1]]
    first, second = planned_or_estimated(context_of(read_question(hub))).sizes
    assert first.endswith(": general some 3 M")
    assert second.startswith(
        "tokens of domain: not known before prepare, taken for enough; give corpora.sources.domain."
    )
    steps = ["target.steps=50000", "pretrain.steps=200"]
    installed = read_question(["experiment=quickstart", f"data={tmp_path / 'none'}", *steps])
    planned = planned_or_estimated(context_of(installed))
    assert planned.sizes[0].endswith(": general some 4 M, code some 2.7 M")
    assert all(line.startswith("note, estimated: corpora.sources.") for line in planned.text_lines())
    assert len(planned.text_lines()) == 2
    repeated = planned_or_estimated(context_of(read_question([*words, "allow_repeats=true"])))
    assert "note, estimated: corpora.sources.domain: continual-" in repeated.text_lines()[0]


@pytest.mark.parametrize("suffix", ["jsonl.gz", "parquet"])
def test_plan_reads_the_first_row_of_each_file(suffix: str, texts: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "law"
    folder.mkdir()
    for name, column in (("a", "text"), ("b", "body")):
        table, path = pd.DataFrame({column: ["some text"] * 3, "n": 1}), folder / f"{name}.{suffix}"
        table.to_parquet(path) if suffix == "parquet" else table.to_json(path, orient="records", lines=True)
    words = [*small_words(texts, tmp_path), f"corpora.sources.domain.path={folder}"]
    assert run(["plan", *words]) == 0
    proposed, shown = "corpora.sources.domain.column=body", capsys.readouterr().out
    (note,) = (of for of in shown.splitlines() if "no column" in of)
    assert note.startswith(f"note: {folder / f'b.{suffix}'}")
    assert note.endswith(f"no column 'text'; its columns: body, n; give {proposed}; prepare refuses this")
    assert "next:" not in shown  # The other file has no such column.
    line = refused(["prepare", *words], capsys, 3)
    assert f"{line}; prepare refuses this" == note.removeprefix("note: ")
    # A row that a filter leaves out need not have it.
    assert run(["plan", *words, "corpora.sources.domain.where={n: [2]}"]) == 0
    assert ("no column" in capsys.readouterr().out) == (suffix == "parquet")
    next(folder.glob("a.*")).unlink()
    assert run(["plan", *words, "corpora.sources.domain.column=text"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(f" {proposed}\n")
    (folder / f"b.{suffix}").unlink()
    table, path = pd.DataFrame({"body": ["some text"], "title": ["a title"]}), folder / f"c.{suffix}"
    table.to_parquet(path) if suffix == "parquet" else table.to_json(path, orient="records", lines=True)
    assert run(["plan", *words, "corpora.sources.domain.column=text"]) == 0
    shown = capsys.readouterr().out
    assert f"give the one with the text, like {proposed}; prepare refuses this" in shown
    assert "next:" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("more", [["target.steps=40000"], ["target.steps=40000", "allow_repeats=true"], []])
def test_what_is_said_of_text_before_prepare_is_said_after_it(more: list[str], texts, tmp_path, capsys) -> None:
    words = small_words(texts, tmp_path, "mixture=chosen", *more, without=("mixture.",))

    def notes(verb: str) -> list[str]:
        with contextlib.suppress(SystemExit):
            run([verb, *words])
        shown = capsys.readouterr()
        lines = [line for line in (shown.out + shown.err).splitlines() if "corpora.sources" in line]
        return [re.sub(r"\S+-seed\S+|\d[\d.,]*", "#", line) for line in lines if "next:" not in line]

    before = notes("plan")
    assert before
    estimated = [line.replace("note, estimated:", "note:") for line in before]
    assert all(line.startswith("note: ") for line in estimated)
    prepared = notes("prepare")
    assert prepared[: len(before)] == before
    after = notes("plan")
    assert estimated in (after, [f"note: {line}; after prepare, plan refuses this" for line in after])


def test_sources_are_read_from_the_folder_and_the_question(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    hub = "{kind: hub, name: owner/set, subset: en, split: test, revision: v1, column: body}"
    words = ["experiment=own", f"corpora.folder={tmp_path}", "corpora.sources.general.path=a.jsonl"]
    where = 'corpora.sources.domain.where={lang: [en, de], meta.kind: "^book"}'
    question = read_question([*words, f"corpora.sources.domain={hub}", where])
    sources = sources_of(question)
    assert sources["general"].path == str(tmp_path / "a.jsonl")
    domain = sources["domain"]
    assert (domain.kind, domain.name, domain.subset, domain.split) == ("hub", "owner/set", "en", "test")
    assert (domain.revision, domain.column) == ("v1", "body")
    assert domain.where == {"lang": ["en", "de"], "meta.kind": "^book"}


def test_all_mistakes_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=own", f"studies={tmp_path}", "corpora.sources.general.path=/none"]
    words += [
        "corpora.validation=/nowhere",
        "corpora.sources.domain={kind: web, min_characters: -1, where: {lang: '('}}",
    ]
    assert run(["prepare", *words]) == 3
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.split(":")[0].removeprefix("corpora.") for line in lines] == [
        *("sources.general.path", "validation", "validation"),
        *("sources.domain.kind", "sources.domain.min_characters", "sources.domain.where.lang"),
    ]
    assert run(["prepare", "validation", "experiment=quickstart", f"studies={tmp_path}", "validation.keep=5001"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["validation.keep", "corpora.validation", "validation.models"]


def test_a_progress_bar_is_for_terminals_only() -> None:
    with progress_bar(Console(force_terminal=False)) as bar:
        assert bar is None
    console = Console(force_terminal=True, record=True, width=100)
    with progress_bar(console) as bar:
        bar("law", 12_000_000, 0.25)
        bar("stream", 3_000_000, None)
    shown = console.export_text()
    assert "law" in shown
    assert "12 MB" in shown


@pytest.mark.slow
def test_validation_documents_are_chosen_by_a_study_and_kept_out(texts: Path, tmp_path: Path, capsys) -> None:
    words = small_words(texts, tmp_path, "ladder=[]", "mixture.domain_ratio=[0.5]")
    for verb in ("prepare", "train"):
        assert run([verb, *words]) == 0
    study = Study(tmp_path / "studies" / "small")
    assert [run.role for run in study.read_plan()].count("pretrain") == 1
    sets = tmp_path / "sets"
    settings = [f"validation.models=[{study.folder}]", "validation.sample=24", "validation.keep=8"]
    choosing = ["prepare", "validation", *words, f"corpora.validation={sets}", *settings]
    assert run(choosing) == 0
    assert run(choosing) == 0
    output = capsys.readouterr().out
    assert "domain: chosen already, 8 validation documents" in output
    assert run(["prepare", *words, f"corpora.validation={sets}"]) == 0
    question = read_question([*words, f"corpora.validation={sets}"])
    manifest = Manifest.open(data_folder(question))
    for name in ("general", "domain"):
        chosen = [json.loads(line) for line in (sets / f"{name}.jsonl").read_text().splitlines()]
        corpus = manifest.corpora[name]
        assert len(chosen) == 8
        assert corpus.documents == {"train": 112, "validation": 8}
        assert corpus.dropped == {"validation.same": 8}
        assert corpus.bytes["validation"] == sum(len(row["text"].encode()) for row in chosen)


@pytest.mark.skipif(not (CORPORA / "math.jsonl.gz").exists(), reason=f"no text in CPTLAW_CORPORA ({CORPORA})")
def test_redpajama_like_slices_are_split_by_source() -> None:
    question = read_question(["corpora=redpajama-like", f"corpora.folder={CORPORA}"])
    readers = {name: open_reader(name, source) for name, source in sources_of(question).items()}
    assert sum(1 for _ in readers["arxiv"].documents()) == 2794
    web, wiki = ({document for document, _ in readers[name].documents()} for name in ("web", "wiki"))
    assert min(len(web), len(wiki)) > 1000
    assert not web & wiki


def test_text_that_changed_after_prepare_is_noticed(texts: Path, tmp_path: Path, capsys) -> None:
    code = shutil.copytree(texts / "code", tmp_path / "code")
    file, held_out = next(path for path in code.iterdir() if path.is_file()), tmp_path / "held-out.txt"
    held_out.write_text("Nothing like it.\n")
    keys = [f"corpora.sources.domain.path={code}", f"corpora.sources.domain.validation={held_out}"]
    words = small_words(texts, tmp_path, "ladder=[]", *keys)
    prepare_corpora(read_question(words), lambda _: None)
    assert run(["plan", *words]) == 0
    before = file.read_bytes()
    file.write_bytes(before)  # Another time, the same text.
    held_out.write_text("Other text.\n")
    said = "is not the text that was prepared; run cptlaw prepare {} again, or restore it"
    said = said.format(study_in(words).word)
    assert refused(["train", *words], capsys) == f"corpora.sources.domain.validation: {held_out} {said}"
    held_out.write_text("Nothing like it.\n")
    assert run(["plan", *words]) == 0
    file.write_bytes(before.swapcase())
    for verb in ("plan", "train"):
        assert refused([verb, *words], capsys) == f"corpora.sources.domain: {code} {said}"
    assert next_steps(context_of(read_question(words)))[0] == "prepare"
    prepare_corpora(read_question(words), lambda _: None)
    assert run(["plan", *words]) == 0
    shutil.rmtree(code)  # The tokens are enough.
    assert run(["plan", *words]) == 0


def test_one_spelling_of_a_path_is_one_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("here/prose", "here/other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "here" / "law.jsonl").write_text('{"text": "x"}\n')
    for name, target in {"there": "here", "here/link": "prose", "here/law-link.jsonl": "law.jsonl"}.items():
        (tmp_path / name).symlink_to(target)
    monkeypatch.chdir(tmp_path / "here")

    def prepared_in(general: str, domain: str, *more: str) -> Path:
        paths = [f"corpora.sources.general.path={general}", f"corpora.sources.domain.path={domain}"]
        return data_folder(read_question(["experiment=own", *paths, *more])).resolve()

    expected = prepared_in("prose", "law.jsonl")
    for general in ("prose/", "./prose", str(tmp_path / "here" / "prose"), "link", "../there/prose", "other/../prose"):
        assert prepared_in(general, "law.jsonl") == expected
    assert prepared_in("prose", "law-link.jsonl") == expected
    assert prepared_in("prose", "law.jsonl", f"corpora.folder={tmp_path / 'there'}") == expected
    assert prepared_in("other", "law.jsonl") != expected
    sources = sources_of(read_question(["experiment=own", "corpora.sources.general.path=prose", LINKED]))
    assert sources["domain"].path == str(tmp_path / "here" / "law.jsonl")  # It begins the names of its documents.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert prepared_in("prose", "law.jsonl").name == expected.name


def test_confirming_with_other_corpora_than_the_plan_has_is_refused(texts: Path, tmp_path: Path, capsys) -> None:
    words = small_words(texts, tmp_path, "ladder=[]")
    elsewhere = shutil.copytree(texts / "code", tmp_path / "elsewhere")
    moved = small_words(texts, tmp_path, "ladder=[]", f"corpora.sources.domain.path={elsewhere}")
    other = small_words(texts, tmp_path, "ladder=[]", f"corpora.sources.domain.path={texts / 'general'}")
    for each in (words, moved, other):
        prepare_corpora(read_question(each), lambda _: None)
    question = read_question(words)
    context = context_of(question)
    write_plan(context, planned_runs(context))
    assert "run cptlaw plan with the corpora.* and data of this command first" in refused(["confirm", *moved], capsys)
    assert "planned with other text or another tokenizer for domain, general" in refused(["confirm", *other], capsys)


def test_text_that_is_too_short_names_the_key_of_each_length_at_once() -> None:
    words = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b"]
    question = read_question(words)
    with pytest.raises(ConfigError) as refused_plan:
        goal_of(question).runs(with_tokens(estimate(question), 400_000))
    keys = [re.findall(r"fewer steps \((\S+)=(\d+)\)", line) for line in refused_plan.value.lines]
    assert [key for ((key, _),) in keys] == ["target.steps", "pretrain.steps", "target.steps"]
    given = [f"{key}={min(int(of) for ((other, of),) in keys if other == key)}" for ((key, _),) in keys[:2]]
    fewer = read_question([*words, *given])
    context = with_tokens(estimate(fewer), 400_000)
    assert goal_of(fewer).runs(context)
    # The answer may be any ratio.
    assert [*short_ratios(context)] == []
    # No run as long confirms the answer for a large run: its runs for the fit are parts of it.
    large = read_question([*words, "large.tokens=1e6", "target.steps=4000"])
    run = continual_run(estimate(large), large.model, 0.5, 400, 0, "fit")
    half = run.spec.tokens // 4
    assert remedies(run, "general", half, large) == "more text, fewer steps (target.steps=2000), or allow_repeats=true"
    # So few steps are another question.
    with pytest.raises(ConfigError) as refused_plan:
        goal_of(question).runs(with_tokens(estimate(question), 50_000))
    assert all(re.search(r"times the text.*, or allow_repeats=true$", line) for line in refused_plan.value.lines)
    assert any("times the text (for 600 steps that confirm any ratio), or" in line for line in refused_plan.value.lines)
    slow = read_question([*words, "mixture.domain_ratio=[0.5]", "variants.slow={continual: {steps: 900}}"])
    context = estimate(slow)
    lines = list(supply_problems(grid_runs(context), with_tokens(context, 400_000)))
    assert any("(variants.slow.continual.steps=312)" in line for line in lines)


def test_ratios_that_the_text_is_too_short_for_are_said_before_a_run_is_trained() -> None:
    words = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b", "target.steps=400"]
    context = with_tokens(estimate(read_question(words)), 256_001, "domain")
    (line,) = short_ratios(context)
    assert line == (
        "corpora.sources.domain: 256,000 tokens, enough for target.steps=400 at domain ratios up to 25%; confirm "
        "refuses another answer: give more text, fewer steps (target.steps=100 is enough at any ratio), or "
        "allow_repeats=true"
    )
    model = context.question.model
    runs = {ratio: [continual_run(context, model, ratio, 400, 0, "confirm")] for ratio in (0.25, 0.26)}
    assert [bool([*supply_problems(of_ratio, context)]) for of_ratio in runs.values()] == [False, True]
    _, line = short_ratios(with_tokens(context, 768_001))
    assert "general: 768,000 tokens, enough for target.steps=400 at domain ratios from 25% on" in line
    fewer = read_question([*words, "target.steps=100"])
    assert [*short_ratios(with_tokens(estimate(fewer), 256_001, "domain"))] == []
    repeated = read_question([*words, "allow_repeats=true"])
    (line,) = short_ratios(with_tokens(estimate(repeated), 256_001, "domain"))
    assert line == (
        "corpora.sources.domain: 256,000 tokens; with target.steps=400 a run of domain alone reads them 4.0 times, "
        "worth some 954 k new ones (Muennighoff et al. 2023); the laws take every token as new"
    )
    context = with_tokens(estimate(repeated), 256_001, "domain")
    of_fit = [continual_run(context, model, ratio, 400, 0, "fit") for ratio in (0.1, 0.5)]
    (line,) = repeat_lines([*of_fit, *runs[0.26]], context)
    assert line == (f"corpora.sources.domain: {of_fit[1].name} reads it 2.0 times, most often of the planned runs")
    assert [*repeat_lines(of_fit[:1], context)] == []
    large = read_question([*words, "large.tokens=1e6"])
    assert "; at another answer its text is read again: " in next(short_ratios(with_tokens(estimate(large), 300_000)))


def test_runs_of_a_few_steps_are_noted() -> None:
    words = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b"]
    short, enough = (read_question([*words, f"target.steps={steps}"]) for steps in (13, 40))
    line = short_note(goal_of(short).runs(estimate(short)), short)
    said = r"\d+ of \d+, the shortest of 3; they say little of longer runs; give more steps, in target\.steps"
    assert re.fullmatch(rf"note: runs for the fit of fewer than 10 steps: {said}", line)
    assert short_note(goal_of(enough).runs(estimate(enough)), enough) == ""
    large = read_question([*words, "target.steps=13", "large.tokens=1", "large.budget=3"])
    assert short_note(goal_of(short).runs(estimate(short)), large) == ""


def test_a_budget_that_limits_no_run_is_noted() -> None:
    words = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b", "design.budget=1e14"]
    line = "note: design.budget=1e+14 limits nothing: all planned runs are trained; "
    for more, end in (
        (["mixture=ratios"], "mixture=chosen has runs chosen"),
        (["goal=compute", "goal.flops=1e15"], "leave it out"),
    ):
        assert budget_note([], read_question([*words, *more, "mixture.domain_ratio=[0.2,0.8]"])) == line + end
    assert budget_note([], read_question(words)) == ""


def test_corpora_of_the_same_text_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prose").mkdir()
    (tmp_path / "law.jsonl").write_text("")
    both = [f"corpora.sources.{name}.path=" for name in ("general", "domain")]
    words = ["experiment=own", f"data={tmp_path}/data", f"studies={tmp_path}"]
    same = [*words, f"{both[0]}{tmp_path}/prose", f"{both[1]}{tmp_path}/prose/"]
    (line,) = same_texts(read_question(same))
    corpus = r"corpora\.sources\.\w+"
    assert re.match(rf"note: {corpus} and {corpus} are the same text, .*/prose/?: no ratio", line)
    assert run(["plan", *same]) == 0
    assert line in capsys.readouterr().out
    others = (f"{both[1]}{tmp_path}/law.jsonl", "corpora.sources.domain.where={lang: [en]}")
    assert [[*same_texts(read_question([*same, other]))] for other in others] == [[], []]


WINDOWS = (
    "its loss is measured on {} windows of 128 tokens; on other text {} may be {} points off (a standard error, in no "
    "interval): give {} to cptlaw prepare and plan, before training"
)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["validation_windows=29"], []),
        (["validation_windows=16"], [("general", 16, "a change by 3%", "1.0", "validation_windows=29")]),
        (["validation_windows=16", "goal.tolerance=-0.05"], []),
        (
            ["goal.tolerance=0.01", "validation_windows=96"],
            [("general", 50, "a change by 1%", "0.6", "validation_windows=256 and corpora.validation_ratio=0.26")],
        ),
        (
            ["goal.tolerance=0.005", "validation_windows=1024"],
            [("general", 50, "a change by 0.5%", "0.6", "more text")],
        ),
        (
            ["corpora.validation=sets", "goal.tolerance=0.02", "validation_windows=64"],
            [("general", 50, "a change by 2%", "0.6", "a longer validation set")],
        ),
        (["goal=balance", "validation_windows=16"], []),
        (["rehearsal=true"], []),
    ],
)
def test_too_few_validation_windows_are_said_with_the_error_to_expect(words: list[str], lines: list[tuple]) -> None:
    own = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b"]
    question = read_question([*own, *words])
    context = with_validation(estimate(question), general=6401, domain=2049)
    assert [*noise_lines(context)] == [f"corpora.sources.{name}: {WINDOWS.format(*of)}" for name, *of in lines]
    fewer = [*noise_lines(with_validation(context, domain=1025))]
    if question.goal.kind == "trade-off" and not question.rehearsal:
        remedy = "a longer validation set" if question.corpora.validation else "corpora.validation_ratio=0.1"
        of = (8, "the loss decrease", "3.5", remedy)
        assert fewer[-1] == f"corpora.sources.domain: {WINDOWS.format(*of)}"


def with_validation(context: Context, **tokens: int) -> Context:
    """The context with so many validation tokens in some corpora."""
    corpora = context.manifest.corpora
    of = {name: replace(corpora[name], tokens=corpora[name].tokens | {"validation": n}) for name, n in tokens.items()}
    return replace(context, given_manifest=replace(context.manifest, corpora={**corpora, **of}))
