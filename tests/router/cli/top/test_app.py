"""``mesh top`` on a pseudo-terminal, with the feeds of two gateways."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from mesh.errors import CommandError
from router.cli.top import app as module
from router.cli.top.app import App, Feeds, is_simple, once
from router.cli.top.feeds import links
from router.cli.top.known.picture import MeshPicture
from router.cli.top.terminal import ENTER, LEAVE, Terminal
from router.history.explain import Explanations, explain, memory
from tests.router.cli.top.feed_server import feed_server
from tests.router.cli.top.told import engine, event, requests, rows
from tests.router.cluster import M0
from tests.router.requests.dispatching import World

DEADLINE_S = 10.0
STEP = re.compile(rb"\x1b\[(\d+);1H\x1b\[0m|\x1b\[K|\x1b\[[0-9;?]*[A-Za-z]")


class Emulator:
    """What a terminal shows of the bytes that it got: lines that are written whole, one after the other."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        self.resize(80, 24)
        self.got = b""
        self.before = termios.tcgetattr(self.slave)
        self._came = asyncio.Event()
        os.set_blocking(self.master, False)
        asyncio.get_running_loop().add_reader(self.master, self._read)

    def resize(self, width, height):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    def _read(self):
        try:
            self.got += os.read(self.master, 65_536)
            self._came.set()
        except OSError:
            asyncio.get_running_loop().remove_reader(self.master)

    @property
    def lines(self):
        shown = {}
        last = self.got.rpartition(b"\x1b[2J")[2]
        pieces = re.split(rb"\x1b\[(\d+);1H\x1b\[0m", last)
        for number, text in zip(pieces[1::2], pieces[2::2], strict=True):
            shown[int(number)] = STEP.sub(b"", text).decode(errors="replace").rstrip()
        return [shown[number] for number in sorted(shown)]

    async def until(self, *words):
        """Wait until all the words are shown."""
        await self.until_it(lambda: all(word in "\n".join(self.lines) for word in words), words)

    async def until_it(self, holds, what):
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not holds():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: it is not shown:\n" + "\n".join(self.lines)) from None

    def check_restored(self):
        self._read()
        assert self.got.startswith(ENTER)
        assert self.got.endswith(LEAVE)
        assert termios.tcgetattr(self.slave) == self.before

    def close(self):
        asyncio.get_running_loop().remove_reader(self.master)
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
async def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(module, "REFRESH_S", 0.02)
    monkeypatch.setattr(links, "RETRY_S", 0.02)
    emulator = Emulator()
    yield emulator
    emulator.close()


@pytest.fixture
async def gateways():
    async with feed_server("g") as one, feed_server("other") as other:
        yield one, other


def feeds_of(*gateways):
    async def find():
        return {}

    return Feeds(
        MeshPicture("test", [one.gateway for one in gateways]), {one.gateway: one.url for one in gateways}, find, {}
    )


@asynccontextmanager
async def running(terminal, gateways):
    async def work():
        with Terminal(terminal.slave, terminal.slave) as taken:
            return await App(feeds_of(*gateways), taken).run()

    task = asyncio.create_task(work())
    try:
        yield task
    finally:
        task.cancel()


async def code_of(task):
    async with asyncio.timeout(DEADLINE_S):
        return await task


async def test_somebody_looks_around_and_quits(terminal, gateways):
    async with running(terminal, gateways) as task:
        await terminal.until("gateways 2/2", "decode-0", "40%", "q quit")
        assert len(terminal.lines) == 24
        terminal.press(b"2")
        await terminal.until("[2 requests]", "order-3")
        gateways[0].tell(requests(event("order-4", "arrived", time.time())))
        await terminal.until("order-4")
        terminal.press(b"/order-4\r")
        await terminal.until("filter: order-4")
        assert "order-3" not in "\n".join(terminal.lines)
        terminal.press(b"\x1b")
        await terminal.until("order-3")
        terminal.press(b"\x1b[C")
        await terminal.until("[3 promises]", "(all)")
        terminal.press(b"q")
        assert await code_of(task) == 0
    terminal.check_restored()


