"""points -> law -> answer. Plain numbers in, plain numbers out."""

from fitting.answer import Answer, Estimate
from fitting.autoscale import AutoScale, autoscale, autoscale_steps
from fitting.balance import balance
from fitting.best_mixture import Longer, best_mixture
from fitting.compute_optimal import compute_optimal
from fitting.critical import critical_point
from fitting.crossval import Fold, folds, held_out
from fitting.curve import loss_curve
from fitting.ddo import DDO, ddo
from fitting.fitted import Fit
from fitting.inflection import inflection_ratio, transfer_inflection
from fitting.laws import LAWS, Law, Parameter
from fitting.limited_data import limited_data
from fitting.mixture_optimum import MixtureOptimum, mixture_optimum
from fitting.mixtures import dirichlet_mixtures
from fitting.out_of_domain import out_of_domain
from fitting.points import PointsError
from fitting.preflight import problems
from fitting.schedule import areas, with_areas
from fitting.selection import advise, compare, try_out
from fitting.shared import fit_shared
from fitting.solve import fit
from fitting.tradeoff import TradeOff, trade_off
from fitting.turning import turning_length

__all__ = [
    "DDO",
    "LAWS",
    "Answer",
    "AutoScale",
    "Estimate",
    "Fit",
    "Fold",
    "Law",
    "Longer",
    "MixtureOptimum",
    "Parameter",
    "PointsError",
    "TradeOff",
    "advise",
    "areas",
    "autoscale",
    "autoscale_steps",
    "balance",
    "best_mixture",
    "compare",
    "compute_optimal",
    "critical_point",
    "ddo",
    "dirichlet_mixtures",
    "fit",
    "fit_shared",
    "folds",
    "held_out",
    "inflection_ratio",
    "limited_data",
    "loss_curve",
    "mixture_optimum",
    "out_of_domain",
    "problems",
    "trade_off",
    "transfer_inflection",
    "try_out",
    "turning_length",
    "with_areas",
]
