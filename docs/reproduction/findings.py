"""docs/findings.md: what readers of the three papers want to know, in two pages, with the command behind a number."""

from __future__ import annotations

import textwrap

from docs.reproduction.book import L3, L3_CASES, ROOT, Book
from docs.reproduction.causes import cause
from pipeline.paper_tables.show import numbered, pipes
from pipeline.paper_tables.verdict import HOLDS, IN_ORDER, NOT_HERE, SEED_TIE

FINDINGS = ROOT / "docs" / "findings.md"
STATEMENTS = {
    "dcpt-1": "D-CPT 4.2: fitted to all points, L3 is best or comparable to L2, R2 above .97; L5 is worst",
    "dcpt-2": "D-CPT 4.2: L3 predicts a size that was held out best",
    "dcpt-3": "D-CPT 4.2: L3 predicts a third of the tokens that was held out best",
    "dcpt-4": "D-CPT 4.2: L3 predicts ratios that were held out best",
    "dcpt-5": "D-CPT 4.3, usage 1: the law finds the ratio at which a tolerance of the general loss is reached",
    "dcpt-6": "D-CPT 4.3, usage 2: the law finds the best ratio of a domain of few tokens",
    "dcpt-12": "D-CPT 4.3, usage 3: the law finds the best size for a compute budget",
    "dcpt-7": "D-CPT 4.4: one law for all domains fits with K3 or K4, worse with K1 or K2 on the domain",
    "dcpt-8": "D-CPT 4.4: K3 predicts domains that were held out best",
    "dcpt-10": "D-CPT app. D: at one ratio Chinchilla's law fits better than OpenAI's",
    "dcpt-13": "D-CPT app. I.1: evaluations that thin out (M4) lose nothing to dense ones (M1)",
    "dcpt-figure-12": "D-CPT app. I.3: below a ratio in (0, .1] training raises the loss on that corpus",
    "dynamics-figure-3": "Dynamics 3.3: eq. 4 follows all curves under several schedules",
    "dynamics-2": "Dynamics app. J: other formats of the annealing term do as well",
    "dynamics-figure-2": "Dynamics 3.2: the shift does not depend on the point of transfer",
    "dynamics-figure-14": "Dynamics app. E: the shift does not depend on the size",
    "dynamics-figure-6": "Dynamics 4.2: more replay, a smaller shift",
    "dynamics-figure-12": "Dynamics 4.2: eq. 4 follows each replay ratio by itself",
    "dynamics-figure-19": "Dynamics app. H: eq. 8 follows all replay ratios",
    "dynamics-figure-5": "Dynamics finding 3: more loss potential, lower loss on the new corpus, consistently",
    "dynamics-figure-7": "Dynamics 4.3: a higher peak, less loss on the new corpus and more on the old",
    "dynamics-figure-7c": "Dynamics finding 4: less pre-training or more replay, an earlier return of the old loss",
    "dynamics-figure-8": "Dynamics finding 5: how the best potential, peak and replay move with the weight",
    "dynamics-figure-10": "Dynamics fig. 10: eq. 4 predicts other schedules",
    "dynamics-figure-18": "Dynamics 6: an open model's curves are predicted without its past",
    "autoscale-7": "AutoScale 5: its extrapolated weights reach the loss of equal weights in fewer steps",
}
"""Name of TABLES -> the statement of the paper that it is judged by."""
_HEAD = """<!-- Written by docs/reproduction/page.py: do not edit. -->
# What did the three papers' statements come to here?

For readers of D-CPT Law (Que et al., 2024), Learning Dynamics in CPT (Wang et al., 2025) and AutoScale (Kang et al.,
2024). All numbers are from kept runs of models of .025 to .33 million parameters; where the size of the models is the
cause, nothing here shows it. A row names its kept study: `cptlaw tables docs/results/STUDY tables.papers=FOLDER` gives
its numbers, `python -m docs.reproduction.measured` those of the tests. [All tables](reproduction.md), with the
[rule](../pipeline/paper_tables/verdict.py) of the verdicts."""


