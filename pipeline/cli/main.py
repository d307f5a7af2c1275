"""The command line: a verb and Hydra overrides; a mistake of the user is one line and an exit code."""

import difflib
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata

from pipeline.cli.verb_table import EXIT_CODES, HYDRA_OPTIONS, VERBS, help_page
from training.stop import end_in_time, ignore_signals, interrupt_on_signals, leave_on_signals


def main() -> None:
    """Entry of the command line."""
    # Read when numpy is loaded. A fit uses all cores by processes: threads of theirs would wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_on_signals("stopped before anything was written")
    end_in_time()
    # Imported objects stay alive: collecting garbage among them took a third of the time of `cptlaw plan`.
    gc.set_threshold(100_000, 20, 20)
    try:
        # Then as Ctrl-C: runs save their state, and the exit code is 75.
        code = run(sys.argv[1:], loaded=interrupt_on_signals)
        sys.stdout.flush()
    except KeyboardInterrupt:  # a second signal
        code = 75
    except BrokenPipeError:
        # Of `cptlaw ... | head`, which has read enough.
        if not import_module("pipeline.show.console").is_closed(sys.stdout):
            raise
        # What is left of the output is dropped.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 75
    ignore_signals()
    sys.exit(code)


def run(arguments: Sequence[str], loaded: Callable[[], object] = lambda: None) -> int:
    """Carry out a command line; returns the exit code. `loaded` is called before anything is written."""
    words = [word for word in arguments if word != "--debug"]
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, VERBS))
        verbs = "\n".join(f"  {name:{width}}  {verb.help}" for name, verb in VERBS.items())
        print(help_page("cptlaw").format(verbs=verbs, codes=EXIT_CODES), end="")
        return 0 if words else 2
    if " ".join(words[:2]) in VERBS:
        words[:2] = [" ".join(words[:2])]
    option = HYDRA_OPTIONS.get(words[0].partition("=")[0])
    if option:
        # As Hydra's users give them: of the question that the other words ask.
        words.insert(0, "completion" if option == "--shell-completion" else "plan")
    verb, rest = words[0], words[1:]
    if verb in ("--version", "-V"):
        print(f"cptlaw {metadata.version('cptlaw')}")
        return 0
    if verb not in VERBS and not option:
        near = difflib.get_close_matches(verb, VERBS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"{verb}: not a verb; allowed: {', '.join(VERBS)}{hint}", file=sys.stderr)
        return 2
    # Late, since the help above needs no module.
    dispatch = import_module("pipeline.cli.dispatch")
    return dispatch.run_verb(verb, rest, "--debug" in arguments, loaded)


if __name__ == "__main__":
    main()
