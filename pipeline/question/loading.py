"""Compose a question from overrides, or read it from a study, and check it."""

import contextlib
import copy
import functools
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from conf import CONF, WORDS
from pipeline.question.evaluation_budget import affordable_windows
from pipeline.question.messages import (
    ConfigError,
    StudyError,
    is_below_a_value,
    nearest,
    one_line,
    studies_beside,
    suggested_key,
    type_of,
    unknown_choice,
    value_problems,
)
from pipeline.question.overrides import readable
from pipeline.question.presets import ask_for_model, groups, is_group, kinds, law_problems, laws, named
from pipeline.question.rehearsal import give_texts, rehearsed
from pipeline.question.schema import Question
from pipeline.question.validation import Check, problems
from training.durable import read_text

FREE_NAMES = (
    *(r"corpora\.sources", r"weights\.base", r"weights\.value", r"weights\.given(\.[^=.]+)?", r"variants(\.[^=]+)?"),
)
"""Keys, as expressions, below which the user chooses the names."""
REFUSED = (
    *(HydraException, OmegaConfBaseException),
    *(AssertionError, AttributeError, TypeError, ValueError, LookupError, RecursionError),
)
"""What Hydra and OmegaConf raise about a value; of an index into a list Python's own errors."""
LONGEST_NAME = 250
"""Characters of the name of a file, for which Hydra looks where a word of a group is given."""
PIECES = "'target.schedule={pieces: [{shape: constant, start: 1.0}, {shape: linear, end: 0.1, share: 0.2}]}'"
"""A schedule that is no word of a group, as a shell is given it."""
START, END = "---\n", "...\n"
"""First and last line of a study.yaml; one of an earlier version, or written by a person, need not have them."""
ConfigStore.instance().store(name="schema", node=Question)
# Hydra copies its sources for each composition, and with them all that is stored, which it only reads.
ConfigStore.__deepcopy__ = lambda store, _: store  # pyright: ignore[reportAttributeAccessIssue]
_STORED: dict[tuple[str, str], Any] = {}
"""Group and word -> its node there."""


def _none(question: Question) -> Iterator[str]:
    """The check of a caller that knows no goals: what their own keys hold is read as it is."""
    return iter(())


def read_question(overrides: Sequence[str], goal_problems: Check = _none) -> Question:
    """The question that conf/ and Hydra overrides compose, checked.

    Raises ConfigError: every mistake that could be found, a line each: key, value, what is allowed.

    >>> read_question(["experiment=quickstart", "mixture.domain_ratio=0.3"]).mixture.domain_ratio
    [0.3]
    """
    words, lines = hydra_words(overrides)
    try:
        composed = _composed(words)
        in_small = composed.rehearsal
    except REFUSED as error:
        lines += _override_problems(words, error)
    if lines:
        raise ConfigError(lines)
    if not in_small:
        return checked(composed, goal_problems)
    texts = give_texts(composed)
    return _checked(rehearsed(_question(named(composed)), texts), goal_problems)


def _composed(overrides: Sequence[str]) -> DictConfig:
    """What Hydra composes, but the files once in a process: that takes .3 seconds, and keys alone .02."""
    files, keys = [], []
    for word in overrides:
        (keys if re.match(r"(\+\+)?\w[\w.-]*=", word) and not selects_file(word) else files).append(word)
    changes = [parsed(word) for word in keys]
    if not all(map(selects_file, files)) or any(one.is_hydra_override() for one in changes):
        # A word that deletes, adds or configures Hydra: let Hydra order all of them.
        files, changes = overrides, []
    dates = tuple(path.stat().st_mtime_ns for path in CONF.glob("**/*.yaml"))
    composed = pickle.loads(_composed_files(tuple(files), dates))
    for one in changes:
        OmegaConf.update(composed, one.key_or_group, one.value(), merge=True, force_add=one.is_force_add())
    return composed


@functools.lru_cache(maxsize=256)
def _composed_files(overrides: tuple[str, ...], dates: tuple[int, ...]) -> bytes:
    """What Hydra composes of conf/, whose files have these dates: pickled, since reading is faster than a copy."""
    store_groups()
    with initialize_config_module("conf", version_base="1.3"):
        return pickle.dumps(compose("config", [*overrides]))


@functools.lru_cache(maxsize=64)
def _read(text: str) -> bytes:
    """All keys, with the values of a study.yaml: pickled, since a command reads it three times, of .1 seconds each."""
    return pickle.dumps(OmegaConf.merge(OmegaConf.structured(Question), read_yaml(text)))


