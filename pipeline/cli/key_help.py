"""`cptlaw VERB --help` of a verb that takes the keys of a question."""

from __future__ import annotations

from rich.console import Console

from conf import CONF
from pipeline.cli.fit_table import print_help
from pipeline.cli.verb_table import VERBS
from pipeline.question.messages import describe_keys, key_table
from pipeline.question.presets import groups


def print_keys(verb: str) -> None:
    """Print the usage of a verb, and every group and key."""
    console = Console()
    console.print(f"cptlaw {verb}: {VERBS[verb].help}", highlight=False)
    folder = "[STUDY_FOLDER] " if VERBS[verb].on_study or VERBS[verb].or_study else ""
    console.print(f"usage: cptlaw {verb} {folder}[key=value ...]\n", highlight=False, markup=False)
    if verb == "fit":
        print_help(console)
        console.print("A study:", highlight=False)
    console.print("groups (group=word):", highlight=False)
    for group, words in sorted(groups().items()):
        console.print(f"  {group}: {', '.join(words)}", highlight=False, markup=False)
    console.print(key_table(describe_keys(), "what it is"), highlight=False, markup=False)
    console.print("files: " + str(CONF), highlight=False, soft_wrap=True)
