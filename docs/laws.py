"""Write the generated parts of laws.md, between marked lines, and its figures.

    .venv/bin/python -m docs.laws

The rest of the page is written by hand. A law without a section is an error.
"""

import re
import textwrap
from math import inf
from pathlib import Path

import numpy as np

from docs.charts import save
from docs.pictures import FOLDER, PICTURES
from fitting import LAWS, Law, Parameter
from fitting.laws.law import no_constants, no_offset
from fitting.points import ALLOWED

PAGE = Path(__file__).parent / "laws.md"
COLUMNS = {
    "N": "size of the model, billions of parameters",
    "D": "tokens of the run so far, billions",
    "r": "ratio of the validation corpus in the mixture of the run",
    "rho": "ratio of the validation corpus in pre-training",
    "k1": "validation loss before training, nats per token",
    "k2": "loss decrease of the first 5,000 steps, nats per token",
    "k3": "mean curvature of the loss over the first 11,000 steps, nats per token",
    "r_first": "ratio of the validation corpus in the run's first mixture",
    "s1": "S1 of the run so far: its learning rates summed",
    "s1_first": "S1 at the end of the run's first mixture, or at the point if that is earlier",
    "s2": "S2 of the run so far: its annealing area, by `fitting.areas`",
    "s1_root": "S1 of (learning rate / 1e-4)^(2/3), by `fitting.areas_of_powers`",
    "s2_square": "S2 of (learning rate / 1e-4)^2, by `fitting.areas_of_powers`",
    "s1_pretrain": "S1 of the pre-training that came before",
    "s2_pretrain": "S2 of the pre-training that came before",
    "loss_before": "validation loss before the run, nats per token",
    "x": "tokens of one domain over those that it has in the base run",
    "mixture.<corpus>": "ratio of each corpus in the mixture; they sum to 1",
}
"""Column -> what it holds."""
PUNCTUATION = {r"\,": r"\thinspace "}
"""LaTeX that Markdown reads as an escaped character -> its equivalent."""


def block(law: Law) -> str:
    """Equation, source, parameters and columns of a law, as Markdown."""
    equation = law.equation
    for mark, word in PUNCTUATION.items():
        equation = equation.replace(mark, word)
    rows = [f"| `{p.name}` | {p.unit} | {bounds(p)} |" for p in law.parameters]
    lines = ["$$", equation, "$$", "", "| parameter | unit | bounds |", "|---|---|---|", *rows, ""]
    texts = (f"Source: {law.source}.", " ".join(sentences(law)))
    wrapped = ("\n".join(textwrap.wrap(text, 120, break_on_hyphens=False)) for text in texts)
    return "\n".join(lines) + "\n" + "\n\n".join(wrapped)


def sentences(law: Law) -> list[str]:
    """The columns that a law reads, its constants, and its solution."""
    if law.among is not None:
        texts = [
            "Reads a column `mixture.<corpus>` for each corpus, and has a `t` for each but the last (here: of two)."
        ]
    else:
        texts = [f"Reads {_named(law.columns)}."]
    if law.varies:
        texts.append(f"Must vary: {', '.join(f'`{name}` (for `{p}`)' for name, p in law.varies.items())}.")
    if law.positive:
        texts.append(f"Has no value at {' or '.join(f'`{name}` = 0' for name in law.positive)}.")
    linear, shapes = (_named(p.name for p in some) for some in (law.linear, law.nonlinear))
    if law.separable:
        texts.append(f"Separable: linear in {linear} for given {shapes}.")
    else:
        printed = _named(law.printed(dict.fromkeys((p.name for p in law.parameters), 1.0))) if law.printed else ""
        texts.append(
            f"Not separable as printed; fitted with an amplitude, linear in {linear} for given {shapes}, and "
            f"`Fit.printed` has the paper's {printed}."
        )
    if law.constants is not no_constants:
        held = law.constants({name: np.ones(1) for name in law.columns})
        texts.append(f"Constants, from the fitted points: {_named(held)}.")
    if law.cone is not None:
        texts.append("A constraint ties the coefficients together, so that none of them can be shared or signed.")
    if law.offset is not no_offset:
        texts.append("Has a part without coefficient.")
    if law.rate_power:
        texts.append(f"Each step of S2 is weighted with its learning rate to the power {law.rate_power:g}.")
    return texts


def bounds(p: Parameter) -> str:
    """The bounds of a parameter, in words."""
    if p.low == -inf:
        return "either sign"
    return f"{p.low:g} or more" if p.high == inf else f"{p.low:g} to {p.high:g}"


def overview() -> str:
    """A table of all laws."""
    rows = [
        f"| [`{law.name}`](#{law.name.replace('.', '')}) | {len(law.parameters)} | {_named(_columns(law))} | "
        f"{'yes' if law.separable else 'rewritten'} |"
        for law in LAWS.values()
    ]
    return "\n".join(["| law | parameters | reads | separable |", "|---|---|---|---|", *rows])


def columns() -> str:
    """A table of the columns that laws read."""
    rows = []
    for name, words in COLUMNS.items():
        rule = ALLOWED.get("r" if name.startswith("mixture.") else name, ("any number", None))[0]
        readers = sum(name in _columns(law) for law in LAWS.values())
        rows.append(f"| `{name}` | {words} | {rule.split(', in ')[0]} | {readers} |")
    return "\n".join(["| column | holds | allowed | laws that read it |", "|---|---|---|---|", *rows])


def generated() -> dict[str, str]:
    """Mark -> what stands under it."""
    return {"overview": overview(), "columns": columns(), **{f"law {name}": block(law) for name, law in LAWS.items()}}


def renewed(page: str) -> str:
    """The page with its generated parts renewed. Raises ValueError for a part without a place, or the reverse."""
    made = generated()
    places = re.findall(r"^<!-- begin (.+?) -->$", page, flags=re.MULTILINE)
    if lacking := [mark for mark in made if places.count(mark) != 1]:
        raise ValueError(f"laws.md must have exactly one line <!-- begin {lacking[0]} -->, and <!-- end --> after it")
    if strange := [mark for mark in places if mark not in made]:
        raise ValueError(f"laws.md has a place for {strange[0]}, which fitting.LAWS does not have")

    def filled(found: re.Match) -> str:
        return f"<!-- begin {found[1]} -->\n\n{made[found[1]]}\n\n<!-- end -->"

    return re.sub(r"^<!-- begin (.+?) -->$.*?^<!-- end -->$", filled, page, flags=re.MULTILINE | re.DOTALL)


def _columns(law: Law) -> tuple[str, ...]:
    return ("mixture.<corpus>",) if law.among is not None else law.columns


def _named(names) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, picture in PICTURES.items():
        save(picture(), FOLDER / f"{name}.svg")
