"""Draws what a screen shows of a picture: exactly so many lines, each within the width. Pure."""

from collections.abc import Sequence
from io import StringIO
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from router.cli.top import grid
from router.cli.top.known.picture import MeshPicture, Source
from router.cli.top.screen import Mode, Screen
from router.cli.top.views import VIEWS, TableView
from router.cli.top.words import brief_time, clock

MOST_NOTES: Final = 5  # above a table, or a quarter of the lines if that is less
MOST_STORY_LINES: Final = 5000
FOOTERS: Final = {
    Mode.TABLE: "1-4 Tab view  ↑↓ j k move  Enter open  s S sort  r reverse  / filter  ? help  q quit",
    Mode.FILTER: "type words that lines must have  Enter keep  Esc no filter",
    Mode.STORY: "↑↓ j k Space scroll  r fetch again  Esc back  q quit",
    Mode.HELP: "any key: back  q quit",
}
SHORT_FOOTER: Final = "1-4 view  jk move  Enter  s sort  / filter  ? help  q quit"
HELP: Final = """\
1 2 3 4, Tab, arrows   engines, requests, promises, moves and placement
↑ ↓, j k, Page, g G    move; the cursor stays with its line
Enter                  of a request: its story, as `mesh explain` tells it
                       of an engine or a service: its requests
s S r                  sort by the next column, by the one before, the other way
/                      filter: only lines that have all the words; Esc ends it
q, Ctrl-C              quit

engines    KV: blocks in use. slack: how much later the next token may come.
           backlog: until all prefills are done. migrations: +2 are leaving.
requests   in flight, and those that ended of late. kept: both promises.
           tokens: of the prompt + of the answer.
promises   of the last minute. good/s: requests a second that kept both.
           50 and 99: percentiles, of 5 seconds each: the median of their P50,
           the largest P99. trend: shares that kept both, 5 seconds a bar.
moves      of requests between engines, and what the placement daemon decided.

Rows of engines are of the whole mesh; requests are those of each gateway."""


