"""Pictures of one look, written as SVG. They need matplotlib, which is imported when the first is drawn."""

import io
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Words stay words, and the same picture gives the same bytes.
STYLE: Final[dict[Any, Any]] = {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "meshserve"}


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture. Sizes are inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def svg_of(figure: "Figure") -> str:
    """A document."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
