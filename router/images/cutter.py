"""Lets a process that may die of images decode and cut them, for one client after the other."""

import asyncio
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from engines.images.form import ImageForm
from router.api.openai.input.turns import Line, LineLimits
from router.generation import Overloaded
from router.images.messages import CutImage, ImageCut, ImageRefused, answers, encode, receive, send

LIMITS: Final = LineLimits("images", max_of_one=64, max_waiting=256, wait_s=30.0)
CPU_S: Final = 5.0  # of an image
WALL_S: Final = 20.0  # without an answer: it is stopped, or starved
MOST_TRIES: Final = 2  # of processes in turn, after which an image is refused
RETRY_AFTER_S: Final = 5.0

log = structlog.get_logger()


class ImageCutter:
    """Starts its process with the first image. One thread talks to it."""

    def __init__(self, cpu_s: float = CPU_S, wall_s: float = WALL_S) -> None:
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._line = Line(LIMITS)
        self._thread = ThreadPoolExecutor(1, "images")
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def __repr__(self) -> str:
        return f"<ImageCutter {self.pid}>"

    def __del__(self) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def cut(self, data: bytes, form: ImageForm, max_pixels: int, client: str) -> ImageCut | ImageRefused:
        """Cut one image. Raise `Overloaded` if too many wait, or no process can be started."""
        order = CutImage(data, form, max_pixels, self._cpu_s)
        async with self._line.turn(client):
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(self._cut, order))

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection = self._process = None

    def _cut(self, order: CutImage) -> ImageCut | ImageRefused:
        for _ in range(MOST_TRIES):
            try:
                connection = self._connection or self._start()
            except OSError as error:
                log.warning("no process for images can be started", reason=str(error))
                raise Overloaded("images cannot be decoded now", RETRY_AFTER_S) from None
            try:
                send(connection, encode(order))
                return answers.decode(receive(connection))
            except TimeoutError:
                self.close()
                return ImageRefused("takes too long to decode")
            except (EOFError, OSError):
                if self._has_used_its_time():
                    return ImageRefused("takes too much CPU time to decode")
        return ImageRefused("cannot be decoded: its decoder dies of it")

    def _has_used_its_time(self) -> bool:
        """Whether that is why the process is gone. Another one is started for the next image."""
        process = self._process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        status = None if process is None else process.returncode
        log.warning("a process for images is gone", status=status)
        self.close()
        return status == -signal.SIGPROF

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "router.images.worker", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(self._wall_s)
        self._connection = ours
        return ours
