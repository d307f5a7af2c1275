"""`cptlaw VERB --help` of a verb that takes the keys of a question: a screen of keys, some of them, or all."""

import contextlib
import fnmatch
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter

from rich.console import Console

from conf import CONF
from pipeline.cli.fit_table import print_help
from pipeline.cli.verb_table import VERBS
from pipeline.cli.verbs import question_of
from pipeline.papers.catalogue import FILES
from pipeline.question.messages import ConfigError, describe_keys, key_table, nearest, shown_value
from pipeline.question.presets import groups

FIRST = (
    *("corpora.sources.*.path", "corpora.sources.*.column", "model", "model.path", "name"),
    *("pretrain.steps", "target.steps", "target.global_batch", "sequence_length"),
    *("target.peak_learning_rate", "ladder", "mixture.domain_ratio", "goal.tolerance", "design.tolerance"),
    *("confirm.seeds", "seed", "allow_repeats", "precision", "launcher.workers", "launcher.threads"),
    *("run", "retry_failed", "dry_run", "rehearsal"),
)
"""The keys that people set first of a new study."""
_HERE, _DOMAIN = ("launcher.workers", "launcher.threads"), "corpora.domain"
_ASKED = ("goal.tolerance", "target.steps", "target.global_batch", "target.peak_learning_rate")
FIRST_OF_STUDY = {
    "continue": (*_HERE, "confirm.seeds", "retry_failed"),
    "status": ("launcher.stale_after",),
    "cancel": (),
    "collect": (),
    "fit": ("law.*", "bootstrap", "general_from", _DOMAIN),
    "recommend": (*_ASKED, "goal.*", "law.[*]", "design.tolerance", _DOMAIN),
    "confirm": ("confirm.*", *_ASKED, _DOMAIN, *_HERE),
    "refine": ("design.batch", "design.ratios", "design.lengths", "design.peaks", "goal.tolerance", _DOMAIN, *_HERE),
    "report": ("goal.kind", _DOMAIN),
    "tables": ("tables.*", "law.*", "bootstrap"),
    "track sync": ("tracking.*",),
    "evaluate": ("evaluate.*", "run"),
}
"""Verb of a study that is planned -> the keys that it reads, as patterns, first what people set first."""


def print_keys(verb: str, given: Sequence[str]) -> None:
    """Print the usage of a verb, and the keys that the words ask for: `all`, sections or keys, or those set first.

    Words like experiment=quickstart, or the folder of a study, ask for the values there in place of defaults.

    Raises:
        ConfigError: there is no such section or key.
    """
    of_question = [word for word in given if "=" in word or "/" in word]
    words = [word for word in given if word not in of_question]
    console, keys = Console(highlight=False, markup=False), [*_keys_and_values(verb, of_question)]
    known_keys = [key for key, *_ in keys]
    names = list(dict.fromkeys(key.split(".")[0] for key in known_keys))
    if unknown := [word for word in words if word not in ("all", *names, *known_keys)]:
        raise ConfigError(
            [
                f"--help: {word!r}; allowed: all, a key, {', '.join(names)}"
                + nearest(word, known_keys if "." in word else names)
                for word in unknown
            ]
        )
    folder = "[STUDY_FOLDER] " if VERBS[verb].on_study or VERBS[verb].or_study else ""
    options = "".join(f" [{option}]" for option in VERBS[verb].options)
    console.print(f"cptlaw {verb}: {VERBS[verb].help}\nusage: cptlaw {verb} {folder}[key=value ...]{options}\n")
    if verb == "fit":
        print_help(console, "all" in words)
        console.print("A study:")
    if "all" in words:
        console.print("groups (group=word):")
        for group, known in sorted(groups().items()):
            console.print(f"  {group}: {', '.join(known)}")
    elif words:
        keys = [row for row in keys if any(f"{row[0]}.".startswith(f"{word}.") for word in words)]
    else:
        first = {key: (key, default, re.split(r"(?<=\.) |; (?!0:|null:)", note)[0]) for key, default, note in keys}
        patterns = FIRST_OF_STUDY.get(verb, FIRST)
        keys = [first[key] for key in dict.fromkeys(key for one in patterns for key in fnmatch.filter(first, one))]
    none = "no key changes what it does; others are those of the question"
    console.print(key_table(keys, "what it is", "value" if of_question else "default") if keys else none)
    if {"tables", "tables.papers", *(["all"] if verb == "tables" else [])}.intersection(words):
        console.print("\nfiles of tables.papers, as many as you have: the columns that are read", soft_wrap=True)
        for file, columns in FILES.items():
            console.print(f"  {file}: {', '.join(columns)}", soft_wrap=True)
    if not words:
        sections = [name for name in names if any(key.startswith(f"{name}.") for key in known_keys)]
        console.print(f"\nevery key: cptlaw {verb} --help all; those of a section, as --help {sections[0]}, or a key:")
        console.print(", ".join(sections))
        console.print(f"group=word, whose words --help all lists: {', '.join(sorted(groups()))}")
    console.print(f"files: {CONF}", soft_wrap=True)


def _keys_and_values(verb: str, words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Every key with its value in the question of the words, or its default without words, and what it is."""
    question = None
    # What is wrong with the question says the verb itself.
    with contextlib.suppress(ConfigError, OSError):
        question = question_of(verb, [*words]) if words else None
    for key, default, note in describe_keys():
        value = default
        if question is not None and default:
            with contextlib.suppress(AttributeError):
                value = shown_value(attrgetter(key)(question))
        # The word of the group, which has no default of its own.
        if question is not None and key == "model":
            value = question.model.name
        yield key, value, note
