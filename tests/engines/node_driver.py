"""One engine's node, driven by hand: what happens to it, and what it wants done."""

from pathlib import Path
from typing import TypeVar

from engines.effects import Compute, NodeEffect
from engines.node import EngineNode
from engines.scheduling.batch import ChunkResult, StepResult
from engines.step_failures.errors import StepError
from kvtransfer.protocol import Send
from mesh.topology.schema import EngineSpec, GatewaySpec, Rescheduling, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage, Message
from mesh.wire.requests import Epoch, RequestSpec, Submit
from mesh.wire.status import EngineStatus
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import SERVICE

E = TypeVar("E")

TIMING = Timing(heartbeat_s=0.2, lease_s=1.0, drain_s=10.0)
TOPOLOGY = Topology(
    "nodes",
    Path("nodes"),
    (ServiceSpec(SERVICE, "none", Slo(1.0, 0.1)),),
    tuple(EngineSpec(name, Role.MULTIPLEX, (SERVICE,)) for name in ("engine", "other", "third")),
    (GatewaySpec("gateway"), GatewaySpec("second", port=8001)),
    timing=TIMING,
)
GATEWAY, OTHER, SUPERVISOR = Sender("gateway", 1), Sender("other", 1), Sender("supervisor-local", 1)


class NodeDriver:
    """Events at ``now``, which tests move. Time that nobody looks at passes without deadlines."""

    def __init__(self, topology: Topology = TOPOLOGY, rules: Rescheduling | None = None) -> None:
        self.now = 0.0
        self.core = VirtualMesh().add("engine", rescheduling=rules).core
        self.node = EngineNode(self.core, topology, "engine", TIMING.lease_s)
        self.started = self.node.start(self.now)

    def receive(self, message: EngineMessage, sender: Sender = GATEWAY) -> list[NodeEffect]:
        return self.node.receive(sender, message, (), self.now)

    def submit(self, spec: RequestSpec, attempt: int = 1) -> list[NodeEffect]:
        return self.receive(Submit(spec, Epoch(attempt)))

    def end_turn(self) -> list[NodeEffect]:
        return self.node.end_turn(self.now)

    def finish(self, compute: Compute, token: int = 7) -> list[NodeEffect]:
        """The step is computed: all its requests draw ``token``."""
        chunks = [ChunkResult(token) for _ in compute.step.shares]
        return self.node.finish_step(StepResult(chunks, 0.01), self.now)

    def fail(self, kind: StepError = StepError.ORDINARY, error: str = "no") -> list[NodeEffect]:
        return self.node.fail_step(kind, error, f"ValueError: {error}")

    def pass_time(self, until: float) -> list[NodeEffect]:
        """All deadlines until then, each when it is due."""
        effects: list[NodeEffect] = []
        while (deadline := self.node.next_deadline()) is not None and deadline <= until:
            self.now = deadline
            effects += self.node.expire(self.now)
        self.now = until
        return effects

    def status(self) -> EngineStatus:
        return self.node.status(self.now)


def those(kind: type[E], effects: list[NodeEffect]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def messages(effects: list[NodeEffect]) -> list[Message]:
    """What is sent."""
    return [effect.message for effect in effects if isinstance(effect, Send)]
