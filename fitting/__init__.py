"""points -> law -> answer. Plain numbers in, plain numbers out."""

from fitting.crossval import held_out
from fitting.fitted import Fit
from fitting.laws import LAWS, Law, Parameter
from fitting.points import PointsError
from fitting.schedule import areas, with_areas
from fitting.solve import fit
from fitting.tradeoff import TradeOff, trade_off

__all__ = [
    "LAWS",
    "Fit",
    "Law",
    "Parameter",
    "PointsError",
    "TradeOff",
    "areas",
    "fit",
    "held_out",
    "trade_off",
    "with_areas",
]
