"""One simulated engine that does both phases, without gateways: what its requests see where there is nothing to choose.

Its core, scheduling and step times are those of `bench.simulation.cluster`; dispatch, statuses and heartbeats are left
out, which is most of the work where engines are many and requests few.
"""

from collections.abc import Sequence

from bench.simulation.factory import Factory
from bench.simulation.kernel import Kernel
from bench.simulation.network import Network
from bench.simulation.physics import Physics
from bench.simulation.shared_profiles import Profile, profile_of
from bench.simulation.trace_request import TraceRequest
from bench.simulation.workload import SloRule, make_spec
from mesh.messages import Accepted, EngineAnswer, Epoch, Refused, RequestSpec, Sender, StepTokens, Submit
from mesh.topology.schema import Topology
from router.generation import Fault, RequestFailed, TokenBatch
from router.ledger import Ledger
from router.records import Record

GATEWAY = "gateway"


class LoneEngine:
    """The only engine of a topology. It coasts: see `SimulatedEngine`."""

    def __init__(self, topology: Topology, profile: Profile, *, seed: int, physics: Physics) -> None:
        self._kernel = Kernel(seed)
        self._topology = topology
        self._profile = profile
        self._records: list[Record] = []
        self._ledger = Ledger(lambda record, _: self._records.append(record))
        self._latency_s = physics.latency_s
        network = Network(self._kernel, physics.latency_s)
        network.connect(GATEWAY, self._hear)
        [spec] = topology.engines
        factory = Factory(topology, {spec.id: profile}, physics, network, self._kernel, coasts=True, observer=None)
        self.engine = factory.engine(spec, Sender(spec.id, 1), self._kernel)

    def __repr__(self) -> str:
        return f"<LoneEngine {self.engine!r}>"

    def run(self, trace: Sequence[TraceRequest]) -> list[Record]:
        """To the end of the last request; records in the order of their ends. Every request names its service."""
        rule = SloRule()
        for number, request in enumerate(trace):
            assert request.service is not None, "no service is the default"
            service = self._topology.service(request.service)
            cost = profile_of(self._profile, service.name)
            spec = make_spec(request, number, GATEWAY, service, cost.prefill, rule)
            self._kernel.at(request.at_s, self._submit, spec)
        self._kernel.run()
        assert not len(self._ledger), self
        return self._records

    def _submit(self, spec: RequestSpec) -> None:
        self._ledger.arrived(spec, self._kernel.now)
        self._kernel.after(self._latency_s, self.engine.receive, GATEWAY, Submit(spec, Epoch(0)))

    def _hear(self, sender: str, answer: EngineAnswer) -> None:
        match answer:
            case StepTokens(deltas):
                for delta in deltas:
                    batch = TokenBatch(tuple(delta.tokens), delta.finish, delta.num_cached_tokens, None, None)
                    self._ledger.delivered(delta.request, batch, self._kernel.now)
            case Refused(request, _, _, reason):
                self._ledger.failed(request, RequestFailed(reason, Fault.CLIENT), self._kernel.now)
            case Accepted():
                pass
            case _:
                raise RuntimeError(f"{sender} said {answer}, which nothing leads to")
