"use strict";
// The sliders: what the study's fits say at other tolerances, sizes and lengths.
const study = held("study");
const explorer = document.getElementById("explorer");
const sliders = Object.fromEntries([...explorer.querySelectorAll("input")].map(input => [input.name, input]));
const [short, long] = explorer.querySelector("#explored").children;
const MANY = 51;  // shares of a curve

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;
const tidy = value => String(Number(value.toPrecision(3)));
const change = share => `${share < 0 ? "\u2212" : "+"}${tidy(100 * Math.abs(share))}%`;
function quantity(count) {
  const [size, unit] = [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"]].find(([size]) => count >= size) ?? [1, ""];
  return tidy(count / size) + unit;
}

function chosen() {
  const at = name => study[name][Number(sliders[name].value)];
  return {tolerance: at("tolerances"), size: at("sizes"), length: at("lengths")};
}

function tell(name, words) {
  explorer.querySelector(`output[for=${name}]`).textContent = words;
  sliders[name].setAttribute("aria-valuetext", words);
}

/** The answer in a few words, and the rest of it. */
function sentences({share, low, high, predicted, least}, {tolerance, size, length}, lines) {
  const {general, domain} = study.names;
  const run = `for ${size.model ?? "such a model"} and ${quantity(length.D * 1e9)} tokens`;
  if (share === null)
    return [`No share of ${domain} ${run}.`, `None keeps the loss on ${general} within ${change(tolerance)}: without any `
      + `${domain} it would be at ${change(least)}.`];
  // Down, as the recommendation.
  const down = Math.floor(share * 1000) / 1000, losses = Object.entries(predicted).map(([role, {loss, low, high}]) =>
    `${loss.toFixed(4)} on ${study.names[role]} (${low.toFixed(4)} to ${high.toFixed(4)})`);
  const binds = share === 1 ? "Nothing binds: all of it is within the tolerance."
    : `The loss on ${general} reaches ${change(tolerance)}.`;
  const far = lines.length ? ` Beyond what was fitted: ${lines.join("; ")}.` : "";
  return [`${percent(down)} ${domain} (90% interval ${percent(low)} to ${percent(high)}) ${run}.`,
    `${binds} Losses, with 90% intervals: ${losses.join(" and ")}.${far}`];
}

const line = (x, y, color, dash = "solid", more = {}) =>
  ({type: "scatter", mode: "lines", x, y, line: {color, dash, width: 2.2}, hoverinfo: "skip", ...more});
const mark = (x, y, more = {}) => ({type: "scatter", mode: "markers", x: [x], y: [y], hoverinfo: "skip",
  marker: {symbol: "circle-open", size: 15, color: study.inks.answer, line: {width: 2.5}}, ...more});

/** Loss against the share, with the cap on general and the answer. */
function curvePlot(role, found) {
  const shares = Array.from({length: MANY}, (_, at) => at / (MANY - 1)), x = shares.map(share => 100 * share);
  const losses = shares.map(share => found.of[role].curve(share));
  const data = [line(x, losses, study.inks[role], "solid",
    {hoverinfo: undefined, hovertemplate: "%{y:.4f} at %{x:.0f}%<extra></extra>"})];
  data.push(line([0, 100], Array(2).fill(chosen().size.before[role]), study.inks.before, "dash"));
  if (role === "general") data.push(line([0, 100], [found.cap, found.cap], study.inks.cap, "dot"));
  if (found.share !== null) {
    const {loss, low, high} = found.predicted[role];
    data.push(mark(100 * found.share, loss,
      {error_y: {type: "data", symmetric: false, array: [high - loss], arrayminus: [loss - low], thickness: 1.6}}));
  }
  return {data, layout: study.layouts[role]};
}

/** Loss on the domain over share and length as a map, with the border of what the tolerance allows. */
function mapPlot(found, {tolerance, size}) {
  const shares = Array.from({length: MANY}, (_, at) => at / (MANY - 1)), y = study.lengths.map(({D}) => D * 1e9);
  const cap = size.before.general * (1 + tolerance);
  const z = study.lengths.map(length => {
    const {curve} = lossOf(study, "domain", size, length);
    return shares.map(share => curve(share));
  });
  const border = study.lengths.map(length => {
    const share = largestShare(lossOf(study, "general", size, length).curve, cap);
    return share === null ? null : 100 * share;
  });
  const data = [{type: "contour", x: shares.map(share => 100 * share), y, z, ncontours: 12, showscale: false,
    colorscale: [[0, "#0b2740"], [1, "#4b83b1"]], line: {width: .8, color: "#fdfdfd"},
    contours: {coloring: "heatmap", showlabels: true, labelfont: {size: 11, color: "#fdfdfd"}},
    hovertemplate: "%{z:.4f} at %{x:.0f}% and %{y:.3s} tokens<extra></extra>"}];
  data.push(line(border, y, "#101010", "solid", {line: {width: 5, color: "#101010"}}));
  data.push(line(border, y, "#ffd166"));
  if (found.share !== null) data.push(mark(100 * found.share, found.of.domain.columns.D * 1e9,
    {marker: {symbol: "circle", size: 12, color: "#fdfdfd", line: {width: 3, color: "#101010"}}}));
  return {data, layout: study.layouts.map};
}

function explore() {
  const at = chosen(), found = answer(study, at.tolerance, at.size, at.length);
  const lines = found.share === null ? [] : beyond(study, found.of, found.share);
  tell("tolerances", change(at.tolerance));
  tell("sizes", `${at.size.model ?? "between two that were measured"}, ${quantity(at.size.N * 1e9)} parameters`);
  tell("lengths", `${quantity(at.length.D * 1e9)} tokens, ${at.length.steps.toLocaleString("en")} step${at.length.steps === 1 ? "" : "s"}`);
  [short.textContent, long.textContent] = sentences(found, at, lines);
  for (const role of ["general", "domain"]) plot(explorer.querySelector(`.plot.${role}`), curvePlot(role, found));
  plot(explorer.querySelector(".plot.map"), mapPlot(found, at));
}

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    explore();
  });
}

function back() {
  for (const [name, place] of Object.entries(study.start)) sliders[name].value = place;
  explore();
}

explorer.querySelector(".controls").hidden = false;
explorer.addEventListener("input", soon);
explorer.querySelector("button.back").addEventListener("click", back);
repaint.push(explore);
// A browser that goes back to the page remembers where the sliders stood.
back();
explorer.dataset.drawn = "";
