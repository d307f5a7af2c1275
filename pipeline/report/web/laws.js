"use strict";
// The laws of fitting/laws that a trade-off can ask, each as there: p, the parameters of a fit; x, the columns.
const trunk = (p, x) => p.L0 + p.A * (x.s1_pretrain + x.s1) ** -p.alpha;
const shift = (p, x) => -Math.expm1(-p.beta * Math.log1p(p.E * x.s1));
const signed = (value, exponent) => Math.sign(value) * Math.abs(value) ** exponent;
const way = (p, x) => p.C * Math.log((x.rho + p.eps) / (x.r + p.eps));
const goesOn = (p, x) => -p.C2 * x.s2 - p.G * Math.log1p(x.s1 / x.s1_pretrain);
const anchored = (p, x) => way(p, x) * Math.log1p(p.E * x.s1);
const sizes = (p, x) => p.E + p.A * x.N ** -p.alpha;

const dcpt = (p, x) => sizes(p, x) + p.B * x.r ** p.eta * x.D ** -p.beta + p.C * (x.r + p.eps) ** -p.gamma;
const dynamics = (p, x) => trunk(p, x) - p.C1 * x.s2_pretrain - p.C2 * x.s2 + p.B * shift(p, x);

const LAWS = {
  openai: (p, x) => {
    // In logarithms, since N to the power of aN / aD may overflow.
    const a = -p.aN / p.aD * Math.log(x.N), b = Math.log(p.d) - Math.log(x.D), top = Math.max(a, b);
    return p.A * Math.exp(p.aD * (top + Math.log(Math.exp(a - top) + Math.exp(b - top))));
  },
  chinchilla: (p, x) => sizes(p, x) + p.B * x.D ** -p.beta,
  "dcpt-l1": (p, x) => sizes(p, x) + p.B * x.D ** -p.beta + p.C * (x.r + p.eps) ** -p.gamma,
  "dcpt-l2": (p, x) =>
    sizes(p, x) + p["B^eta"] * (x.D ** -p.beta + p["C/B"] * (x.r + p.eps) ** -p.gamma) ** p.eta,
  dcpt,
  "dcpt-free": dcpt,
  "dcpt-l4": (p, x) => sizes(p, x) + p.B * p.b ** x.r * x.D ** -p.beta + p.C * p.c ** -x.r,
  "dcpt-l5": (p, x) => sizes(p, x) + p.B * (x.r * x.D + (1 - x.r) * p.sigma) ** -p.beta,
  annealing: (p, x) => p.L0 + p.A * x.s1 ** -p.alpha - p.C * x.s2,
  dynamics,
  "dynamics-size": (p, x) => trunk(p, x) - p.C1 * x.s2_pretrain * x.N ** p.g1 - p.C2 * x.s2 * x.N ** p.g2
    + p.F * x.N ** -p.g3 + p.B * shift(p, x),
  "dynamics-replay": (p, x) => trunk(p, x) - p.C1 * x.s2_pretrain - p.C2 * x.s2 * Math.exp(p.a1 * x.r)
    - p.B * shift(p, x) * Math.expm1(-p.a2 * (1 - x.r)),
  "dynamics-replay-domain": (p, x) => trunk(p, x) - p.C1 * x.s2_pretrain - p.C2 * x.s2 * Math.exp(p.a1 * x.r)
    + p.B * shift(p, x) * Math.expm1(p.a2 * x.r),
  "dynamics-lr-weighted": dynamics,
  "dynamics-lr-weighted-0.2": dynamics,
  "dynamics-power": (p, x) => trunk(p, x) - p.C1 * signed(x.s2_pretrain, p.zeta1) - p.C2 * signed(x.s2, p.zeta2)
    + p.B * shift(p, x),
  "transfer-anchored": (p, x) => x.loss_before + goesOn(p, x) + anchored(p, x),
  transfer: (p, x) => p.L0 + p.F * x.N ** -p.g + goesOn(p, x) + anchored(p, x),
  "transfer-scaled": (p, x) => x.loss_before + goesOn(p, x) + x.N ** p.nu * anchored(p, x),
  "transfer-rate": (p, x) =>
    x.loss_before + goesOn(p, x) + way(p, x) * Math.log1p(p.E * (x.r + p.eps) ** p.kappa * x.s1),
  "transfer-saturating": (p, x) => x.loss_before + goesOn(p, x) + way(p, x) * shift(p, x),
};
