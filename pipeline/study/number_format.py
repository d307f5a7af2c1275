"""Ratios, counts and names as text."""

import html
import math
from collections.abc import Mapping

import numpy as np

from fitting import Fit
from fitting.law_average import AVERAGE

NOT_KNOWN = "not known"
"""In place of a number of which nothing is known."""
LEAST_WEIGHT = 0.005
"""Weight in an average below which a law has no part in it: 0 in whole percents."""


def label(text: str) -> str:
    """Text for plotly, which reads a few tags.

    >>> label("a<b>")
    'a&lt;b&gt;'
    """
    return html.escape(text, quote=False)


def short(text: str) -> str:
    """A name that fits under an axis, for plotly.

    >>> short("a corpus with a very long name"), short("code")
    ('a corpus with a…', 'code')
    """
    return label(text if len(text) <= 16 else text[:15].rstrip() + "…")


def domain_ratio_of(domain: str) -> str:
    """The domain ratio by the name of its corpus, where that says more.

    >>> domain_ratio_of("code"), domain_ratio_of("domain")
    ('domain ratio of code', 'domain ratio')
    """
    return "domain ratio" if domain == "domain" else f"domain ratio of {domain}"


def laws_used(law: Mapping[str, str], weights: Mapping[str, Mapping[str, float]]) -> str:
    """Corpus -> law, in words; of an average corpus -> law -> weight, where one law of weight 1 answers by itself.

    >>> laws_used({"general": "dcpt", "code": "dcpt"}, {})
    'dcpt'
    >>> weights = {"law": {"dcpt": 0.4, "transfer": 0.6}, "code": {"dcpt": 1.0, "transfer": 0.0}}
    >>> laws_used({"law": "average", "code": "average"}, weights)
    'the average of the laws on law and dcpt on code'
    """
    counted = {corpus: [law for law, weight in of_law.items() if weight] for corpus, of_law in weights.items()}
    alone = {corpus: laws[0] for corpus, laws in counted.items() if len(laws) == 1}
    law = {
        corpus: alone.get(corpus, "the average of the laws") if name == AVERAGE else name
        for corpus, name in law.items()
    }
    names = set(law.values())
    return names.pop() if len(names) == 1 else " and ".join(f"{name} on {corpus}" for corpus, name in law.items())


def weights_used(weights: Mapping[str, float], between: str = ", ") -> str:
    """Law -> weight in an average, in words, the largest first.

    >>> weights_used({"dcpt": 0.25, "transfer": 0.75})
    'transfer 75%, dcpt 25%'
    """
    return between.join(f"{law} {weight:.0%}" for law, weight in sorted(weights.items(), key=lambda item: -item[1]))


def percent(ratio: float) -> str:
    """A ratio in percent, with as many digits as tell it from 0 and 1.

    >>> percent(0.25), percent(0.253), percent(0.9996), percent(1e-6)
    ('25%', '25.3%', '99.96%', '<0.001%')
    """
    if min(abs(ratio), abs(1 - ratio)) < 1e-9:
        return f"{ratio:.0%}"
    shown = (f"{100 * ratio:.{digits}f}" for digits in (1, 2, 3))
    told = next((text for text in shown if float(text) not in (0, 100)), "<0.001" if ratio < 0.5 else ">99.999")
    return told.removesuffix(".0") + "%"


def signed(change: float, digits: int = 2) -> str:
    """A relative change in percent with its sign, which a change that rounds to 0 has not.

    >>> signed(0.0123), signed(-0.0585, 1), signed(-0.00001)
    ('+1.23%', '-5.9%', '0.00%')
    """
    shown = f"{change:+.{digits}%}"
    return shown if shown.strip("+-0.%") else shown[1:]


def coefficient(value: float) -> str:
    """A parameter of a law in four digits; what is below 1e-12 is the solver's way to write 0.

    >>> coefficient(0.123456), coefficient(-5.7e-27)
    ('0.1235', '0')
    """
    return f"{value:.4g}" if abs(value) >= 1e-12 else "0"


def parameter_intervals(fit: Fit) -> dict[str, str]:
    """Parameter -> its 90% interval, of a fit with draws.

    Nothing is known of a parameter whose column has one value (`Law.varies`), nor of one that is not identified and
    ended at one bound in every draw: the prior put it there.
    """
    one_value = {column for column, (low, high) in fit.ranges.items() if low == high}
    unseen, identified = {fit.equation.varies.get(column) for column in one_value}, fit.identified
    return {
        name: NOT_KNOWN
        if name in unseen or (not identified[name] and np.isclose(*ends, rtol=1e-4, atol=0.0))
        else " to ".join(map(coefficient, ends))
        for name, ends in fit.intervals().items()
    }


def quantity(count: float) -> str:
    """A count of tokens, parameters or operations, three digits and a unit.

    >>> quantity(1_536_000), quantity(7e9), quantity(12), quantity(999_999)
    ('1.54 M', '7 B', '12', '1 M')
    """
    for size, unit in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if float(f"{count:.3g}") >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.3g}"


def cost_in(unit: str, cost: float) -> str:
    """The digits of a cost, two of them; of hours without an exponent, of tokens as `quantity`.

    >>> cost_in("device-hours", 484.0), cost_in("GPU-h", 0.0162), cost_in("FLOPs", 2.24e15), cost_in("tokens", 2.04e5)
    ('480', '0.016', '2.2e+15', '200 k')
    """
    digits = f"{cost:.2g}"
    if unit == "tokens":
        return quantity(float(digits))
    return f"{float(digits):,.10g}" if unit in ("device-hours", "GPU-h") else digits


def at_least(limit: float) -> str:
    """A lower limit above 0, three digits rounded up, so that what is shown is enough.

    >>> at_least(0.02504), at_least(0.0125), at_least(3.751e12)
    ('0.0251', '0.0125', '3.76e+12')
    """
    scale = 10.0 ** (math.floor(math.log10(limit)) - 2)
    return f"{math.ceil(limit / scale - 1e-9) * scale:.3g}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(90), duration(900), duration(9000)
    ('90 s', '15 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
