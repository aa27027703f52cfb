"""Decides which LoRA adapters an engine holds: those that requests use, and the last used ones, within its memory.

Theory of operation. A request `begin`s once its adapter is here; until then it waits, and `ready` names it when it may.
`next_orders` says what to load and what to drop, whenever something has changed. Where memory is short, adapters that
nobody uses go, the longest unused first. If all are used, the longest held ones are closed: they take nobody new, go
when their last request ends, and come back when it is their turn. So each adapter that is asked for comes in time.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from engines.adapters.places import AdapterSizes
from engines.effects import DropAdapter, LoadAdapter
from engines.engine_request import EngineRequest
from mesh.sizes import in_words
from mesh.wire.adapters import LoraAdapter
from mesh.wire.requests import RequestSpec

MOST_FAILED: Final = 64  # whose reasons are remembered
MOST_LOADING: Final = 8  # at a time
MOST_HINTS: Final = 256  # that wait for room, beside those that requests wait for
RETRY_S: Final = 10.0  # after which one that could not be loaded is tried again

AdapterOrder = LoadAdapter | DropAdapter

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """One adapter and what it takes. ``service``: its base."""

    adapter: LoraAdapter
    service: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    at: float


class AdapterRoom:
    """The adapters of one engine, by their `LoraAdapter.key`. ``memory_bytes`` bounds those that are here or coming."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes: Final = memory_bytes
        self._held: OrderedDict[str, _Place] = OrderedDict()  # the longest unused first
        self._loading: dict[str, _Place] = {}
        self._wanted: OrderedDict[str, _Place] = OrderedDict()  # there was no room yet
        self._closed: set[str] = set()  # of those held: they take nobody new
        self._waiting: dict[str, list[EngineRequest]] = {}
        self._using: dict[EngineRequest, str] = {}
        self._num_users: Counter[str] = Counter()
        self._failed: OrderedDict[str, _Failure] = OrderedDict()

    def __repr__(self) -> str:
        held = ", ".join(f"{key} x{self._num_users[key]}" for key in self._held)
        return f"<AdapterRoom {in_words(self.held_bytes)} of {in_words(self.memory_bytes)}: {held or 'none'}>"

    @property
    def held_bytes(self) -> int:
        """Return what is taken, by those that come, too."""
        return sum([place.num_bytes for places in (self._held, self._loading) for place in places.values()])

    @property
    def is_empty(self) -> bool:
        """Return whether it has never anything to do: most engines have no adapters."""
        return not (self._held or self._loading or self._wanted)

    def names(self) -> list[str]:
        """Return the services of the adapters that are here."""
        return [place.adapter.service for place in self._held.values()]

    def why_not(self, spec: RequestSpec, sizes: AdapterSizes, now: float) -> str | None:
        """Return why a request's adapter cannot be had here, for now or at all; None if it can, or has none."""
        adapter = spec.adapter
        if adapter is None:
            return None
        if (num_bytes := sizes.of(adapter)) > self.memory_bytes:
            return f"adapter {adapter.service} takes {in_words(num_bytes)}, beyond adapter_memory"
        failure = self._failed.get(adapter.key)
        return None if failure is None or now - failure.at >= RETRY_S else failure.reason

    # --- requests -----------------------------------------------------------------------------------------------------

    def expect(self, spec: RequestSpec, sizes: AdapterSizes) -> None:
        """A request is on its way: its adapter had better be here by then."""
        if spec.adapter is not None:
            self.want(spec.adapter, spec.service, sizes)

    def want(self, adapter: LoraAdapter, service: str, sizes: AdapterSizes) -> None:
        """Load it, if it can ever be here."""
        key, num_bytes = adapter.key, sizes.of(adapter)
        if num_bytes > self.memory_bytes:
            return
        if key in self._held:
            self._held.move_to_end(key)
        elif key not in self._loading and key not in self._wanted:
            self._wanted[key] = _Place(adapter, service, num_bytes)

    def hint(self, adapter: LoraAdapter, service: str, sizes: AdapterSizes) -> None:
        """Somebody says that requests with it will come: load it, unless too many wait for that."""
        if len(self._wanted) < MOST_HINTS:
            self.want(adapter, service, sizes)

    def begin(self, request: EngineRequest, sizes: AdapterSizes) -> bool:
        """Return whether it may be computed. If not, it is among those that wait."""
        adapter = request.spec.adapter
        if adapter is None or request in self._using:
            return True
        key = adapter.key
        if key in self._held and key not in self._closed:
            self._held.move_to_end(key)
            self._use(request, key)
            return True
        if key not in self._held:
            self.want(adapter, request.spec.service, sizes)
        self._waiting.setdefault(key, []).append(request)
        return False

    def _use(self, request: EngineRequest, key: str) -> None:
        self._using[request] = key
        self._num_users[key] += 1

    def ended(self, request: EngineRequest) -> None:
        """It is over here, or was none of an adapter."""
        adapter = request.spec.adapter
        if adapter is None:
            return
        key = self._using.pop(request, None)
        if key is not None:
            self._num_users[key] -= 1
            return
        waiting = self._waiting.get(adapter.key, [])
        if request in waiting:
            waiting.remove(request)
            if not waiting:
                del self._waiting[adapter.key]
                self._wanted.pop(adapter.key, None)

    # --- adapters -----------------------------------------------------------------------------------------------------

    def next_orders(self) -> list[AdapterOrder]:
        """Return what to load and drop, as things are now. Call it after whatever changed them."""
        orders: list[AdapterOrder] = [self._drop(key) for key in [*self._closed] if not self._num_users[key]]
        while self._wanted and len(self._loading) < MOST_LOADING:
            key, place = next(iter(self._wanted.items()))
            dropped = self._make_room(place.num_bytes)
            orders += dropped
            if self.held_bytes + place.num_bytes > self.memory_bytes:
                self._close(place.num_bytes)
                break
            del self._wanted[key]
            self._loading[key] = place
            orders.append(LoadAdapter(place.service, place.adapter, place.num_bytes))
        return orders

    def _make_room(self, num_bytes: int) -> list[AdapterOrder]:
        """Drop what nobody uses, if that is enough or not."""
        orders: list[AdapterOrder] = []
        for key in [*self._held]:
            if self.held_bytes + num_bytes <= self.memory_bytes:
                break
            if not self._num_users[key]:
                orders.append(self._drop(key))
        return orders

    def _drop(self, key: str) -> DropAdapter:
        place = self._held.pop(key)
        self._closed.discard(key)
        del self._num_users[key]
        if key in self._waiting:
            self._wanted[key] = place  # after those that were asked for before
        return DropAdapter(place.service, key)

    def _close(self, num_bytes: int) -> None:
        """As many as make room once their requests have ended."""
        coming = sum([place.num_bytes for place in self._loading.values()])
        left = self.held_bytes - coming - sum([self._held[key].num_bytes for key in self._closed])
        for key, place in self._held.items():
            if left + coming + num_bytes <= self.memory_bytes:
                return
            if key not in self._closed:
                self._closed.add(key)
                left -= place.num_bytes

    def loaded(self, key: str) -> Sequence[EngineRequest]:
        """Note that an adapter is here. Return the requests that may begin."""
        self._held[key] = self._loading.pop(key)
        self._failed.pop(key, None)
        ready = self._waiting.pop(key, [])
        for request in ready:
            self._use(request, key)
        return ready

    def not_loaded(self, key: str, reason: str, now: float) -> Sequence[EngineRequest]:
        """It cannot be had. Return those that waited for it."""
        place = self._loading.pop(key)
        log.error("did not load an adapter", adapter=place.adapter.service, folder=place.adapter.folder, reason=reason)
        self._failed[key] = _Failure(reason, now)
        if len(self._failed) > MOST_FAILED:
            self._failed.popitem(last=False)
        return self._waiting.pop(key, [])

    def is_used(self, service: str) -> bool:
        """Return whether requests use adapters of that base."""
        return any(self._num_users[key] for key, place in self._held.items() if place.service == service)

    def forget(self, service: str) -> list[AdapterOrder]:
        """A base is gone, with what was loaded for it."""
        gone = [key for key, place in self._held.items() if place.service == service]
        return [self._drop(key) for key in gone]

    def unload(self, adapter: str) -> None:
        """Its service is no more: what is left of it goes once nobody uses it."""
        self._closed |= {key for key, place in self._held.items() if place.adapter.service == adapter}

    def check_invariants(self) -> None:
        """Raise AssertionError unless memory suffices and each request uses its adapter, or waits for one to come."""
        if self.is_empty and not (self._closed or self._num_users or self._using or self._waiting):
            return
        assert self.held_bytes <= self.memory_bytes, "adapters take more than their memory"
        assert self._closed <= self._held.keys(), "an adapter is closed that is not here"
        assert self._num_users == Counter(self._using.values()), "users of adapters are miscounted"
        assert set(self._using.values()) <= self._held.keys(), "an adapter is used that is not here"
        waiting = [request for requests in self._waiting.values() for request in requests]
        assert self._using.keys().isdisjoint(waiting), "a request uses an adapter and waits for it"
        coming = self._loading.keys() | self._wanted.keys() | self._closed
        assert self._waiting.keys() <= coming, "a request waits for an adapter that does not come"
