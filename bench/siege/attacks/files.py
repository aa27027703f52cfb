"""Files of a running mesh: removed, replaced, on a full disk, or on one that nobody may write to."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bench.chaos.observer import SUPERVISOR
from bench.chaos.running import RunningMesh, until
from bench.siege.answers import Answer
from bench.siege.attack import Family, attack
from bench.siege.ground import Ground
from mesh.topology.schema import LOCAL_HOST

BACK_S = 60.0
BALLAST = "ballast"
SOCKETS = (".inbox", ".status")


class ImpossibleHereError(RuntimeError):
    """This machine or user does not allow such an attack. The message says why."""


async def _asks(ground: Ground) -> list[Answer]:
    """What others are answered meanwhile, on the attacker's own account."""
    return await ground.all_of([{"max_tokens": 8}] * 6)


def _remove(folder: Path, does_apply: Callable[[Path], bool]) -> None:
    for path in folder.rglob("*"):
        if not path.is_dir() and path.suffix not in SOCKETS and does_apply(path):
            path.unlink(missing_ok=True)


async def _kill_and_wait(mesh: RunningMesh, process: str) -> None:
    mesh.kill(process)
    await until(lambda: mesh.observer.is_ready(process), f"{process} is back", BACK_S)


@attack("logs-removed", Family.FILES, "a cleaner of /tmp", fast=True, mixes=False)
async def logs_removed(ground: Ground) -> Sequence[Answer]:
    _remove(ground.folder, lambda path: path.parent.name == "logs")
    return await _asks(ground)


@attack("logs-removed-then-killed", Family.FILES, "a cleaner of /tmp", kills=("decode",), fast=True, mixes=False)
async def logs_removed_then_killed(ground: Ground) -> Sequence[Answer]:
    """What starts again finds neither its log nor its output."""
    _remove(ground.folder, lambda path: path.parent.name == "logs")
    await _kill_and_wait(ground.mesh, "decode")
    return await _asks(ground)


@attack("log-folder-removed-then-killed", Family.FILES, "a cleaner of /tmp", kills=("prefill",), mixes=False)
async def log_folder_removed(ground: Ground) -> Sequence[Answer]:
    _remove(ground.folder, lambda path: path.parent.name == "logs")
    with suppress(OSError):
        (ground.folder / "logs").rmdir()
    await _kill_and_wait(ground.mesh, "prefill")
    return await _asks(ground)


@attack("runtime-files-removed-then-killed", Family.FILES, "a cleaner of /tmp", kills=("decode",), mixes=False)
async def runtime_files_removed(ground: Ground) -> Sequence[Answer]:
    """All but sockets and the lock: pids, incarnations, outputs."""
    _remove(ground.folder, lambda path: path.suffix not in (".lock", ".pid"))
    await _kill_and_wait(ground.mesh, "decode")
    return await _asks(ground)


@attack("runtime-files-garbled", Family.FILES, kills=("decode",), mixes=False)
async def runtime_files_garbled(ground: Ground) -> Sequence[Answer]:
    """An incarnation that is no number, or that no clock has reached."""
    file = ground.folder / "decode.incarnation"
    for text in ("", "\x00\xff", "9" * 5000):
        file.write_text(text)
        await _kill_and_wait(ground.mesh, "decode")
    return await _asks(ground)


def _check_own_disk(folder: Path) -> None:
    if not os.path.ismount(folder):
        raise ImpossibleHereError("the mesh's folder is no file system of its own: that takes root")


@asynccontextmanager
async def _full(folder: Path) -> AsyncIterator[None]:
    """No byte of the folder's file system is free."""
    _check_own_disk(folder)
    ballast = folder / BALLAST
    try:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(2**16)):
                pass
        with suppress(OSError), ballast.open("ab", buffering=0) as file:
            while file.write(b"\x00"):
                pass
        yield
    finally:
        ballast.unlink(missing_ok=True)


@attack("disk-full", Family.FILES, fast=True, mixes=False)
async def disk_full(ground: Ground) -> Sequence[Answer]:
    """Logs, records and files of the runtime folder cannot be written."""
    async with _full(ground.mesh.deployment.runtime):
        answers = await _asks(ground)
        await asyncio.sleep(min(3.0, ground.hold_s))
        return answers + await _asks(ground)


@attack("disk-full-then-killed", Family.FILES, kills=("decode",), mixes=False)
async def disk_full_then_killed(ground: Ground) -> Sequence[Answer]:
    async with _full(ground.mesh.deployment.runtime):
        ground.mesh.kill("decode")
        answers = await _asks(ground)
        await asyncio.sleep(ground.hold_s)
    await until(lambda: ground.mesh.observer.is_ready("decode"), "decode is back", BACK_S)
    return answers


@attack("read-only", Family.FILES, kills=("prefill",), mixes=False)
async def read_only(ground: Ground) -> Sequence[Answer]:
    """Nobody may open a file of the runtime folder for writing, and an engine dies meanwhile."""
    async with _read_only(ground.mesh.deployment.runtime):
        ground.mesh.kill("prefill")
        answers = await _asks(ground)
        await asyncio.sleep(min(5.0, ground.hold_s))
    await until(lambda: ground.mesh.observer.is_ready("prefill"), "prefill is back", BACK_S)
    return answers


@asynccontextmanager
async def _read_only(folder: Path) -> AsyncIterator[None]:
    """Files that are open stay so: the folder is mounted over itself."""
    _check_own_disk(folder)
    await _mount("mount", "--bind", str(folder), str(folder))
    try:
        await _mount("mount", "-o", "remount,bind,ro", str(folder))
        yield
    finally:
        await _mount("umount", "-l", str(folder))


async def _mount(*command: str) -> None:
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    if done.returncode:
        raise ImpossibleHereError(f"{' '.join(command)}: {done.stderr.decode().strip()}")


@attack(
    "supervisor-killed", Family.FILES, "a supervisor that dies, and `mesh up` again", kills=(SUPERVISOR,), mixes=False
)
async def supervisor_killed(ground: Ground) -> Sequence[Answer]:
    """What runs goes on, and is taken over by the next supervisor."""
    mesh = ground.mesh
    old = mesh.kill(SUPERVISOR)
    answers = await _asks(ground)
    await mesh.start_host(LOCAL_HOST)
    await until(lambda: mesh.observer.pid(SUPERVISOR) not in (None, old), "there is a supervisor again", BACK_S)
    return answers + await _asks(ground)
