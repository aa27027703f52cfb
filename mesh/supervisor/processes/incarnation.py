"""One incarnation of a process of the mesh, watched through a descriptor that names it and no other process.

Whoever is found alive is watched, asked to end and killed as one that was started here is. Only how it ended is not
known: the system tells that to its parent alone.
"""

import asyncio
import os
import signal
from contextlib import suppress
from typing import IO

from mesh.process import logs
from mesh.supervisor.processes.command import ChildCommand
from mesh.supervisor.processes.forks import StartedProcess
from mesh.supervisor.processes.output import open_found, open_output, read_last_line
from mesh.supervisor.processes.pidfile import PidFile, PidRecord, remove_pid, start_of
from mesh.supervisor.processes.surroundings import Surroundings


class Incarnation:
    """Make it with `start` or `adopt`. `close` it when it has ended, or when somebody else is to watch over it."""

    def __init__(self, file: PidFile, output: IO[bytes], child: StartedProcess | None) -> None:
        """Raise `OSError` if the process cannot be watched."""
        self.file = file
        self._output = output
        self._child = child
        self._descriptor = os.pidfd_open(self.pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._note_end)

    def __repr__(self) -> str:
        return f"<Incarnation {self.pid} {'adopted' if self._child is None else 'started here'}>"

    @classmethod
    async def start(cls, command: ChildCommand, around: Surroundings) -> "Incarnation":
        """Raise `OSError` if the process cannot be started."""
        around.topology.keep()
        output = open_output(logs.output_file(around.runtime, command.process))
        try:
            child = await around.source.start(command, output)
            try:
                incarnation = cls(PidFile(around.runtime, _record(child.pid, command, around)), output, child)
            except OSError:  # no descriptors are left: a process that nobody watches must not stay
                child.kill()
                raise
        except OSError:
            output.close()
            raise
        incarnation.file.write()
        return incarnation

    @classmethod
    def adopt(cls, record: PidRecord, around: Surroundings) -> "Incarnation | None":
        """Adopt the process of a record. None: the process of the record has ended, whoever has its id now. Raise
        `OSError`.
        """
        output = open_found(logs.output_file(around.runtime, record.process))
        try:
            incarnation = cls(PidFile(around.runtime, record), output, None)
        except ProcessLookupError:
            output.close()
            return None
        if start_of(record.pid) != record.started:  # asked once the descriptor holds on to whoever has the id
            incarnation.close()
            return None
        return incarnation

    @property
    def pid(self) -> int:
        return self.file.record.pid

    async def wait(self) -> int | None:
        """The return code as Python counts it; None: the process was not started here, and nobody can tell."""
        await self._ended.wait()
        return None if self._child is None else await self._child.code()

    def last_line(self) -> str:
        """The last line that the process printed; empty if nothing is known."""
        return read_last_line(self._output)

    def ask_to_end(self) -> None:
        """Ask the process to end, once, whoever asks: a second signal would end it at once."""
        if not self.file.record.is_leaving:
            self.file.leaving()
            self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        if self._descriptor >= 0 and not self._ended.is_set():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def forget(self) -> None:
        """Forget a process that has ended."""
        self.close()
        remove_pid(self.file.directory, self.file.record.process)

    def close(self) -> None:
        """Watch no longer; the process is left as it is."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        self._output.close()
        if self._child is not None:
            self._child.let_go()

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._ended.set()


def _record(pid: int, command: ChildCommand, around: Surroundings) -> PidRecord:
    return PidRecord(
        pid,
        start_of(pid) or "",
        command.process,
        command.kind,
        around.host,
        command.digest,
        around.topology.digest,
    )
