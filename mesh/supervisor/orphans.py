"""Processes that outlived their supervisor, and that nobody is to adopt: stopped, gateways before engines."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.supervisor.processes.command import STOP_ORDER
from mesh.supervisor.processes.pidfile import PidRecord, find_processes, remove_pid

if TYPE_CHECKING:
    import psutil

KILL_S = 10.0


def find_orphans(runtime: Path, hosts: Collection[str]) -> list[PidRecord]:
    """Ask this only when no supervisor runs on these hosts."""
    return [record for record in find_processes(runtime) if record.host in hosts]


def stop_orphans(
    runtime: Path, hosts: Collection[str], drain_s: float, say: Callable[[str], None], *, now: bool = False
) -> int:
    """Stop what runs, wave by wave: drained, and killed after ``drain_s``; answer how many there were."""
    orphans = find_orphans(runtime, hosts)
    for kind in STOP_ORDER:
        wave = [record for record in orphans if record.kind == kind]
        if wave:
            say(f"stopping {', '.join(record.process for record in wave)}, left by a supervisor that was killed")
        _stop(wave, 0.0 if now else drain_s)
        for record in wave:
            remove_pid(runtime, record.process)
    return len(orphans)


def _stop(wave: Iterable[PidRecord], drain_s: float) -> None:
    import psutil

    processes = dict(filter(None, map(_process, wave)))
    alive = list(processes)
    if drain_s > 0:
        for process, is_leaving in processes.items():
            if not is_leaving:
                _signal(process.terminate)
        _, alive = psutil.wait_procs(alive, timeout=drain_s)
    for process in alive:
        _signal(process.kill)
    psutil.wait_procs(alive, timeout=KILL_S)


def _process(record: PidRecord) -> "tuple[psutil.Process, bool] | None":
    import psutil

    try:
        return psutil.Process(record.pid), record.is_leaving
    except psutil.NoSuchProcess:
        return None


def _signal(send: Callable[[], None]) -> None:
    import psutil

    try:
        send()
    except psutil.NoSuchProcess:
        return
