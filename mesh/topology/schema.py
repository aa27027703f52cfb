"""A deployment, as frozen values. `mesh.topology.parse` makes them from TOML; nothing mutates them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from mesh.access.keys import UNLIMITED, KeyLimits
from mesh.batches import USUAL, BatchesSpec
from mesh.chat_formats import AUTO_FORMAT
from mesh.rules import Counting, DraftMethod, Lateness, PlacementMode, ScalingRule, Trigger
from mesh.topology.stores import KEPT, AdaptersSpec, KVTiersSpec, ResponsesSpec
from mesh.topology.timing import Timing
from mesh.transports import AUTO
from mesh.wire.control import Role

LOCAL_HOST = "local"
USUAL_FLOOR: Final = 10.0  # a promise may be so many times tighter than the service's
WHOLE_PROMPTS = 2**20  # tokens of an iteration: more than any batch has


class Scheduling(StrEnum):
    """Discipline that says whose turn it is on an engine (docs/concepts/sharing.md)."""

    SLO = "slo"  # services in turns, decodes and chunks of prompts in one iteration, by their promises
    DB = "db"  # doubling budget: the request with the least left budget times its service's mean execution time
    FCFS = "fcfs"  # first come, first served
    SJF = "sjf"  # the service with the shortest mean execution time
    ROUND_ROBIN = "round_robin"  # services and phases in turns
    MLFQ = "mlfq"  # skip-join multi-level feedback queue
    STATIC = "static"  # static batches: nobody joins one that runs (docs/concepts/slices.md)
    CONTINUOUS = "continuous"  # decodes, then prompts as they came, up to chunk_tokens in all: vLLM's own (V1)
    PADDED = "padded"  # the same as transformers' generate computes them, and simulated engines model them

    @property
    def is_static(self) -> bool:
        return self in (Scheduling.STATIC, Scheduling.PADDED)


class Task(StrEnum):
    """What a service makes of a prompt."""

    GENERATE = "generate"  # an answer, token by token
    EMBED = "embed"  # one vector
    SCORE = "score"  # one number that says how well two texts fit together


@dataclass(frozen=True, slots=True)
class Slo:
    """A latency promise. ``attainment`` is the fraction of requests that must meet both."""

    ttft_s: float
    tpot_s: float
    attainment: float = 0.9


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One model as it is served. ``dtype`` belongs to the service so that tokens are the same on every engine."""

    name: str
    model: str  # pypi:PACKAGE==VERSION/path, hf:org/name, or a path; empty: only servers of others have it
    slo: Slo
    dtype: str = "float32"  # float32, bfloat16, float16, int8
    kv_dtype: str | None = None  # int8; None: that of activations
    max_context: int | None = None  # tokens, prompt and answer; None: what the model was made for
    max_output_tokens: int | None = None
    temperature: float = 1.0  # of requests that name none
    top_p: float = 1.0  # likewise
    priority: int = 0
    aliases: tuple[str, ...] = ()
    usual_prompt: int = 512  # tokens; what disciplines take a request for before they have seen any
    usual_answer: int = 256  # likewise
    max_priority: int | None = None  # that a client may ask for; None: the service's own
    min_ttft_s: float | None = None  # the tightest promise that a client may ask for; None: a tenth of the service's
    min_tpot_s: float | None = None  # likewise
    tool_format: str = AUTO_FORMAT  # how the model writes calls of tools, of TOOL_FORMATS
    reasoning_format: str = AUTO_FORMAT  # how it marks reasoning, of REASONING_FORMATS
    reasoning: Counting = Counting.COUNTED  # whether promises count the tokens of reasoning
    tokenizer: str | None = None  # of servers' prompts: hf:org/name, a folder, or "server"; None: lengths are estimated
    base: str | None = None  # of a LoRA adapter: the service with whose model it is computed; None: it is no adapter
    adapter: Path | None = None  # its folder, as PEFT saves it
    task: Task = Task.GENERATE
    late: Lateness | None = None  # what becomes of late requests that do not say; None: what the policy does
    dimensions: tuple[int, ...] = ()  # to which a client may have vectors cut, where the model was trained for it
    is_added: bool = False  # to a mesh that ran
    speculation: DraftMethod | None = None  # how tokens are drafted; None: decodes take one step each
    max_draft_tokens: int = 7  # of a decode at a time
    draft: str | None = None  # the service that writes them, where a draft model does

    @property
    def pools(self) -> bool:
        """Say whether it makes a vector or a number of each prompt, and no tokens."""
        return self.task is not Task.GENERATE

    @property
    def highest_priority(self) -> int:
        """That a client may ask for."""
        return self.priority if self.max_priority is None else self.max_priority

    @property
    def tightest_ttft_s(self) -> float:
        """That a client may ask for."""
        return self.slo.ttft_s / USUAL_FLOOR if self.min_ttft_s is None else self.min_ttft_s

    @property
    def tightest_tpot_s(self) -> float:
        """That a client may ask for."""
        return self.slo.tpot_s / USUAL_FLOOR if self.min_tpot_s is None else self.min_tpot_s


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How gateways reach and ask one server. No process of the mesh stands for it."""

    url: str  # without a path, or with the path that its API has before /v1
    names: Mapping[str, str] = field(default_factory=dict, hash=False)  # of services there, where they are others
    kind: str = "auto"  # of `router.servers`; auto: it is asked
    weight: float = 1.0  # of its share of requests, beside others: 0.05 for a canary
    api_key_file: Path | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)  # sent with each request
    tls_ca: Path | None = None
    tls_insecure: bool = False
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0  # between two events of an answer
    metrics: str = "auto"  # a URL; auto: its /metrics; off: nobody asks
    kv_events: str | None = None  # where vLLM publishes which prefixes it keeps: tcp://HOST:PORT

    def name_of(self, service: str) -> str:
        """Return what the server calls a service."""
        return self.names.get(service, service)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine process (``count`` of the file is expanded: ``decode`` with count 2 gives decode-0 and decode-1)."""

    id: str
    role: Role
    services: tuple[str, ...]
    host: str = LOCAL_HOST
    backend: str = "torch"
    device: str = "cpu"
    threads: int = 1
    max_threads: int | None = None  # None: ``threads``
    kv_memory_bytes: int = 256 * 2**20  # shared by the services
    weight_memory_bytes: int | None = None  # of the weights of its services at most; None: what its device has
    staging_memory_bytes: int = 0  # of the host, for weights that are to be loaded; 0: none are read ahead
    adapter_memory_bytes: int = 256 * 2**20  # of LoRA adapters of its services; the longest unused one makes room
    kv_quotas: Mapping[str, float] = field(default_factory=dict, hash=False)  # the part that a service may hold at most
    block_size: int = 16  # tokens
    max_running: int = 32  # requests in a decode batch
    max_waiting: int = 64  # prefills accepted and not started
    chunk_tokens: int = 256  # prompt tokens computed in one step; `WHOLE_PROMPTS` where batches are padded
    slice_tokens: int | None = None  # of an answer, for which memory is granted at a time; None: any
    offload_memory_bytes: int = 256 * 2**20  # of the host, for KV of requests whose slice has ended
    scheduling: Scheduling = Scheduling.SLO
    starvation_s: float | None = None  # of waiting, after which a request goes first; None: by its service's profile
    prefix_caching: bool = True  # whether requests find blocks of others that began alike
    strict_phases: bool = False  # the request that ranks first names the phase; else those that wait join its batch
    migrates_on_drain: bool = True  # what decodes here when it is drained; else that ends here
    pool: str = ""  # the table of the file that it comes from; "": of one engine alone
    at_least: int = 1  # engines of its pool that run
    is_standby: bool = False  # not started with the mesh: it waits for `mesh start`, or for the daemon
    spans: tuple[str, ...] = ()  # engines whose devices it takes, when it runs in their place
    num_devices: int | None = None  # that it computes on; None: what its profile says, 1 without
    profile: str | None = None  # what it costs when modelled: a preset, or the path of a file that ends in .toml
    imitates: str | None = None  # serving system that a modelled one behaves like; None: our own engines
    python: str | None = None  # interpreter; None: the supervisor's own
    options: Mapping[str, object] = field(default_factory=dict, hash=False)  # the backend's own
    metrics_address: str = "127.0.0.1"  # where Prometheus asks it
    metrics_port: int | None = None  # None: one that is free
    server: ServerSpec | None = None  # that others run; None: the mesh starts a process for it

    @property
    def most_threads(self) -> int:
        """Return the number with which it computes while cores of its host are idle."""
        return self.threads if self.max_threads is None else self.max_threads


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    id: str
    host: str = LOCAL_HOST
    address: str = "127.0.0.1"
    port: int = 8000
    max_body_bytes: int = 4 * 2**20
    max_requests: int = 1024  # in flight
    max_waiting: int = 512  # not yet dispatched
    recording: Path | None = None  # where to keep what became of each request
    max_connections: int = 4096
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose x-forwarded-for counts
    admin_address: str = "127.0.0.1"  # of metrics and of what operators ask
    admin_port: int | None = None  # None: 1000 above ``port``, or a free one where that is taken
    ui: bool | None = None  # whether the admin address shows the page; None: on loopback only
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()  # names that it answers to; none: its own on loopback, any elsewhere
    cors_origins: tuple[str, ...] = ()  # of pages that may use it; "*": all
    max_images: int = 8  # of a request
    max_image_bytes: int = 3 * 2**20  # of one, as a file
    max_image_pixels: int = 32 * 2**20  # of one

    @property
    def scheme(self) -> str:
        return "http" if self.tls_cert is None else "https"


