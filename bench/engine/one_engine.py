"""One engine in virtual time, without a mesh around it: requests arrive, its core decides, a cost model tells time.

For what only the engine decides. `simulation` has gateways, several engines, faults and statuses besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engines.core import EngineCore
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.effects import Effect
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.batch import ChunkResult, StepResult
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits
from engines.settings import EngineSettings
from engines.status import Service
from kvtransfer.protocol import Send, TransferLimits
from mesh.topology.schema import Scheduling, ServiceSpec, Slo
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, Refused, StepTokens, Submit
from mesh.wire.transfers import KVShape
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule, make_spec
from simulation.quiet import quiet_engines

GATEWAY = "gateway"
BLOCK_SIZE = 16
MAX_CONTEXT = 2**31
TOKEN = ChunkResult(0)
NO_TOKEN = ChunkResult()


@dataclass(frozen=True, slots=True)
class Model:
    """A service on the engine: what its iterations cost, and how many tokens of KV it may hold."""

    cost: StepCost
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class Done:
    """A request that was answered in full; times in seconds since its arrival."""

    request: TraceRequest
    first_s: float
    last_s: float

    @property
    def tpot_s(self) -> float | None:
        more = self.request.num_output - 1
        return (self.last_s - self.first_s) / more if more else None


class OneEngine:
    """``models`` by service."""

    def __init__(
        self, models: Mapping[str, Model], limits: Limits, scheduling: Scheduling, *, strict_phases: bool = False
    ) -> None:
        settings = EngineSettings(
            id="engine",
            host="host",
            pid=0,
            role=Role.MULTIPLEX,
            limits=limits,
            max_waiting=10**6,
            transport="auto",
            transfer_deadline_s=10.0,
            transfer_limits=TransferLimits(),
            scheduling=scheduling,
            strict_phases=strict_phases,
        )
        self._models = models
        services = {name: _service(name, model, limits.chunk_tokens) for name, model in models.items()}
        self._core = EngineCore(settings, services, lambda peer, memory: True)
        self._specs = {name: ServiceSpec(name, name, Slo(1.0, 0.1)) for name in models}
        self._came: dict[str, TraceRequest] = {}
        self._first: dict[str, float] = {}
        self._done: list[Done] = []

    def run(self, trace: Iterable[TraceRequest]) -> list[Done]:
        """To the end of the last request. Every request names its service."""
        arrivals = sorted(trace, key=lambda request: request.at_s)
        now, num_come = 0.0, 0
        with quiet_engines():
            while num_come < len(arrivals) or not self._core.is_idle:
                while num_come < len(arrivals) and arrivals[num_come].at_s <= now:
                    self.submit(arrivals[num_come])
                    num_come += 1
                ended_at = self.step(now)
                now = arrivals[num_come].at_s if ended_at is None else ended_at
        return self._done

    def submit(self, request: TraceRequest) -> None:
        """It arrives."""
        assert request.service is not None
        cost, service = self._models[request.service].cost, self._specs[request.service]
        spec = make_spec(request, len(self._came), GATEWAY, service, cost.prefill, SloRule())
        self._came[spec.id] = request
        self._hear(self._core.receive(GATEWAY, Submit(spec, Epoch(1)), (), request.at_s), request.at_s)

    def step(self, now: float) -> float | None:
        """Compute one iteration. When it ends; None if there is nothing to compute."""
        batch, effects = self._core.next_batch(now)
        self._hear(effects, now)
        if batch is None:
            return now if effects else None
        elapsed_s = self._models[batch.service].cost.elapsed_s(batch)
        result = StepResult([NO_TOKEN if chunk.draw is None else TOKEN for chunk in batch.chunks], elapsed_s)
        self._hear(self._core.finish_step(result, now + elapsed_s), now + elapsed_s)
        return now + elapsed_s

    def _hear(self, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            message = effect.message if isinstance(effect, Send) else None
            assert not isinstance(message, Refused), message
            for delta in message.deltas if isinstance(message, StepTokens) else ():
                request = self._came[delta.request]
                first_s = self._first.setdefault(delta.request, now - request.at_s)
                if delta.finish is not None:
                    self._done.append(Done(request, first_s, now - request.at_s))


def _service(name: str, model: Model, chunk_tokens: int) -> Service:
    queue = ServiceQueue(name, BlockPool(PagePool(model.kv_tokens // BLOCK_SIZE), BLOCK_SIZE))
    shape, cost = KVShape(1, 1, 1, BLOCK_SIZE, "float16"), LearntCost(model.cost.in_chunks(chunk_tokens))
    return Service(queue, shape, None, frozenset(), MAX_CONTEXT, cost)
