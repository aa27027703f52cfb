"""One life of a process of the mesh, watched through a descriptor that names it and no other process.

Whoever is found alive is watched, asked to end and killed as one that was started here is. Only how it ended is not
known: the system tells that to its parent alone.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from mesh.supervisor.pidfile import Record, start_of


class Life:
    """Make it with `start` or `adopt`. `close` it when it has ended, or when somebody else is to watch over it."""

    def __init__(self, pid: int, descriptor: int, child: "subprocess.Popen[bytes] | None") -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._child = child
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._note_end)

    def __repr__(self) -> str:
        return f"<Life {self.pid} {'adopted' if self._child is None else 'started here'}>"

    @classmethod
    def start(cls, argv: Sequence[str], env: Mapping[str, str], output: IO[bytes] | int) -> "Life":
        """In a session of its own: Ctrl-C on the terminal is the supervisor's to handle. Raise `OSError`."""
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            start_new_session=True,
        )
        try:
            return cls(child.pid, os.pidfd_open(child.pid), child)
        except OSError:  # no descriptors are left: a process that nobody watches must not stay
            child.kill()
            child.wait()
            raise

    @classmethod
    def adopt(cls, record: Record) -> "Life | None":
        """None: the process of the record has ended, whoever has its id now."""
        try:
            descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return None
        if start_of(record.pid) != record.started:  # asked once the descriptor holds on to whoever has the id
            os.close(descriptor)
            return None
        return cls(record.pid, descriptor, None)

    @property
    def was_adopted(self) -> bool:
        return self._child is None

    async def wait(self) -> int | None:
        """The return code as Python counts it; None: the process was not started here, and nobody can tell."""
        await self._ended.wait()
        return None if self._child is None else self._child.wait()

    def signal(self, number: signal.Signals) -> None:
        if self._descriptor >= 0 and not self._ended.is_set():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Watch no longer; the process is left as it is."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if self._child is not None and self._child.poll() is None:
            self._child.returncode = 0  # or Python would complain that nobody waits for it

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._ended.set()
