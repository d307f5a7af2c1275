// Before the page is painted, so that it does not flash.
try {
  const chosen = localStorage.getItem("cptlaw-colours");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.colours = chosen;
} catch { /* a browser may refuse to keep things for files */ }
