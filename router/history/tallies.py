"""Sums up what a gateway has seen of each service. Others take differences of the sums."""

from dataclasses import dataclass, fields

from mesh.wire.requests import RequestSpec
from mesh.wire.status import ServiceTally
from router.history.records import Outcome, Record


@dataclass(slots=True)
class _Sums:
    """`ServiceTally`, while it grows."""

    arrived: int = 0
    input_tokens: int = 0
    input_squares: int = 0
    ended: int = 0
    late: int = 0
    answered: int = 0
    output_tokens: int = 0
    output_squares: int = 0
    latency_s: float = 0.0
    gone: int = 0
    promised_ttft_s: float = 0.0
    promised_tpot_s: float = 0.0
    cached_tokens: int = 0

    def tally(self, name: str) -> ServiceTally:
        return ServiceTally(name, **{field.name: getattr(self, field.name) for field in fields(self)})


class Tallies:
    """Sums of one gateway since it began."""

    def __init__(self) -> None:
        self._services: dict[str, _Sums] = {}

    def __repr__(self) -> str:
        return f"<Tallies {self.read()}>"

    def arrived(self, spec: RequestSpec) -> None:
        if spec.is_filler:
            return
        sums, length = self._services.setdefault(spec.service, _Sums()), len(spec.prompt)
        sums.arrived += 1
        sums.input_tokens += length
        sums.input_squares += length * length
        sums.promised_ttft_s += spec.slo_ttft_s
        sums.promised_tpot_s += spec.slo_tpot_s

    def ended(self, record: Record, service: str) -> None:
        """A client that goes away says nothing about the ``service``, and a request without promises neither. That is
        what engines hold, be it with an adapter.
        """
        if record.is_filler:
            return
        sums = self._services.setdefault(service, _Sums())
        if record.outcome is Outcome.CANCELLED:
            sums.gone += 1
            return
        sums.ended += 1
        sums.late += not record.meets_slo
        sums.cached_tokens += record.cached_tokens
        if record.outcome is Outcome.FINISHED and record.e2e_s is not None:
            sums.answered += 1
            sums.output_tokens += record.output_tokens
            sums.output_squares += record.output_tokens**2
            sums.latency_s += record.e2e_s

    def read(self) -> list[ServiceTally]:
        return [sums.tally(name) for name, sums in self._services.items()]
