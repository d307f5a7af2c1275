"""Files of conf/ compose, and the preflight names every mistake in one line: key, value, what is allowed."""

import re
import shutil
import sys
from dataclasses import asdict
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hydra import compose, initialize_config_module

from conf import CONF, options
from fitting import LAWS
from pipeline.cli import verbs
from pipeline.cli.main import run
from pipeline.goals.registry import checked, load_question, question_of_study, read_question
from pipeline.question import loading
from pipeline.question.messages import ConfigError, describe_keys, keys_of, value_problems
from pipeline.question.phases import pieces
from pipeline.question.presets import groups
from pipeline.study.folder import Study, question_yaml
from training.run import Exit

GROUPS = {name: of for name, of in groups().items() if name not in ("schedule", "evaluation", "law", "experiment")}
"""But for those of several phases, and experiments, which test_rehearsal.py reads in large and small."""
IN_A_FOLDER = ("dcpt-six", "dcpt-six-small", "dcpt-six-annealed", "dcpt-six-long", "law-and-headers", "long-runs")
OWN = "corpora.sources.general.path=a corpora.sources.domain.path=b"
NEEDED = {
    **dict.fromkeys((*IN_A_FOLDER, "redpajama-like"), "corpora.folder=there"),
    **dict.fromkeys(("autoscale-unequal", "unequal-five"), "corpora.folder=there corpora.sources.noise.path=a"),
    **dict.fromkeys(("own", "dynamics-open"), OWN),
    "bert-base": "objective.kind=masked",
    "compute": "goal.flops=1e12 ladder=[qwen2-0.05m]",
    "hub": "corpora.sources.general.name=a/b corpora.sources.domain.name=c/d",
    "hf": "model.path=some/model",
    "limited-data": "goal.domain_tokens=1e6",
    "local": f"model.path=there {OWN}",
    "slurm": "launcher.slurm.gpus=0",
}


@pytest.mark.parametrize("names", [*zip_longest(*GROUPS.values())], ids=lambda names: "-".join(filter(None, names)))
def test_every_file_composes(names: tuple[str | None, ...]) -> None:
    """One of each group at a time, since to compose takes .2 seconds."""
    words = []
    for group, name in zip(GROUPS, names):
        needed = NEEDED.get(name or "", "").split()
        words += [f"{group}={name}"] * bool(name)
        words += [word for word in needed if word.startswith((group, "objective", "ladder"))]
    assert read_question(words)


def test_a_model_of_another_place_has_its_name(tmp_path: Path) -> None:
    words = ["experiment=base-model", "model=hf"]
    named = read_question([*words, "model.path=Qwen/Qwen2.5-1.5B"])
    assert named.model.name == "qwen2.5-1.5b"
    assert read_question([*words, "model.path=Qwen/Qwen2.5-1.5B", "model.name=mine"]).model.name == "mine"
    # A study that was planned before keeps the name of its runs.
    named.model.name = "hf"
    (tmp_path / "study.yaml").write_text(question_yaml(named))
    assert load_question(tmp_path / "study.yaml").model.name == "hf"


def test_a_law_has_its_own_defaults() -> None:
    names = [name for name, law in LAWS.items() if law.study]
    assert len(names) == 21
    question = read_question([f"law=[{','.join(names)}]", "law.dcpt.from_step=40"])
    sections = {name: asdict(section) for name, section in question.law.items()}
    assert sections == {name: asdict(LAWS[name].study) for name in names} | {
        "dcpt": {"from_step": 40, "min_ratio": 0.1}
    }
    assert question_yaml(read_question(["law=dcpt"])).count("from_step: 60") == 1


@pytest.mark.parametrize(("schedule", "evaluation"), [*zip_longest(options("schedule"), options("evaluation"))])
def test_every_schedule_and_evaluation_composes(schedule: str, evaluation: str | None) -> None:
    words = [f"schedule@{phase}.schedule={schedule}" for phase in ("pretrain", "continual")]
    question = read_question([*words, *[f"evaluation@continual.evaluation={evaluation}"] * bool(evaluation)])
    assert pieces(question.pretrain)
    assert pieces(question.continual)
    assert evaluation in (None, question.continual.evaluation.policy)


