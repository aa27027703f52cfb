"""Processes that outlived their supervisor: stopped before new ones start, gateways first."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psutil

from mesh.supervisor.pidfile import find_process, remove_pid


def find_orphans(runtime: Path, processes: Iterable[str]) -> dict[str, psutil.Process]:
    found = {process: find_process(runtime, process) for process in processes}
    return {process: running for process, running in found.items() if running is not None}


def stop_orphans(
    runtime: Path, waves: Sequence[Iterable[str]], drain_s: float, say: Callable[[str], None], *, now: bool = False
) -> int:
    """Stop what runs, wave by wave: drained, and killed after ``drain_s``; answer how many there were."""
    num_stopped = 0
    for wave in waves:
        orphans = find_orphans(runtime, wave)
        if orphans:
            say(f"stopping {', '.join(orphans)}, left by a supervisor that was killed")
        _stop(orphans.values(), 0.0 if now else drain_s)
        for process in orphans:
            remove_pid(runtime, process)
        num_stopped += len(orphans)
    return num_stopped


def _stop(processes: Iterable[psutil.Process], drain_s: float) -> None:
    alive = list(processes)
    for process in alive if drain_s > 0 else ():
        _signal(process.terminate)
    if drain_s > 0:
        _, alive = psutil.wait_procs(alive, timeout=drain_s)
    for process in alive:
        _signal(process.kill)
    psutil.wait_procs(alive, timeout=10)


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return
