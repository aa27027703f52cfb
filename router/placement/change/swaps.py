"""Decides how services come to engines and leave them where an engine cannot hold weights of both at a time.

A service that fits beside what an engine holds is loaded before anything leaves. Where it does not fit, its weights are
staged in the host's memory, beside what the engine serves (SeaLLM's asynchronous pull, section 5). Then the engine
*swaps*: what is to leave gives up its weights, and the staged ones are copied into their place. A service is without
its weights for as long as that copy takes, and only where every engine that serves it has to swap.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mesh.wire.status import EngineStatus


@dataclass(frozen=True, slots=True)
class EngineWeights:
    """The memory of one engine for weights. ``sizes`` of all services in bytes, as far as they are known.

    ``limit`` None: nobody said what it holds, so whatever is asked of it fits.
    """

    sizes: Mapping[str, int]
    limit: int | None

    def num_bytes(self, services: Collection[str]) -> int:
        return sum(self.sizes.get(name, 0) for name in services)

    def fit(self, services: Collection[str]) -> bool:
        """Return whether it can hold all of them at a time."""
        return self.limit is None or self.num_bytes(services) <= self.limit

    def surely_fit(self, services: Collection[str]) -> bool:
        """Return whether it can hold all of them, whatever those weigh whose size is not known."""
        return self.limit is None or (self.sizes.keys() >= set(services) and self.fit(services))


def weights_of(statuses: Iterable[EngineStatus]) -> dict[str, int]:
    """The weights of services in bytes, of all that any of the engines has or has staged."""
    sizes: dict[str, int] = {}
    for status in statuses:
        known = [*((one.name, one.weight_bytes) for one in status.services), *status.staged.items()]
        for name, num_bytes in known:
            sizes[name] = max(sizes.get(name, 0), num_bytes)
    return sizes


def in_memory(status: EngineStatus) -> set[str]:
    """Return the services whose weights are in the engine's memory, or on their way there."""
    return {one.name for one in status.services if not one.is_paused} | set(status.loading)


def next_swaps(
    waiting: Mapping[str, Sequence[str]],
    under_way: Mapping[str, Sequence[str]],
    serving: Mapping[str, Collection[str]],
    num_running: Mapping[str, int],
    *,
    may_interrupt: bool,
) -> list[str]:
    """Return the engines that are to swap now. ``waiting`` and ``under_way``: engines and what is to leave them;
    ``serving``: engines that serve a service; ``num_running``: requests of all services by engine.

    An engine swaps when another one serves all that leaves it, one engine of a service at a time. Where services wait
    for each other's places in a circle, nobody can. Then one engine begins all the same, if it ``may_interrupt``: the
    one where the fewest services are interrupted, and of those the one with the fewest requests.
    """
    left = {name: set(engines) for name, engines in serving.items()}
    for engine, names in under_way.items():
        _leave(left, engine, names)
    busy = {name for names in under_way.values() for name in names}
    begun: list[str] = []
    for engine, names in sorted(waiting.items(), key=lambda one: (num_running.get(one[0], 0), one[0])):
        if not busy & set(names) and not _interrupted(left, engine, names):
            _leave(left, engine, names)
            busy |= set(names)
            begun.append(engine)
    if begun or under_way or not waiting or not may_interrupt:
        return begun

    def harm(engine: str) -> tuple[int, int, str]:
        return len(_interrupted(left, engine, waiting[engine])), num_running.get(engine, 0), engine

    return [min(waiting, key=harm)]


def _interrupted(left: Mapping[str, Collection[str]], engine: str, names: Iterable[str]) -> list[str]:
    """Services that no other engine serves."""
    return [name for name in names if not set(left.get(name, ())) - {engine}]


def _leave(left: Mapping[str, set[str]], engine: str, names: Iterable[str]) -> None:
    for name in names:
        left.get(name, set()).discard(engine)