@dataclass(frozen=True, slots=True)
class AccessSpec:
    """Who may use the gateways: those with a key of the file ``keys``, or everybody if it is ``open``."""

    keys: Path | None = None
    open: bool = False
    defaults: KeyLimits = UNLIMITED  # of keys that say nothing of their own
    share_prefixes: bool = False  # whether requests of one key may take KV that was computed for another's


@dataclass(frozen=True, slots=True)
class TracesSpec:
    """Where gateways send the traces of requests, and of which (docs/guides/trace-requests.md)."""

    endpoint: str | None = None  # a collector's URL; None: the environment says, or it is on the gateway's host
    sample: float = 0.1  # the share that is kept of what broke no promise
    max_per_s: int = 100  # calls that one gateway exports
    timeout_s: float | None = None  # of the collector; None: the environment says, or 10 s


class ClusterEngine(StrEnum):
    """Who holds the hosts of a mesh: finds room for them, and starts them again elsewhere when they are lost."""

    RAY = "ray"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Hosts are where a cluster's engine places them (docs/concepts/clusters.md)."""

    on: ClusterEngine
    address: str = "auto"  # of Ray: "auto", "local", or host:port


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A machine, or a part of one. Ports count up from ``base_port``; with `ClusterSpec`, from one that is free. What
    it needs is for the cluster's engine: None is what its processes need.
    """

    name: str
    address: str = ""  # what its peers connect to; "": the cluster's engine says
    base_port: int = 5600
    bind: str | None = None  # what its processes listen on; None: the address
    pool: str = ""  # the table of the file that it comes from
    cpus: float | None = None
    gpus: float | None = None
    memory_bytes: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)  # that its machine must have


@dataclass(frozen=True, slots=True)
class PolicySpec:
    name: str = "tropical"
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransferSpec:
    transport: str = AUTO  # one of mesh.transports.SETTINGS
    checksum: bool | None = None  # None: where nothing else protects KV blocks (`mesh.transports.has_checksums`)
    deadline_s: float = 10.0
    migration_share: float | None = None  # of the time that copies take, while the request that they move goes on
    migration_deadline_s: float = 60.0  # for a request to stop at its old engine

    def migration_share_on(self, device: str) -> float:
        """Return the share of time for copies on an engine's device. GPUs copy beside what they compute."""
        return self.migration_share or (0.015 if device == "cpu" else 1.0)


