"""The process of ``mesh top``: feeds come in, keys come in, and the screen is drawn anew."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from mesh.errors import CommandError
from router.cli.top.drawing import draw, everything
from router.cli.top.feeds.links import Link
from router.cli.top.keys import Keys
from router.cli.top.known.picture import MeshPicture
from router.cli.top.screen import AskStory, Leave, Screen
from router.cli.top.stories import fetch_story
from router.cli.top.terminal import Terminal
from router.feed.frames import Frame

Find = Callable[[], Awaitable[Mapping[str, str | None]]]

REFRESH_S: Final = 0.5
ESCAPE_S: Final = 0.1  # after which a lone escape is the Esc key: slow lines send sequences in pieces
FIND_EVERY_S: Final = 10.0
SNAPSHOT_S: Final = 5.0
SNAPSHOT_LINES: Final = 40  # of each view
WIDTH_OF_A_PIPE: Final = 120
MOST_KEYS: Final = 256  # that wait to be done
ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Feeds:
    """The links to all gateways, and the picture that they make. ``find``: asks the mesh where its gateways are."""

    def __init__(
        self, picture: MeshPicture, urls: Mapping[str, str | None], find: Find, headers: Mapping[str, str]
    ) -> None:
        self.picture = picture
        self.headers = headers
        self.heard = asyncio.Event()
        self._urls = dict(urls)
        self._find = find

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        links = [Link(name, self.url, self.headers, self._take, self._lose) for name in self.picture.sources]
        return [tasks.create_task(work) for work in (*(link.run() for link in links), self._look_for_silent())]

    def url(self, gateway: str) -> str | None:
        """Return where a gateway is: as another one says, else as it was found last."""
        told = self.picture.admin_urls().get(gateway) if self.picture.has_live else None
        return told or self._urls.get(gateway)

    def _take(self, gateway: str, frame: Frame) -> None:
        self.picture.take(gateway, frame, time.time())
        self.heard.set()

    def _lose(self, gateway: str, why: str) -> None:
        self.picture.lost(gateway, why, time.time())
        self.heard.set()

    async def _look_for_silent(self) -> None:
        while True:
            await asyncio.sleep(FIND_EVERY_S)
            if self.picture.silent:
                with suppress(CommandError, OSError):
                    self._urls |= await self._find()


async def once(feeds: Feeds) -> int:
    """Print how everything is, as soon as all gateways have told or are silent. Raise `CommandError` if none tells."""
    from rich.console import Console

    async with asyncio.TaskGroup() as tasks:
        running = feeds.start(tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(SNAPSHOT_S):
                await _settled(feeds)
        for task in running:
            task.cancel()
    if not feeds.picture.has_live:
        problems = (
            f"{source.gateway}: {source.problem or 'does not answer'}" for source in feeds.picture.sources.values()
        )
        raise CommandError("no gateway tells what happens: " + "; ".join(problems))
    width = shutil.get_terminal_size((WIDTH_OF_A_PIPE, 24)).columns
    Console(width=width, highlight=False).print(everything(feeds.picture, time.time(), width, SNAPSHOT_LINES))
    return 0


async def _settled(feeds: Feeds) -> None:
    while not feeds.picture.is_settled:
        feeds.heard.clear()
        await feeds.heard.wait()


class App:
    """Shows feeds on a terminal until somebody leaves. ``code``: what the command exits with, when it ends."""

    def __init__(self, feeds: Feeds, terminal: Terminal) -> None:
        self._feeds = feeds
        self._terminal = terminal
        self._screen = Screen()
        self._keys = Keys()
        self._pressed: list[str] = []
        self._due = asyncio.Event()
        self._code: int | None = None
        self._story: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<App {self._screen.mode} of {self._feeds.picture!r}>"

    async def run(self) -> int:
        """Return the exit code. The terminal is to be given back by the caller."""
        with _handling(self._on_signals()):
            self._terminal.listen(self._typed)
            try:
                async with asyncio.TaskGroup() as tasks:
                    running = self._feeds.start(tasks)
                    code = await self._look(tasks)
                    for task in (*running, *filter(None, (self._story,))):
                        task.cancel()
            finally:
                self._terminal.ignore()
        return code

    async def _look(self, tasks: asyncio.TaskGroup) -> int:
        drawn_at = 0.0
        while self._code is None:
            for key in self._taken():
                self._press(key, tasks)
            is_new = self._due.is_set() or self._feeds.heard.is_set() or time.monotonic() - drawn_at >= 2 * REFRESH_S
            if is_new and self._code is None:
                self._due.clear()
                self._feeds.heard.clear()
                self._draw()
                drawn_at = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self._due.wait()
        return self._code

    def _draw(self) -> None:
        width, height = self._terminal.size
        self._terminal.show(draw(self._screen, self._feeds.picture, time.time(), width, height))

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _typed(self, data: bytes) -> None:
        if not data:
            self._end(signal.SIGHUP)
            return
        self._pressed = (self._pressed + self._keys.feed(data))[:MOST_KEYS]
        self._due.set()
        if self._keys.is_open:
            asyncio.get_running_loop().call_later(ESCAPE_S, self._flush_keys)

    def _flush_keys(self) -> None:
        self._pressed += self._keys.flush()
        self._due.set()

    def _taken(self) -> Iterable[str]:
        pressed, self._pressed = self._pressed, []
        return pressed

    def _press(self, key: str, tasks: asyncio.TaskGroup) -> None:
        if key == "redraw":
            self._terminal.forget()
            return
        match self._screen.press(key, self._feeds.picture, time.time()):
            case Leave():
                self._code = 0
            case AskStory() as asked:
                if self._story is not None:
                    self._story.cancel()
                self._story = tasks.create_task(self._ask(asked))

    async def _ask(self, asked: AskStory) -> None:
        story = await fetch_story(self._feeds.url(asked.gateway), self._feeds.headers, asked)
        self._screen.tell(asked, story)
        self._due.set()

    # --- signals ------------------------------------------------------------------------------------------------------

    def _on_signals(self) -> Mapping[signal.Signals, Callable[[], None]]:
        ends = {one: lambda one=one: self._end(one) for one in ENDS}
        return {**ends, signal.SIGWINCH: self._resized, signal.SIGTSTP: self._suspend}

    def _end(self, why: signal.Signals) -> None:
        self._code = 128 + why
        self._due.set()

    def _resized(self) -> None:
        self._terminal.forget()
        self._due.set()

    def _suspend(self) -> None:
        """Stop as other programs do at Ctrl-Z, with the terminal as it was; go on at ``fg``."""
        self._terminal.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal.take_over()
        self._due.set()


@contextmanager
def _handling(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for one, handler in handlers.items():
        loop.add_signal_handler(one, handler)
    try:
        yield
    finally:
        for one in handlers:
            loop.remove_signal_handler(one)


def is_simple(environment: Mapping[str, str]) -> bool:
    """Return whether this is no terminal that can be drawn on."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return not is_terminal or environment.get("TERM", "") in ("", "dumb", "unknown")
