"""The transfer laws far ahead: what is learned of a corpus goes with how much of it was read.

    L = before - C2 S2 - C (h(r z) - h(rho z)),    z = (K S1)^b,    h(y) = (1 - (1 + y)^-ENDING) / ENDING

h is nearly a logarithm: twice as much of a corpus, by twice its ratio or by 2^(1/b) of S1, brings the loss down by
about C log 2, whatever was read before. So the slope in log r is that of a law of tokens, and runs of a few dozen steps
tell the end of one thirty times as long, where laws whose shift has a height and an end of its own do not
(docs/performance.md, "How far do laws see?"). `transfer-read` is for a model that was pre-trained from scratch;
`transfer-open-read`, with `-domain` on the domain, for one from elsewhere: A in the place of C h(rho z), and Q, which
it loses soon on text of any kind.

Priors and constants are of kept runs, 17 pairs of domain and peak of settled models of .7 and 2.9 M after 4,000 steps
and four domains of SmolLM2-135M after 1,200: they say more there than the few runs that these laws are for.
"""

import numpy as np

from fitting.laws.law import OFFSET, AnnealingArea, Columns, Law, Parameter, Slopes, StudyPoints

ENDING = 0.07
"""Exponent by which what is learned comes to an end."""
FORGOTTEN = 20.0
"""How many times more slowly a corpus of the pre-training (rho = 1) is forgotten than one that is not is learned,
by 56 losses of general text of kept long runs at domain ratios up to .8 (docs/results/long-runs-again)."""
FURTHER = 0.035
"""Nats per token and unit of log(1 + S1 / S1_pretrain) that further training brings on text of the pre-training."""
SOON = 27.0
"""S1, of the power 2/3 of the rate, by which Q is lost: some 25 steps at a peak of 2e-4."""
NEAREST = 3.0
"""Up to so many times the fitted tokens other laws answer, which were tried there."""
_C2 = Parameter("C2", "nats per token and unit of S2")
_B = ("b", "exponent of K S1", 0.05, 3.0, False, (0.5, 1.5), "linear")
_OPEN_AREA = r"S_1[\eta^{2/3}]"
_H = r"h(y) = \frac{1-(1+y)^{-0.07}}{0.07}"
_SOURCE = "cptlaw (docs/laws.md); the areas S1 and S2 are those of Wang et al., ICML 2025, eq. 1"
_OPEN_SOURCE = "cptlaw (docs/base-model.md); areas as Wang et al., ICML 2025, eq. 1, of powers of the rate"


def _amplitude(low: float, high: float) -> Parameter:
    return Parameter("C", "nats per token", 1e-3, 5.0, False, (0.05, 1.0), "log", (low, high))


def _done(area: np.ndarray, K: float | np.ndarray, b: float) -> tuple[np.ndarray, np.ndarray]:
    """z (n,), and its logarithm over b; both 0 where nothing was done."""
    reached = K * area
    steps = np.log(np.where(reached > 0, reached, 1.0))
    return np.where(reached > 0, np.exp(b * steps), 0.0), steps


