"""Carry out `cptlaw VERB ...`: load the module of the verb, and turn an error into a line and an exit code."""

import contextlib
import json
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import TextIO

from pipeline.cli.verb_table import HYDRA_OPTIONS, VERBS, help_page
from pipeline.launch.exit_codes import exit_code_of
from pipeline.question.messages import ConfigError, MissingError, describe_keys
from pipeline.show.console import LineConsole, is_closed
from training.run import Exit


def run_verb(verb: str, words: list[str], debug: bool, loaded: Callable[[], object]) -> int:
    """Exit code of a verb; an error is a line on stderr. `loaded` is called before anything is written.

    Raises BrokenPipeError: the reader of the output has gone.
    """
    try:
        if verb == "completion":
            import_module("pipeline.cli.hydra_options").complete(words[1:])
            return Exit.DONE
        if asked := {"-h", "--help"}.intersection(words):
            return _print_help(verb, [word for word in words if word not in asked])
        # Who fits a table waits for the libraries of `fitting` alone.
        of_table = verb == "fit" and any(word.startswith("points=") for word in words)
        name = "fit_table" if of_table else VERBS[verb].module
        _refuse_options(verb, words, bool(name))
        module, output = import_module(f"pipeline.cli.{name or 'verbs'}"), sys.stdout
        with contextlib.redirect_stdout(sys.stderr) if "--json" in words else contextlib.nullcontext():
            print_json = partial(_print_json, output) if "--json" in words else None
            if not name:
                return int(module.run_words(verb, words, LineConsole(), loaded, print_json))
            loaded()
            more = [print_json or (lambda content: None)] if "--json" in VERBS[verb].options else []
            return int(module.carry_out([word for word in words if word != "--json"], LineConsole(), *more))
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError) and is_closed(sys.stdout):
            raise
        if isinstance(error, MissingError):
            error = import_module("pipeline.cli.verbs").with_first_step(error)
        known = exit_code_of(error)
        if debug and known is None:
            raise
        code, line = known or (Exit.CRASH, f"{type(error).__name__}: {error} (--debug shows where)")
    if debug:
        traceback.print_exc()
    LineConsole(stderr=True).print(line, soft_wrap=True)
    return code


def _print_help(verb: str, words: list[str]) -> Exit:
    module = import_module(f"pipeline.cli.{VERBS[verb].module or 'key_help'}")
    if VERBS[verb].module:
        values = {name: _in_help(of) for name, of in getattr(module, "HELP", {}).items()}
        print(f"cptlaw {verb}: {VERBS[verb].help}\n{help_page(verb).format(**values)}", end="")
    else:
        module.print_keys(verb, words)
    return Exit.DONE


def _in_help(of: type | Iterable[str]) -> str:
    """The keys of a schema and what they are, a line or more each; or names."""
    if not isinstance(of, type):
        return ", ".join(of)
    rows = (f"  {key:18}  {note}" for key, _, note in describe_keys(of) if note)
    return "\n".join(textwrap.fill(row, 120, subsequent_indent=" " * 22, break_on_hyphens=False) for row in rows)


def _print_json(output: TextIO, content: object) -> None:
    print(json.dumps(content, indent=2, allow_nan=False), file=output)


def _refuse_options(verb: str, words: list[str], own_keys: bool) -> None:
    """Refuse options of other verbs, and of a verb with keys of its own those of Hydra."""
    problems = []
    for word in (word for word in words if word.startswith("-")):
        takers = [name for name, known in VERBS.items() if word in known.options]
        if takers and verb not in takers:
            problems.append(f"{word}: no option of cptlaw {verb}; allowed: cptlaw {', '.join(takers)}")
        if own_keys and word.partition("=")[0] in HYDRA_OPTIONS:
            problems.append(f"{word}: cptlaw {verb} has keys of its own; cptlaw plan takes the options of Hydra")
    if problems:
        raise ConfigError(problems)