@dataclass(frozen=True, slots=True)
class Rescheduling:
    """Rules by which engines move running requests among themselves (docs/concepts/rescheduling.md).

    An engine whose freeness, in tokens, is below ``give_below`` looks for one with more than ``take_above``.
    """

    triggers: tuple[Trigger, ...] = (Trigger.LOAD, Trigger.PROMISE, Trigger.ROLE)
    give_below: float = 24.0
    take_above: float = 48.0
    interval_s: float = 0.1  # between two looks of one engine
    rest_s: float = 1.0  # after its first move, for a request; twice as long after each further one
    at_a_time: int = 2  # requests that leave one engine
    neighbours: int = 32  # engines of a group that hear each other; all do where there are no more


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """The placement daemon: when it decides anew which services engines hold (docs/concepts/placement.md)."""

    id: str = "placement"
    host: str = LOCAL_HOST
    mode: PlacementMode = PlacementMode.APPLY
    interval_s: float = 60.0  # the first one, between two decisions
    shortest_s: float = 30.0
    longest_s: float = 600.0
    improve_s: float = 10.0  # of local search
    workers: int = 1  # processes that score plans
    min_gain: float = 0.02  # of attainment, for which plans are changed
    max_latency_ratio: float = 0.7  # or to which normalised latency must fall
    load_s: float = 1.0  # seconds of a service's requests that loading a copy of its weights may cost
    regroup_s: float = 10.0  # seconds of their requests that engines may cost which give their devices to others
    max_services: int | None = None  # on one engine; None: two, or as many as some engine holds


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Rules by which engines on standby start, and others go on standby (docs/concepts/scaling.md)."""

    rule: ScalingRule = ScalingRule.PROMISES
    interval_s: float = 0.5  # between two looks
    margin: float = 0.15  # fewer engines run only if they were enough for so much more than is needed
    down_after_s: float = 60.0  # and if that was so for this long
    judge_s: float = 30.0  # between two looks at what was achieved
    clears_s: float = 10.0  # in which requests that wait are to find an engine
    utilisation: float = 0.6  # for the rule of that name
    low_freeness: float = 24.0  # for the rule freeness: one engine more below, one less above the other
    high_freeness: float = 480.0


@dataclass(frozen=True, slots=True)
class Topology:
    name: str
    path: Path
    services: tuple[ServiceSpec, ...]
    engines: tuple[EngineSpec, ...]
    gateways: tuple[GatewaySpec, ...]
    adapters: tuple[ServiceSpec, ...] = ()  # services that are LoRA adapters of others
    hosts: tuple[HostSpec, ...] = (HostSpec(LOCAL_HOST, "127.0.0.1"),)
    cluster: ClusterSpec | None = None  # None: each host's table says where it is
    policy: PolicySpec = PolicySpec()
    transfer: TransferSpec = TransferSpec()
    rescheduling: Rescheduling | None = None  # None: requests move when they are told to, and when engines are emptied
    scaling: ScalingSpec | None = None  # None: engines start and end when they are told to
    placement: PlacementSpec | None = None  # None: which services engines hold changes when somebody changes it
    access: AccessSpec | None = None  # None: everybody on this machine may use the gateways
    traces: TracesSpec | None = None  # None: nobody makes any
    batches: BatchesSpec = USUAL
    added: AdaptersSpec | None = None  # None: adapters are those of the file
    responses: ResponsesSpec = KEPT
    kv_tiers: KVTiersSpec | None = None  # None: KV is where engines compute, and nowhere else
    timing: Timing = field(default_factory=Timing)
    curve_key: Path | None = None  # the mesh's key file; required when hosts differ
    log_level: str = "info"

    @property
    def makes_key(self) -> bool:
        """Say whether its processes are handed a key in memory, because nobody names a file with one."""
        return self.curve_key is None and self.cluster is not None and self.cluster.on is ClusterEngine.RAY

    @property
    def serving(self) -> tuple["GatewaySpec | EngineSpec", ...]:
        """The processes that requests depend on."""
        return self.gateways + self.own_engines

    @property
    def own_engines(self) -> tuple[EngineSpec, ...]:
        """The engines that are processes of the mesh."""
        return tuple(engine for engine in self.engines if engine.server is None)

    @property
    def servers(self) -> dict[str, ServerSpec]:
        """The others, by engine: what gateways ask over HTTP."""
        return {engine.id: engine.server for engine in self.engines if engine.server is not None}

    @property
    def processes(self) -> tuple["GatewaySpec | EngineSpec | PlacementSpec", ...]:
        return (*self.serving, *([] if self.placement is None else [self.placement]))

    @property
    def offered(self) -> tuple[ServiceSpec, ...]:
        """All that clients may ask for: what engines hold, and adapters of it."""
        return self.services + self.adapters

    def service(self, name: str) -> ServiceSpec:
        return next(service for service in self.offered if service.name == name)

    def host(self, name: str) -> HostSpec:
        return next(host for host in self.hosts if host.name == name)

    def engine(self, engine_id: str) -> EngineSpec:
        return next(engine for engine in self.engines if engine.id == engine_id)

    def gateway(self, gateway_id: str) -> GatewaySpec:
        return next(gateway for gateway in self.gateways if gateway.id == gateway_id)