STORED = ["experiment=quickstart", "mixture.domain_ratio=[0.2,0.4]", "mixture.replicate_at=null"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart as its study.yaml has it."""
    path = tmp_path_factory.mktemp("stored") / "study.yaml"
    path.write_text(question_yaml(read_question(STORED)))
    return path


MISTAKES = {
    "corpora.sources.code.where={lang: <en>}": ["quote the value: 'corpora.sources.code.where={lang: \"<en>\"}'"],
    "mixture.domian=0.3": ["mixture.domian: no such key", "mixture.domain_ratio"],
    "continual.steps=many": ["continual.steps", "many", "a whole number"],
    "model=qwen9": ["model: 'qwen9' does not exist; allowed:", "qwen2-0.3m"],
    "model=local": ["model.path: has no value", "give model.path=..."],
    "parallel=zero4": ["parallel: 'zero4' does not exist; allowed: ddp, fsdp2, single, zero1", "did you mean zero"],
    "seed=${oc.env:HOME}": ["seed: While dereferencing interpolation"],
    "law=[dcpt-l9]": ["law: 'dcpt-l9' does not exist; allowed: chinchilla, dcpt"],
    "law=[dynamics]": [
        "law: 'dynamics' answers in no study, since it reads s1_pretrain, s2_pretrain, s1, s2: cptlaw fit points= fits "
        "it; dynamics-replay does; allowed:"
    ],
}
OF_A_STUDY = {
    "mixture.domain_ratio=[0.5,1.5]": ["mixture.domain_ratio: 1.5; allowed: 0 to 1"],
    "mixture.replicate_at=0.33": ["mixture.replicate_at: 0.33; allowed: one of"],
    "ladder=[qwen2-0.3]": ["ladder: 'qwen2-0.3' is not a model", "did you mean qwen2-0.3m?"],
    "corpora.domain=law": ["corpora.domain: 'law' is not a source; allowed: general, code"],
    "corpora.domain=general": ["corpora.domain: 'general' is also the general corpus"],
    "corpora.sources={a/b: {path: a}}": ["corpora.sources: 'a/b'; allowed: letters, digits"],
    "precision=fp8": ["precision: 'fp8'; allowed: auto, fp32, bf16"],
    "evaluate.role=proof": ["evaluate.role: 'proof'; allowed: empty, pretrain, fit, confirm"],
    "name='../out'": ["name: '../out'; allowed: letters"],
    "goal.tolerance=-1": ["goal.tolerance: -1"],
    "parallel.kind=tensor": ["parallel.kind: 'tensor'; allowed: single, ddp"],
    "parallel.processes=2": ["parallel.processes: 2 with parallel.kind=single; allowed: 1"],
    "parallel.replicas=0": ["parallel.replicas: 0; allowed: 1 to 100,000"],
    "continual.checkpoints.steps=[9999]": ["continual.checkpoints.steps: 9999 is not in the run"],
    "continual.schedule.pieces=[{shape: constant, start: 1.0, steps: 400}]": ["continual.schedule"],
    "++rehearsal=${no.such}": ["rehearsal: Interpolation key 'no.such' not found"],
    "mixture.domain_ratio.x=3": ["mixture.domain_ratio.x=3: no such element; an element of a list is KEY.0"],
    "design.ratios.77=0.3": ["design.ratios.77=0.3: no such element; an element of a list is KEY.0"],
    "continual.evaluation.every=1e30": ["is not a spacing; allowed: 1 to 10,000,000 steps"],
    "continual.evaluation.policy=often": ["continual.evaluation.policy: 'often' is not a policy; allowed: dense"],
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_one_line(override: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["plan", "experiment=quickstart", f"studies={tmp_path}", override]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1, error
    for part in MISTAKES[override]:
        assert part in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("override", OF_A_STUDY)
def test_a_mistake_in_the_question_of_a_study_is_one_line(override: str, stored: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_question(stored, [override])
    (line,) = error.value.lines
    for part in OF_A_STUDY[override]:
        assert part in line


OUT_OF_RANGE = {
    "sequence_length=0": "1 to 10,000,000",
    "validation_windows=-1": "0 to 1,000,000",
    "evaluation_budget=0.0": "above 0, up to 1",
    "confirm.seeds=1000000000": "1 to 1,000",
    "bootstrap=-1": "0 to 10,000",
    "seed=10000000000000000000000000000": "0 to 4,294,967,295",
    "continual.steps=1000000000000": "1 to 10,000,000",
    "target.global_batch=0": "1 to 1,000,000",
    "pretrain.rope_theta=-1.0": "1 to 1,000,000,000,000",
    "target.peak_learning_rate=1e+300": "above 0, up to 10",
    "pretrain.peak_learning_rate=0.0": "above 0, up to 10",
    "optimizer.beta2=1.0": "0 or more, below 1",
    "optimizer.clip=nan": "0 to 1,000,000,000",
    "launcher.threads=0": "1 to 10,000",
    "parallel.processes=0": "1 to 100,000",
    "launcher.workers=-2": "0 to 10,000",
    "tracking.every=0.0": "above 0, below 86400, seconds",
    "law.dcpt.min_ratio=1.5": "0 to 1",
    "corpora.validation_ratio=1.0": "above 0, below 1",
    "corpora.tokenizer.vocabulary=1": "257 to 1,000,000",
    "objective.mask_share=0.0": "above 0, below 1",
}


def test_all_numbers_out_of_range_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        read_question(list(OUT_OF_RANGE))
    lines = {word.replace("=", ": ", 1) + f"; allowed: {allowed}" for word, allowed in OUT_OF_RANGE.items()}
    assert lines <= set(error.value.lines)
    # What the learning rate itself says of its schedule.
    assert all("is not a learning rate" in line for line in set(error.value.lines) - lines)


CHECKED_ELSEWHERE = (*("*.evaluation.*", "*.checkpoints.*", "*.schedule.*"),)
"""Keys whose checks need more than a range: of a policy, and of a schedule."""


def test_every_number_has_a_range() -> None:
    def is_open(owner: type, name: str) -> bool:
        return "Allowed(" not in str(hints := get_type_hints(owner, include_extras=True)[name]) and any(
            kind in (int, float) for kind in (hints, *get_args(hints))
        )

    keys = [key for key, owner, item in keys_of() if is_open(owner, item.name)]
    assert [key for key in keys if not any(fnmatch(key, pattern) for pattern in CHECKED_ELSEWHERE)] == []


ABSENT = "no such key; to add it give corpora.sources"
REFUSED = {
    "continual.steps=many model=qwen9 law=transfer law.transfer.from_step=3 goal.share=0.5": (
        "model: |continual.steps: |goal.share: "
    ),
    # What a missing experiment could define is not judged.
    "experiment=owm corpora.sources.domain.path=a corpora.sources.domain.pth=a goal.tolerance=b": (
        "experiment: 'owm' does not exist|corpora.sources.domain.pth: no such key|goal.tolerance: 'b'"
    ),
    "goal.tolerance=3% seed=x": (
        "goal.tolerance: '3%'; allowed: a number, above -1, below 1: 0.02 is 2%|seed: 'x'; allowed: a whole number"
    ),
    "corpora.sources.general.pth=a": "corpora.sources.general.pth: no such key; did you mean corpora.sources.general.p",
    "corpora.general.path=a": "corpora.general.path: no such key; did you mean corpora.sources.general.path?",
    "goal.tolerance.x=1": "goal.tolerance.x: no such key; did you mean goal.tolerance",
    "law.dcpt.frm=2": "law.dcpt.frm: no such key; did you mean law.dcpt.from_step?",
    "corpora.sources.law.path=a": f"corpora.sources.law: {ABSENT}={{law: ...}}",
    "experiment=quickstart corpora.sources.domain.path=a": (
        "corpora.sources.domain: no such key; experiment=own and experiment=base-model have a domain; to add it give"
    ),
    "corpora.sources.genral.path=a": f"corpora.sources.genral: {ABSENT}={{genral: ...}}; did you mean general?",
    "corpora.sources.law.pth=a": "corpora.sources.law.pth: no such key; did you mean corpora.sources.law.path?",
}
"""Words -> how each line of the error begins."""


@pytest.mark.parametrize("words", REFUSED)
def test_overrides_that_hydra_refuses_are_named_at_once_with_the_closest_key(words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_question(["experiment=own"] * ("experiment" not in words) + words.split())
    for line, start in zip(error.value.lines, REFUSED[words].split("|"), strict=True):
        assert line.startswith(start)


INSIDE_A_LIST = {
    "[{share: abc}]": ["[0].share: 'abc'; allowed: a number, above 0, up to 1"],
    "[{share: 0.5}, {steps: 3.5}]": ["[1].steps: 3.5; allowed: a whole number"],
    "[{mixture: {general: a}}]": ["[0].mixture.general: 'a'; allowed: a number"],
    "[{start: 10}, {shares: 0.5}]": [
        "[0].start: no such key; allowed: steps, share, domain_ratio, mixture, schedule; did you mean share?",
        "[1].shares: no such key; allowed: steps, share, domain_ratio, mixture, schedule; did you mean share?",
    ],
    "[{schedule: {pieces: [{shape: constant}, {shap: linear}]}}]": ["[0].schedule.pieces[1].shap: no such key"],
    "[{mixture: 3, schedule: 4}, 5]": [
        "[0].mixture: 3; allowed: {key: value, ...}",
        "[0].schedule: 4; allowed: {key: value, ...} with keys pieces",
        "[1]: 5; allowed: {key: value, ...} with keys steps, share",
    ],
    "{share: 0.5}": [": {'share': 0.5}; allowed: a list, [...]"],
}


@pytest.mark.parametrize("value", INSIDE_A_LIST)
def test_each_mistake_inside_a_list_has_its_path(value: str, stored: Path) -> None:
    words = [f"continual.phases={value}", "continual.steps=many"]
    for read in (lambda: read_question(words), lambda: load_question(stored, words)):
        with pytest.raises(ConfigError) as error:
            read()
        *lines, last = error.value.lines
        assert last.startswith("continual.steps: 'many'; allowed: a whole number")
        for line, part in zip(lines, INSIDE_A_LIST[value], strict=True):
            assert line.startswith("continual.phases")
            assert part in line


def test_a_key_in_a_list_of_a_variant_is_answered_with_those_of_its_place() -> None:
    with pytest.raises(ConfigError, match=r"start: no such key; allowed: steps, share, domain_ratio, mixture, sch"):
        read_question(["variants.x={continual: {phases: [{start: 3}]}}"])


VALUES = {
    "continual.evaluation.steps": [1, 2],
    "continual": {"evaluation": {"steps": [1, 2]}, "sequence_length": None, "schedule": "${pretrain.schedule}"},
    "continual.phases": [{"steps": None, "share": "0.5", "mixture": {"general": 1}}, {"steps": "${continual.steps}"}],
    "mixture.domain_ratio": ["any", 0.3],
    "weights.base": {"law": 1},
    "corpora.sources": {"law": {"kind": "files", "path": "there"}},
    "no.such.key": [1],
}


def test_values_that_omegaconf_takes_are_no_mistakes() -> None:
    assert [line for key, value in VALUES.items() for line in value_problems(key, value)] == []


def test_what_cannot_be_spread_over_processes_is_refused() -> None:
    words = ["experiment=quickstart", "parallel=zero2", "parallel.processes=3", "+parallel.deepspeed.bf16.enabled=true"]
    with pytest.raises(ConfigError) as refused:
        read_question([*words, "launcher.micro_batch=7"])
    assert refused.value.lines == [
        "parallel.processes: 3 does not divide pretrain.global_batch 16; allowed: a divisor of it",
        "parallel.processes: 3 does not divide target.global_batch 16; allowed: a divisor of it",
        "parallel.deepspeed.bf16: not allowed; cptlaw decides it (see docs/at-scale.md)",
    ]
    with pytest.raises(ConfigError, match=r"engine: 'eager-compiled' with parallel\.kind=fsdp2; allowed: auto, sdpa"):
        read_question(["parallel=fsdp2", "engine=eager-compiled"])
    with pytest.raises(ConfigError, match=r"replicas: 2 with parallel\.kind=zero2; allowed: 1, or parallel=fsdp2"):
        read_question(["parallel=zero2", "parallel.replicas=2"])
    with pytest.raises(ConfigError, match=r"replicas: 3 does not divide parallel\.processes 4; allowed: 1, 2, 4"):
        read_question(["parallel=fsdp2", "parallel.processes=4", "parallel.replicas=3"])
    with pytest.raises(ConfigError, match=r"7 does not divide pretrain\.global_batch 20; allowed: 1, 2, 4, 5, 10, 20"):
        read_question(["launcher.micro_batch=7"])


def test_a_variant_may_be_deleted_from_an_existing_study_and_a_key_may_not(stored: Path) -> None:
    added = load_question(stored, ["variants={short: {continual: {steps: 10}}}", "~variants.short", "~variants.absent"])
    assert added == load_question(stored)
    with pytest.raises(
        ConfigError,
        match=r"~goal\.tolerance: cannot be deleted; leave it out for its default, or set it: goal\.tolerance=",
    ):
        load_question(stored, ["~goal.tolerance"])


def test_study_yaml_gives_the_question_back(stored: Path, tmp_path: Path) -> None:
    assert load_question(stored) == read_question(STORED)
    assert load_question(stored, ["goal.tolerance=0.05"]).goal.tolerance == 0.05
    other = load_question(stored, ["law=[transfer-rate,dcpt]"])
    assert {name: section.from_step for name, section in other.law.items()} == {"transfer-rate": 5, "dcpt": 60}
    with pytest.raises(ConfigError) as error:
        load_question(stored, ["law=transfer-rat", "goal.tolerence=0.05", "model=gpt2"])
    law, key, group = error.value.lines
    assert law.startswith("law: 'transfer-rat' does not exist; allowed: ")
    assert key == "goal.tolerence: no such key; did you mean goal.tolerance?"
    assert group.startswith("model: a group; an existing study takes")
    names = ", ".join([*other.ladder, other.model.name])
    assert group.endswith(f"; models of this study: {names}; another one needs ladder=[...] in cptlaw plan")
    asks = f"; cptlaw predict with model.name={other.ladder[0]} asks about that model of the study"
    with pytest.raises(ConfigError, match=re.escape(asks)):
        load_question(stored, [f"model={other.ladder[0]}"])
    assert load_question(stored, ["launcher=slurm", "launcher.slurm.gpus=2"]).launcher.slurm.gpu_count == 2
    assert load_question(stored, ["launcher=slurm"]) == load_question(stored, ["launcher.kind=slurm"])
    with pytest.raises(ConfigError, match=r"launcher.*'slrum'.*slurm"):
        load_question(stored, ["launcher=slrum"])
    damaged = tmp_path / "study.yaml"
    damaged.write_text(stored.read_text().replace("ladder:", "leader:"))
    with pytest.raises(ConfigError, match="plan again"):
        load_question(damaged)


def test_a_study_yaml_that_was_cut_is_refused(stored: Path, tmp_path: Path) -> None:
    whole, cut = stored.read_text(), tmp_path / "study.yaml"
    for end in (*range(0, len(whole), 97), len(whole) - 1):
        cut.write_text(whole[:end])
        with pytest.raises(ConfigError) as error:
            load_question(cut, again=False)
        (line,) = error.value.lines
        assert line.startswith(f"{cut}: cannot be read as a question (")
        assert line.endswith("; plan again")
    # As an earlier version wrote it, or a person.
    cut.write_text(whole.removeprefix("---\n").removesuffix("...\n"))
    assert load_question(cut) == load_question(stored)


@pytest.mark.parametrize(
    "words",
    [
        ["experiment=quickstart", "mixture.domain_ratio=[0.1]", "goal.tolerance=0.1"],
        ["mixture.domain_ratio=[0.2]", "experiment=quickstart"],
        ["law=[dcpt]", "law.dcpt.min_ratio=0.3", "corpora.sources={more: {kind: files, path: a}}"],
        ["~law.dcpt", "experiment=quickstart", "seed=3"],
    ],
)
def test_files_read_once_compose_to_what_hydra_composes(words: list[str]) -> None:
    first = read_question(words)
    first.ladder.append("gpt2")
    with initialize_config_module("conf", version_base="1.3"):
        assert checked(compose("config", loading.hydra_words(words)[0])) == read_question(words) != first


def test_a_file_of_conf_changed_since_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(loading, "CONF", tmp_path / "conf")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "conf")
    file = tmp_path / "conf" / "corpora" / "installed-python.yaml"
    for vocabulary in (300, 400):
        file.write_text(re.sub(r"vocabulary: \d+", f"vocabulary: {vocabulary}", file.read_text()))
        assert read_question([]).corpora.tokenizer.vocabulary == vocabulary


def test_every_key_is_documented() -> None:
    assert [key for key, _, note in describe_keys() if not note] == []


def test_a_study_keeps_the_overrides_of_its_answer(stored: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    shutil.copy(stored, tmp_path)
    kept = ["law=[dcpt]", "goal.tolerance=0.05", "goal=trade-off", "bootstrap=7", "confirm.seeds=2", "design.batch=3"]
    # Refused, since there is no plan.
    assert run(["recommend", str(tmp_path), *kept]) == 3
    assert load_question(tmp_path / "study.yaml") == load_question(stored)
    Study(tmp_path).write_plan([])
    monkeypatch.setattr(verbs, "carry_out", lambda verb, question, console: Exit.DONE)
    assert run(["recommend", str(tmp_path), *kept, "seed=3", "retry_failed=true"]) == 0
    old = load_question(stored)
    before = {
        **{"law=[dcpt]": f"[{', '.join(old.law)}]", "goal.tolerance=0.05": f"{old.goal.tolerance:g}"},
        **{"bootstrap=7": str(old.bootstrap), "confirm.seeds=2": str(old.confirm.seeds), "design.batch=3": "null"},
    }
    words = [f"{word} (before: {before[word]})" if word in before else word for word in kept]
    assert capsys.readouterr().out.splitlines()[:-1] == [f"kept in study.yaml: {' '.join(words)}"]
    for again in (["confirm", *kept[1:]], ["status", "goal.tolerance=0.1"], ["fit", "seed=4"]):
        assert run([again[0], str(tmp_path), *again[1:]]) == 0
        assert re.fullmatch(r"next: .*\n", capsys.readouterr().out)
    assert load_question(tmp_path / "study.yaml") == load_question(stored, kept)


def test_a_stored_tables_run_does_not_train(tmp_path: Path) -> None:
    stored = tmp_path / "study.yaml"
    stored.write_text(question_yaml(read_question(["experiment=quickstart", "tables.run=true"])))
    assert not question_of_study(tmp_path, []).tables.run
    assert question_of_study(tmp_path, ["tables.run=true"]).tables.run
    stored.write_text("x: [")
    with pytest.raises(
        ConfigError, match=r"study\.yaml: cannot be read as a question \(line 1: expected the node content"
    ):
        question_of_study(tmp_path, [])


@pytest.mark.parametrize("word", ["name=other", "+studies=elsewhere"])
def test_another_name_does_not_change_the_question_of_a_study(word: str, tmp_path: Path) -> None:
    (folder := tmp_path / "look").mkdir()
    (folder / "study.yaml").write_text(question_yaml(read_question(["experiment=quickstart"])))
    key, _, value = word.lstrip("+").partition("=")
    with pytest.raises(
        ConfigError, match=f"^{key}: {value} with the study {folder}; allowed: .*; for a new study give"
    ):
        question_of_study(folder, [word])
    assert question_of_study(folder, ["name=look", f"studies={tmp_path}"]) == question_of_study(folder, [])
