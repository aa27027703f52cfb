"""Gives the decodes of a step drafts that a draft model writes: another service of the same engine.

It has its KV in that service's pool, beside the requests which are that service's own. Requests come first: where
memory is short, or somebody waits for it, nothing is drafted, and what drafts hold goes to the prefix cache.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engines.costs.step_cost import StepCost, StepLoad
from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.scheduling.batch import ChunkResult
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Share
from engines.speculation.acceptance import FADED, KEPT, WEIGHT, Acceptance
from engines.speculation.choice import Candidate, Writing, drafts_for
from engines.speculation.drafting import FEW
from engines.speculation.model_drafter import ModelDrafter
from engines.speculation.speculates import DecodeLoad, SpeculationCounts, can_check, most_for, num_held_for
from mesh.wire.status import DecodeCost

EXPECTED = 0.6  # share of drafts that are right, before anything is known
STEPS_PER_TOKEN = 0.5  # that a decode with drafts takes about; what it catches up with counts for so many
LOST_AGAIN = 4.0  # of these, what a draft model computed and lost to others counts for the fewer


class DraftModel(NamedTuple):
    """A service that writes drafts, as it is on this engine now. ``context_limit``: tokens of a request with drafts."""

    service: str
    pool: BlockPool
    cost: StepCost
    context_limit: int


class ModelSpeculation:
    """Drafts up to ``most`` tokens a decode. ``find`` returns the draft model; None: it is not here. It writes under
    grammars itself, so what they force is among its drafts.
    """

    num_forced = 0

    def __init__(self, most: int, find: Callable[[], DraftModel | None]) -> None:
        self.counts = SpeculationCounts(0, 0, 0)
        self._most = most
        self._find = find
        self._acceptance = Acceptance(KEPT, FADED)
        self._drafters: list[ModelDrafter] = []  # those that hold blocks, as of the last step

    def __repr__(self) -> str:
        counts = self.counts
        return f"<ModelSpeculation {counts.num_accepted} of {counts.num_drafted} drafts accepted>"

    def drafted(
        self,
        shares: Sequence[Share],
        others: Sequence[EngineRequest],
        queue: ServiceQueue,
        cost: DecodeCost,
        now: float,
    ) -> Sequence[Share]:
        """Draft as `Speculates` says."""
        model = self._find()
        if model is None or not queue.pool.can_allocate(wanted_blocks(queue)):
            self.make_room()
            return shares
        places, candidates = dict[int, ModelDrafter](), list[Candidate]()
        for index, share in enumerate(shares):
            request = share.request
            room = model.context_limit - len(request.tokens)
            most = min(most_for(request, self._most), room)
            if most < 1 or not can_check(request) or request.spec.images:
                continue
            drafter = request.drafter
            if not isinstance(drafter, ModelDrafter):
                salt = request.spec.prefix_salt if request.uses_prefixes else None
                drafter = request.drafter = ModelDrafter(request.tokens, salt)
            places[index] = drafter
            candidates.append(Candidate(drafter.chance(self._expected()), most, len(request.tokens)))
        if not candidates:
            return shares
        load = DecodeLoad.of(shares, places, others, cost, now)
        writing = ModelWriting([(shares[index].request, drafter) for index, drafter in places.items()], model.cost)
        counts = drafts_for(candidates, load.number, load.step_s, load.longest_s, writing)
        return self._with_drafts(shares, places, counts, queue, model)

    def _expected(self) -> float:
        return self._acceptance.chance(0, EXPECTED, WEIGHT)

    def _with_drafts(
        self,
        shares: Sequence[Share],
        places: dict[int, ModelDrafter],
        counts: Sequence[int],
        queue: ServiceQueue,
        model: DraftModel,
    ) -> Sequence[Share]:
        drafted = list(shares)
        for (index, drafter), count in zip(places.items(), counts, strict=True):
            request = shares[index].request
            number = num_held_for(request, count, queue)
            drafting = drafter.drafting(model.service, model.pool, number) if number else None
            if drafting is not None and not queue.pool.can_allocate(wanted_blocks(queue)):
                drafter.lose()
            elif drafting is not None:
                drafted[index] = Share(request, 1, drafting=drafting)
            elif not count:
                drafter.acceptance.fade(0)
                self._acceptance.fade(0)
        self._drafters = [one for one in dict.fromkeys([*self._drafters, *places.values()]) if one.blocks]
        return drafted

    def checked(self, share: Share, result: ChunkResult) -> None:
        """Note what became of the drafts of a share (`Speculates`). The draft model may have written fewer."""
        drafter, drafting, num_accepted = share.request.drafter, share.drafting, len(result.further)
        if isinstance(drafter, ModelDrafter) and drafting is not None:
            drafter.checked(drafting, num_accepted)
            if result.num_checked:
                self.counts = self.counts.plus(result.num_checked, num_accepted)
                drafter.acceptance.checked(0, result.num_checked, num_accepted)
                self._acceptance.checked(0, result.num_checked, num_accepted)

    @property
    def holds_blocks(self) -> bool:
        """Say whether its draft model held blocks after the last step."""
        return bool(self._drafters)

    def make_room(self) -> None:
        """Give up the blocks that its draft model holds. Call it between steps."""
        for drafter in self._drafters:
            if drafter.blocks:
                drafter.lose()
        self._drafters = []

    def settle(self) -> None:
        """Give up the blocks of a draft model that is not to be used any more. Call it between steps."""
        if self._drafters and self._find() is None:
            self.make_room()


class ModelWriting:
    """The `WritingTime` of a draft model with this cost. ``requests``: those of the candidates, in order.

    What a request lacks at first is computed once and used in all later steps, so each is charged with its part. What
    it lacks since nothing was drafted for a while may come again, and counts as a whole.
    """

    def __init__(self, requests: Sequence[tuple[EngineRequest, ModelDrafter]], cost: StepCost) -> None:
        self._requests = requests
        self._cost = cost
        self._chunks: list[tuple[int, int]] = []
        self._rows, self._context = 0, 0  # of the first step
        self._chunk_contexts = 0  # tokens of requests with chunks
        self._num_lacking, self._num_charged = 0, 0.0  # tokens of the chunks
        self._later: list[tuple[int, int]] = []  # decodes and their context, of each further step
        self._later_s: list[float] = []

    def add(self, candidate: int, place: int) -> Writing:
        """Add a draft (`engines.speculation.choice.WritingTime`)."""
        request, drafter = self._requests[candidate]
        if place == 1:
            self._catch_up(request, drafter)
        else:
            if place - 2 == len(self._later):
                self._later.append((0, 0))
                self._later_s.append(0.0)
            number, in_all = self._later[place - 2]
            self._later[place - 2] = number + 1, in_all + len(request.tokens) + place - 1
            self._later_s[place - 2] = self._seconds((), *self._later[place - 2])
        first_s, later_s = self._seconds(self._chunks, self._rows, self._context), sum(self._later_s)
        return Writing(first_s + later_s, self._charged_s(first_s) + later_s)

    def _catch_up(self, request: EngineRequest, drafter: ModelDrafter) -> None:
        number, start = drafter.num_next, drafter.num_computed
        if number <= FEW:
            self._rows += number
            self._context += number * (start + number)
            return
        num_steps = STEPS_PER_TOKEN * request.expected_left / LOST_AGAIN**drafter.num_lost if drafter.is_new else 1.0
        self._chunks.append((number, start))
        self._chunk_contexts += start + number
        self._num_lacking += number
        self._num_charged += number / max(1.0, num_steps)

    def _charged_s(self, first_s: float) -> float:
        """Of the first step: as if nobody lacked more than a token, and of the rest what is charged."""
        if not self._num_lacking:
            return first_s
        plain_s = self._seconds((), self._rows + len(self._chunks), self._context + self._chunk_contexts)
        return plain_s + max(0.0, first_s - plain_s) * self._num_charged / self._num_lacking

    def _seconds(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> float:
        return sum(self._cost.parts(StepLoad(chunks, num_decodes, context)))


def wanted_blocks(queue: ServiceQueue) -> int:
    """Return the blocks that requests of a service will want soon: those that run, and the longest that waits."""
    waiting = max([queue.pool.blocks_for(len(request.tokens)) for request in queue.waiting], default=0)
    return queue.growth_blocks + waiting
