"use strict";
// The sliders: looks up and draws the answers that Python computed (pipeline/show/report/explorer.py).
const study = held("study");
const explorer = document.getElementById("explorer");
const sliders = Object.fromEntries([...explorer.querySelectorAll("input")].map(input => [input.name, input]));
const [short, long] = explorer.querySelector("#explored").children;

const percent = thousandths => `${(thousandths / 10).toFixed(1)}%`;
const tidy = value => String(Number(value.toPrecision(3)));
const change = ratio => `${ratio < 0 ? "\u2212" : "+"}${tidy(100 * Math.abs(ratio))}%`;
function quantity(count) {
  const units = [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"]];
  const [size, unit] = units.find(([size]) => Number(tidy(count)) >= size) ?? [1, ""];
  return tidy(count / size) + unit;
}

/** The answer at the present positions; ratio null: no domain ratio is within the tolerance. */
function answer() {
  const [t, s, l] = ["tolerances", "sizes", "lengths"].map(name => Number(sliders[name].value));
  const grid = study.answers[s][l], at = rows => rows.map(row => row[t]), [ratio, low, high] = at(grid.ratios);
  return {grid, ratio, low, high, general: at(grid.general), domain: at(grid.domain), row: study.answers[s], place: t,
    tolerance: study.tolerances[t], size: study.sizes[s], length: study.lengths[l]};
}

function describe(name, words) {
  explorer.querySelector(`output[for=${name}]`).textContent = words;
  sliders[name].setAttribute("aria-valuetext", words);
}

/** The answer in a few words, and its details. */
function sentences({grid, ratio, low, high, tolerance, size, length, ...of}) {
  const {general, domain, ratio: ratioName} = study.names;
  const run = `for ${size.model ?? "a model of this size"} and ${quantity(length.D * 1e9)} tokens`;
  if (ratio === null)
    return [`No ${ratioName} ${run}.`, `None keeps the loss increase on ${general} within `
      + `${change(tolerance)}: without any ${domain} it is ${change(grid.general_curve[0][0] / size.before.general - 1)}.`];
  const losses = ["general", "domain"].map(role => {
    const [loss, low, high] = of[role].map(value => value.toFixed(4));
    return `${loss} on ${study.names[role]} (${low} to ${high})`;
  });
  const [least_change, most_change] = of.general.slice(1).map(loss => change(loss / size.before.general - 1));
  const binds = grid.open[of.place] === 1 ? `The ${ratioName} is not known yet: its interval is too wide.`
    : grid.open[of.place] === 2 ? `Whether it keeps to the tolerance is not known by the fits: the change on ${general} `
      + `is predicted as ${least_change} to ${most_change}.`
    : ratio === 1000 ? "Nothing binds: training on the domain alone is predicted within the tolerance."
    : `The loss increase on ${general} reaches ${change(tolerance)}.`;
  const far = [...size.beyond, ...length.beyond], [least, most] = study.fitted;
  if (ratio / 1000 < least - 1e-3 || ratio / 1000 > most + 1e-3)
    far.push(`the fitted domain ratios are ${percent(1000 * least)} to ${percent(1000 * most)}`);
  const warning = far.length ? ` Extrapolation: ${far.join("; ")}.` : "";
  return [`${percent(ratio)} ${domain} (90% interval ${percent(low)} to ${percent(high)}) ${run}.`,
    `${binds} Losses, with 90% intervals: ${losses.join(" and ")}.${warning}`];
}

const line = (x, y, color, dash = "solid", more = {}) =>
  ({type: "scatter", mode: "lines", x, y, line: {color, dash, width: 2.2}, hoverinfo: "skip", ...more});
const mark = (x, y, more = {}) => ({type: "scatter", mode: "markers", x: [x], y: [y], hoverinfo: "skip",
  marker: {symbol: "circle-open", size: 15, color: study.inks.answer, line: {width: 2.5}}, ...more});
const across = study.curve.map(ratio => 100 * ratio);

/** Loss against the domain ratio with its interval, the largest allowed loss on general, and the answer. */
function curvePlot(role, {grid, ratio, size, tolerance, [role]: [loss, low, high]}) {
  const [losses, lows, highs] = grid[`${role}_curve`], ink = study.inks[role];
  const data = [{type: "scatter", mode: "none", x: [...across, ...across.toReversed()],
    y: [...lows, ...highs.toReversed()], fill: "toself", fillcolor: study.inks[`${role}_band`], hoverinfo: "skip"}];
  data.push(line(across, losses, ink, "solid",
    {hoverinfo: undefined, hovertemplate: "%{y:.4f} at %{x:.0f}%<extra></extra>"}));
  data.push(line([0, 100], Array(2).fill(size.before[role]), study.inks.before, "dash"));
  if (role === "general")
    data.push(line([0, 100], Array(2).fill(size.before.general * (1 + tolerance)), study.inks.cap, "dot"));
  if (ratio !== null) data.push(mark(ratio / 10, loss,
    {error_y: {type: "data", symmetric: false, array: [high - loss], arrayminus: [loss - low], thickness: 1.6}}));
  return {data, layout: study.layouts[role]};
}

/** Loss on the domain over domain ratio and length, with the largest ratio within the tolerance. */
function mapPlot({row, place, ratio, length}) {
  const y = study.lengths.map(({D}) => D * 1e9), z = row.map(({domain_curve}) => domain_curve[0]);
  const border = row.map(({ratios: [ratio]}) => ratio[place] === null ? null : ratio[place] / 10);
  const data = [{type: "contour", x: across, y, z, ncontours: 12, showscale: false,
    colorscale: [[0, "#0b2740"], [1, "#4b83b1"]], line: {width: .8, color: "#fdfdfd"},
    contours: {coloring: "heatmap", showlabels: true, labelfont: {size: 11, color: "#fdfdfd"}},
    hovertemplate: "%{z:.4f} at %{x:.0f}% and %{y:.3s} tokens<extra></extra>"}];
  data.push(line(border, y, "#101010", "solid", {line: {width: 5, color: "#101010"}}));
  data.push(line(border, y, "#ffd166"));
  if (ratio !== null) data.push(mark(ratio / 10, length.D * 1e9,
    {marker: {symbol: "circle", size: 12, color: "#fdfdfd", line: {width: 3, color: "#101010"}}}));
  return {data, layout: study.layouts.map};
}

function explore() {
  const found = answer(), {tolerance, size, length} = found;
  describe("tolerances", change(tolerance));
  describe("sizes", `${size.model ?? "between two measured models"}, ${quantity(size.N * 1e9)} parameters`);
  describe("lengths", `${quantity(length.D * 1e9)} tokens, ${length.steps.toLocaleString("en")} `
    + `step${length.steps === 1 ? "" : "s"}`);
  [short.textContent, long.textContent] = sentences(found);
  for (const role of ["general", "domain"]) plot(explorer.querySelector(`.plot.${role}`), curvePlot(role, found));
  plot(explorer.querySelector(".plot.map"), mapPlot(found));
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
// A browser that goes back to the page remembers the positions of the sliders.
back();
explorer.dataset.drawn = "";
