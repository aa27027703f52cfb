"""Keeps on disk which adapters were added, so that they are there again when all gateways were gone."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import structlog

from mesh.process.whole_file import write_whole
from mesh.topology.schema import Topology
from mesh.wire.adapters import AddedAdapter
from router.adapters.added import AddedAdapters
from router.stores.folders import state_folder

MOST_BYTES: Final = 4 * 2**20
MOST_KEPT: Final = 1024  # removed ones included

log = structlog.get_logger()


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    adapters: Annotated[list[AddedAdapter], msgspec.Meta(max_length=MOST_KEPT)]


class KeptAdapters:
    """One gateway's file. ``path`` None: nothing is kept. Removed ones are kept, too: other gateways may still have
    them in their files.
    """

    def __init__(self, path: Path | None, added: AddedAdapters) -> None:
        self._path = path
        self._added = added
        self._written = b""
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @classmethod
    def of(cls, topology: Topology, gateway: str, added: AddedAdapters) -> "KeptAdapters":
        """Make that of a gateway."""
        spec = topology.added
        if spec is None or not spec.keep:
            return cls(None, added)
        return cls((spec.state or state_folder(topology.name, "adapters")) / f"{gateway}.json", added)

    def __repr__(self) -> str:
        return f"<KeptAdapters {self._path}>"

    def restore(self) -> None:
        """Know what was kept, as far as it can still be served. A file that cannot be read is as if there were none."""
        kept = {} if self._path is None else _read(self._path)
        usable = {name: one for name, one in kept.items() if one.is_removed or self._is_usable(one)}
        self._added.hear(usable)
        if served := sorted(self._added.served):
            log.info("adapters of before", adapters=served)

    def _is_usable(self, one: AddedAdapter) -> bool:
        """Whether its files are the same is seen by the engine that loads it."""
        reason = self._added.why_not(one)
        if reason is None and not Path(one.adapter.folder).is_dir():
            reason = f"{one.adapter.folder} is gone"
        if reason is not None:
            log.warning("an adapter of before is not served", adapter=one.adapter.service, reason=reason)
        return reason is None

    def changed(self) -> None:
        """Other gateways said something new: `run` writes it."""
        self._changed.set()

    async def keep(self) -> None:
        """Return once what is known is on disk, or cannot be, which the log tells."""
        if self._path is None:
            return
        async with self._turn:
            content = _Content(1, list(self._added.known.values()))
            data = msgspec.json.format(msgspec.json.encode(content)) + b"\n"
            if data != self._written:
                try:
                    await asyncio.to_thread(_write, self._path, data)
                    self._written = data
                except OSError as error:
                    log.error("does not keep adapters", path=str(self._path), reason=str(error))

    async def run(self) -> None:
        """Run and never return; cancel it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.keep()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, data)


def _read(path: Path) -> Mapping[str, AddedAdapter]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        return {one.adapter.service: one for one in msgspec.json.decode(data, type=_Content).adapters}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:  # the decoder's are ValueErrors
        log.error("does not know which adapters were added before", path=str(path), reason=str(error)[:200])
        return {}
