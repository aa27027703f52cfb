"""Colours of pictures: for light and dark paper, and for readers who see fewer of them.

They follow Okabe and Ito's set, darker on white and lighter on black so that each has a contrast of 3 at least. What a
colour says is also said by a marker, a dash or a word.
"""

from typing import Final

SERIES: Final = {  # on light paper: on dark paper
    "#0072b2": "#56b4e9",
    "#d55e00": "#ff8f52",
    "#00795a": "#2fc79a",
    "#a2447f": "#e39bc6",
    "#8f6b00": "#e6b422",
    "#5b6472": "#a9b1bf",
    "#2b8a9d": "#8fe0ee",
    "#7a3fd1": "#b99cf5",
}
INK: Final = "#1f2430"
FAINT: Final = "#697283"
GRID: Final = "#d5d9e2"
PAPER: Final = "#fdfdfe"
PROMISE: Final = "#b3261e"
OTHERS: Final = {INK: "#e4e7ee", FAINT: "#9aa4b5", GRID: "#3b4252", PAPER: "#1b1f29", PROMISE: "#ff7b72"}
DARK: Final = {**SERIES, **OTHERS}

MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: Final = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 2, 1, 2)))
ON_TERMINAL: Final = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_blue", "white")


def color(index: int) -> str:
    """The colour of the series with that number, on light paper."""
    return list(SERIES)[index % len(SERIES)]


def css() -> str:
    """Style rules that give each colour a name, and its value on the reader's paper."""
    light = "".join(f"--c{one[1:]}:{one};" for one in DARK)
    dark = "".join(f"--c{one[1:]}:{other};" for one, other in DARK.items())
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def with_names(svg: str) -> str:
    """The same drawing with names of colours, so that `css` can change them."""
    for one in DARK:
        svg = svg.replace(one, f"var(--c{one[1:]})")
    return svg
