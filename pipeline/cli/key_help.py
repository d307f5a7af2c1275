"""`cptlaw VERB --help` of a verb that takes the keys of a question: a screen of keys, a section of them, or all."""

import re
from collections.abc import Sequence

from rich.console import Console

from conf import CONF
from pipeline.cli.fit_table import print_help
from pipeline.cli.verb_table import VERBS
from pipeline.question.messages import ConfigError, describe_keys, key_table, nearest
from pipeline.question.presets import groups

FIRST = (
    *("corpora.sources.*.path", "model.path", "name", "target.steps", "target.global_batch", "sequence_length"),
    *("target.peak_learning_rate", "ladder", "mixture.domain_ratio", "goal.tolerance", "design.tolerance"),
    *("confirm.seeds", "seed", "allow_repeats", "precision", "launcher.workers", "launcher.threads"),
    *("run", "retry_failed", "dry_run"),
)
"""The keys that people set first."""


def print_keys(verb: str, words: Sequence[str] = ()) -> None:
    """Print the usage of a verb, and the keys that the words ask for: `all`, sections, or, without, those set first.

    Raises:
        ConfigError: there is no such section.
    """
    console, keys = Console(highlight=False, markup=False), [*describe_keys()]
    known_keys = [key for key, *_ in keys]
    names = list(dict.fromkeys(key.split(".")[0] for key in known_keys))
    if unknown := [word for word in words if word not in ("all", *names)]:
        raise ConfigError(
            [f"--help: {word!r}; allowed: all, {', '.join(names)}{nearest(word, names)}" for word in unknown]
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
        keys = [row for row in keys if row[0].split(".")[0] in words]
    else:
        first = {key: (key, default, re.split(r"(?<=\.) |; (?!0:|null:)", note)[0]) for key, default, note in keys}
        keys = [first[key] for key in FIRST]
    console.print(key_table(keys, "what it is"))
    if not words:
        sections = [name for name in names if any(key.startswith(f"{name}.") for key in known_keys)]
        console.print(f"\nevery key: cptlaw {verb} --help all; those of a section, as --help {sections[0]}:")
        console.print(", ".join(sections))
        console.print(f"group=word, whose words --help all lists: {', '.join(sorted(groups()))}")
    console.print(f"files: {CONF}", soft_wrap=True)
