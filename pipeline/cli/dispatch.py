"""Carry out `cptlaw VERB ...`: load the module of the verb, and turn an error into a line and an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module

from rich.console import Console

from pipeline.cli.verb_table import VERBS
from pipeline.launch.exit_codes import exit_code_of
from training.run import Exit


def run_verb(verb: str, words: list[str], debug: bool, loaded: Callable[[], object]) -> int:
    """Exit code of a verb; an error is a line on stderr. `loaded` is called before anything is written."""
    try:
        # Who fits a table waits for the libraries of `fitting` alone.
        of_table = verb == "fit" and any(word.startswith("points=") for word in words)
        name = "fit_table" if of_table else VERBS[verb].module
        module = import_module(f"pipeline.cli.{name or 'verbs'}")
        if name:
            loaded()
            return int(module.carry_out(words, Console()))
        return int(module.run_words(verb, words, Console(), loaded))
    except (Exception, KeyboardInterrupt) as error:
        known = exit_code_of(error)
        if debug and known is None:
            raise
        code, line = known or (Exit.CRASH, f"{type(error).__name__}: {error} (--debug shows where)")
    if debug:
        traceback.print_exc()
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(line)
    return code
