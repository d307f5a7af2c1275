"""cptlaw laws: the laws that can be fitted, and all that one of them says of itself."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from math import inf

import numpy as np
from rich.console import Console
from rich.table import Table

from fitting import LAWS, Law, Parameter
from fitting.laws.law import no_offset
from fitting.points import ALLOWED, law_named
from fitting.schedule import LAMBDA
from pipeline.cli.points_file import COLUMNS
from pipeline.cli.words import print_line
from pipeline.question.messages import ConfigError, nearest
from training.run import Exit


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Print the table of all laws, or the long form of the law that is named."""
    if given := [word for word in words if "=" in word]:
        near = (nearest(word.rpartition("=")[2], LAWS) for word in given)
        raise ConfigError([f"{word}: no such key; allowed: a name alone{law}" for word, law in zip(given, near)])
    if len(words) > 1:
        raise ConfigError([f"cptlaw laws: {len(words)} names; allowed: one, or none for the table of all laws"])
    if words:
        for line in long_form(law_named(words[0], LAWS)):
            print_line(console, line)
        print_line(console, f"\nnext: cptlaw fit points=FILE law={words[0]}")
        return Exit.DONE
    table = Table("law", "parameters", "reads")
    for law in LAWS.values():
        table.add_row(law.name, str(len(law.parameters)), ", ".join(columns_of(law)))
    console.print(table, highlight=False, markup=False)
    print_line(console, "next: cptlaw laws NAME")
    return Exit.DONE


def long_form(law: Law) -> Iterator[str]:
    """The lines of a law: equation, parameters, columns, source, what its fit needs, and the words of its module."""
    yield f"{law.name}\n\n  {law.equation}\n\nparameters:"
    rows = [(p.name, f"{p.unit}; {_bounds(p)}") for p in law.parameters]
    if {"s2", "s2_square"} & {*law.columns}:
        rows.append((LAMBDA.name, f"{LAMBDA.unit}; {_bounds(LAMBDA)}; fitted too where schedules are known"))
    yield from _rows(rows)
    yield "\ncolumns:"
    yield from _rows([(name, f"{COLUMNS[name]}; {allowed(name)}") for name in columns_of(law)])
    yield f"\n{textwrap.fill(' '.join(_needs(law)), 120)}"
    yield f"\n{textwrap.fill(f'Source: {law.source}.', 120, break_on_hyphens=False)}"
    yield f"\nThe file of this law and its family, {law.basis.__module__.replace('.', '/')}.py, says:\n"
    yield textwrap.indent((sys.modules[law.basis.__module__].__doc__ or "").strip(), "  ")


def columns_of(law: Law) -> tuple[str, ...]:
    """The columns that a law reads from the points."""
    return ("mixture.<corpus>",) if law.for_corpora is not None else law.columns


def allowed(column: str) -> str:
    """The values that a column may hold."""
    return ALLOWED.get("r" if column.startswith("mixture.") else column, ("any number",))[0].split(", in ")[0]


def _bounds(p: Parameter) -> str:
    if p.low == -inf:
        return "either sign"
    return f"{p.low:g} or more" if p.high == inf else f"{p.low:g} to {p.high:g}"


def _needs(law: Law) -> Iterator[str]:
    """What the points must have, and how the law is fitted: a sentence each."""
    if law.for_corpora is not None:
        yield "It has a t for each corpus but the last; here for two corpora."
    if law.varies:
        yield f"Must vary: {', '.join(f'{column} (for {name})' for column, name in law.varies.items())}."
    if law.positive:
        yield f"It has no value at {' or '.join(f'{name} = 0' for name in law.positive)}."
    linear, shapes = (", ".join(p.name for p in some) for some in (law.linear, law.nonlinear))
    if law.printed is None:
        yield f"Linear in {linear} for given {shapes}."
    else:
        printed = ", ".join(law.printed(dict.fromkeys((p.name for p in law.parameters), 1.0)))
        fitted = f"Fitted with an amplitude, linear in {linear} for given {shapes}"
        yield f"{fitted}; Fit.printed has the paper's {printed}."
    if law.cone is not None:
        yield f"Constants, from the fitted points: {', '.join(law.constants({n: np.ones(1) for n in law.columns}))}."
        yield "A constraint ties the coefficients together, so none of them can be shared or have either sign."
    if law.offset is not no_offset:
        yield "It has a part without coefficient."
    if law.s2.rate_power:
        yield f"Each step of S2 is weighted with its learning rate to the power {law.s2.rate_power:g}."


def _rows(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in rows)
    return (f"  {name:{width}}  {text}" for name, text in rows)