async def test_a_request_tells_its_story(terminal, gateways):
    world = World(M0)
    world.submit("order-4", 100)
    world.accept(M0, "order-4")
    log = world.dispatcher.timelines
    told = Explanations("g", memory(log, 1.0), [explain(story, 1.0) for story in log.recent(1)])
    gateways[0].stories["order-4"] = msgspec.json.encode(told).replace(b"multiplex-0", b"multiplex-0\\u001b[2J")
    async with running(terminal, gateways):
        await terminal.until("gateways 2/2")
        gateways[0].tell(requests(event("order-4", "arrived", time.time())))
        terminal.press(b"2/order-4\r\r")
        await terminal.until("request order-4", "arrived at g", "multiplex-0\ufffd[2J accepted it", "Esc back")
        terminal.press(b"\x1b")
        await terminal.until("[2 requests]", "by status")
        terminal.press(b"\x1b/order-3\r\r")
        await terminal.until("answers with status 404")


async def test_a_gateway_that_dies_is_shown_and_comes_back(terminal, gateways):
    async with running(terminal, gateways):
        await terminal.until("gateways 2/2")
        await gateways[1].die()
        await terminal.until("gateways 1/2", "other is silent for")
        gateways[0].tell(rows(decode_9=engine()))
        await terminal.until("decode-9")
        await gateways[1].start()
        await terminal.until("gateways 2/2")


async def test_another_size_is_drawn_anew(terminal, gateways):
    async with running(terminal, gateways):
        await terminal.until("gateways 2/2", "decode-0")
        assert "llama2-70b" not in "\n".join(terminal.lines)
        terminal.resize(160, 50)
        os.kill(os.getpid(), signal.SIGWINCH)
        await terminal.until("llama2-70b", "problem")
        assert len(terminal.lines) == 50
        terminal.resize(40, 10)
        os.kill(os.getpid(), signal.SIGWINCH)
        await terminal.until("decode-0")
        await terminal.until_it(lambda: len(terminal.lines) == 10, "ten lines")
        assert max(map(len, terminal.lines)) <= 40


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
async def test_signals_end_it_and_restore_the_terminal(terminal, gateways, number, code):
    async with running(terminal, gateways) as task:
        await terminal.until("gateways 2/2")
        os.kill(os.getpid(), number)
        assert await code_of(task) == code
    terminal.check_restored()


async def test_an_error_restores_the_terminal(terminal, gateways, monkeypatch):
    async with running(terminal, gateways) as task:
        await terminal.until("gateways 2/2")

        def fail(*_):
            raise RuntimeError("a defect")

        monkeypatch.setattr(module, "draw", fail)
        with pytest.raises(ExceptionGroup, match="unhandled"):
            await code_of(task)
    terminal.check_restored()


async def test_a_stopped_terminal_stops_nobody(terminal, gateways):
    async with running(terminal, gateways) as task:
        await terminal.until("gateways 2/2")
        asyncio.get_running_loop().remove_reader(terminal.master)
        termios.tcflow(terminal.slave, termios.TCOOFF)
        for key in b"1234" * 5:
            terminal.press(bytes([key]))
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await code_of(task) == 143
        assert termios.tcgetattr(terminal.slave) == terminal.before
        termios.tcflow(terminal.slave, termios.TCOON)


async def test_once_prints_all_there_is(gateways, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    await gateways[1].die()
    assert await once(feeds_of(*gateways)) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    for words in ("decode-0", "order-3", "llama2-70b", "hand-over", "other is silent"):
        assert words in text
    assert "\x1b" not in text


async def test_once_without_a_gateway_says_why(gateways):
    for gateway in gateways:
        await gateway.die()
    with pytest.raises(CommandError, match="no gateway tells what happens: g: cannot be reached"):
        await once(feeds_of(*gateways))


def test_pipes_and_simple_terminals_are_told_apart(monkeypatch):
    assert is_simple({"TERM": "xterm"}), "a test has no terminal"
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    assert not is_simple({"TERM": "xterm"})
    assert is_simple({"TERM": "dumb"})
    assert is_simple({})
