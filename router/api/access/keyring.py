"""The keys that a gateway knows: those of its file, read anew when the file changes, away from the event loop."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from mesh.access.key_file import read_keys
from mesh.access.keys import AccessKey, KeyLimits, split_key
from mesh.errors import UserError
from router.api.access.rates import Meter

LOOK_S: Final = 1.0

log = structlog.get_logger()

_Stamp = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key with its limits in force. ``limits``: its own, and the deployment's where it has none."""

    key: AccessKey
    limits: KeyLimits
    meter: Meter


class Keyring:
    """A file that is broken or gone changes nothing: the last good keys stay, and the log says so once."""

    def __init__(self, path: Path, defaults: KeyLimits, *, share_prefixes: bool = False) -> None:
        """Raise `UserError` if the file is broken. Without a file nobody has a key. ``share_prefixes``: requests of all
        keys may take each other's KV.
        """
        self._path = path
        self._shares_prefixes = share_prefixes
        self._defaults = defaults
        self._stamp: _Stamp = _stamp(path)
        self._held: dict[str, HeldKey] = {}
        self._named: dict[str, HeldKey] = {}
        try:
            self._take(read_keys(path))
        except FileNotFoundError:
            log.warning("no access keys: nobody may ask until `mesh keys add` makes one", file=str(path))

    def __repr__(self) -> str:
        return f"<Keyring of {len(self._held)} keys>"

    def find(self, text: str) -> HeldKey | None:
        """The key that somebody shows; None: it is none of these."""
        parts = split_key(text)
        if parts is None:
            return None
        held = self._held.get(parts[0])
        return held if held is not None and held.key.matches(parts[1]) else None

    def named(self, name: str) -> HeldKey | None:
        """Return the key of that name; None: there is none, or no longer."""
        return self._named.get(name)

    def of_id(self, key: str) -> HeldKey | None:
        """Return the key of that id; None: there is none, or no longer."""
        return self._held.get(key)

    def cache_salt(self, key: AccessKey, tenant: str) -> str:
        """Return what tells prefixes of this key and tenant from those of others; empty: nothing does. A new key of the
        same name takes what the old one had.
        """
        return "" if self._shares_prefixes else f"{key.name}/{tenant}"

    def __iter__(self) -> Iterator[HeldKey]:
        """Iterate over all keys, in the order of the file: new ones come last."""
        return iter(self._held.values())

    async def run(self) -> None:
        """Keep up with the file. Never returns; cancel it."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Take what has changed."""
        stamp = await asyncio.to_thread(_stamp, self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(await asyncio.to_thread(read_keys, self._path))
        except (UserError, FileNotFoundError) as error:
            reason = str(error) if isinstance(error, UserError) else "the file is gone"
            log.error("access keys not read anew: the last good ones stay", file=str(self._path), reason=reason)
        else:
            log.info("access keys read anew", file=str(self._path), keys=len(self._held))

    def _take(self, keys: Iterable[AccessKey]) -> None:
        """What a key has used stays with it."""
        before = self._held
        self._held = {
            key.id: HeldKey(key, key.limits.over(self._defaults), before[key.id].meter if key.id in before else Meter())
            for key in keys
        }
        self._named = {held.key.name: held for held in self._held.values()}


def _stamp(path: Path) -> _Stamp:
    """Changes with the file; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
