"""What tests ask a browser that shows a page of the report: JavaScript functions, and two that call them."""

from contextlib import contextmanager
from itertools import combinations

TEXTS = """() => {
  const box = (element, of) => {
    const {left, right, top, bottom} = element.getBoundingClientRect();
    return {words: element.textContent, of, left, right, top: top + scrollY, bottom: bottom + scrollY};
  };
  const groups = [];
  document.querySelectorAll(".panel").forEach((panel, at) => groups.push([...panel.querySelectorAll(
    "h4, .xtick text, .ytick text, .xtitle, .ytitle, .annotation-text")].map(e => box(e, "panel " + at))));
  document.querySelectorAll("figure, #explorer").forEach((figure, at) => groups.push([...figure.querySelectorAll(
    "figcaption, .key li, h3, .panel, label, output, .explored, .back, .note")].map(e => box(e, "figure " + at))));
  groups.push([...document.querySelectorAll(
    ".over, #colours, h1, .mixture, #answer, .card, header .table, nav a, section")].map(e => box(e, "page")));
  return groups;
}"""
"""The places of all texts, in groups of which no two may lie on each other."""
FAINT = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if ((found[3] ?? 1) > .5) return light(found);
    }
    return 1;
  };
  const faint = [], seen = new Set();
  for (const element of document.querySelectorAll("main *, .skip")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("[hidden], noscript, .contourlabels, .hoverlayer, .modebar")) continue;
    const svg = element.closest("svg") !== null;
    const ink = light(numbers(getComputedStyle(element)[svg ? "fill" : "color"])), paper = behind(element);
    const contrast = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    if (contrast < 4.5) faint.push([element.textContent.slice(0, 40), contrast]);
  }
  for (const path of document.querySelectorAll(".panel .js-line, .panel .points path")) {
    if (path.closest(".map")) continue;
    const style = getComputedStyle(path), colour = path.matches(".js-line") ? style.stroke : style.fill;
    if (colour === "none" || seen.has(colour)) continue;
    seen.add(colour);
    const ink = light(numbers(colour)), paper = behind(path);
    const contrast = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    if (contrast < 1.8 && (numbers(colour)[3] ?? 1) > .5) faint.push([colour, contrast]);
  }
  return faint;
}"""
"""Texts and lines that cannot be told from what is behind them, with their contrast."""
SET = """async places => {
  for (const [name, place] of Object.entries(places)) {
    sliders[name].value = place;
    sliders[name].dispatchEvent(new Event("input", {bubbles: true}));
  }
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const {tolerance, size, length, ratio, low, high, general, domain} = answer();
  return {tolerance, model: size.model, steps: length.steps, ratios: [ratio, low, high], general, domain,
    words: document.getElementById("explored").textContent};
}"""
"""Put sliders in their places; the answer and the words that the page then shows."""


@contextmanager
def opened(browser, path, width):
    """A page at a width, with what it said and asked for while it loaded."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(120_000)
    said, asked = [], []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
    page.on("request", lambda wanted: asked.append(wanted.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn]")
    yield page, said, asked
    page.close()


def marks_drawn(page):
    """How many marks each figure has."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".plot")].map(plot =>
           plot.querySelectorAll(".main-svg .scatterlayer .trace path").length)"""
    )


def touching(page):
    """Texts that lie on each other."""
    return [
        f"{first['of']}: {first['words'][:40]!r} on {second['words'][:40]!r}"
        for group in page.evaluate(TEXTS)
        for first, second in combinations(group, 2)
        if min(first["right"], second["right"]) - max(first["left"], second["left"]) > 1
        and min(first["bottom"], second["bottom"]) - max(first["top"], second["top"]) > 1
    ]
