"""Simulated engines that do both phases, without gateways: requests go straight to the engine that has the fewest.

Cores, scheduling and step times are those of `simulation.cluster`, and so is the choice, which is that of the
policy ``join_shortest_queue`` with news that takes no time. Dispatchers, statuses and heartbeats are left out, which is
most of the work where engines are many and requests few.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from engines.costs.profiles import EngineProfile
from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineAnswer
from mesh.wire.requests import Accepted, Delta, Epoch, Held, Refused, RequestSpec, StepTokens, Submit
from router.generation import Fault, RequestFailed, TokenBatch
from router.history.records import Record
from router.history.tallies import Tallies
from router.history.timeline import RequestTimeline
from simulation.engines.engine import SimulatedEngine
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile, profile_of
from simulation.factory import Factory
from simulation.kernel import Kernel
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule, make_spec
from simulation.network import Network


@dataclass(slots=True)
class _Queue:
    """An engine, and what is on it. ``slots``: tokens that its pool can hold, by service."""

    name: str
    engine: SimulatedEngine
    slots: Mapping[str, int]
    num_requests: int = 0
    num_tokens: int = 0  # of their prompts

    @classmethod
    def of(cls, name: str, engine: SimulatedEngine) -> "_Queue":
        services = engine.core.status(0.0).services
        return cls(name, engine, {service.name: service.num_blocks * service.block_size for service in services})

    @property
    def length(self) -> tuple[int, int]:
        return self.num_requests, self.num_tokens


class DirectEngines:
    """The engines of a topology. They coast: see `SimulatedEngine`. Every service of the topology is on one of them."""

    def __init__(self, topology: Topology, profiles: Mapping[str, Profile], *, seed: int, physics: Physics) -> None:
        self._kernel = Kernel(seed)
        self._topology = topology
        self._costs = dict(_costs(topology, profiles))
        self._records: list[Record] = []
        self._on: dict[str, tuple[_Queue, RequestTimeline]] = {}  # by request that has not ended
        network = self._network = Network(self._kernel, physics.latency_s)
        self._coming: Iterator[RequestSpec] = iter(())  # those that begin when others end
        self._gateway = topology.gateways[0].id  # whose requests engines take
        network.connect(self._gateway, self._hear)
        factory = Factory(
            topology, profiles, physics, network, self._kernel, coasts=True, observer=None, on_end=self._ended
        )
        self._timelines = factory.timelines(Tallies())
        self._queues = [
            _Queue.of(spec.id, factory.engine(spec, Sender(spec.id, 1), self._kernel))
            for spec in sorted(topology.engines, key=lambda spec: spec.id)
        ]

    def __repr__(self) -> str:
        return f"<DirectEngines {[queue.engine for queue in self._queues]}>"

    def run(self, trace: Sequence[TraceRequest]) -> list[Record]:
        """Run to the end of the last request; records come in the order of their ends. Every request names its
        service.
        """
        for request, spec in zip(trace, self._specs(trace), strict=True):
            self._kernel.at(request.at_s, self._submit, spec)
        return self._run()

    def run_closed(self, trace: Sequence[TraceRequest], concurrency: int) -> list[Record]:
        """Run so many requests at a time: the next one arrives when one ends, whatever the trace says."""
        self._coming = self._specs(trace)
        for spec in islice(self._coming, concurrency):
            self._kernel.at(0.0, self._submit, spec)
        return self._run()

    def _specs(self, trace: Sequence[TraceRequest]) -> Iterator[RequestSpec]:
        rule = SloRule()
        for number, request in enumerate(trace):
            assert request.service is not None, "no service is the default"
            service = self._topology.service(request.service)
            cost = self._costs[service.base or service.name].prefill
            yield make_spec(request, number, self._gateway, service, cost, rule)

    def _run(self) -> list[Record]:
        self._kernel.run()
        assert not self._on, self
        return self._records

    def _submit(self, spec: RequestSpec) -> None:
        num_tokens = len(spec.prompt)
        queue = min(self._places(spec.service, num_tokens + 1), key=lambda queue: queue.length)
        queue.num_requests += 1
        queue.num_tokens += num_tokens
        self._on[spec.id] = queue, self._timelines.arrived(spec, self._kernel.now)
        self._network.send(self._gateway, queue.name, Submit(spec, Epoch(0)))

    def _places(self, service: str, num_tokens: int) -> list[_Queue]:
        """Engines that serve it and can ever hold as much; if none can, all that serve it: they will refuse it."""
        serving = [queue for queue in self._queues if service in queue.slots]
        return [queue for queue in serving if queue.slots[service] >= num_tokens] or serving

    def _ended(self, record: Record, spec: RequestSpec) -> None:
        queue, _ = self._on.pop(record.id)
        queue.num_requests -= 1
        queue.num_tokens -= len(spec.prompt)
        self._records.append(record)
        if (following := next(self._coming, None)) is not None:
            self._submit(following)

    def _hear(self, sender: str, answer: EngineAnswer) -> None:
        match answer:
            case StepTokens(deltas):
                for delta in deltas:
                    self._take(sender, delta)
            case Refused(request, _, _, reason):
                _, timeline = self._on[request]
                self._timelines.failed(timeline, RequestFailed(reason, Fault.CLIENT), self._kernel.now)
            case Accepted() | Held():
                pass
            case _:
                raise RuntimeError(f"{sender} said {answer}, which nothing leads to")

    def _take(self, engine: str, delta: Delta) -> None:
        _, timeline = self._on[delta.request]
        batch = TokenBatch(
            tuple(delta.tokens), delta.finish, delta.num_cached_tokens, None, None, brought=delta.brought
        )
        self._timelines.delivered(timeline, batch, engine, self._kernel.now)
        if delta.finish is not None:
            self._timelines.finished(timeline, delta.finish, self._kernel.now)


def _costs(topology: Topology, profiles: Mapping[str, Profile]) -> Iterator[tuple[str, EngineProfile]]:
    """Of each service, on the first engine that has it: what its requests are promised by."""
    for spec in reversed(topology.engines):
        for service in spec.services:
            yield service, profile_of(profiles[spec.id], service)
