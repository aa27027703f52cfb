"""Works out a request's promise: its service's latencies and priority, as far as its client may change them.

A tight promise and a high priority are paid by others, so both have bounds: the service's, or those of the client's
key where it has some. A promise that is much looser than the service's counts as the loosest that there is, because a
request may wait as long as it is promised.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from mesh.rules import Lateness
from mesh.topology.schema import Slo
from mesh.wire.requests import PRIORITY_BATCH
from router.api.errors import ApiError, bad_parameter, not_allowed
from router.api.http.callers import Caller
from router.api.http.headers import Wishes

LOOSEST: Final = 10.0  # times the service's promise
LOOSEST_TTFT_S: Final = 60.0  # or that, if it is more
LOOSEST_TPOT_S: Final = 1.0  # likewise


class PromisingService(Protocol):
    """What a service promises, and what its clients may ask for instead."""

    @property
    def slo(self) -> Slo: ...

    @property
    def priority(self) -> int: ...

    @property
    def late(self) -> Lateness | None: ...

    @property
    def max_priority(self) -> int: ...

    @property
    def min_ttft_s(self) -> float: ...

    @property
    def min_tpot_s(self) -> float: ...


class Promise(msgspec.Struct, frozen=True):
    slo: Slo
    priority: int
    late: Lateness | None = None

    @classmethod
    def of(cls, wishes: Wishes, model: PromisingService, caller: Caller) -> "Promise":
        """Return the promise. A line of a batch has none but its window. Raise `ApiError`: more than the service (400)
        or the key (403) allows.
        """
        if caller.window_s is not None:
            return cls(Slo(caller.window_s, caller.window_s, model.slo.attainment), PRIORITY_BATCH)
        limits = caller.limits
        if wishes.are_none and limits.max_priority is limits.min_ttft_ms is limits.min_tpot_ms is None:
            return cls(model.slo, model.priority, model.late)
        ttft = _Floor("x-slo-ttft-ms", "min_ttft_ms", model.min_ttft_s, limits.min_ttft_ms)
        tpot = _Floor("x-slo-tpot-ms", "min_tpot_ms", model.min_tpot_s, limits.min_tpot_ms)
        slo = Slo(
            ttft.promise(wishes.slo_ttft_s, model.slo.ttft_s, LOOSEST_TTFT_S),
            tpot.promise(wishes.slo_tpot_s, model.slo.tpot_s, LOOSEST_TPOT_S),
            model.slo.attainment,
        )
        return cls(slo, _priority(wishes.priority, model, limits.max_priority), wishes.late or model.late)


def promise_of_vectors(wishes: Wishes, model: PromisingService, caller: Caller) -> Promise:
    """Return the promise of a service whose answers are vectors or scores: there are no tokens to wait for one by one.
    Raise `ApiError` as `Promise.of` does, or if there is a wish about them (400).
    """
    if wishes.slo_tpot_s is not None:
        problem = "vectors and scores come all at once, so there is no time per token; use x-slo-ttft-ms alone"
        raise bad_parameter("x-slo-tpot-ms", problem)
    return Promise.of(wishes, model, caller)


@dataclass(frozen=True, slots=True)
class _Floor:
    """``of_key`` is in milliseconds and takes the place of the service's; None: it says nothing."""

    header: str
    setting: str
    of_service: float
    of_key: float | None

    def promise(self, wished: float | None, usual: float, loosest: float) -> float:
        floor = self.of_service if self.of_key is None else self.of_key / 1000
        if wished is None:
            return usual if self.of_key is None else max(usual, floor)
        if wished < floor:
            raise self._too_tight(wished, floor)
        return min(wished, max(loosest, LOOSEST * usual))

    def _too_tight(self, wished: float, floor: float) -> ApiError:
        problem = f"{1000 * wished:g} is tighter than the {1000 * floor:g} that"
        if self.of_key is None:
            return bad_parameter(self.header, f"{problem} this service allows ({self.setting} in its topology)")
        return not_allowed(f"{self.header}: {problem} this key may ask for", "promise_not_allowed", self.header)


def _priority(wished: int | None, model: PromisingService, of_key: int | None) -> int:
    if wished is None:
        return model.priority if of_key is None else min(model.priority, of_key)
    highest = model.max_priority if of_key is None else of_key
    if wished <= highest:
        return wished
    problem = f"{wished} is above {highest}, the highest that"
    if of_key is None:
        raise bad_parameter("x-priority", f"{problem} this service allows (max_priority in its topology)")
    raise not_allowed(f"x-priority: {problem} this key may ask for", "priority_not_allowed", "x-priority")
