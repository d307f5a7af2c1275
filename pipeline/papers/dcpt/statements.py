"""What the D-CPT paper (Que et al., 2024) states of its tables, with the section that says so."""

from pipeline.papers.verdict import Statement

_EFFECTIVE = (
    Statement(("L3",), ("L1", "L4"), "sec. 4.2: L1 and L4 still fall short in performance compared to L2 and L3"),
    Statement(("L2",), ("L1", "L4"), "sec. 4.2: L1 and L4 still fall short in performance compared to L2 and L3"),
    Statement(("L1", "L2", "L3", "L4"), ("L5",), "sec. 4.2: L5 is significantly less impressive than the others"),
    Statement(("L3",), ("L2",), "sec. 4.2: the results of L2 and L3 are comparable", "no worse"),
)
_OTHERS = ("L1", "L2", "L4", "L5")
_SPLITS = (
    _EFFECTIVE,
    (Statement(("L3",), _OTHERS, "sec. 4.2, model size: L3 shows the best performance"),),
    (Statement(("L3",), _OTHERS, "sec. 4.2, dataset size: L3 shows notably enhanced generalizability"),),
    (Statement(("L3",), _OTHERS, "sec. 4.2, mixture ratio: L3 shows significantly better performance"),),
)
_K = ("K1", "K2", "K3", "K4")
STATEMENTS: dict[int, tuple[Statement, ...]] = {
    **dict(enumerate(_SPLITS, start=1)),
    # The tables by domain are supplements: their sentences are those of the means.
    **{14 + 2 * place + part: statements for place, statements in enumerate(_SPLITS) for part in (0, 1)},
    7: (
        Statement(
            ("K3", "K4"), ("K1", "K2"), "sec. 4.4: a noticeable decline of K1 and K2 on the domain", corpora=("D",)
        ),
        Statement(_K, _K, "sec. 4.4: all yield comparable results on general", "comparable", ("G",)),
    ),
    8: (Statement(("K3",), ("K1", "K2", "K4"), "sec. 4.4: K3 exhibits the superior performance"),),
    10: (Statement(("chinchilla",), ("openai",), "app. D: Chinchilla is obviously better"),),
    13: (
        Statement(("M4",), ("M1", "M2", "M3"), "app. I.1: M4 surpasses M2 and M3, dense M1 does not help", "no worse"),
        Statement(("M3",), ("M1", "M2"), "app. I.1: M3 surpasses M2, dense M1 does not help", "no worse"),
    ),
}
"""Number of the table -> what is stated of it."""
LEVEL = {1: 0.97}
"""Number of the table -> R2 that is stated of L3 (sec. 1); true in the paper of the means over the domains alone."""