def findings(book: Book) -> str:
    """The page. Rows are in the order of STATEMENTS; a table that is not kept is left out."""
    parts = [_HEAD]
    kept = {name: book.tables[name] for name in STATEMENTS if name in book.tables}
    groups = {"Confirmed, or in order": (HOLDS, IN_ORDER), "Not confirmed, and by which test": (NOT_HERE,)}
    for title, verdicts in groups.items():
        rows = [
            (STATEMENTS[name], _here(shown.why), cause(book, name), f"{numbered(name)}, {folder.name}")
            for name, (shown, folder) in kept.items()
            if shown.verdict in verdicts
        ]
        heads = ["statement", "here", "test of the cause", "table, study"]
        columns = (0, 1, 3) if verdicts != (NOT_HERE,) else (0, 1, 2, 3)
        parts += [f"## {title}", pipes([[row[at] for at in columns] for row in rows], [heads[at] for at in columns])]
    rest = [(STATEMENTS[name], _here(shown.why)) for name, (shown, _) in kept.items() if shown.verdict not in
            (HOLDS, IN_ORDER, NOT_HERE)]  # fmt: skip
    parts += ["## Cannot be judged from our points", pipes(rest, ["statement", "here"])]
    parts += ["## What depends on early points, schedule or size", *_depends(book)]
    return "\n\n".join(parts) + "\n"


def _here(why: str) -> str:
    """The first sentence of a reason, without what it asks for."""
    for later in ("; wrong", " Eq. 4 orders", "; the standard", "; measured", ". 1 - R2", " By exp"):
        why = why.split(later)[0]
    return why.replace(" (required: 80%)", "").removeprefix("The predicted optimum is confirmed: ")


_CASES = tuple(f"{design} {least:g} {first}" for design, least, first in L3_CASES)


def _depends(book: Book) -> list[str]:
    measured = book.measured
    r2 = {points: " and ".join(f"{measured[f'{law} D {points}']:.4f}" for law in L3[:2]) for points in _CASES}
    free = {points: f"{measured[f'{L3[2]} D {points}']:.4f}" for points in r2}
    near = {
        at: " and ".join(f"{measured[f'schedules {at} {corpus} near']:.0f}" for corpus in ("D_cpt", "D_pt"))
        for at in ("fitted", "predicted")
    }
    lines = [
        "Early points and the bound of eta: the mean R2 of L3 on the domains, as printed (eq. 26, eta > 1) and "
        "without eta > 1, is "
        f"{r2['first 0 40']} from step 40 of 400 in the first design, {r2['first 0.1 40']} at ratios of .1 and more, "
        f"{r2['first 0.1 120']} at those from step 120 on; {r2['second 0 300']} in the second design, all ratios from "
        f"step 300 of 1,200, and {r2['second 0 600']} from step 600 on; and {r2['third 0 300']} in the third from step "
        f"300 on. Without eq. 26 too it is {', '.join(free.values())}: being monotone costs nothing.",
        f"Noise: the standard deviation over seeds of a final loss is {measured['seed sd']:.4f} nats; two losses of "
        f"one seed within {SEED_TIE:g} tie. Such noise moves the ratio of two forms' misfits by at most "
        f"{measured['seed ratio, largest']:.0%} (standard deviation, on law): they tie within a tenth.",
        "Schedule: more loss potential lowers the loss on the new corpus without re-warm-up, and not with one to a "
        "tenth of the peak. Eq. 4 needs the schedules that it is asked about: of figure 10 it follows "
        f"{near['fitted']} of 16 curves (new and old corpus) within 1% fitted to them, {near['predicted']} predicted.",
        "Size: the shift is alike in both sizes of dynamics-small (figure 14). Whether a verdict changes with size was "
        "not tested.",
    ]
    return ["\n".join(textwrap.fill(f"- {line}", 120, subsequent_indent="  ") for line in lines)]
