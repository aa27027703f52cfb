"""Decides whose turn it is when several tenants want more than there is: a virtual token counter for each. Pure.

Who has been served least goes first (VTC: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024): a
tenant's counter grows by the tokens of its prompts and twice those of its answers. Who comes back after a while starts
at the least counter of those that are there, so that nobody saves up. Two more things keep a flood where it came from.
While others are about, a tenant may have no more than its share of prompts with engines that have not begun, as engines
have an order of their own. Who has its share of the places in decode batches leaves the last ones to the others, as
long answers keep their places for long. And when the gateway is full, room is made by whoever has most that waits. One
tenant alone has none of these bounds.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from math import ceil, inf
from typing import Final

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


@dataclass(slots=True)
class _Tenant:
    served: float
    seen_at: float
    num_in_flight: int = 0
    num_sent: int = 0  # requests that engines have, as last counted
    num_unbegun: int = 0  # of those, not begun
    unbegun_s: float = 0.0


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

    def arrived(self, name: str, now: float) -> bool:
        """Somebody wants something, be there room for it or not. Tell whether it has nothing else here."""
        if now >= self._swept_at + SWEEP_S:
            self._sweep(now)
        tenant = self._tenants.get(name)
        if tenant is not None and tenant.num_in_flight:
            tenant.seen_at = now
            return False
        served = self._former.pop(name, 0.0) if tenant is None else tenant.served
        least = min((one.served for one in self._tenants.values() if one.num_in_flight), default=self._floor)
        self._tenants[name] = _Tenant(max(served, least), now)
        return True

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

    def dispatched(self, request: InFlightRequest, prefill_s: float) -> None:
        tenant = self._tenants[request.charge.tenant]
        tenant.num_sent += 1
        if not request.has_begun:
            tenant.num_unbegun += 1
            tenant.unbegun_s += prefill_s
        if not request.charge.has_prompt:
            request.charge.has_prompt = True
            tenant.served += PROMPT_WEIGHT * len(request.spec.prompt)

    def count(self, in_flight: Iterable[InFlightRequest]) -> None:
        """Count what everybody has at the moment, and has had."""
        for tenant in self._tenants.values():
            tenant.num_sent, tenant.num_unbegun, tenant.unbegun_s = 0, 0, 0.0
        for request in in_flight:
            self._charge(request)
            if request.assignment.is_waiting:
                continue
            tenant = self._tenants[request.charge.tenant]
            tenant.num_sent += 1
            if not request.has_begun and request.assignment.dispatch is not None:
                tenant.num_unbegun += 1
                tenant.unbegun_s += request.assignment.dispatch.prefill_s

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

    def holds(self, request: InFlightRequest, num_engines: int, num_places: int) -> bool:
        """Return whether its tenant has its share of what the engines have not begun, or of ``num_places`` in decode
        batches.

        0 places: nobody knows how many there are.
        """
        tenant = self._tenants[request.charge.tenant]
        return self._has_enough(tenant, num_engines) or self._has_its_places(tenant, num_places)

    def _has_its_places(self, tenant: _Tenant, num_places: int) -> bool:
        if not num_places or tenant.num_sent < num_places / len(self._tenants):
            return False
        num_sent = sum([one.num_sent for one in self._tenants.values()])
        return num_sent >= num_places - max(1, num_places // LAST_RUNNING)

    def recalled(self, in_flight: Iterable[InFlightRequest], num_engines: int) -> list[InFlightRequest]:
        """Return what tenants have with engines, not begun, above their shares: the last of it, as counted before."""
        excess: list[InFlightRequest] = []
        for request in reversed(list(in_flight)):
            tenant = self._tenants[request.charge.tenant]
            if request.may_be_recalled and self._has_enough(tenant, num_engines):
                tenant.num_unbegun -= 1
                tenant.unbegun_s -= request.assignment.dispatch.prefill_s if request.assignment.dispatch else 0.0
                if self._has_enough(tenant, num_engines):
                    excess.append(request)
        return excess

    def _has_enough(self, tenant: _Tenant, num_engines: int) -> bool:
        parts = num_engines / len(self._tenants)
        return tenant.num_unbegun >= max(1, ceil(UNBEGUN_PER_ENGINE * parts)) and tenant.unbegun_s >= UNBEGUN_S * parts

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
