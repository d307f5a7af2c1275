"use strict";
const root = document.documentElement;
const held = name => JSON.parse(document.getElementById(name).textContent);
const [specs, dark, template] = [held("figures"), held("dark"), held("template")];
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
// A finger that moves over a plot scrolls the page; zooming is for those with a mouse.
const touch = matchMedia("(pointer: coarse)").matches;
// Without a mode bar, which would cover titles: drag to zoom, double-click to zoom out.
const plotting = {responsive: true, displayModeBar: false};
/** Functions that draw again when the colours change. */
const repaint = [];
let printing = false;

const isDark = () => !printing && (root.dataset.colours ? root.dataset.colours === "dark" : prefersDark.matches);

/** A plot's data and layout in the page's present colours. */
function coloured(spec) {
  const whole = {...spec, layout: {...spec.layout, template}};
  const made = JSON.parse(JSON.stringify(whole), (key, value) => isDark() ? dark[value] ?? value : value);
  if (touch) made.layout.dragmode = false;
  return made;
}

/** Draw a plot, or draw it again. */
function plot(place, spec) {
  const {data, layout} = coloured(spec);
  return Plotly.react(place, data, layout, plotting);
}

const places = [...document.querySelectorAll(".plot.drawn")];
let drawn = 0;
repaint.push(() => places.slice(0, drawn).forEach((place, at) => plot(place, specs[at])));
(async () => {
  for (; drawn < places.length; drawn++) await plot(places[drawn], specs[drawn]);
  root.dataset.drawn = drawn;
})();

const button = document.getElementById("colours");
function paint() {
  button.setAttribute("aria-pressed", isDark());
  for (const draw of repaint) draw();
}
button.hidden = false;
button.setAttribute("aria-pressed", isDark());
button.addEventListener("click", () => {
  root.dataset.colours = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("cptlaw-colours", root.dataset.colours);
  } catch { /* then it holds for as long as the page is open */ }
  paint();
});
prefersDark.addEventListener("change", paint);
// Paper is white.
for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    printing = now;
    paint();
  });
}

/** A table as CSV; a cell that a spreadsheet would take for a formula gets an apostrophe before it. */
function csv(table) {
  const cell = element => {
    const words = element.textContent.trim();
    const safe = /^[=@\t\r]|^[+-](?![\d.])/.test(words) ? "'" + words : words;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [...table.rows].map(row => [...row.cells].map(cell).join(",") + "\r\n").join("");
}

const slug = words => words.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60);

for (const download of document.querySelectorAll("button.download")) {
  download.hidden = false;
  download.addEventListener("click", () => {
    const table = download.closest(".table").querySelector("table");
    const link = document.createElement("a");
    // The mark at the front tells spreadsheets that it is UTF-8.
    link.href = URL.createObjectURL(new Blob(["\ufeff", csv(table)], {type: "text/csv"}));
    link.download = `${slug(root.dataset.study)}-${slug(table.caption.textContent)}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
