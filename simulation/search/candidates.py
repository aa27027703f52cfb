"""Makes the topologies that are worth a simulation, from what engines cost and what the load asks of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, floor
from random import Random
from typing import Final

from engines.costs.advice import LatencyPromise, Lengths, advise
from engines.costs.linear import prefill_s
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Role
from router.policies.capabilities import Capability, ForAlikeEngines, ForSplitEngines
from router.policies.registry import make_policy
from simulation.command.policy_names import label

SHARES: Final = (0.6, 2.0)  # of the engines that costs alone ask for: so few and so many are tried
MOST_COUNTS: Final = 8  # numbers of engines that do both phases
MOST_OF_A_PHASE: Final = 4  # numbers of prefill engines, and of decode engines for each


@dataclass(frozen=True, slots=True)
class EngineOffer:
    """An engine that can be had. ``price``: of one, in any currency and for any time; that of all others is alike."""

    profile: EngineProfile
    name: str  # of the profile: a preset, or a file
    price: float


@dataclass(frozen=True, slots=True)
class OfferedEngines:
    """So many engines of one kind in one role."""

    offer: EngineOffer
    role: Role
    count: int

    def words(self) -> str:
        role = "" if self.role is Role.MULTIPLEX else f" {self.role}"
        return f"{self.count} x {self.offer.name}{role}"


@dataclass(frozen=True, slots=True)
class SearchCandidate:
    """A topology. ``chunk_tokens``: prompt tokens of an iteration, at most."""

    engines: tuple[OfferedEngines, ...]
    policy: PolicySpec
    chunk_tokens: int

    @property
    def price(self) -> float:
        return sum(part.count * part.offer.price for part in self.engines)

    @property
    def num_devices(self) -> int:
        return sum(part.count * part.offer.profile.num_devices for part in self.engines)

    @property
    def policy_name(self) -> str:
        return label(self.policy)

    def words(self) -> str:
        """Name its engines, its policy and its chunks."""
        engines = " + ".join(part.words() for part in self.engines)
        return f"{engines}, {self.policy_name}, chunks of {self.chunk_tokens}"


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Whatever candidates are made of. ``most_engines``: of one candidate."""

    offers: Sequence[EngineOffer]
    policies: Sequence[PolicySpec]
    chunks: Sequence[int]
    most_engines: int

    def candidates(self, lengths: Lengths, promise: LatencyPromise, rate: float) -> list[SearchCandidate]:
        """Return all that may keep the promise, the cheapest first; none if no engine could keep it even alone.

        ``rate``: requests a second.
        """
        found = [
            SearchCandidate(engines, policy, chunk)
            for policy in self.policies
            for engines in self._fleets(policy, lengths, promise, rate)
            for chunk in self.chunks
            if sum(part.count for part in engines) <= self.most_engines
        ]
        return sorted(found, key=lambda one: one.price)

    def _fleets(
        self, policy: PolicySpec, lengths: Lengths, promise: LatencyPromise, rate: float
    ) -> Iterator[tuple[OfferedEngines, ...]]:
        able = [offer for offer in self.offers if advise(offer.profile, lengths, promise).broken is None]
        if not _is_made_for(policy, ForSplitEngines):
            for offer in able:
                need = rate / advise(offer.profile, lengths, promise).rate
                for count in counts_to_try(need, MOST_COUNTS):
                    yield (OfferedEngines(offer, Role.MULTIPLEX, count),)
        if not _is_made_for(policy, ForAlikeEngines):
            for first, second in product(able, able):
                if first.profile.kv_bytes_per_token == second.profile.kv_bytes_per_token:
                    yield from _split(first, second, policy, lengths, promise, rate)


def _split(
    first: EngineOffer, second: EngineOffer, policy: PolicySpec, lengths: Lengths, promise: LatencyPromise, rate: float
) -> Iterator[tuple[OfferedEngines, ...]]:
    """Prefill engines of one kind beside engines of another that decode."""
    role = Role.DECODE if _is_made_for(policy, ForSplitEngines) else Role.MULTIPLEX
    busy = rate * prefill_s(first.profile.prefill, round(lengths.num_input))
    decodes = advise(second.profile, Lengths(1.0, lengths.num_output, lengths.held), promise)
    if decodes.broken is not None:
        return
    for num_first in counts_to_try(busy, MOST_OF_A_PHASE):
        for num_second in counts_to_try(rate / decodes.rate, MOST_OF_A_PHASE):
            yield OfferedEngines(first, Role.PREFILL, num_first), OfferedEngines(second, role, num_second)


def _is_made_for(policy: PolicySpec, engines: type[Capability]) -> bool:
    return make_policy(policy, Random(0)).offers(engines) is not None


def counts_to_try(need: float, most: int) -> list[int]:
    """Return up to ``most`` numbers of engines, evenly spread over `SHARES` of the need."""
    low, high = max(1, floor(SHARES[0] * need)), max(2, ceil(SHARES[1] * need))
    steps = min(most - 1, high - low)
    return sorted({low + round(step * (high - low) / steps) for step in range(steps + 1)}) if steps else [low]
