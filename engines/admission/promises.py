"""Finds promises that no engine can keep, however little it has to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from engines.costs.linear import decode_step_s, prefill_s
from mesh.topology.schema import Slo
from mesh.wire.status import DecodeCost, PrefillCost


class PromiseCosts(Protocol):
    @property
    def prefill(self) -> PrefillCost: ...

    @property
    def decode(self) -> DecodeCost: ...


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise that no engine can keep. ``key``: of the service's table in the topology."""

    key: str
    promised_s: float
    needed_s: float

    def __str__(self) -> str:
        needed = f"one token takes {self.needed_s * 1e3:.1f} ms at least"
        return f"{self.key}: {self.promised_s * 1e3:g} can never be met: {needed}; use more than that"


def never_kept(slo: Slo, engines: Iterable[PromiseCosts]) -> list[BrokenPromise]:
    """Return which promises none of these engines can keep, even for a one-token prompt and a lone decode."""
    costs = list(engines)
    least_s = (
        ("ttft_ms", slo.ttft_s, min(prefill_s(cost.prefill, 1) for cost in costs)),
        ("tpot_ms", slo.tpot_s, min(decode_step_s(cost.decode, 1, 1) for cost in costs)),
    )
    return [BrokenPromise(key, promised_s, needed_s) for key, promised_s, needed_s in least_s if promised_s < needed_s]
