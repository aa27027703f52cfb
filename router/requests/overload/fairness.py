"""Decides whose turn it is when several tenants want more than there is: a virtual token counter for each. Pure.

Who has been served least goes first (VTC: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024): a
tenant's counter grows by the tokens of its prompts and twice those of its answers. Who comes back after a while starts
at the least counter of those that are there, so that nobody saves up. Two more things keep a flood where it came from.
While others are about, a tenant may have no more than its share of prompts with engines that have not begun, as engines
have an order of their own. Who has its share of the places in decode batches leaves the last ones to the others, as
long answers keep their places for long. Both are counted on the engines that a request could go to: what a tenant has
elsewhere takes nothing from it there. And when the gateway is full, room is made by whoever has most that waits. One
tenant alone has none of these bounds.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from math import ceil, inf
from typing import Final, NamedTuple

from router.policies.policy import Dispatch
from router.requests.in_flight_request import InFlightRequest

PROMPT_WEIGHT: Final = 1.0
ANSWER_WEIGHT: Final = 2.0
ABOUT_S: Final = 10.0  # after its last request, a tenant is still about
SWEEP_S: Final = 1.0
MAX_REMEMBERED: Final = 4096  # tenants that are not about any more
UNBEGUN_PER_ENGINE: Final = 2  # prompts that tenants together may have with an engine before it begins them
UNBEGUN_S: Final = 0.25  # or as many as it computes in this time
LAST_RUNNING: Final = 2  # one part in so many of the places in decode batches is not for those who have their share
LAST_PLACES: Final = 8  # one part in so many of a gateway's places is not for those who have their share


class SharedEngines(NamedTuple):
    """The engines of one service, by id, and how many of its requests decode there at a time; 0: nobody knows."""

    prefilling: Collection[str]
    decoding: Collection[str]
    num_places: int


@dataclass(slots=True)
class _Tenant:
    """What engines have of it is as last counted, by engine."""

    served: float
    seen_at: float
    num_in_flight: int = 0
    sent: Counter[str] = field(default_factory=Counter)  # requests, where they decode
    unbegun: Counter[str] = field(default_factory=Counter)  # of those, not begun, where they are prefilled
    unbegun_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add_sent(self, engines: Sequence[str], unbegun_s: float | None) -> None:
        """Count a request with engines. ``unbegun_s``: of its prefill; None: that has begun."""
        self.sent[engines[-1]] += 1
        if unbegun_s is not None:
            self.unbegun[engines[0]] += 1
            self.unbegun_s[engines[0]] += unbegun_s


class Fairness:
    """Shares one gateway fairly among its own requests."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}  # those that are about
        self._former: OrderedDict[str, float] = OrderedDict()  # counters of others, the latest last
        self._floor = 0.0  # the counter of the one that left last
        self._swept_at = -inf

    def __repr__(self) -> str:
        return f"<Fairness of {len(self._tenants)} tenants>"

    @property
    def is_shared(self) -> bool:
        """Return whether more than one tenant is about."""
        return len(self._tenants) > 1

    # --- events -------------------------------------------------------------------------------------------------------

    def arrived(self, name: str, now: float) -> None:
        """Somebody wants something, be there room for it or not."""
        if now >= self._swept_at + SWEEP_S:
            self._sweep(now)
        tenant = self._tenants.get(name)
        if tenant is not None and tenant.num_in_flight:
            tenant.seen_at = now
            return
        served = self._former.pop(name, 0.0) if tenant is None else tenant.served
        least = min((one.served for one in self._tenants.values() if one.num_in_flight), default=self._floor)
        self._tenants[name] = _Tenant(max(served, least), now)

    def add(self, request: InFlightRequest) -> None:
        """It is the gateway's from now on; its tenant arrived."""
        self._tenants[request.charge.tenant].num_in_flight += 1

    def remove(self, request: InFlightRequest) -> None:
        """Forget a request that has ended."""
        self._charge(request)
        tenant = self._tenants[request.charge.tenant]
        tenant.num_in_flight -= 1
        if not tenant.num_in_flight:
            self._floor = tenant.served

    def dispatched(self, request: InFlightRequest, dispatch: Dispatch) -> None:
        tenant = self._tenants[request.charge.tenant]
        engines = dispatch.prefill_engine, dispatch.decode_engine
        tenant.add_sent(engines, None if request.has_begun else dispatch.prefill_s)
        if not request.charge.has_prompt:
            request.charge.has_prompt = True
            tenant.served += PROMPT_WEIGHT * len(request.spec.prompt)

    def count(self, in_flight: Iterable[InFlightRequest]) -> None:
        """Count what everybody has at the moment, and has had."""
        for tenant in self._tenants.values():
            tenant.sent.clear()
            tenant.unbegun.clear()
            tenant.unbegun_s.clear()
        for request in in_flight:
            self._charge(request)
            if request.assignment.is_waiting:
                continue
            dispatch = None if request.has_begun else request.assignment.dispatch
            tenant = self._tenants[request.charge.tenant]
            tenant.add_sent(request.engines, None if dispatch is None else dispatch.prefill_s)

    def _charge(self, request: InFlightRequest) -> None:
        """The tokens that came since the last time."""
        num_tokens = len(request.stream.tokens)
        self._tenants[request.charge.tenant].served += ANSWER_WEIGHT * (num_tokens - request.charge.num_tokens)
        request.charge.num_tokens = num_tokens

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        for tenant in self._tenants.values():
            if tenant.num_in_flight:
                tenant.seen_at = now
        gone = [name for name, one in self._tenants.items() if not one.num_in_flight and one.seen_at + ABOUT_S <= now]
        for name in gone:
            self._former[name] = self._tenants.pop(name).served
        while len(self._former) > MAX_REMEMBERED:
            self._former.popitem(last=False)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def in_turn(self, ranked: Sequence[InFlightRequest]) -> Sequence[InFlightRequest]:
        """Return those that wait: by priority, then by what their tenants were served, then in the order that they come
        in.

        What had begun is not made to wait for it: its tenant has waited before.
        """
        if len({request.charge.tenant for request in ranked}) < 2:
            return ranked
        levels: defaultdict[int, list[InFlightRequest]] = defaultdict(list)
        for request in ranked:
            levels[request.spec.priority].append(request)
        served = {name: one.served for name, one in self._tenants.items()}
        ordered: list[InFlightRequest] = []
        for priority in sorted(levels, reverse=True):
            ordered += [request for request in levels[priority] if _goes_on(request)]
            ordered += _merged([request for request in levels[priority] if not _goes_on(request)], served)
        return ordered

    def holds(self, request: InFlightRequest, engines: SharedEngines) -> bool:
        """Return whether its tenant has its share of what these engines have not begun, or of the places in their
        decode batches.
        """
        tenant = self._tenants[request.charge.tenant]
        return self._has_enough(tenant, engines.prefilling) or self._has_its_places(tenant, engines)

    def _has_its_places(self, tenant: _Tenant, engines: SharedEngines) -> bool:
        num_places = engines.num_places
        if not num_places or _on(engines.decoding, tenant.sent) < num_places / len(self._tenants):
            return False
        num_sent = sum([_on(engines.decoding, one.sent) for one in self._tenants.values()])
        return num_sent >= num_places - max(1, num_places // LAST_RUNNING)

    def recalled(self, in_flight: Iterable[InFlightRequest], engines: SharedEngines) -> list[InFlightRequest]:
        """Return what tenants have with engines, not begun, above their shares: the last of it, as counted before."""
        excess: list[InFlightRequest] = []
        for request in reversed(list(in_flight)):
            tenant, dispatch = self._tenants[request.charge.tenant], request.assignment.dispatch
            if request.may_be_recalled and self._has_enough(tenant, engines.prefilling):
                tenant.unbegun[request.engines[0]] -= 1
                tenant.unbegun_s[request.engines[0]] -= dispatch.prefill_s if dispatch else 0.0
                if self._has_enough(tenant, engines.prefilling):
                    excess.append(request)
        return excess

    def _has_enough(self, tenant: _Tenant, engines: Collection[str]) -> bool:
        parts = len(engines) / len(self._tenants)
        num_unbegun = _on(engines, tenant.unbegun)
        return num_unbegun >= max(1, ceil(UNBEGUN_PER_ENGINE * parts)) and (
            _on(engines, tenant.unbegun_s) >= UNBEGUN_S * parts
        )

    def has_one_only(self, name: str) -> bool:
        """Return whether a tenant has a single request here."""
        return self._tenants[name].num_in_flight == 1

    def has_its_share(self, name: str, num_places: int) -> bool:
        """Return whether a tenant has as many requests as are there for each."""
        return self.is_shared and self._tenants[name].num_in_flight >= num_places / len(self._tenants)

    def who_yields(self, name: str, waiting: Sequence[InFlightRequest]) -> InFlightRequest | None:
        """Return, of those that wait, the one that makes room for one of ``name``: the last of the tenant with most of
        them.
        """
        new = [request for request in waiting if not request.losses.is_recovering]
        counts = Counter(request.charge.tenant for request in new)
        if not counts:
            return None
        [(most, number)] = counts.most_common(1)
        if number <= counts[name] + 1:
            return None
        return next(request for request in reversed(new) if request.charge.tenant == most)

    def above_their_share(self, waiting: Sequence[InFlightRequest]) -> set[str]:
        """Tenants of more requests that wait, and of more tokens, than an equal part; the only one, if there is one."""
        requests: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for request in waiting:
            requests[request.charge.tenant] += 1
            tokens[request.charge.tenant] += request.view.num_tokens
        parts = len(requests)
        return {
            name
            for name, number in requests.items()
            if number * parts >= requests.total() and tokens[name] * parts >= tokens.total()
        }


def _on(engines: Collection[str], counts: Mapping[str, float]) -> float:
    """What was counted on these engines."""
    return sum([count for engine, count in counts.items() if engine in engines])


def _goes_on(request: InFlightRequest) -> bool:
    return request.losses.is_recovering and not request.queue.has_slice_ended


def _merged(in_flight: Iterable[InFlightRequest], served: dict[str, float]) -> list[InFlightRequest]:
    """One after the other of whoever was served least, what has just been taken included."""
    queues: dict[str, deque[InFlightRequest]] = {}
    for request in in_flight:
        queues.setdefault(request.charge.tenant, deque()).append(request)
    turns = [(served[name], place, name) for place, name in enumerate(queues)]
    heapify(turns)
    merged: list[InFlightRequest] = []
    while turns:
        _, place, name = turns[0]
        request = queues[name].popleft()
        merged.append(request)
        served[name] += PROMPT_WEIGHT * len(request.spec.prompt)
        if queues[name]:
            heapreplace(turns, (served[name], place, name))
        else:
            heappop(turns)
    return merged
