"""What the topology says of one engine, as its core needs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.scheduling.scheduler import Limits
from kvtransfer.protocol import TransferLimits
from mesh.topology.schema import Rescheduling, Scheduling
from mesh.wire.control import Role


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``max_waiting`` prefills are accepted and not started; ``transport`` is one of `mesh.transports.SETTINGS`.

    A request's tokens may be held back until there are ``deliver_every``, but never its first one here or its last.
    """

    id: str
    host: str
    pid: int
    role: Role
    limits: Limits
    max_waiting: int
    transport: str
    transfer_deadline_s: float
    transfer_limits: TransferLimits
    num_devices: int = 1
    weight_memory_bytes: int | None = None  # of weights at most, in all
    deliver_every: int = 1
    rescheduling: Rescheduling | None = None
    scheduling: Scheduling = Scheduling.SLO
    starvation_s: float | None = None
    strict_phases: bool = False
    offload_bytes: int = 0  # of host memory, for KV of requests that are offloaded
    usual: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # tokens of prompts and answers, by service
    loadable: frozenset[str] = frozenset()  # services that it may be told to load
