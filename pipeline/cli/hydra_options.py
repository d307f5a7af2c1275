"""The options that Hydra's users know: --cfg, --info, --hydra-help, and the completion of a line by Tab."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from conf import CONF
from pipeline.cli.verb_table import HYDRA_OPTIONS, VERBS
from pipeline.question.loading import hydra_words, store_groups
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from training.run import Exit

_VALUES = {
    "--cfg": ("job", "hydra", "all"),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
_HERE = "the files of a question are here: put one into"
_REASONS = {
    **dict.fromkeys(("--config-path", "--config-name", "--config-dir"), f"{_HERE} {CONF}"),
    "--experimental-rerun": "the question of a study is its study.yaml: give the study's folder",
    "--run": "a verb does what it says: leave it out",
    "--shell-completion": 'give it without a verb: eval "$(cptlaw -sc install=bash)"',
    "--multirun": "only cptlaw train sweeps, and without other options of Hydra",
}
"""Option that is not taken -> why, and what to do."""
_SHELLS = ("bash", "zsh", "fish")


def run_hydra(words: list[str], name: str, job: Callable[[DictConfig], object] = lambda composed: None) -> None:
    """Let Hydra compose and run a job, or print what an option asks for; `name` is the program in its messages."""
    store_groups()
    sys.argv = [name, *words]
    hydra.main(config_path="pkg://conf", config_name="config", version_base="1.3")(job)()


def print_asked(verb: str, words: list[str], question_of: Callable[[list[str]], Question]) -> Exit:
    """Print what the words' options of Hydra ask for; `question_of` reads the question from the other words.

    Raises:
        ConfigError: an option that is not taken, with the reason, or a value that it does not have; else as
            `question_of`.
    """
    options, others = _split(words)
    problems = [f"{name}: {_REASONS[name]}" for name in options if name in _REASONS]
    if options.keys() & {"--resolve", "--package"} and "--cfg" not in options:
        problems.append("--resolve, --package: go with --cfg job")
    for name, value in options.items():
        if name == "--package" and not value:
            problems.append(f"{name}: has no value; give a section, like --package model")
        elif name in _VALUES and value not in (_VALUES[name] if name == "--cfg" else ("", *_VALUES[name])):
            problems.append(f"{name}: {value!r}; allowed: {', '.join(_VALUES[name])}")
    if problems:
        raise ConfigError(problems)
    if "--hydra-help" in options:
        run_hydra(["--hydra-help"], f"cptlaw {verb}")
    question = question_of(others)
    if options.get("--cfg") == "job" and "--package" not in options:
        print(OmegaConf.to_yaml(OmegaConf.structured(question)), end="")
        return Exit.DONE
    if folders := [word for word in others if "=" not in word and not word.startswith("~")]:
        stored = f"{folders[0]}/study.yaml has the question of a study, composed"
        raise ConfigError([f"{', '.join(options)}: {stored}; --cfg job prints it"])
    overrides, lines = hydra_words(others)
    if lines:
        raise ConfigError(lines)
    run_hydra([*overrides, *(word for option in options.items() for word in option if word)], f"cptlaw {verb}")
    return Exit.DONE


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options, by their long names, with their values, and the other words."""
    options, others, left = {}, [], list(words)
    while left:
        word = left.pop(0)
        name, _, value = word.partition("=")
        if name not in HYDRA_OPTIONS:
            others.append(word)
            continue
        name = HYDRA_OPTIONS[name]
        needs = name in ("--cfg", "--package") and not (left and left[0].startswith("-"))
        follows = not value and left and (left[0] in _VALUES.get(name, ()) or (needs and "=" not in left[0]))
        options[name] = left.pop(0) if follows else value
    return options, others


def complete(words: list[str]) -> None:
    """`cptlaw -sc install=SHELL` prints what a shell evaluates so that Tab completes; it then calls query=SHELL.

    Raises:
        ConfigError: neither install, uninstall nor query of a shell that Hydra knows.
    """
    action, _, shell = (words or [""])[0].partition("=")
    if action not in ("install", "uninstall", "query") or shell not in _SHELLS:
        allowed = " ".join(f"install={name}" for name in _SHELLS)
        raise ConfigError([f'-sc: {" ".join(words)!r}; allowed: {allowed}; in bash: eval "$(cptlaw -sc install=bash)"'])
    if action == "query":
        _, *given = os.environ.get("COMP_LINE", "cptlaw ").split(" ")
        if (found := [*_words(given)]) or not _has_keys(given):
            print(" ".join(found))
            return
        # Hydra reads keys only: it is shown neither the verb nor a study's folder.
        keys = [word for word in given[1:-1] if "=" in word]
        os.environ["COMP_LINE"] = " ".join(["cptlaw", *keys, given[-1]])
    run_hydra(["-sc", f"{action}={shell}"], "cptlaw")


def _words(given: list[str]) -> Iterator[str]:
    """What may follow that is no key: verbs, and the folders of studies."""
    last = given[-1]
    if len(given) < 2:
        yield from dict.fromkeys(name.split()[0] for name in VERBS if name.startswith(last))
        return
    verb = given[0]
    yield from (name.split()[1] for name in VERBS if name.startswith(f"{verb} {last}"))
    if verb in VERBS and (VERBS[verb].on_study or VERBS[verb].or_study) and len(given) == 2 and "=" not in last:
        folders = {str(path.parent) for path in Path().glob("studies/*/study.yaml")}
        yield from sorted(folder for folder in folders if folder.startswith(last) and (last or verb != "train"))


def _has_keys(given: list[str]) -> bool:
    return given[0] in VERBS and VERBS[given[0]].module in ("", "advise", "export")
