"""A terminal that is taken over for a while: single keys, an alternate screen, and everything as before at the end."""

import asyncio
import os
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import StringIO
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.text import Text

ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # another screen, no cursor, no wrapping, nothing on it
LEAVE: Final = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
READ_BYTES: Final = 1024
SMALLEST: Final = (20, 5)


class Terminal:
    """A context manager. What is shown is written as far as the terminal takes it, so that a stuck one stops nobody.

    The files are opened anew: what is set on them, no other process sees.
    """

    def __init__(self, standard_input: int, standard_output: int) -> None:
        self._input = _opened(standard_input, os.O_RDONLY)
        self._output = _opened(standard_output, os.O_WRONLY)
        self._before = termios.tcgetattr(self._input)
        self._shown: list[str] = []
        self._unwritten = b""

    def __enter__(self) -> "Terminal":
        self.take_over()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.give_back()
        finally:
            os.close(self._input)
            os.close(self._output)

    def take_over(self) -> None:
        tty.setcbreak(self._input, termios.TCSANOW)
        self._write(ENTER)
        self.forget()

    def give_back(self) -> None:
        """Put everything back. What was not written yet is dropped, as the terminal may be stopped."""
        if self._unwritten:
            self._unwritten = b""
            asyncio.get_running_loop().remove_writer(self._output)
        with suppress(OSError, termios.error):
            termios.tcflush(self._output, termios.TCOFLUSH)
        with suppress(OSError):
            os.write(self._output, LEAVE)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._input, termios.TCSANOW, self._before)

    def forget(self) -> None:
        """Somebody else may have written on the screen, or its size is another."""
        self._shown = []

    @property
    def size(self) -> tuple[int, int]:
        """Return the columns and lines of the terminal."""
        with suppress(OSError):
            size = os.get_terminal_size(self._output)
            if size.columns and size.lines:
                return max(SMALLEST[0], size.columns), max(SMALLEST[1], size.lines)
        return 80, 24

    def listen(self, heard: Callable[[bytes], None]) -> None:
        """Call back with what is typed; with nothing when the terminal has gone."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._input, lambda: heard(self._read()))

    def ignore(self) -> None:
        asyncio.get_running_loop().remove_reader(self._input)

    def show(self, lines: Sequence[Text]) -> None:
        """Write the lines that differ from those that are shown."""
        if self._unwritten:
            return
        width, _ = self.size
        written = [line if text.cell_len >= width else f"{line}\x1b[K" for text, line in _written(lines, width)]
        parts = [] if self._shown else ["\x1b[2J"]
        for number, line in enumerate(written):
            if number >= len(self._shown) or self._shown[number] != line:
                parts.append(f"\x1b[{number + 1};1H\x1b[0m{line}")
        self._shown = written
        self._write("".join(parts).encode(errors="replace"))

    def _read(self) -> bytes:
        try:
            return os.read(self._input, READ_BYTES)
        except BlockingIOError:
            return b"\x00"  # no key
        except OSError:
            return b""

    def _write(self, data: bytes) -> None:
        waited = bool(self._unwritten)
        self._unwritten += data
        self._flush()
        if self._unwritten and not waited:
            asyncio.get_running_loop().add_writer(self._output, self._flush_more)

    def _flush_more(self) -> None:
        self._flush()
        if not self._unwritten:
            asyncio.get_running_loop().remove_writer(self._output)

    def _flush(self) -> None:
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._output, self._unwritten) :]
        except BlockingIOError:
            return
        except OSError:
            self._unwritten = b""  # the terminal has gone, and reading tells so


def _opened(standard: int, way: int) -> int:
    """Open the terminal once more. Where it has no name, as in some containers, share it."""
    try:
        return os.open(os.ttyname(standard), way | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return os.dup(standard)


def _written(lines: Sequence[Text], width: int) -> Iterator[tuple[Text, str]]:
    """Lines, each as the terminal gets it: with colours if it has any, and ``NO_COLOR`` is not set."""
    console = Console(file=StringIO(), force_terminal=True, width=width, highlight=False, legacy_windows=False)
    for line in lines:
        with console.capture() as capture:
            console.print(line, end="", soft_wrap=True)
        yield line, capture.get()
