"""points -> law -> answer. Plain numbers in, plain numbers out."""

from fitting.answers.answer import Answer, Estimate, Status
from fitting.answers.balance import balance
from fitting.answers.compute_optimal import compute_optimal
from fitting.answers.inflection import inflection_ratio, transfer_inflection
from fitting.answers.limited_data import limited_data
from fitting.answers.loss_curve import loss_curve
from fitting.answers.new_domain import NewDomain, new_domain
from fitting.answers.out_of_domain import out_of_domain
from fitting.answers.trade_off import TradeOff, trade_off
from fitting.answers.turning_point import critical_point, turning_length
from fitting.cross_validation import Fold, folds, held_out
from fitting.design.design import Design, design
from fitting.estimation import fit, fit_shared
from fitting.fitted import Fit
from fitting.law_average import LawAverage, law_weights
from fitting.law_selection import advise, average, compare, try_out
from fitting.laws import LAWS, Law, Parameter
from fitting.laws.tokens import ONE_CURVE
from fitting.mixtures.autoscale import AutoScale, autoscale
from fitting.mixtures.best_mixture import Longer, best_mixture
from fitting.mixtures.ddo import DDO, ddo
from fitting.mixtures.optimum import MixtureOptimum, mixture_optimum
from fitting.mixtures.random_mixtures import dirichlet_mixtures
from fitting.points import PointsError, problems
from fitting.repetition import effective_tokens, with_repetition
from fitting.schedule import Schedule, areas, areas_of_powers, with_areas
from fitting.solver.lbfgs_grid import LbfgsGrid
from fitting.solver.multi_start import VarPro
