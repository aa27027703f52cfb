"""Tells gateways which prefixes an engine's pools and its host's tiers hold, so that they need not guess. Pure.

A prefix is noted when a request with it ends: until then its gateway counts on it anyway. What was noted and what the
pool evicted since goes out with the next status, as one message for all services. A gateway asks for all of it when it
is new, or when a message is missing (`mesh.wire.prefixes`).

What the pool evicted is looked for in the tiers, a few prefixes with each status, those first that were looked for the
longest ago. Any process of a host may evict there, and only who noted a prefix knows its name: so each engine looks for
its own.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.engine_request import EngineRequest
from engines.memory.block_digests import Digest
from engines.memory.block_pool import BlockPool
from engines.scheduling.service import Service
from kvtransfer.protocol import Send
from kvtransfer.tiers.tier import TierIndex
from mesh.prefix_names import prefix_end, prefix_names
from mesh.wire.prefixes import MOST_NAMES, PrefixesHeld, ServicePrefixes

LOOKS = 16  # in tiers for prefixes of a service, with each status: microseconds each


@dataclass(slots=True)
class _Noted:
    """Prefixes of one service by the block that completes each. ``new``: of those, what nobody was told. ``below``:
    those that the pool evicted and tiers may have, the longest not looked for first.
    """

    names: dict[Digest, int] = field(default_factory=dict)
    new: dict[Digest, int] = field(default_factory=dict)
    below: OrderedDict[Digest, int] = field(default_factory=OrderedDict)

    def note(self, digest: Digest, name: int) -> None:
        self.below.pop(digest, None)
        if digest not in self.names:
            self.names[digest] = self.new[digest] = name

    def take_gone(self, pool: BlockPool) -> list[int]:
        """Return the names of what the pool has evicted, and forget them."""
        lost = set(self.names) if len(pool.gone) == pool.gone.maxlen else self.names.keys() & set(pool.gone)
        pool.gone.clear()
        return [self._forget(digest) for digest in lost if pool.find(digest) is None]

    def _forget(self, digest: Digest) -> int:
        self.new.pop(digest, None)
        name = self.names.pop(digest)
        self.below[digest] = name
        self.below.move_to_end(digest, last=False)
        if len(self.below) > MOST_NAMES:
            self.below.popitem()
        return name

    def take_lost(self, tiers: TierIndex) -> list[int]:
        """Look for some of what the pool gave up. Return the names of what tiers do not have, and forget them."""
        lost = []
        for _ in range(min(LOOKS, len(self.below))):
            digest, name = self.below.popitem(last=False)
            if tiers.find(digest) is None:
                lost.append(name)
            else:
                self.below[digest] = name
        return lost

    def take_new(self) -> list[int]:
        """Return the names that nobody was told; the last ones, if there are too many."""
        kept = [*self.new.values()][-MOST_NAMES:]
        self.new.clear()
        return kept


class HeldPrefixes:
    """Notes prefixes of one engine's services whose blocks are in KV tiers. Only gateways that asked are told."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self._services = services
        self._noted: defaultdict[str, _Noted] = defaultdict(_Noted)
        self._listeners: dict[str, None] = {}  # gateways, in the order in which they asked
        self.number = 0  # of the last message; 0: there is nothing to tell

    def __repr__(self) -> str:
        return (
            f"<HeldPrefixes { ({name: len(noted.names) for name, noted in self._noted.items()}) } number {self.number}>"
        )

    def note(self, service: Service, request: EngineRequest) -> None:
        """Take in the prefixes of a request that ends, as far as others can find its blocks."""
        run, pool = request.published, service.pool
        if run is None or service.tiers is None:
            return
        pool.tell_new()  # and what is gone, from now on
        noted, size = self._noted[service.name], pool.block_size
        tokens = request.tokens[: len(run.blocks) * size]
        for index, name in enumerate(prefix_names(tokens, request.spec.prefix_salt)):
            digest = pool.digest_of(run.blocks[-(-prefix_end(index) // size) - 1])
            if digest is not None:
                noted.note(digest, name)
        self.number = max(1, self.number)

    def news(self) -> list[Send]:
        """Return what to tell now, at most one message for each gateway that listens."""
        changes = self._changes() if self._noted else []
        if not changes or not self._listeners:
            return []
        self.number += 1
        message = PrefixesHeld(self.number, changes)
        return [Send(gateway, message) for gateway in self._listeners]

    def _changes(self) -> list[ServicePrefixes]:
        changes = []
        for name, noted in [*self._noted.items()]:
            service = self._services.get(name)
            if service is None:  # it was unloaded
                del self._noted[name]
                gone, kept, lost = [*noted.names.values()], [], []
            else:
                gone, kept = noted.take_gone(service.pool), noted.take_new()
                lost = [] if service.tiers is None else noted.take_lost(service.tiers)
            if gone or kept or lost:
                changes.append(ServicePrefixes(name, kept, gone[:MOST_NAMES], lost))
        return changes

    def subscribe(self, gateway: str) -> list[Send]:
        """A gateway asks for all of it. It is told of changes from now on."""
        self._listeners[gateway] = None
        held = [
            ServicePrefixes(name, [*noted.names.values()][-MOST_NAMES:])
            for name, noted in self._noted.items()
            if name in self._services
        ]
        return [Send(gateway, PrefixesHeld(self.number, held, is_all=True))]

    def lose(self, gateway: str) -> None:
        """Forget a process that died: it does not listen any more."""
        self._listeners.pop(gateway, None)
