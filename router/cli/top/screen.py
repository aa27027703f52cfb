"""Tells what somebody looks at, and what each key does. Pure: the shell is told what to fetch, or that it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.cli.top.grid import TableLine, matching, sorted_lines
from router.cli.top.known.picture import MeshPicture
from router.cli.top.known.promises import ALL_KEYS
from router.cli.top.views import VIEWS, TableView

if TYPE_CHECKING:
    from rich.console import RenderableType

PAGE: Final = 10
VIEW_KEYS: Final = tuple(str(number + 1) for number in range(len(VIEWS)))
MOST_FILTER_LETTERS: Final = 64


class Mode(StrEnum):
    """What is shown, and where keys go."""

    TABLE = "table"
    FILTER = "filter"
    STORY = "story"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class AskStory:
    """Fetch a request's story from its gateway, and show it by `Screen.tell`."""

    gateway: str
    id: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Tells the screen to end."""


Wish = AskStory | Leave | None


@dataclass(slots=True)
class ViewLook:
    """How one view is looked at. ``selected``: the key of a line; None: whichever is where the cursor is."""

    sort: int
    is_descending: bool
    words: str = ""
    cursor: int = 0
    selected: tuple[str, ...] | None = None


def _looks() -> list[ViewLook]:
    return [ViewLook(view.sort, view.is_descending) for view in VIEWS]


@dataclass(slots=True)
class Screen:
    """``story``: what is told of the request that was asked for; None: it has not come yet."""

    mode: Mode = Mode.TABLE
    view_index: int = 0
    looks: list[ViewLook] = field(default_factory=_looks)
    asked: AskStory | None = None
    story: "RenderableType | None" = None
    scrolled: int = 0  # lines of the story

    @property
    def view(self) -> TableView:
        return VIEWS[self.view_index]

    @property
    def look(self) -> ViewLook:
        return self.looks[self.view_index]

    def lines(self, picture: MeshPicture, now: float) -> list[TableLine]:
        """Lines of the view, as they are filtered and sorted."""
        found = matching(self.view.lines(picture, now), self.look.words)
        return sorted_lines(found, self.look.sort, is_descending=self.look.is_descending)

    def cursor(self, lines: Sequence[TableLine]) -> int:
        """Return the index of the selected line. One that is gone leaves its place to another."""
        look = self.look
        index = next((index for index, line in enumerate(lines) if line.key == look.selected), look.cursor)
        return max(0, min(index, len(lines) - 1))

    def tell(self, asked: AskStory, story: "RenderableType") -> None:
        """Show the story, unless nobody waits for it any more."""
        if self.mode is Mode.STORY and asked == self.asked:
            self.story = story

    def press(self, key: str, picture: MeshPicture, now: float) -> Wish:
        """Do what a key means. Keys are those of `keys.Keys`."""
        match self.mode:
            case Mode.FILTER:
                return self._type(key)
            case Mode.STORY:
                return self._read(key)
            case Mode.HELP:
                self.mode = Mode.TABLE
                return Leave() if key == "q" else None
            case Mode.TABLE:
                return self._choose(key, picture, now)

    # --- the table ----------------------------------------------------------------------------------------------------

    def _choose(self, key: str, picture: MeshPicture, now: float) -> Wish:
        match key:
            case "q":
                return Leave()
            case "?" | "h":
                self.mode = Mode.HELP
            case "/":
                self.mode = Mode.FILTER
            case "esc":
                self.look.words = ""
            case "s" | "S" | "r":
                self._sort(key)
            case "enter":
                return self._enter(self.lines(picture, now))
            case _:
                if not self._turn(key):
                    self._move(key, self.lines(picture, now))
        return None

    def _turn(self, key: str) -> bool:
        """Switch to another view, if the key does."""
        if key in VIEW_KEYS:
            self.view_index = int(key) - 1
        elif key in ("tab", "right", "l"):
            self.view_index = (self.view_index + 1) % len(VIEWS)
        elif key in ("back-tab", "left"):
            self.view_index = (self.view_index - 1) % len(VIEWS)
        else:
            return False
        return True

    def _sort(self, key: str) -> None:
        """By the next column, by the one before, or the other way."""
        look = self.look
        if key == "r":
            look.is_descending = not look.is_descending
            return
        step = 1 if key == "s" else -1
        look.sort = (look.sort + step) % len(self.view.columns)
        look.is_descending = self.view.columns[look.sort].is_number

    def _move(self, key: str, lines: Sequence[TableLine]) -> None:
        if not lines:
            return
        now = self.cursor(lines)
        to = moved(key, now, len(lines), PAGE)
        if to is not None:
            to = max(0, min(to, len(lines) - 1))
            self.look.cursor, self.look.selected = to, lines[to].key

    def _enter(self, lines: Sequence[TableLine]) -> Wish:
        """A request's story; of an engine or a service the requests that are about it."""
        if not lines:
            return None
        line = lines[self.cursor(lines)]
        match line.key:
            case ("request", gateway, id_, *_):
                self.look.selected = line.key
                self.mode, self.story, self.scrolled = Mode.STORY, None, 0
                self.asked = AskStory(gateway, id_)
                return self.asked
            case (_, *names):
                self.view_index = 1
                self.look.words = " ".join(name for name in names if name != ALL_KEYS)
                self.look.selected, self.look.cursor = None, 0
        return None

    # --- the story and the filter -------------------------------------------------------------------------------------

    def _read(self, key: str) -> Wish:
        if key == "q":
            return Leave()
        if key in ("esc", "enter", "left", "backspace") or key in VIEW_KEYS:
            self._turn(key if key in VIEW_KEYS else "")
            self.mode, self.asked, self.story = Mode.TABLE, None, None
        elif key == "r":
            return self.asked
        elif (to := moved(key, self.scrolled, 1_000_000, PAGE)) is not None:
            self.scrolled = max(0, to)
        return None

    def _type(self, key: str) -> Wish:
        look = self.look
        match key:
            case "enter":
                self.mode = Mode.TABLE
            case "esc":
                self.mode, look.words = Mode.TABLE, ""
            case "backspace":
                look.words = look.words[:-1]
            case "space":
                look.words += " "
            case _ if len(key) == 1 and len(look.words) < MOST_FILTER_LETTERS:
                look.words += key
        look.cursor, look.selected = 0, None
        return None


def moved(key: str, now: int, count: int, page: int) -> int | None:
    """Return where a key leads among so many lines; None: it leads nowhere."""
    return {
        "up": now - 1,
        "k": now - 1,
        "down": now + 1,
        "j": now + 1,
        "page-up": now - page,
        "page-down": now + page,
        "space": now + page,
        "home": 0,
        "g": 0,
        "end": count - 1,
        "G": count - 1,
    }.get(key)