def store_groups() -> None:
    """Give Hydra the groups that have no files: laws, words, and kinds like launcher=slurm, for launcher.kind=slurm."""
    for group, options in {"law": {law: {law: asdict(of)} for law, of in laws().items()}, **WORDS, **kinds()}.items():
        for name, node in options.items():
            if _STORED.get((group, name)) != node:
                _STORED[group, name] = node
                ConfigStore.instance().store(group=group, name=name, node=node)


def hydra_words(overrides: Sequence[str], *, sweeps: bool = False) -> tuple[list[str], list[str]]:
    """The overrides as Hydra reads them, and a line for each that cannot be read.

    Keys whose last name the user chooses have ++ before them, as Hydra needs it to add one.

    >>> hydra_words(["seed=1", "weights.base={law: 1}", "name=1e3"])[0]
    ['seed=1', '++weights.base={law: 1}', "name='1e3'"]
    """
    words, lines = [], []
    for word in overrides:
        key, _, value = word.partition("=")
        if selects_file(word) and max(map(len, value.split(","))) > LONGEST_NAME:
            lines.append(unknown_choice(key, value, groups().get(key, [])))
            continue
        adds = "++" * bool(re.match(rf"({'|'.join(FREE_NAMES)})=", word))
        try:
            hint = type_of(key.lstrip("+"))
            words.append(adds + readable(word, hint, is_group=selects_file(word), sweeps=sweeps))
        except ConfigError as error:
            lines += error.lines
    return words, lines


def parsed(word: str) -> Override:
    """The override of a word. Raises HydraException: it cannot be read."""
    return OverridesParser.create().parse_overrides([word])[0]


def selects_file(override: str) -> bool:
    """Whether an override selects a word of a group, like model=gpt2, schedule@target.schedule=wsd or law=dcpt."""
    return is_group(re.split("[@=]", override, maxsplit=1)[0])


def checked(composed: Any, goal_problems: Check = _none) -> Question:
    """The question in a composed configuration, after all checks that need no data."""
    return _checked(_question(named(composed)), goal_problems)


def _checked(question: Question, goal_problems: Check) -> Question:
    if lines := list(dict.fromkeys(problems(question, goal_problems))):
        raise ConfigError(lines)
    question.validation_windows = question.validation_windows or affordable_windows(question)
    return question


def load_question(
    path: Path, overrides: Sequence[str] = (), goal_problems: Check = _none, *, again: bool = True
) -> Question:
    """The question in a study.yaml, changed by overrides and checked.

    Overrides are single keys, law=[...], goal=... and schedule@target.schedule=...; without `again` the checks are
    skipped, for a file just written.

    Raises ConfigError: the file is of another version, or an override selects another group or no key.
    """
    try:
        text = read_text(path)
        # The keys that a file which was cut lacks would else have their defaults.
        if not text.strip() or (text.startswith(START) and not text.endswith(END)):
            raise ValueError(f"it was cut off, {f'its last line must be {END.strip()}' if text else 'it is empty'}")
        stored = pickle.loads(_read(text))
        # As in conf/config.yaml, where the runs for the fit have these of the target.
        followed = [key for key in ("global_batch", "sequence_length") if stored.continual[key] == stored.target[key]]
    except (OmegaConfBaseException, YAMLError, ValueError, OSError, RecursionError) as error:
        raise ConfigError([f"{path}: cannot be read as a question ({one_line(error)}); plan again"]) from None
    followed = [key for key in followed if not any(f"continual.{key}=" in word for word in overrides)]
    words, lines = hydra_words(overrides)
    for word in words:
        try:
            _override(stored, word)
        except REFUSED as error:
            lines += _word_problems(word, error)
    is_as_planned = True
    with contextlib.suppress(*REFUSED):  # Of ${...} that stands for nothing the checks say so.
        is_as_planned = stored.rehearsal == bool(stored.rehearsal_changes)
    if not is_as_planned:
        allowed = f"{not stored.rehearsal}, as it was planned; or cptlaw quickstart experiment=... rehearsal=true"
        lines.append(f"rehearsal: {stored.rehearsal} with the study {path.parent}; allowed: {allowed}")
    if lines:
        raise ConfigError(lines)
    with contextlib.suppress(*REFUSED):  # Where one of them is no section any more, the checks say so.
        stored.continual.update({key: stored.target[key] for key in followed})
    # A study planned before models were called by their place keeps the name in its runs.
    return _checked(_question(stored), goal_problems) if again else _question(stored)


