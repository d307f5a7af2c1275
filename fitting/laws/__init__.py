"""The laws by name. A new law is one file beside this one and one entry in the list below."""

from fitting.laws.annealing import ANNEALING
from fitting.laws.chinchilla import CHINCHILLA
from fitting.laws.cross_domain import CROSS_DOMAIN
from fitting.laws.data_mixing import DATA_MIXING
from fitting.laws.dcpt import DCPT, DCPT_FREE
from fitting.laws.dcpt_l1 import DCPT_L1
from fitting.laws.dcpt_l2 import DCPT_L2
from fitting.laws.dcpt_l4 import DCPT_L4
from fitting.laws.dcpt_l5 import DCPT_L5
from fitting.laws.ddo import DDO
from fitting.laws.dynamics import DYNAMICS
from fitting.laws.law import UNKNOWN, Law, Parameter, with_unknown
from fitting.laws.openai import OPENAI
from fitting.laws.transfer import TRANSFER

LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        *(OPENAI, CHINCHILLA, DCPT_L1, DCPT_L2, DCPT, DCPT_FREE, DCPT_L4, DCPT_L5),
        *CROSS_DOMAIN,
        *(ANNEALING, *DYNAMICS),
        *TRANSFER,
        *(DDO, DATA_MIXING),
    )
}

__all__ = ["LAWS", "UNKNOWN", "Law", "Parameter", "with_unknown"]
