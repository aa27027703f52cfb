"""Follows each request from its arrival to its one end, and writes its record."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh.wire.requests import RequestSpec
from router.generation import RequestFailed, Route, RouterError, TokenBatch
from router.history.records import Outcome, Record

OnEnd = Callable[[Record, RequestSpec], None]
OnArrival = Callable[[RequestSpec], None]


@dataclass(slots=True)
class _Open:
    spec: RequestSpec
    arrived_at: float
    route: Route | None = None
    queued_s: float | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    num_generated: int = 0
    num_cached: int = 0


class Ledger:
    """``on_end`` gets the record of each request that ends, and the request. To end twice, or unknown, is a `KeyError`.

    Arrivals count from ``origin_s`` of the clock that all times are of.
    """

    def __init__(self, on_end: OnEnd, origin_s: float = 0.0, on_arrival: OnArrival | None = None) -> None:
        self._open: dict[str, _Open] = {}
        self._on_end = on_end
        self._origin_s = origin_s
        self._on_arrival = on_arrival

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def __repr__(self) -> str:
        return f"<Ledger {len(self)} open>"

    def arrived(self, spec: RequestSpec, now: float) -> None:
        if spec.id in self._open:
            raise KeyError(f"request {spec.id} arrived twice")
        self._open[spec.id] = _Open(spec, now - spec.age_s)
        if self._on_arrival is not None:
            self._on_arrival(spec)

    def placed(self, request: str, route: Route) -> None:
        entry = self._open[request]
        entry.route = route
        if entry.first_token_at is None:
            entry.queued_s = route.queued_s

    def delivered(self, request: str, batch: TokenBatch, now: float) -> None:
        entry = self._open[request]
        if entry.first_token_at is None:
            entry.first_token_at, entry.num_cached = now, batch.num_cached_tokens
        entry.last_token_at = now
        entry.num_generated += len(batch.tokens)
        if batch.finish is not None:
            self._end(entry, Outcome.FINISHED, None, now)

    def satisfied(self, request: str, now: float) -> None:
        """Its client has the whole answer, before the engine's end of it."""
        self._end(self._open[request], Outcome.FINISHED, None, now)

    def cancelled(self, request: str, now: float) -> None:
        self._end(self._open[request], Outcome.CANCELLED, "no longer wanted", now)

    def failed(self, request: str, error: RouterError, now: float) -> None:
        outcome = Outcome.FAILED if isinstance(error, RequestFailed) else Outcome.REJECTED
        self._end(self._open[request], outcome, str(error), now)

    def _end(self, entry: _Open, outcome: Outcome, reason: str | None, now: float) -> None:
        spec, first, route = entry.spec, entry.first_token_at, entry.route
        del self._open[spec.id]
        has_finished = outcome is Outcome.FINISHED
        tpot_s = None
        if first is not None and entry.num_generated > 1:
            tpot_s = (entry.last_token_at - first) / (entry.num_generated - 1)
        record = Record(
            id=spec.id,
            arrived_s=entry.arrived_at - self._origin_s,
            service=spec.service,
            input_tokens=len(spec.prompt),
            output_tokens=entry.num_generated if has_finished else spec.sampling.max_tokens,
            slo_ttft_s=spec.slo_ttft_s,
            slo_tpot_s=spec.slo_tpot_s,
            outcome=outcome,
            ttft_s=None if first is None else first - entry.arrived_at,
            tpot_s=tpot_s,
            e2e_s=now - entry.arrived_at,
            queued_s=entry.queued_s,
            cached_tokens=entry.num_cached,
            prefill_engine=None if route is None else route.prefill_engine,
            decode_engine=None if route is None else route.decode_engine,
            rule=None if route is None else route.rule,
            predicted_ttft_s=None if route is None else route.predicted_ttft_s,
            attempts=0 if route is None else route.attempt + 1,
            reason=reason,
            priority=spec.priority,
            partial_tokens=0 if has_finished else entry.num_generated,
        )
        self._on_end(record, spec)
