"""Gives the decodes of a step drafts, and learns from what becomes of them: the speculation of one service."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engines.costs.linear import decode_step_s
from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.scheduling.scheduler import Share
from engines.scheduling.slack import tightest
from engines.speculation.acceptance import EXPECTED, FADED, KEPT, WEIGHT, Acceptance, level_of
from engines.speculation.choice import Candidate, drafts_for
from engines.speculation.drafter import Drafter, Lookup
from engines.speculation.prompt_lookup import PromptLookup
from mesh.topology.schema import ServiceSpec
from mesh.wire.status import DecodeCost


def lookup_in_prompt(request: EngineRequest) -> Lookup:
    return PromptLookup(request.tokens)


class SpeculationCounts(NamedTuple):
    """What became of drafts of all requests since the service was opened. ``num_checks``: decodes that had drafts."""

    num_checks: int
    num_drafted: int
    num_accepted: int


class _Place(NamedTuple):
    """A share that may be given drafts. ``level``: of its match."""

    share: int
    drafter: Drafter
    level: int


class Speculation:
    """Drafts up to ``most`` tokens a decode. ``make_lookup``: of a request that may have drafts."""

    def __init__(self, most: int, make_lookup: Callable[[EngineRequest], Lookup] = lookup_in_prompt) -> None:
        self._make_lookup = make_lookup
        self.counts = SpeculationCounts(0, 0, 0)
        self._most = most
        self._acceptance = Acceptance(KEPT, FADED)

    def __repr__(self) -> str:
        return f"<Speculation {self.counts.num_accepted} of {self.counts.num_drafted} drafts accepted>"

    def drafted(
        self,
        shares: Sequence[Share],
        others: Sequence[EngineRequest],
        pool: BlockPool,
        spare_blocks: int,
        cost: DecodeCost,
        now: float,
    ) -> Sequence[Share]:
        """Return the shares of a step, all decodes, with drafts where they pay; their blocks are held.

        ``others``: decodes that wait meanwhile. ``spare_blocks`` of the pool stay free.
        """
        places, candidates = list[_Place](), list[Candidate]()
        for index, share in enumerate(shares):
            request = share.request
            most = self._most_for(request)
            if most < 1 or not _can_check(request):
                continue
            drafter = request.drafter
            if drafter is None:
                drafter = request.drafter = Drafter(self._make_lookup(request))
            if length := drafter.lookup.look():
                level = level_of(length)
                chance = drafter.chance(level, self._expected(level))
                places.append(_Place(index, drafter, level))
                candidates.append(Candidate(chance, most, len(request.tokens)))
        if not candidates:
            return shares
        counts = self._counts(candidates, places, shares, others, cost, now)
        return self._with_drafts(shares, places, counts, pool, spare_blocks)

    def _expected(self, level: int) -> float:
        return self._acceptance.chance(level, EXPECTED[level], WEIGHT)

    def _most_for(self, request: EngineRequest) -> int:
        """So many may follow: one token more is sampled than drafts are right."""
        most = min(self._most, request.num_left_here - 1)
        return most if request.granted is None else min(most, request.granted - len(request.tokens) - 1)

    def _counts(
        self,
        candidates: Sequence[Candidate],
        places: Sequence[_Place],
        shares: Sequence[Share],
        others: Sequence[EngineRequest],
        cost: DecodeCost,
        now: float,
    ) -> Sequence[int]:
        number = len(shares)
        context = sum([len(share.request.tokens) for share in shares])

        def step_s(num_rows: int, further: int) -> float:
            return decode_step_s(cost, number + num_rows, context + further)

        own = {place.share for place in places}
        waiting = [share.request for index, share in enumerate(shares) if index not in own]
        alone_s = step_s(0, 0)
        slack_s = tightest([*waiting, *others], now, alone_s).slack_s
        return drafts_for(candidates, number, step_s, alone_s + max(0.0, slack_s))

    def _with_drafts(
        self,
        shares: Sequence[Share],
        places: Sequence[_Place],
        counts: Sequence[int],
        pool: BlockPool,
        spare_blocks: int,
    ) -> Sequence[Share]:
        drafted = list(shares)
        for (index, drafter, level), count in zip(places, counts, strict=True):
            request = shares[index].request
            if number := _num_held_for(request, count, pool, spare_blocks):
                drafted[index] = Share(request, 1, drafter.lookup.draft(number))
            else:
                drafter.acceptance.fade(level)
                self._acceptance.fade(level)
        return drafted

    def checked(self, request: EngineRequest, num_drafts: int, num_accepted: int) -> None:
        """Note what became of a request's drafts. Call it before the tokens that came of them are looked at."""
        counts = self.counts
        self.counts = SpeculationCounts(
            counts.num_checks + 1, counts.num_drafted + num_drafts, counts.num_accepted + num_accepted
        )
        if (drafter := request.drafter) is not None:
            level = level_of(drafter.lookup.length)
            drafter.acceptance.checked(level, num_drafts, num_accepted)
            self._acceptance.checked(level, num_drafts, num_accepted)


def speculation_of(
    spec: ServiceSpec, make_lookup: Callable[[EngineRequest], Lookup] = lookup_in_prompt
) -> Speculation | None:
    """Return what a service's table asks for."""
    return None if spec.speculation is None else Speculation(spec.max_draft_tokens, make_lookup)


def _can_check(request: EngineRequest) -> bool:
    """Whether it is here to stay, and has no grammar, which would have to follow each draft."""
    return request.transfer is None and not request.is_filler and not request.spec.sampling.grammar


def _num_held_for(request: EngineRequest, count: int, pool: BlockPool, spare_blocks: int) -> int:
    """How many of so many drafts its blocks have room for, of which more are held if that takes none of the spare
    ones.
    """
    missing = pool.blocks_for(len(request.tokens) + count) - len(request.blocks)
    if missing > 0 and pool.can_allocate(missing + spare_blocks):
        request.blocks += pool.allocate(missing)
    return min(count, len(request.blocks) * pool.block_size - len(request.tokens))
