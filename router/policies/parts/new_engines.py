"""Counts the new engines that requests would fill which fit on none of those that there are."""

import msgspec

from engines.scheduling.demand import held_tokens, with_one_more
from mesh.wire.control import Role
from mesh.wire.status import Demand
from router.policies.parts.bins import Knobs, answer_of, broken, decode_levels, prefill_s
from router.view.engine_view import EngineView, RequestView


class NewEngines:
    """Copies of one engine, empty at first, packed first fit.

    A prefill engine is full when its prompts take too long. On the others prompts come when decodes have time for them,
    and decodes decide how many engines are needed.
    """

    def __init__(self, template: EngineView, knobs: Knobs) -> None:
        self._template = template
        self._knobs = knobs
        self._bins: list[Demand] = []
        self._prefills_s: list[float] = []
        self.num_requests = 0

    def __repr__(self) -> str:
        return f"<NewEngines {self.num_engines} like {self._template.id} for {self.num_requests} requests>"

    @property
    def num_engines(self) -> int:
        return len(self._prefills_s if self._template.role is Role.PREFILL else self._bins)

    def add(self, request: RequestView, now: float) -> None:
        self.num_requests += 1
        if self._template.role is Role.PREFILL:
            self._add_prefill(request, now)
        else:
            self._add_decode(request)

    def _add_prefill(self, request: RequestView, now: float) -> None:
        own_s, within_s = prefill_s(request, self._template), request.deadline - now
        for number, taken_s in enumerate(self._prefills_s):
            if taken_s + own_s <= within_s:
                self._prefills_s[number] += own_s
                return
        self._prefills_s.append(own_s)

    def _add_decode(self, request: RequestView) -> None:
        for number, demand in enumerate(self._bins):
            if broken(decode_levels(request, self._holding(demand, request.service), self._knobs)) is None:
                self._bins[number] = self._joined(demand, request)
                return
        self._bins.append(self._joined(Demand(), request))

    def _holding(self, demand: Demand, service: str) -> EngineView:
        pool = self._template.services[service]
        pool = msgspec.structs.replace(pool, expected=demand, num_free_blocks=pool.num_blocks)
        return msgspec.structs.replace(self._template, services={service: pool}, tpot_slo_s=demand.tpot_slo_s)

    def _joined(self, demand: Demand, request: RequestView) -> Demand:
        answer, block_size = answer_of(request), self._template.services[request.service].block_size
        held = held_tokens(request.num_tokens, block_size)
        return Demand(
            demand.num_requests + 1,
            demand.prompt_tokens + request.num_tokens - request.num_generated,
            demand.answer_tokens + answer,
            min(demand.tpot_slo_s, request.tpot_slo_s),
            with_one_more(demand.peaks, answer - request.num_generated, held),
        )