def draw(screen: Screen, picture: MeshPicture, now: float, width: int, height: int) -> list[Text]:
    """Return ``height`` lines of at most ``width`` columns."""
    head = [_title(picture, now), _tabs(screen)]
    head += [_silent(source, now) for source in picture.silent[: max(1, height // 8)]]
    room = max(0, height - len(head) - 1)
    lines = [
        *head[: max(0, height - 1)],
        *_padded(_body(screen, picture, now, width, room), room),
        _footer(screen, width),
    ]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[-height:]


def _body(screen: Screen, picture: MeshPicture, now: float, width: int, room: int) -> list[Text]:
    match screen.mode:
        case Mode.HELP:
            return [Text(line) for line in HELP.splitlines()]
        case Mode.STORY:
            return _story(screen, width, room)
        case _:
            return _table(screen, picture, now, width, room)


def _padded(lines: list[Text], room: int) -> list[Text]:
    return [*lines[:room], *(Text() for _ in range(room - len(lines)))]


# --- around -----------------------------------------------------------------------------------------------------------


def _title(picture: MeshPicture, now: float) -> Text:
    engines, gateways = picture.engines(), picture.gateways()
    ready = sum(row.state == "ready" for row in engines)
    live = sum(source.is_live for source in picture.sources.values())
    policy = ", ".join(dict.fromkeys(row.policy for row in gateways if row.policy != "-"))
    in_flight = sum(row.requests or 0 for row in gateways)
    waiting = sum(row.waiting or 0 for row in gateways)
    text = Text(f"{picture.mesh}:", "bold")
    text.append(f"  engines {ready}/{len(engines)} ready", "" if ready == len(engines) else "yellow")
    text.append(f"  gateways {live}/{len(picture.sources)}", "" if live == len(picture.sources) else "yellow")
    text.append(f"  in flight {in_flight}" + (f", {waiting} waiting" if waiting else ""), "")
    return text.append(f"  {policy}  {clock(now)}", "dim")


def _tabs(screen: Screen) -> Text:
    text = Text()
    for index, view in enumerate(VIEWS):
        is_chosen = index == screen.view_index
        text.append(
            f"[{index + 1} {view.name}]" if is_chosen else f" {index + 1} {view.name} ", "bold" if is_chosen else ""
        )
    look = screen.look
    if screen.mode is Mode.FILTER:
        return text.append("  filter: ").append(f"{look.words}_", "bold")
    if screen.mode is Mode.TABLE:
        text.append(f"  by {screen.view.columns[look.sort].name}", "dim")
        text.append(f"  filter: {look.words}" if look.words else "", "yellow")
    return text


def _silent(source: Source, now: float) -> Text:
    silence = f"{source.gateway} is silent for {brief_time(max(0.0, now - source.since))}"
    return Text(f"{silence}: {source.problem}; trying again", "red")


def _footer(screen: Screen, width: int) -> Text:
    words = FOOTERS[screen.mode]
    return Text(SHORT_FOOTER if len(words) > width and screen.mode is Mode.TABLE else words, "reverse")


# --- the table --------------------------------------------------------------------------------------------------------


def _table(screen: Screen, picture: MeshPicture, now: float, width: int, room: int) -> list[Text]:
    view, look = screen.view, screen.look
    notes = view.notes(picture, now)[: min(MOST_NOTES, max(1, room // 4))]
    lines = screen.lines(picture, now)
    above = [*(Text(note, "dim") for note in notes)]
    widths = grid.fitted(view.columns, lines, width)
    above.append(grid.heading(view.columns, widths, look.sort, is_descending=look.is_descending))
    if not lines:
        return [*above, Text("no line has these words" if look.words else view.empty, "dim")]
    cursor = screen.cursor(lines)
    shown = max(1, room - len(above))
    first = max(0, min(cursor - shown // 2, len(lines) - shown))
    return [*above, *_rows(view, widths, lines[first : first + shown], cursor - first, width)]


def _rows(
    view: TableView, widths: Sequence[int], lines: Sequence[grid.TableLine], cursor: int, width: int
) -> list[Text]:
    rows = [grid.row(view.columns, widths, line) for line in lines]
    if 0 <= cursor < len(rows):
        selected = Text(rows[cursor].plain, "reverse")
        selected.pad_right(max(0, width - selected.cell_len))
        rows[cursor] = selected
    return rows


# --- a story ----------------------------------------------------------------------------------------------------------


def _story(screen: Screen, width: int, room: int) -> list[Text]:
    if screen.story is None:
        return [Text(f"asking {screen.asked.gateway if screen.asked else 'the gateway'} ...", "dim")]
    lines = lines_of(screen.story, width)
    screen.scrolled = max(0, min(screen.scrolled, len(lines) - room))
    return lines[screen.scrolled : screen.scrolled + room]


def lines_of(what: RenderableType, width: int) -> list[Text]:
    """Anything that rich can render, as lines."""
    console = Console(file=StringIO(), width=width, color_system="standard", force_terminal=True, highlight=False)
    rendered = console.render_lines(what, pad=False)[:MOST_STORY_LINES]
    return [Text.assemble(*((one.text, one.style or "") for one in line if not one.control)) for line in rendered]


# --- once -------------------------------------------------------------------------------------------------------------


def everything(picture: MeshPicture, now: float, width: int, most: int) -> Group:
    """All views below each other, of each at most so many lines: for pipes and simple terminals."""
    parts = [_title(picture, now), *(_silent(source, now) for source in picture.silent)]
    for index, view in enumerate(VIEWS):
        screen = Screen(view_index=index)
        lines = screen.lines(picture, now)
        widths = grid.fitted(view.columns, lines, width)
        parts += Text(), Text(view.name, "bold"), *(Text(note, "dim") for note in view.notes(picture, now))
        parts.append(grid.heading(view.columns, widths, view.sort, is_descending=view.is_descending))
        parts += [grid.row(view.columns, widths, line) for line in lines[:most]] or [Text(view.empty)]
        if len(lines) > most:
            parts.append(Text(f"and {len(lines) - most} more"))
    for part in parts:
        part.truncate(width, overflow="ellipsis")
    return Group(*parts)