def read_yaml(text: str) -> DictConfig | ListConfig:
    """Content of YAML from outside. YAMLError: no YAML. ValueError: an alias, with which ten lines hold a billion."""
    if "*" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise ValueError("YAML aliases (*name) are not read; write the values themselves")
    return OmegaConf.create(text)


def question_of_study(
    folder: Path, overrides: Sequence[str], goal_problems: Check = _none, *, again: bool = True
) -> Question:
    """The question of a study, wherever its folder is now; `again` as in `load_question`.

    Raises ConfigError: as `load_question`, or an override names another folder. StudyError: it has no study.yaml.
    """
    if not (folder / "study.yaml").exists():
        makes = "cptlaw plan with the words of a question, like experiment=own, makes one"
        raise StudyError(f"{folder}: not a study, it has no study.yaml; {makes}{studies_beside(folder)}")
    question = load_question(folder / "study.yaml", overrides, goal_problems, again=again)
    places = [("name", question.name, folder.resolve().name), ("studies", question.studies, str(folder.parent))]
    for key, value, own in places:
        is_given = any(word.lstrip("+").startswith(f"{key}=") for word in overrides)
        if is_given and Path(value).resolve() != Path(own).resolve():
            new = "for a new study give the words of its question in place of the folder"
            raise ConfigError([f"{key}: {value} with the study {folder}; allowed: {own}, or leave it out; {new}"])
    question.name, question.studies = folder.resolve().name, str(folder.parent)
    # Only the present command may ask for training, not the one that wrote study.yaml.
    question.tables.run &= any(word.lstrip("+").startswith("tables.run=") for word in overrides)
    return question


def _question(composed: Any) -> Question:
    try:
        if missing := sorted(OmegaConf.missing_keys(composed)):
            raise ConfigError([f"{key}: has no value; give {key}=..." for key in missing])
        # OmegaConf converts no elements of a list, and what ${...} stands for is of any type.
        lines = [line.lstrip(".") for line in value_problems("", OmegaConf.to_container(composed, resolve=True))]
        question = OmegaConf.to_object(composed) if not lines else None
    except REFUSED as error:
        raise error if isinstance(error, ConfigError) else ConfigError([one_line(error)]) from None
    if lines:
        raise ConfigError(lines)
    assert isinstance(question, Question)
    if not isinstance(question.mixture.domain_ratio, list):
        question.mixture.domain_ratio = [question.mixture.domain_ratio]
    continual, target = question.continual, question.target
    # A part out of range, or no number, is refused by its own range.
    continual.steps = continual.steps or max(1, round(min(1.0, max(0.0, continual.part)) * target.steps))
    continual.schedule = continual.schedule if continual.schedule.pieces else copy.deepcopy(target.schedule)
    return question


def _override_problems(overrides: Sequence[str], first: Exception) -> list[str]:
    """Hydra stops at the first mistake: compose each override by itself to find the others."""
    selections = [word for word in overrides if selects_file(word)]
    lines, valid = [], []
    for words in (selections, [word for word in overrides if word not in selections]):
        for word in words:
            try:
                _composed([*valid, word])
            except REFUSED as error:
                is_judged = word in selections or len(valid) == len(selections) or not _may_be_defined(word)
                lines += _word_problems(word, error) if is_judged else []
            else:
                valid += [word] * (word in selections)
    return list(dict.fromkeys(lines)) or [one_line(first)]


def _may_be_defined(word: str) -> bool:
    """Whether a key and its value are allowed below a name, or in a list, that a file which is not found could have."""
    try:
        override = parsed(word)
        key, value = override.key_or_group, override.value()
    except REFUSED:
        return False
    return type_of(key) is not None and not list(value_problems(key, value))


