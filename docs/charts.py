"""Draw the figures of the documentation with matplotlib, as SVG files that are the same on every run."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0578d", "#b07d00", "#5b7fd1", "#7d8590")
matplotlib.rcParams |= {
    # The salt names the elements; text stays text, in the reader's own font.
    **{"svg.hashsalt": "cptlaw", "svg.fonttype": "none", "figure.constrained_layout.use": True},
    **{"axes.prop_cycle": cycler(color=COLOURS), "axes.grid": True, "grid.color": "#d8dee4", "axes.axisbelow": True},
    **{"axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 4, "legend.frameon": False},
}


def axes(title: str, x_label: str, y_label: str, log_x: bool = False) -> Axes:
    """Empty axes of a new figure, with a title above them."""
    ax = Figure(figsize=(8, 4.4)).add_subplot()
    ax.figure.suptitle(title, fontweight="bold")
    ax.set(xlabel=x_label, ylabel=y_label, xscale="log" if log_x else "linear")
    if log_x:
        ax.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_locator=NullLocator(), major_formatter="{x:g}")
    return ax


def add_curve(
    ax: Axes,
    label: str,
    line: Sequence[np.ndarray],
    fitted: Sequence[np.ndarray] = ((), ()),
    held_out: Sequence[np.ndarray] = ((), ()),
    dashed: bool = False,
) -> None:
    """Plot a law's curve in a new colour, dashed for runs that the fit has not seen; each pair is x (n,) and y (n,).

    Points that were fitted are dots, held-out ones rings.
    """
    (curve,) = ax.plot(*line, "--" if dashed else "-", label=label)
    ax.plot(*fitted, "o", color=curve.get_color())
    ax.plot(*held_out, "o", color=curve.get_color(), fillstyle="none")


def figure_of(ax: Axes, note: str) -> Figure:
    """The figure of axes, with a note under the title and a legend beside the axes."""
    ax.set_title(note, fontsize=9)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return ax.figure  # pyright: ignore[reportReturnType]


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, without the date."""
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    # matplotlib ends lines of path data with a space.
    path.write_text("\n".join(map(str.rstrip, path.read_text("utf-8").splitlines())) + "\n", "utf-8")
