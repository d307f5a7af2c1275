"""The laws by name. A new law is one file beside this one and one entry in the list below."""

from fitting.laws.chinchilla import CHINCHILLA
from fitting.laws.dcpt import DCPT
from fitting.laws.dcpt_l1 import DCPT_L1
from fitting.laws.law import Law, Parameter
from fitting.laws.transfer_anchored import TRANSFER_ANCHORED

LAWS: dict[str, Law] = {law.name: law for law in (CHINCHILLA, DCPT_L1, DCPT, TRANSFER_ANCHORED)}

__all__ = ["LAWS", "Law", "Parameter"]
