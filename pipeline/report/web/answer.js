"use strict";
// The trade-off of fitting/answers/trade_off.py at any tolerance, size and length, from the same fits, refits and errors.
const GRID = 1000;  // shares tried between 0 and 1

/** Loss on a corpus ("general" or "domain") against the domain's share, at a size and a length of `study`. */
function lossOf(study, role, size, length) {
  const fit = study.fits[role], law = LAWS[fit.law];
  const x = {...length.at[role], N: size.N, D: length.D, loss_before: size.before[role], r: 0};
  const curve = (share, params = fit.params) => {
    x.r = role === "general" ? 1 - share : share;
    return law(params, x);
  };
  return {curve, columns: x};
}

/** Number of the last share of the grid within the cap; -1: none. */
function lastInside(loss, cap) {
  let at = GRID;
  while (at >= 0 && !(loss(at / GRID) <= cap)) at--;
  return at;
}

/** The largest share within the cap, by bisection; null: none. */
function largestShare(loss, cap) {
  const last = lastInside(loss, cap);
  if (last < 0) return null;
  if (last === GRID) return 1;
  let [low, high] = [last / GRID, (last + 1) / GRID];
  while (high - low > 1e-12) {
    const middle = (low + high) / 2;
    if (loss(middle) <= cap) low = middle; else high = middle;
  }
  return low;
}

/** As numpy's, between the two nearest. */
function quantile(values, level) {
  const sorted = Float64Array.from(values).sort(), place = level * (sorted.length - 1), at = Math.floor(place);
  const next = Math.min(at + 1, sorted.length - 1);
  return sorted[at] + (place - at) * (sorted[next] - sorted[at]);
}

/** What `cptlaw recommend` says: share, its 90% interval, losses with theirs; share null: no mixture is allowed. */
function answer(study, tolerance, size, length) {
  const of = {general: lossOf(study, "general", size, length), domain: lossOf(study, "domain", size, length)};
  const before = size.before.general, cap = before * (1 + tolerance), general = of.general.curve;
  const share = largestShare(general, cap);
  if (share === null) return {share, least: general(0) / before - 1, of, cap};
  const ratios = study.fits.general.draws.map((params, at) => {
    const own = cap * study.caps[at], loss = r => general(r, params), last = lastInside(loss, own);
    if (last < 0 || last === GRID) return last < 0 ? 0 : 1;
    const [here, next] = [loss(last / GRID), loss((last + 1) / GRID)];
    return (last + (own - here) / (next - here)) / GRID;
  });
  const predicted = {};
  for (const [role, {curve}] of Object.entries(of)) {
    const fit = study.fits[role];
    const measured = fit.draws.flatMap((params, at) => {
      const loss = curve(share, params);
      return fit.noise[at].map(error => loss * Math.exp(error));
    });
    predicted[role] = {loss: curve(share), low: quantile(measured, .05), high: quantile(measured, .95)};
  }
  const low = Math.min(quantile(ratios, .05), share), high = Math.max(quantile(ratios, .95), share);
  return {share, low, high, predicted, of, cap};
}

/** A line for each column in which the question, at that share, lies outside what was fitted to general, or else to the
 * domain. */
function beyond(study, of, share) {
  const lines = new Map();
  for (const [role, {columns}] of Object.entries(of)) {
    const at = {...columns, r: role === "general" ? 1 - share : share};
    for (const [name, [low, high]] of Object.entries(study.fits[role].ranges)) {
      const value = at[name], margin = 1e-9 * Math.max(Math.abs(low), Math.abs(high));
      const [end, side] = value > high ? [high, "largest"] : [low, "smallest"];
      if (value === undefined || lines.has(name) || (value <= high + margin && value >= low - margin)) continue;
      const far = end > 0 && value > 0 ? `${(value / end).toPrecision(2)} times` : "beyond";
      lines.set(name, `${name} is ${far} the ${side} fitted`);
    }
  }
  return [...lines.values()];
}
