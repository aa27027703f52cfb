"""Decides which blocks an engine stores in KV tiers, and for which requests it loads what they hold.

docs/guides/keep-prefixes.md says what users see of it.

Stores. Blocks that others can find are stored in the order in which they came to be, a few at a time. They are stored
while nothing is here to be computed and nothing came for a while. They are stored, too, once little of the pool is
unused, for then blocks are about to be evicted. So where all fits into the pool, nothing is stored beside what is
computed, nor between a client's requests. Tiers are told what was used with what is stored: all blocks of a request at
the same time, each a little before the block that it follows. So of a prefix that has to go, the end goes first.

Loads. Before each iteration, the first requests that wait are looked up once. The look-up tells how far their prefix
goes in the pool, how much further in the tiers, and how much further on another engine that the gateway named
(`engines.pulls`). What saves most time beside computing is loaded or pulled: the request holds its blocks and joins
what runs when they are full. What takes longer than computing would have is stopped, and until it has ended, nothing
else is loaded from tiers. What did not come is computed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby, islice
from math import inf

import structlog

from engines.effects import LoadBlocks, StopLoading, StoreBlocks
from engines.engine_request import EngineRequest
from engines.memory.block_digests import Digest, digests_of
from engines.memory.block_pool import BlockPool
from engines.memory.runs import Run
from engines.scheduling.disciplines.discipline import Discipline, Rank
from engines.scheduling.scheduler import precedence
from engines.scheduling.service import Service, min_or_none
from engines.settings import EngineSettings
from engines.standing.standing import Standing
from engines.tiers.held_prefixes import HeldPrefixes
from engines.tiers.load_cost import LoadCost
from engines.tiers.loads import NOTHING, Load, Offer
from engines.transfers.handover import Handovers
from engines.transfers.outcomes import EngineOutcome, Pulled
from kvtransfer.layout import block_bytes
from kvtransfer.tiers.tier import BEFORE_S, BlocksLoaded, BlocksStored, Tier, TierUse
from mesh.prefix_names import LONG_STEP
from mesh.wire.requests import Brought
from mesh.wire.status import TierStatus

LOOK_AHEAD = 8  # requests that wait, of a service
LEAST_WAIT_S = 0.1  # for a load, however fast computing is: less says nothing of it
QUIET_S = 0.2  # without anything to compute, after which blocks are stored: a request that comes would share the core
STORE_BYTES = 8 * 2**20  # at a time
STORE_PART = 4  # of the smallest tier, one such part is stored at a time at most: to make room leaves something there
MOST_LOOKS = 1024  # for blocks that are not stored yet, at a time
USE_S = 60.0  # in which what is stored of a request counts as used at once: its first blocks are noted again then
USUAL_BLOCKS = 64  # of a load, by which tiers are compared with computing
PEERS = "peers"  # how statuses call what came from other engines
SHORT = 4  # a pool is short if less than one such part of it is unused

log = structlog.get_logger(__name__)


class Tiering:
    """The KV tiers of one engine, as its core sees them. Services without an index have none."""

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        discipline: Discipline,
        standing: Standing,
        handovers: Handovers,
    ) -> None:
        self._is_on = settings.prefix_caching and not settings.scheduling.is_static
        self._max_running = settings.limits.max_running
        self._services = services
        self._discipline = discipline
        self._standing = standing
        self._tickets, self._pulls, self._sources = handovers.tickets, handovers.pulls, handovers.sources
        self._has_peers = settings.pulls
        self.held = HeldPrefixes(services)
        self._costs = {tier: LoadCost() for tier in Tier}
        self._loads: dict[int, Load] = {}  # by ticket
        self._late: set[int] = set()  # loads that were stopped, as they took too long, and have not ended yet
        self._is_storing = False
        self._quiet_at: float | None = None  # if nothing comes until then; None: it is quiet, busy or has stored all
        self._is_quiet = False
        self._loaded = {tier: TierUse() for tier in Tier}
        self._stored = {tier: TierUse() for tier in Tier}
        self._num_dropped = 0
        self._num_stopped = 0

    def __repr__(self) -> str:
        return f"<Tiering {len(self._loads)} loads, {'one store' if self._is_storing else 'no store'}>"

    # --- loads --------------------------------------------------------------------------------------------------------

    def before_plan(self, service: Service, rank: Rank | None, now: float) -> list[EngineOutcome]:
        """Let requests that wait begin with what tiers hold, where that is sooner than to compute it."""
        queue = service.queue
        if service.tiers is None or not self._is_on:
            return []
        service.pool.tell_new()  # before any block is new
        if queue.is_claimed:
            return []
        outcomes: list[EngineOutcome] = []
        for request in queue.waiting[:LOOK_AHEAD]:
            if queue.num_taken >= self._max_running:
                break
            if request.has_asked_tiers or not request.may_take_prefix:
                continue
            if not self._may_begin(service, request, rank):
                break
            outcomes += self._begin(service, request, now)
        return outcomes

    def _may_begin(self, service: Service, request: EngineRequest, rank: Rank | None) -> bool:
        """Hold what the pool has of a request's prefix, if there is room for the rest of it and of its slice."""
        queue, pool, num_tokens = service.queue, service.pool, len(request.tokens)
        request.take_prefix(pool)
        granted = queue.slice_end(request)
        wanted = pool.blocks_for(num_tokens if granted is None else granted) - len(request.blocks)
        head_room = queue.growth_blocks + service.growth_elsewhere(self._services.values())
        if pool.can_admit(wanted + head_room, request, precedence(request, rank)):
            return True
        request.release_blocks(pool)
        return False

    def _begin(self, service: Service, request: EngineRequest, now: float) -> list[EngineOutcome]:
        queue, pool, first = service.queue, service.pool, len(request.blocks)
        request.has_asked_tiers = True
        offer = max(self._in_tiers(service, request), self._at_peer(service, request, now), key=lambda one: one.saved_s)
        if not offer.digests:
            request.release_blocks(pool)
            return []
        request.blocks += pool.allocate(pool.blocks_for(len(request.tokens)) - first)
        request.granted = queue.slice_end(request)
        queue.waiting.remove(request)
        queue.loading.append(request)
        self._standing.has_news = True
        ticket, digests, outcomes, pull = next(self._tickets), offer.digests, list[EngineOutcome](), None
        blocks = request.blocks[first : first + len(digests)]
        request.num_computed += len(digests) * pool.block_size  # so it counts with what will be left to compute
        self._discipline.changed(request)
        patience_s = max(LEAST_WAIT_S, offer.compute_s)
        if offer.peer is None:
            patience_s += self._queued_s()
            outcomes.append(LoadBlocks(ticket, service.name, digests, blocks))
        else:
            pull, outcomes = self._pulls.start(service, request, offer.peer, digests, blocks, now)
        stops_at, num_blocks = now + patience_s, len(digests)
        self._loads[ticket] = Load(service, request, first, num_blocks, offer.load_s, now, stops_at, offer.peer, pull)
        return outcomes

    def _in_tiers(self, service: Service, request: EngineRequest) -> Offer:
        """What to load; nothing if nothing is there, computing is sooner, or it would wait for a load that is stuck."""
        if self._late:
            return NOTHING
        size, num_bytes, start = service.pool.block_size, block_bytes(service.shape), request.num_computed
        digests, load_s, best = list[Digest](), self._queued_s(), (0, 0.0, 0.0)
        for tier, found in groupby(self._further(service, request), lambda one: one[1]):
            num_before = len(digests)
            digests += [digest for digest, _ in found]
            load_s += self._costs[tier].seconds(len(digests) - num_before, num_bytes)
            compute_s = service.chunk_s(len(digests) * size, start)
            if compute_s - load_s > best[2] - best[1]:
                best = len(digests), load_s, compute_s
        return Offer(digests[: best[0]], best[1], best[2])

    def _at_peer(self, service: Service, request: EngineRequest, now: float) -> Offer:
        """What to pull from the engine that the gateway named; nothing if computing is sooner."""
        at, size, most = request.prefix_at, service.pool.block_size, len(request.tokens) - 1
        num_blocks = 0 if at is None else min(at.num_tokens, most) // size - len(request.blocks)
        if not self._has_peers or at is None or num_blocks <= 0:
            return NOTHING
        load_s = self._pulls.predict_s(service, at.engine, num_blocks, now)
        compute_s = service.chunk_s(num_blocks * size, request.num_computed)
        if load_s is None or load_s >= compute_s:
            return NOTHING
        num_asked = min(at.num_tokens + LONG_STEP, most) // size - len(request.blocks)  # gateways know whole steps only
        return Offer(list(islice(_digests_beyond(service, request), num_asked)), load_s, compute_s, at.engine)

    @staticmethod
    def _further(service: Service, request: EngineRequest) -> Iterator[tuple[Digest, Tier]]:
        """What tiers hold of a request's prefix beyond its blocks."""
        index = service.tiers
        assert index is not None
        for digest in _digests_beyond(service, request):
            tier = index.find(digest)
            if tier is None:
                return
            yield digest, tier

    def _queued_s(self) -> float:
        """Predicted, of the loads from tiers under way: one follows the other."""
        return sum([load.load_s for load in self._loads.values() if load.pull is None])

    def loaded(self, ticket: int, result: BlocksLoaded, now: float) -> list[EngineOutcome]:
        """A load has ended, for a request or for another engine. The request computes what did not come."""
        self._late.discard(ticket)
        for tier, use in result.uses.items():
            self._costs[tier].learn(use)
            self._loaded[tier].add(use)
        load = self._loads.pop(ticket, None)
        if load is None:
            return self._sources.loaded(ticket, result, now)
        tiers = [str(tier) for tier, use in result.uses.items() if use.num_blocks]
        self._join(load, result.num_blocks, tiers, now)
        return []

    def pulled(self, outcome: Pulled, now: float) -> None:
        """A pull has ended. The request, if it is still here, computes what did not come."""
        for ticket, load in self._loads.items():
            if load.pull == outcome.transfer:
                del self._loads[ticket]
                self._join(load, outcome.num_blocks, [], now)
                return

    def _join(self, load: Load, num_loaded: int, tiers: list[str], now: float) -> None:
        """The request runs from now on, with so many blocks more than the pool had."""
        request, queue, size = load.request, load.service.queue, load.service.pool.block_size
        request.begin_after(load.first + num_loaded, size)
        request.brought = Brought(num_loaded * size, now - load.began_at, load.peer, tiers)
        self._publish(load)
        queue.loading.remove(request)
        queue.running.append(request)
        self._discipline.changed(request)
        self._standing.has_news = True

    def _publish(self, load: Load) -> None:
        """Let others find what was loaded. What was pulled is not stored here as well: the peer's host has it."""
        pool, new = load.service.pool, load.service.pool.tell_new()
        num_before = len(new)
        load.request.publish_full_blocks(pool)
        while load.pull is not None and len(new) > num_before:
            new.pop()

    def ended(self, request: EngineRequest, now: float) -> list[EngineOutcome]:
        """Stop the load of a request that was taken out of the queue: its blocks are free to go. Note what others may
        find of it.
        """
        if self._is_on:
            self.held.note(self._services[request.spec.service], request)
        for ticket, load in self._loads.items():
            if load.request is request:
                del self._loads[ticket]
                if load.pull is not None:
                    return self._pulls.cancel(load.pull, "the request has ended", now)
                return [StopLoading(ticket, load.service.name)]
        return []

    def next_deadline(self) -> float | None:
        if not self._loads:
            return self._quiet_at
        stops_at = [load.stops_at if load.stops_at < inf else None for load in self._loads.values()]
        return min_or_none([self._quiet_at, *stops_at])

    def expire(self, now: float) -> list[EngineOutcome]:
        """Stop what has taken too long: what it was to bring is computed. A pull that is stopped ends by `pulled`."""
        outcomes: list[EngineOutcome] = []
        for ticket, load in [*self._loads.items()]:
            if load.stops_at > now:
                continue
            self._num_stopped += 1
            if load.pull is not None:
                self._loads[ticket] = replace(load, stops_at=inf)
                log.warning("computes what an engine was slow to send", request=load.request.id, load_s=load.load_s)
                outcomes += self._pulls.cancel(load.pull, "it takes too long", now)
                continue
            del self._loads[ticket]
            self._late.add(ticket)
            self._join(load, 0, [], now)
            log.warning("computes what a KV tier was slow to bring", request=load.request.id, load_s=load.load_s)
            outcomes.append(StopLoading(ticket, load.service.name))
        return outcomes

    # --- stores -------------------------------------------------------------------------------------------------------

    def next_store(self, now: float, *, is_idle: bool) -> list[StoreBlocks]:
        """Return what to store next, if it is time. ``is_idle``: nothing is here to be computed."""
        if not is_idle:
            self._is_quiet, self._quiet_at = False, None
        elif self._quiet_at is not None and now >= self._quiet_at:
            self._is_quiet, self._quiet_at = True, None
        if self._is_storing or not self._is_on:
            return []
        for service in self._services.values():
            new = () if service.tiers is None else service.pool.tell_new()
            if not new:
                continue
            if is_idle and not self._is_quiet and self._quiet_at is None:
                self._quiet_at = now + QUIET_S
            if self._is_quiet or service.pool.num_unused * SHORT < service.pool.num_blocks:
                store = self._store(service, now)
                if store is not None:
                    self._is_storing = True
                    return [store]
        return []

    def _store(self, service: Service, now: float) -> StoreBlocks | None:
        """The first new blocks that are still in the pool and that a tier lacks, be it one that was emptied or behind
        when they were stored, and what was used with them; None: there is nothing of that.
        """
        pool, index, new = service.pool, service.tiers, service.pool.tell_new()
        assert index is not None
        most_bytes = min(STORE_BYTES, min(index.tiers.values()) // STORE_PART)
        digests, blocks, most = list[Digest](), list[int](), max(1, most_bytes // block_bytes(service.shape))
        used = list[tuple[Digest, float]]()
        for _ in range(min(len(new), MOST_LOOKS)):
            if len(digests) == most:
                break
            digest, run, number = new.popleft()
            block = pool.find(digest)
            if block is None:
                self._num_dropped += 1
                continue
            if run.used_at < now - USE_S:
                run.used_at = now
                used += _used_before(pool, run, number)
            used.append((digest, run.used_at - number * BEFORE_S))
            if not index.is_in_all(digest):
                digests.append(digest)
                blocks.append(block)
        return StoreBlocks(service.name, digests, blocks, used) if used else None

    def stored(self, result: BlocksStored) -> None:
        """Note that a store has ended."""
        self._is_storing = False
        for tier, use in result.uses.items():
            self._costs[tier].learn(use)
            self._stored[tier].add(use)

    # --- what others may know -----------------------------------------------------------------------------------------

    def status(self) -> list[TierStatus]:
        """Nothing where there are no tiers."""
        if not self._has_peers and not any(service.tiers for service in self._services.values()):
            return []
        tiers = {tier: None for service in self._services.values() if service.tiers for tier in service.tiers.tiers}
        from_peers = [_status(PEERS, self._pulls.use, TierUse())] if self._has_peers else []
        return [*(_status(str(tier), self._loaded[tier], self._stored[tier]) for tier in tiers), *from_peers]

    def room(self, service: Service) -> tuple[int, float]:
        """Return how many tokens of a service tiers hold at most, and the seconds to load one, if it comes from the
        slowest. Tiers from which nothing is loaded, as computing is sooner or a load is stuck, do not count.
        """
        if service.tiers is None or not self._is_on or self._late:
            return 0, 0.0
        num_bytes, size = block_bytes(service.shape), service.pool.block_size
        compute_s = service.chunk_s(USUAL_BLOCKS * size, 0)
        load_s = {tier: self._costs[tier].seconds(USUAL_BLOCKS, num_bytes) for tier in service.tiers.tiers}
        worth = [tier for tier, seconds in load_s.items() if seconds < compute_s]
        num_tokens = sum([service.tiers.tiers[tier] for tier in worth]) // num_bytes * size
        return num_tokens, max([load_s[tier] for tier in worth], default=0.0) / (USUAL_BLOCKS * size)

    @property
    def num_dropped(self) -> int:
        """Return how many blocks were evicted before they could be stored."""
        return self._num_dropped

    @property
    def num_stopped(self) -> int:
        """Return how many loads took too long."""
        return self._num_stopped

    def check_invariants(self) -> None:
        """Raise AssertionError unless exactly those requests are being loaded for which a load is under way."""
        loading = [request for service in self._services.values() for request in service.queue.loading]
        assert {*loading} == {load.request for load in self._loads.values()}, "a request waits for no load"


def _digests_beyond(service: Service, request: EngineRequest) -> Iterator[Digest]:
    """Of a request's prefix, after the blocks that it holds. One token at least is left to compute."""
    size, tokens = service.pool.block_size, request.tokens
    return islice(digests_of(tokens, len(tokens) - 1, size, request.spec.prefix_salt), len(request.blocks), None)


def _used_before(pool: BlockPool, run: Run, number: int) -> list[tuple[Digest, float]]:
    """When those blocks of a run before one with that index count as used: a block goes before those that it needs."""
    digests = [pool.digest_of(block) for block in run.blocks[:number]]
    return [(digest, run.used_at - index * BEFORE_S) for index, digest in enumerate(digests) if digest is not None]


def _status(name: str, loaded: TierUse, stored: TierUse) -> TierStatus:
    return TierStatus(
        name,
        stored.used_bytes,
        loaded.num_blocks,
        loaded.num_bytes,
        loaded.elapsed_s,
        stored.num_blocks,
        stored.num_bytes,
        stored.num_evicted,
        loaded.num_faults + stored.num_faults,
        stored.num_left_out,
    )