def _word_problems(word: str, error: Exception) -> list[str]:
    """The mistakes in an override that OmegaConf or Hydra refuses; of a list or a dictionary each with its path."""
    if isinstance(error, ConfigError):
        return error.lines
    try:
        override = parsed(word)
    except REFUSED:
        return [f"{word}: cannot be read as key=value or ~key; quote the value"]
    key = override.key_or_group
    if override.is_delete():
        return [_deletion_problem(key)]
    value = None if override.is_sweep_override() else override.value()
    named = value if isinstance(value, list) else [value] * (value is not None)
    if key == "law" and (lines := [*law_problems(named)]):
        return lines
    text, known = value if isinstance(value, str) else word.partition("=")[2], groups().get(key, [])
    of_phase = key in ("schedule", "evaluation") and not override.package
    if (of_phase or selects_file(word)) and text not in known:
        return [unknown_choice(key, text, known)]
    if override.package and type_of(override.package) is None:
        return [f"{override.package}: no such key{suggested_key(override.package)}"]
    if of_phase:
        phase = "target" if key == "schedule" else "continual"
        another = f"or another phase in place of {phase}"
        return [f"{word}: of which phase? Give {key}@{phase}.{key}={text}, {another}"]
    if "Could not append" in str(error):
        return [f"{word}: there is such a key; give it without +"]
    section, _, group = key.rpartition(".")
    if section and isinstance(value, str) and value in WORDS.get(group, {}):
        pieces = f", or its pieces, like {PIECES}" if group == "schedule" else ""
        return [f"{key}: {value!r}; allowed: {group}@{key}={value}{pieces}"]
    if not (override.is_delete() or selects_file(word)) and (lines := list(value_problems(key, value))):
        return lines
    if "Cannot merge" in str(error):
        allowed = "a list, [...]" if "with ListConfig" in str(error) else "{key: value, ...}"
        return [f"{key}: {value!r}; allowed: {allowed}"]
    if "is not a subclass" in str(error) and (index := re.match(r"(.+?)\.\d+(\.|$)", key)):
        return [f"{key}: the list has no such element; give the whole list, {index[1]}=[...]"]
    if is_below_a_value(key):
        return [f"{key}: no such key{suggested_key(key)}"]
    line = one_line(error)
    is_element = isinstance(error, ValueError) or "list index out of range" in line
    if not is_element and isinstance(error, HydraException | OmegaConfBaseException):
        return [_absent_name(key, line, getattr(error.__cause__ or error, "parent_node", None) or ())]
    wrong = "no such element" if is_element else line
    return [f"{word}: {wrong}; an element of a list is KEY.0, KEY.1, ..., or give the whole list, KEY=[...]"]


def _absent_name(key: str, line: str, names: Iterable[str]) -> str:
    """A line about a key; where a name that a user chooses is not there, what else is wrong, or how to add it.

    `names` are those beside it.
    """
    absent, is_absent, _ = line.partition(": no such key")
    if not is_absent or absent == key or type_of(absent) is None:
        return line
    if type_of(key) is None:
        return f"{key}{is_absent}{suggested_key(key)}"
    section, _, name = absent.rpartition(".")
    if not re.fullmatch("|".join(FREE_NAMES), section):
        return line
    own = "; experiment=own and experiment=base-model have a domain" if name == "domain" else ""
    return f"{line}{own}; to add it give {section}={{{name}: ...}}{nearest(name, names)}"


def _deletion_problem(key: str) -> str:
    """Why ~KEY is refused."""
    if is_group(key):
        return f"~{key}: cannot be deleted; select a word, {key}=..., or leave it out"
    if type_of(key) is None:
        return f"{key}: no such key{suggested_key(key)}"
    return f"~{key}: cannot be deleted; leave it out for its default, or set it: {key}=..."


def _override(stored: Any, word: str) -> None:
    """Change a stored question by one override, in place. Raises one of `REFUSED`: `_word_problems` says why."""
    override = parsed(word)
    key = override.key_or_group
    if override.is_delete():
        section, _, name = key.rpartition(".")
        if not re.fullmatch("|".join(FREE_NAMES), section):
            raise ValueError(word)
        OmegaConf.select(stored, section).pop(name, None)
        return
    value: Any = override.value()
    if key == "experiment":
        if value not in groups()[key]:
            raise ValueError(word)
    elif key == "law":
        stored.law = {name: laws()[name] for name in (value if isinstance(value, list) else [value])}
    elif key == "schedule" and override.package:
        pieces = OmegaConf.merge(type_of(override.package), WORDS[key][value])
        OmegaConf.update(stored, override.package, pieces, merge=False)
    elif key in kinds():
        stored[key].update(kinds()[key][value])
    elif is_group(key) and key != "schedule":
        problem = f"{key}: a group; an existing study takes law=[...], goal=..., schedule@target.schedule=... and"
        named = ask_for_model(stored, value) if key == "model" else ""
        raise ConfigError([f"{problem} single keys, like goal.tolerance=0.05{named}"])
    else:
        OmegaConf.update(stored, key, value, merge=True, force_add=override.is_force_add())
