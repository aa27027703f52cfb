"""Holds what the topology says of one engine, as its core needs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.scheduling.scheduler import Limits
from kvtransfer.protocol import TransferLimits
from mesh.topology.schema import EngineSpec, Rescheduling, Scheduling, Topology
from mesh.wire.control import Role


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the core of one engine is told by the topology. ``max_waiting`` prefills are accepted and not started;
    ``transport`` is one of `mesh.transports.SETTINGS`.

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
    staging_memory_bytes: int = 0  # of the host, for weights before they are loaded
    adapter_memory_bytes: int = 0  # of LoRA adapters at most; 0: it computes none
    deliver_every: int = 1
    rescheduling: Rescheduling | None = None
    scheduling: Scheduling = Scheduling.SLO
    starvation_s: float | None = None
    strict_phases: bool = False
    migrates_on_drain: bool = True
    prefix_caching: bool = True
    pulls: bool = False  # prefixes from other engines, instead of computing them
    offload_bytes: int = 0  # of host memory, for KV of requests that are offloaded
    usual: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # tokens of prompts and answers, by service
    loadable: frozenset[str] = frozenset()  # services that it may be told to load
    metrics_url: str = ""  # where Prometheus asks it; empty: nowhere

    @classmethod
    def of(
        cls,
        topology: Topology,
        engine: EngineSpec,
        *,
        pid: int,
        message_bytes: int,
        num_devices: int,
        loadable: frozenset[str],
        deliver_every: int = 1,
        metrics_url: str = "",
    ) -> "EngineSettings":
        """Return the settings of one engine. ``message_bytes``: of KV blocks that one message announces, at most."""
        return cls(
            id=engine.id,
            host=engine.host,
            pid=pid,
            role=engine.role,
            limits=Limits(
                engine.max_running,
                engine.chunk_tokens,
                slice_tokens=engine.slice_tokens,
                counts_decodes=engine.scheduling is Scheduling.CONTINUOUS,
            ),
            pulls=topology.kv_tiers is not None and topology.kv_tiers.peers,
            offload_bytes=engine.offload_memory_bytes,
            max_waiting=engine.max_waiting,
            transport=topology.transfer.transport,
            transfer_deadline_s=topology.transfer.deadline_s,
            transfer_limits=TransferLimits(
                reply_s=topology.timing.reply_s,
                message_bytes=message_bytes,
                migration_share=topology.transfer.migration_share_on(engine.device),
                migration_s=topology.transfer.migration_deadline_s,
            ),
            usual={service.name: (service.usual_prompt, service.usual_answer) for service in topology.services},
            num_devices=num_devices,
            weight_memory_bytes=engine.weight_memory_bytes,
            staging_memory_bytes=engine.staging_memory_bytes,
            adapter_memory_bytes=engine.adapter_memory_bytes,
            deliver_every=deliver_every,
            rescheduling=topology.rescheduling,
            scheduling=engine.scheduling,
            starvation_s=engine.starvation_s,
            strict_phases=engine.strict_phases,
            migrates_on_drain=engine.migrates_on_drain,
            prefix_caching=engine.prefix_caching,
            loadable=loadable,
            metrics_url=metrics_url,
        )