def _learned(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """h (n,), and y times its derivative."""
    steps = np.log1p(y)
    return -np.expm1(-ENDING * steps) / ENDING, y * np.exp(-(ENDING + 1) * steps)


def _read(x: Columns, psi: np.ndarray) -> np.ndarray:
    C, K, b = psi
    done, _ = _done(x["s1"], K * FORGOTTEN ** -x["rho"], b)
    shift = _learned(x["r"] * done)[0] - _learned(x["rho"] * done)[0]
    return x["loss_before"] - C * shift - FURTHER * x["rho"] * np.log1p(x["s1"] / x["s1_pretrain"])


def _read_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    C, K, b = psi
    rho, s1, past = x["rho"], x["s1"], x["s1_pretrain"]
    done, steps = _done(s1, K * FORGOTTEN**-rho, b)
    (now, of_now), (before, of_before) = _learned(x["r"] * done), _learned(rho * done)
    of_rho = b * np.log(FORGOTTEN) * (of_now - of_before) + done * np.exp(-(ENDING + 1) * np.log1p(rho * done))
    return {
        (0, "s2"): -np.ones(len(s1)),
        (OFFSET, 0): before - now,
        (OFFSET, 1): C * b / K * (of_before - of_now),
        (OFFSET, 2): C * steps * (of_before - of_now),
        (OFFSET, "rho"): C * of_rho - FURTHER * np.log1p(s1 / past),
        (OFFSET, "s1_pretrain"): FURTHER * rho * s1 / (past * (past + s1)),
    }


def _open(x: Columns, psi: np.ndarray) -> np.ndarray:
    Q, A, C, K, b = psi
    done, _ = _done(x["s1_root"], K, b)
    soon = np.expm1(-x["s1_root"] / SOON)
    return x["loss_before"] + Q * soon + A * _learned(done)[0] - C * _learned(x["r"] * done)[0]


def _open_slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
    _, A, C, K, b = psi
    done, steps = _done(x["s1_root"], K, b)
    (moved, of_moved), (read, of_read) = _learned(done), _learned(x["r"] * done)
    of_done = A * of_moved - C * of_read
    return {
        (0, "s2_square"): -np.ones(len(steps)),
        (OFFSET, 0): np.expm1(-x["s1_root"] / SOON),
        (OFFSET, 1): moved,
        (OFFSET, 2): -read,
        (OFFSET, 3): b / K * of_done,
        (OFFSET, 4): steps * of_done,
    }


def _open_law(name: str, on_domain: str, *ranges: tuple[float, float]) -> Law:
    """`ranges`: of the priors of A, C, K and b, which differ between the corpora."""
    A, C, K, b = ranges
    return Law(
        name=name,
        equation=rf"L = L_{{before}} - C_2 S_2[\eta^2] - Q\left(1-e^{{-{_OPEN_AREA}/27}}\right) + A\,h(z) - C\,h(r z),"
        rf"\quad z = \left(K\,{_OPEN_AREA}\right)^b,\quad {_H}",
        source=_OPEN_SOURCE,
        parameters=(
            _C2,
            Parameter("Q", "nats per token", -0.6, 0.8, False, (-0.1, 0.4), prior=(0.04, 0.16)),
            Parameter("A", "nats per token", -0.6, 1.0, False, (-0.1, 0.3), prior=A),
            _amplitude(*C),
            Parameter("K", "per unit of s1_root", 1e-6, 1e4, False, (1e-3, 1.0), "log", K),
            Parameter(*_B, b),
        ),
        columns=("loss_before", "r", "s1_root", "s2_square"),
        varies={"r": "C", "s1_root": "K"},
        basis=lambda x, psi: -x["s2_square"][:, None],
        slopes=_open_slopes,
        offset=_open,
        s2=AnnealingArea(lambda_prior=(0.96, 0.97)),
        study=StudyPoints(from_step=5),
        on_domain=on_domain,
        at_once=True,
        nearest=NEAREST,
    )


_ON_DOMAIN = "transfer-open-read-domain"
READ = (
    Law(
        name="transfer-read",
        equation=r"L = L_{before} - C_2 S_2 - C\left[h(r z) - h(\rho z)\right]"
        rf" - 0.035\,\rho \log\left(1+S_1/S_1^{{pt}}\right),\quad z = \left(20^{{-\rho}} K S_1\right)^b,\quad {_H}",
        source=_SOURCE,
        parameters=(
            _C2,
            _amplitude(0.235, 0.387),
            Parameter("K", "per unit of S1", 1e-2, 1e8, False, (1e1, 1e4), "log", (518.0, 1043.0)),
            Parameter(*_B, (0.8, 1.0)),
        ),
        columns=("loss_before", "rho", "r", "s1", "s2", "s1_pretrain"),
        varies={"r": "C", "s1": "K"},
        basis=lambda x, psi: -x["s2"][:, None],
        slopes=_read_slopes,
        offset=_read,
        study=StudyPoints(from_step=5),
        at_once=True,
        nearest=NEAREST,
    ),
    _open_law("transfer-open-read", _ON_DOMAIN, (0.07, 0.17), (0.174, 0.235), (0.0058, 0.0213), (0.925, 1.175)),
    _open_law(_ON_DOMAIN, "", (-0.03, 0.03), (0.178, 0.279), (0.0907, 0.301), (0.725, 1.075)),
)
