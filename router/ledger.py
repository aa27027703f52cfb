"""Follows each request from its arrival to its one end, and writes its record."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh.messages import RequestSpec
from router.generation import Placement, RequestFailed, RouterError, TokenBatch
from router.records import Outcome, Record


@dataclass(slots=True)
class _Open:
    spec: RequestSpec
    arrived_at: float
    placement: Placement | None = None
    first_token_at: float | None = None
    num_generated: int = 0
    num_cached: int = 0


class Ledger:
    """``on_end`` gets the record of each request that ends. To end twice, or unknown, is a `KeyError`."""

    def __init__(self, on_end: Callable[[Record], None]) -> None:
        self._open: dict[str, _Open] = {}
        self._on_end = on_end

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def __repr__(self) -> str:
        return f"<Ledger {len(self)} open>"

    def arrived(self, spec: RequestSpec, now: float) -> None:
        if spec.id in self._open:
            raise KeyError(f"request {spec.id} arrived twice")
        self._open[spec.id] = _Open(spec, now)

    def placed(self, request: str, placement: Placement) -> None:
        self._open[request].placement = placement

    def delivered(self, request: str, batch: TokenBatch, now: float) -> None:
        entry = self._open[request]
        if entry.first_token_at is None:
            entry.first_token_at, entry.num_cached = now, batch.num_cached_tokens
        entry.num_generated += len(batch.tokens)
        if batch.finish is not None:
            self._end(entry, Outcome.FINISHED, None, now)

    def failed(self, request: str, error: RouterError, now: float) -> None:
        outcome = Outcome.FAILED if isinstance(error, RequestFailed) else Outcome.REJECTED
        self._end(self._open[request], outcome, str(error), now)

    def _end(self, entry: _Open, outcome: Outcome, reason: str | None, now: float) -> None:
        spec, first, placement = entry.spec, entry.first_token_at, entry.placement
        del self._open[spec.id]
        tpot_s = None
        if first is not None and entry.num_generated > 1:
            tpot_s = (now - first) / (entry.num_generated - 1)
        self._on_end(
            Record(
                id=spec.id,
                arrived_s=entry.arrived_at,
                service=spec.service,
                input_tokens=len(spec.prompt),
                output_tokens=entry.num_generated if outcome is Outcome.FINISHED else spec.sampling.max_tokens,
                slo_ttft_s=spec.slo_ttft_s,
                slo_tpot_s=spec.slo_tpot_s,
                outcome=outcome,
                ttft_s=None if first is None else first - entry.arrived_at,
                tpot_s=tpot_s,
                e2e_s=now - entry.arrived_at,
                queued_s=None if placement is None else placement.queued_s,
                cached_tokens=entry.num_cached,
                prefill_engine=None if placement is None else placement.prefill_engine,
                decode_engine=None if placement is None else placement.decode_engine,
                rule=None if placement is None else placement.rule,
                predicted_ttft_s=None if placement is None else placement.predicted_ttft_s,
                attempts=0 if placement is None else placement.attempt + 1,
                reason=reason,
            )
        )
