"""Writes one page in one file: it needs nothing else, and follows the reader's light or dark setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.show.palette import css
from mesh.show.picture import Picture
from mesh.show.words import plain

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell that is shown in a way of its own. ``look``: "better", "worse" or nothing."""

    words: str
    look: str = ""


@dataclass(frozen=True, slots=True)
class PageTable:
    """Figures. The first column has words, the others numbers."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | PageCell]]


@dataclass(frozen=True, slots=True)
class Page:
    """What a command found. ``facts`` are values and what they are of; the first picture is the one for `--plot`."""

    title: str
    about: str
    pictures: Sequence[Picture]
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[PageTable] = ()
    notes: Sequence[str] = ()


def write_page(path: Path, page: Page) -> None:
    """Raise `OSError` if it cannot be written."""
    path.write_text(page_text(page), encoding="utf-8")


def page_text(page: Page) -> str:
    """The page as HTML. Whatever it tells is escaped. Without matplotlib, pictures are left out."""
    from markupsafe import Markup

    from mesh.show.figures import MISSING, element_of, has_matplotlib

    can_draw = has_matplotlib()
    notes = [*page.notes, *([] if can_draw or not page.pictures else [f"the picture {MISSING}"])]
    drawings = [Markup(element_of(one, number)) for number, one in enumerate(page.pictures)] if can_draw else []
    return _template().render(page=page, notes=notes, drawings=drawings, colors=Markup(css()))


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mesh.show"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["cell"] = lambda cell: cell if isinstance(cell, PageCell) else PageCell(str(cell))
    return environment.get_template("page.html.j2")
