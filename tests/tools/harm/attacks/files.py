"""Files of a running mesh: removed, garbled, on a full disk, or on one that nobody may write to."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from tests.tools.harm.attacks.ground import Answer, Ground, ImpossibleHereError
from tests.tools.harm.attacks.ways import Run
from tests.tools.harm.harm import Harm
from tests.tools.harm.meshes import KEYED, KEYS, RIVAL
from tests.tools.harm.observer import SUPERVISOR
from tests.tools.harm.running import until

BACK_S = 60.0
NOTICED_S = 1.5  # until a gateway has looked at its file of keys again
KEPT = (".inbox", ".status")  # sockets
RUNNING = (".lock", ".pid")
ODD_INCARNATIONS = ("", "\x00\xff", "9" * 5000)  # that are no number, or that no clock has reached
CLEANER = "a cleaner of /tmp"


async def asks(ground: Ground) -> list[Answer]:
    """What others are answered meanwhile, on the attacker's own account."""
    return await ground.send_all([ground.completion({"max_tokens": 8})] * 6, at_once=4)


async def is_back(ground: Ground, process: str) -> None:
    await until(lambda: ground.mesh.observer.is_ready(process), f"{process} is back", BACK_S)


def remove(which: Callable[[Path], bool], then_kill: str | None = None) -> Run:
    """All such files but sockets; what starts again does not find them."""

    async def run(ground: Ground) -> Sequence[Answer]:
        for path in sorted(ground.folder.rglob("*"), reverse=True):  # folders come after what is in them
            if path.suffix not in KEPT and which(path):
                with suppress(OSError):
                    (path.rmdir if path.is_dir() else path.unlink)()
        if then_kill is not None:
            ground.mesh.kill(then_kill)
            await is_back(ground, then_kill)
        return await asks(ground)

    return run


def is_log(path: Path) -> bool:
    return path.parent.name == "logs"


def is_log_or_folder(path: Path) -> bool:
    return "logs" in (path.name, path.parent.name)


def is_state(path: Path) -> bool:
    """Incarnations and outputs."""
    return not path.is_dir() and path.suffix not in RUNNING


async def incarnations_garbled(ground: Ground) -> Sequence[Answer]:
    for text in ODD_INCARNATIONS:
        (ground.folder / "decode.incarnation").write_text(text)
        ground.mesh.kill("decode")
        await is_back(ground, "decode")
    return await asks(ground)


async def keys_garbled(ground: Ground) -> Sequence[Answer]:
    """The file breaks, grows, or goes away under the running mesh: those who had keys keep them."""
    path = ground.mesh.deployment.path.parent / KEYS
    whole, answers = path.read_bytes(), list[Answer]()
    try:
        for content in (b"", b"\xff" * 1000, b"[" * 100_000, whole[:-20]):
            path.write_bytes(content)
            await asyncio.sleep(NOTICED_S)
            answers.append(await ground.send(ground.completion({"max_tokens": 1}, ground.key(RIVAL))))
        path.unlink()
        await asyncio.sleep(NOTICED_S)
    finally:
        path.write_bytes(whole)
        path.chmod(0o600)
    return answers


def while_unwritable(
    disk: Callable[[Path], AbstractAsyncContextManager[None]], most_s: float, kills: str | None = None
) -> Run:
    """Logs, records and files of the runtime folder cannot be written for a while, in which a process may die."""

    async def run(ground: Ground) -> Sequence[Answer]:
        folder = ground.mesh.deployment.runtime
        if not folder.is_mount():
            raise ImpossibleHereError("the mesh's folder is no file system of its own: that takes root")
        async with disk(folder):
            if kills is not None:
                ground.mesh.kill(kills)
            answers = await asks(ground)
            await asyncio.sleep(min(most_s, ground.hold_s))
            answers += await asks(ground) if kills is None else []
        if kills is not None:
            await is_back(ground, kills)
        return answers

    return run


@asynccontextmanager
async def full(folder: Path) -> AsyncIterator[None]:
    """No byte of the folder's file system is free."""
    ballast = folder / "ballast"
    try:
        for size in (2**16, 1):
            with suppress(OSError), ballast.open("ab", buffering=0) as file:
                while file.write(bytes(size)):
                    pass
        yield
    finally:
        ballast.unlink(missing_ok=True)


@asynccontextmanager
async def read_only(folder: Path) -> AsyncIterator[None]:
    """Files that are open stay so: the folder is mounted over itself."""
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


async def supervisor_killed(ground: Ground) -> Sequence[Answer]:
    """What runs goes on, and is taken over by the next supervisor."""
    old = ground.mesh.kill(SUPERVISOR)
    answers = await asks(ground)
    await ground.mesh.start_host()
    await ground.mesh.born_again(SUPERVISOR, old)
    return answers + await asks(ground)


_f = partial(Harm, "files", mixes=False)
_d = partial(_f, kills=("decode",))
_p = partial(_f, kills=("prefill",))

ATTACKS = (
    _f("logs-removed", remove(is_log), CLEANER, in_short=True),
    _d("logs-removed-then-killed", remove(is_log, "decode"), CLEANER, in_short=True),
    _p("log-folder-removed-then-killed", remove(is_log_or_folder, "prefill"), CLEANER),
    _d("runtime-files-removed-then-killed", remove(is_state, "decode"), CLEANER),
    _d("runtime-files-garbled", incarnations_garbled),
    _f("disk-full", while_unwritable(full, 3.0), in_short=True),
    _d("disk-full-then-killed", while_unwritable(full, 30.0, "decode")),
    _p("read-only", while_unwritable(read_only, 5.0, "prefill")),
    _f("supervisor-killed", supervisor_killed, "a supervisor that dies, and `mesh up` again", kills=(SUPERVISOR,)),
    Harm("access", "key-file-garbled", keys_garbled, mesh=KEYED),
)
