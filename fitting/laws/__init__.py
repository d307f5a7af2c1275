"""The laws by name. A new law is a file beside this one, an entry in `LAWS`, and, to fit it in a study, its points,
`Law.study`."""

from fitting.laws.annealing import ANNEALING
from fitting.laws.chinchilla import CHINCHILLA
from fitting.laws.cross_domain import CROSS_DOMAIN
from fitting.laws.data_mixing import DATA_MIXING
from fitting.laws.dcpt import DCPT, DCPT_CONVEX, DCPT_FORMS, DCPT_FREE
from fitting.laws.ddo import DDO
from fitting.laws.dynamics import DYNAMICS
from fitting.laws.law import UNKNOWN, AnnealingArea, Cone, Law, Parameter, Solving, StudyPoints, with_unknown
from fitting.laws.multi_power import MULTI_POWER
from fitting.laws.openai import OPENAI
from fitting.laws.read import READ
from fitting.laws.tokens import TOKENS
from fitting.laws.transfer import TRANSFER

LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        *(OPENAI, CHINCHILLA, *TOKENS, *DCPT_FORMS[:2], DCPT, DCPT_CONVEX, DCPT_FREE, *DCPT_FORMS[2:]),
        *CROSS_DOMAIN,
        *(ANNEALING, MULTI_POWER, *DYNAMICS),
        *TRANSFER,
        *READ,
        *(DDO, DATA_MIXING),
    )
}

__all__ = ["LAWS", "UNKNOWN", "AnnealingArea", "Cone", "Law", "Parameter", "Solving", "StudyPoints", "with_unknown"]
