"""Pictures of one look, written as SVG. They need matplotlib, which is imported when the first is drawn."""

import io
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Words stay words, and the same picture gives the same bytes.
STYLE: Final[dict[Any, Any]] = {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "meshserve"}


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture. Sizes are inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def tidy(axes: "Axes", *, has_legend: bool = False) -> None:
    """A faint grid, two spines, a small title and a legend without a frame."""
    axes.grid(alpha=0.25, which="both" if axes.get_yscale() == "log" else "major")
    axes.spines[["top", "right"]].set_visible(False)
    axes.title.set_fontsize("medium")
    if has_legend:
        axes.legend(frameon=False, fontsize="small")


def svg_of(figure: "Figure") -> str:
    """A document."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def element_of(figure: "Figure") -> str:
    """To be put into a page: the element without the document around it."""
    text = svg_of(figure)
    return text[text.index("<svg") :]
