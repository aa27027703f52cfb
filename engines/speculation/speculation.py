"""Gives the decodes of a step drafts that cost no model, and learns from what becomes of them.

These are the tokens that a request's grammar forces next, or else what is found in the request.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engines.engine_request import EngineRequest
from engines.scheduling.batch import ChunkResult
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Share
from engines.speculation.acceptance import EXPECTED, FADED, FORCED, KEPT, WEIGHT, Acceptance, level_of
from engines.speculation.choice import Candidate, drafts_for
from engines.speculation.drafter import Drafter, Lookup
from engines.speculation.prompt_lookup import PromptLookup
from engines.speculation.speculates import DecodeLoad, SpeculationCounts, can_check, most_for, num_held_for
from mesh.wire.status import DecodeCost


def lookup_in_prompt(request: EngineRequest) -> Lookup:
    return PromptLookup(request.tokens)


class _Place(NamedTuple):
    """A share that may be given drafts. ``level``: of `Acceptance`."""

    share: int
    drafter: Drafter
    level: int


class Speculation:
    """Drafts up to ``most`` tokens a decode. ``make_lookup``: of a request that may have drafts."""

    def __init__(self, most: int, make_lookup: Callable[[EngineRequest], Lookup] = lookup_in_prompt) -> None:
        self._make_lookup = make_lookup
        self.counts = SpeculationCounts(0, 0, 0)
        self._most = self.num_forced = most
        self._acceptance = Acceptance(KEPT, FADED)

    def __repr__(self) -> str:
        return f"<Speculation {self.counts.num_accepted} of {self.counts.num_drafted} drafts accepted>"

    def drafted(
        self,
        shares: Sequence[Share],
        others: Sequence[EngineRequest],
        queue: ServiceQueue,
        cost: DecodeCost,
        now: float,
    ) -> Sequence[Share]:
        """Draft as `Speculates` says."""
        places, candidates = list[_Place](), list[Candidate]()
        for index, share in enumerate(shares):
            request = share.request
            most = most_for(request, self._most)
            if most < 1 or not can_check(request):
                continue
            drafter = request.drafter
            if not isinstance(drafter, Drafter):
                drafter = request.drafter = Drafter(self._make_lookup(request))
            if (level := _level(request, drafter.lookup.look())) is not None:
                most = min(most, len(request.forced)) if level == FORCED else most
                chance = drafter.chance(level, self._expected(level))
                places.append(_Place(index, drafter, level))
                candidates.append(Candidate(chance, most, len(request.tokens)))
        if not candidates:
            return shares
        own = {place.share for place in places}
        load = DecodeLoad.of(shares, own, others, cost, now)
        counts = drafts_for(candidates, load.number, load.step_s, load.longest_s)
        return self._with_drafts(shares, places, counts, queue)

    def _expected(self, level: int) -> float:
        return self._acceptance.chance(level, EXPECTED[level], WEIGHT)

    def _with_drafts(
        self,
        shares: Sequence[Share],
        places: Sequence[_Place],
        counts: Sequence[int],
        queue: ServiceQueue,
    ) -> Sequence[Share]:
        drafted = list(shares)
        for (index, drafter, level), count in zip(places, counts, strict=True):
            request = shares[index].request
            if number := num_held_for(request, count, queue):
                drafts = request.forced[:number] if level == FORCED else drafter.lookup.draft(number)
                drafted[index] = Share(request, 1, drafts)
            else:
                drafter.acceptance.fade(level)
                self._acceptance.fade(level)
        return drafted

    def checked(self, share: Share, result: ChunkResult) -> None:
        """Note what became of the drafts of a share (`Speculates`)."""
        num_accepted = len(result.further)
        self.counts = self.counts.plus(result.num_checked, num_accepted)
        drafter = share.request.drafter
        if isinstance(drafter, Drafter) and (level := _level(share.request, drafter.lookup.length)) is not None:
            drafter.acceptance.checked(level, result.num_checked, num_accepted)
            self._acceptance.checked(level, result.num_checked, num_accepted)

    @property
    def holds_blocks(self) -> bool:
        """What it finds takes no blocks but those of requests."""
        return False

    def settle(self) -> None:
        """Nothing is to be given up."""

    def make_room(self) -> None:
        """Nothing is to be given up."""


def _level(request: EngineRequest, length: int) -> int | None:
    """The level of the drafts that a request may have, with a match of ``length``; None: there is nothing to draft."""
    if request.forced:
        return FORCED
    return level_of(length) if length else None
