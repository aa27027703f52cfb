"""Statuses: what engines, gateways and supervisors publish about themselves."""

from math import inf
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from mesh.wire.adapters import AddedAdapter
from mesh.wire.bounds import (
    Amount,
    Count,
    Difference,
    Estimate,
    Freeness,
    Name,
    Priority,
    Promise,
    Seconds,
    Slack,
    Total,
    Until,
)
from mesh.wire.control import EnginePlace, PolicyChoice, ProcessState, Role, ServerDrain
from mesh.wire.hosts import MAX_HOSTS

MOST_PREFILLS = 32  # that a status tells one by one
MOST_FORESEEN = 8  # likewise
UNPASSED = 2**31 - 1  # the priority of a prefill that nobody passes
MAX_ADAPTERS = 1024  # that a gateway tells of, those that were removed included


class PrefillCost(msgspec.Struct, frozen=True):
    """Seconds of a prefill of n tokens after c cached ones.

    ``fixed + per_token n + per_token_context n (c + n / 2) + per_cached_token c``, or the sum of that over chunks of
    ``chunk_tokens``; 0: in one chunk. Where there is a ``table`` of (n, seconds), the line through its points stands in
    for the first two terms. Beyond its last point each token adds ``per_token``.
    """

    fixed_s: Seconds
    per_token_s: Seconds
    per_token_context_s: Seconds = 0.0
    per_cached_token_s: Seconds = 0.0
    chunk_tokens: Count = 0
    table: tuple[tuple[Count, Seconds], ...] = ()


class DecodeCost(msgspec.Struct, frozen=True):
    """Seconds of a decode step of b requests with total context c.

    ``fixed + per_request b + per_context_token c + per_mean_context_token c / b``. Where there is a ``table`` of
    (b, seconds), the line through its points stands in for the first two: small batches take other kernels than large
    ones. Beyond its last point each request adds ``per_request``.
    """

    fixed_s: Seconds
    per_request_s: Seconds
    per_context_token_s: Seconds = 0.0
    table: tuple[tuple[Count, Seconds], ...] = ()
    per_mean_context_token_s: Seconds = 0.0


class Demand(msgspec.Struct, frozen=True):
    """Predicts what the requests of a service on an engine need until they end, by `RequestSpec.expected`.

    ``peaks``: pairs of (steps from now, tokens), ascending; up to so many steps, and since the pair before, they hold
    the KV of at most so many tokens (Aladdin's demand vector). The errors are those of Aladdin's algorithm 2.
    """

    num_requests: Count = 0
    prompt_tokens: Count = 0
    answer_tokens: Count = 0  # of whole answers
    tpot_slo_s: Promise = inf  # their tightest promise
    peaks: tuple[tuple[Count, Count], ...] = ()
    error_requests: Difference = 0  # that run on beyond their first prediction, less those that ended too early
    error_tokens: Difference = 0  # more than first predicted, less those that did not come


class ServiceStatus(msgspec.Struct, frozen=True):
    """Tells what an engine says about one of its services."""

    name: Name
    num_blocks: Count
    num_free_blocks: Count  # unused, or reclaimable from the prefix cache
    block_size: Count
    prefill_cost: PrefillCost
    decode_cost: DecodeCost
    prefill_error: Estimate | None = None  # 90th percentile of |measured / predicted - 1| of late; None: too few
    decode_error: Estimate | None = None
    num_running: Count = 0  # requests that hold blocks
    freeness: Freeness = (
        0.0  # tokens of head room for each running request (engines/transfers/freeness.py); -inf: being emptied
    )
    is_leaving: bool = False  # it is being unloaded and takes nothing new
    demand: Demand | None = None  # None: nothing is expected of any request's answer
    weight_bytes: Count = 0  # that its weights take; 0: not known
    growth_blocks: Count = 0  # free ones that are promised to slices of what runs; 0: there are no slices
    held_by_priority: list[tuple[Priority, Count]] = []  # blocks of what runs; nothing while half of all are free
    model: Name = ""  # which one it is (`engines.models.identity`); empty: not known
    num_waiting: Count = 0  # requests that hold no blocks here: accepted, not begun
    fillers_waiting: Count = 0  # requests without a promise, which nothing else here counts: their blocks count as free
    fillers_running: Count = 0  # likewise; these hold blocks
    drafts_checked: Count = 0  # decodes whose step checked drafts, since the service was opened here
    tokens_drafted: Count = 0  # by these
    drafts_accepted: Count = 0  # of those tokens
    tier_tokens: Count = 0  # that the KV tiers of its host hold at most, where loading is worth it; 0: it has none
    tier_token_s: Seconds = 0.0  # predicted, to load one from the slowest of them
    is_paused: bool = False  # its weights are gone, and its requests keep their KV until another engine takes them
    pull_s: Seconds = 0.0  # predicted, until blocks that it pulls from another engine begin to come
    pull_token_s: Seconds = 0.0  # and for each token of them; 0: it pulls none
    line_s: Seconds | None = None  # that who comes now waits for others' turns; None: promises say who goes first
    num_decoding: Count = 0  # requests that one more would decode with, in the same step
    block_bytes: Count = 0  # of a block, on all devices together; 0: not known


class PendingPrefill(NamedTuple):
    """A prefill that is not done."""

    due_s: Until  # until its TTFT deadline, or a later one if it cannot be in time for that
    left_s: Seconds  # predicted, of computing
    priority: Priority = 0
    running_s: Seconds = 0.0  # of that, in the step that runs: nobody passes it


class ForeseenSlack(NamedTuple):
    """What a decode will have saved of its TPOT promise when its answer ends, if all its steps are like the next one.

    A step that takes longer by ``x`` seconds takes ``x * num_steps`` from it.
    """

    slack_s: Slack
    num_steps: Count  # that it is sure to have yet, or nearly so


class FailedLoad(NamedTuple):
    """A service that an engine could not load when it was last told to, and has not loaded since."""

    service: Name
    reason: str
    number: Count  # of all loads that failed in this incarnation of the engine: tells a new failure from an old one


class NotRenewed(NamedTuple):
    """A process that a supervisor could not replace when it was last told to, and has not replaced since."""

    process: Name
    reason: str
    number: Count  # of all renewals of this supervisor that failed: tells a new failure from an old one


class TierStatus(msgspec.Struct, frozen=True):
    """Tells what an engine has done with a KV tier of its host since it began."""

    name: Name
    used_bytes: Count  # of the tier, by all engines of the host, when this one stored last
    loaded_blocks: Count
    loaded_bytes: Count
    load_s: Seconds  # that these took
    stored_blocks: Count
    stored_bytes: Count
    evicted_blocks: Count  # that made room for what this engine stored
    faults: Count  # files that vanished or were not what they should be, and writes that failed
    left_out_blocks: Count = 0  # not written, as the tier was behind


class EngineStatus(msgspec.Struct, frozen=True, tag=True):
    """An engine's own account of itself. Others see it with its age."""

    seq: Count
    state: ProcessState
    role: Role
    host: Name
    pid: Count
    services: list[ServiceStatus]
    num_running: Count  # requests that hold KV: in the decode batch, or being prefilled
    num_waiting: Count  # accepted, prefill not finished and not running
    num_tokens: Count  # context tokens of all requests held
    prefill_remaining_s: Seconds  # of the prefill running now; 0: none is
    prefill_waiting_s: Seconds  # predicted, of all the prefills that wait
    decode_step_s: Seconds  # predicted, of the next step
    min_slack_s: Slack | None  # of the running decodes that can keep their TPOT promise; None: there are none
    min_tpot_slo_s: Promise | None = None  # the tightest promise of those; None: there are none
    foreseen: list[ForeseenSlack] = []  # of those, the ones that may run out first; none: answers are not predicted
    prefills: list[PendingPrefill] = []  # the first of them to be due, as many as `MOST_PREFILLS`
    pace_s: Seconds = 0.0  # from one token of a decode to the next, of late; 0: nothing decodes
    num_role_changes: Count = 0
    num_devices: Count = 1  # that the engine computes on (tensor times pipeline parallelism)
    max_running: Count = 0  # requests of one service that hold KV at a time; 0: not known
    num_reserved: Count = 0  # transfers expected
    cancelled_total: Count = 0
    preemptions_total: Count = 0
    num_offloaded: Count = 0  # requests whose KV is in host memory, or on its way there or back
    slices_kept_total: Count = 0  # ends of slices after which the request stayed
    slices_moved_total: Count = 0
    slices_offloaded_total: Count = 0
    num_migrating_out: Count = 0
    num_migrating_in: Count = 0
    migrations_total: Count = 0  # of requests that left
    migrations_aborted_total: Count = 0  # they went on here, or had ended
    last_aborted_migration: str | None = None  # which request, where to, and why not
    place: EnginePlace | None = None  # in the newest placement plan that it heard of
    loading: list[Name] = []  # services whose weights are on their way
    failed_loads: list[FailedLoad] = []
    weight_memory: Count | None = None  # bytes that weights may take in all; None: nobody said
    error: str | None = None
    metrics_url: Name = ""  # where Prometheus asks it; empty: nowhere
    keeps_order: bool = False  # it computes prompts in the order in which they come, whatever is promised
    keeps_role: bool = False  # it runs static batches, which are prefilled and decoded in one place
    step_wait_s: Seconds = 0.0  # that a first token takes beyond all prompts, because others decode; 0: not told
    adapters: list[Name] = []  # services whose LoRA adapters are loaded
    tiers: list[TierStatus] = []  # KV tiers, the fastest first; none: it has none
    blocks_not_stored_total: Count = 0  # given up by the pool before they could be stored in a tier
    loads_stopped_total: Count = 0  # of what tiers hold, because they took too long
    prefix_news: Count = 0  # number of its last `PrefixesHeld`; 0: it has nothing to tell
    staging_memory: Count = 0  # bytes of its host that weights may take before they are loaded
    staging: list[Name] = []  # services whose weights are on their way there
    staged: dict[Name, Count] = {}  # services whose weights are there, and what these will take once they are loaded


class ServiceTally(msgspec.Struct, frozen=True):
    """Sums up what a gateway has seen of a service since it began. The difference of two tells what was between them.

    Lengths are tokens: prompts of all that arrived, answers of all that were answered. ``late`` ended without having
    met both SLOs, whatever became of them, unless their client went away. ``promised_ttft_s`` and ``promised_tpot_s``
    are promises of all that arrived; ``cached_tokens`` are those of prompts that prefix caches had, of all that ended.
    """

    name: Name
    arrived: Count = 0
    input_tokens: Count = 0
    input_squares: Total = 0
    ended: Count = 0  # but for those whose client went away
    late: Count = 0
    answered: Count = 0
    output_tokens: Count = 0
    output_squares: Total = 0
    latency_s: Seconds = 0.0  # of all that were answered, from arrival to end
    gone: Count = 0  # whose client went away; with those that ended, the others of those that arrived are still there
    promised_ttft_s: Seconds = 0.0
    promised_tpot_s: Seconds = 0.0
    cached_tokens: Count = 0


class CountSpread(msgspec.Struct, frozen=True):
    """Tells how numbers of requests in windows that follow each other differ, as sums over ``pairs`` of such windows.

    ``arrived``: half of what came in both; ``squares``: half the square of the difference. With Poisson arrivals they
    are as much.
    """

    pairs: Count = 0
    arrived: Amount = 0.0
    squares: Amount = 0.0


class Wanted(msgspec.Struct, frozen=True):
    """Requests of a service that wait in a gateway as they fit no engine, and how many more engines they would fill."""

    service: Name
    role: Role  # of the engines that are short
    num_requests: Count
    num_engines: Count


class Memory(msgspec.Struct, frozen=True):
    """Carries what a placement daemon leaves to its successor: gateways repeat it.

    ``estimate``: the normalised latency that the running interval is expected to bring. Plans up to ``settled`` are
    carried out or given up: where engines are otherwise, somebody has changed them since. ``seen``: what services were
    asked for in the ``seen_intervals`` before this one, of ``seen_s`` together, in which it was the same;
    ``seen_spreads``, by service: in what bursts. ``earlier``, ``earlier_s`` and ``earlier_spreads``: the same of what
    is remembered from before that, in which what they were asked for shifted ``earlier_shifts`` times;
    ``earlier_squares`` tell how much (`router.placement.observe.earlier_traffic`).
    """

    interval: Count  # its number
    interval_s: Seconds  # its length
    estimate: Estimate | None = None
    settled: Count = 0
    services: list[Name] = []  # that are to be served: none of them is without an engine for long
    seen: list[ServiceTally] = []
    seen_s: Seconds = 0.0
    seen_intervals: Count = 0
    seen_spreads: dict[str, CountSpread] = {}
    earlier: list[ServiceTally] = []
    earlier_s: Seconds = 0.0
    earlier_spreads: dict[str, CountSpread] = {}
    earlier_shifts: Amount = 0.0
    earlier_squares: dict[str, Amount] = {}


class Mark(msgspec.Struct, frozen=True):
    """Tells what a gateway had counted when an interval of the placement daemon began, ``age_s`` ago."""

    memory: Memory
    age_s: Seconds
    services: list[ServiceTally]


class GatewayStatus(msgspec.Struct, frozen=True, tag=True):
    """A gateway's own account of itself, and what it keeps for the placement daemon."""

    seq: Count
    state: ProcessState
    host: Name
    pid: Count
    url: Name
    num_requests: Count
    num_waiting: Count
    policy: PolicyChoice | None = None  # that it runs
    policy_age_s: Seconds = 0.0  # since it took it
    breakers: dict[str, str] = {}  # engines to which it sends nothing for now (open), or one request (half-open)
    services: list[ServiceTally] = []  # those that anybody has asked for
    wanted: list[Wanted] = []  # engines, now; of policies that pack
    mark: Mark | None = None  # None: it heard of no placement daemon
    admin_url: str = ""  # of metrics and of what operators ask
    servers: dict[Name, EngineStatus] = {}  # that others run, by engine, as this gateway sees them; those that answer
    drains: dict[Name, ServerDrain] = {}  # of servers that were ever drained
    adapters: Annotated[dict[Name, AddedAdapter], Meta(max_length=MAX_ADAPTERS)] = {}  # added while the mesh runs


ENDED = ("standby", "stopped")  # states of a process that is not there
STARTED = ("starting", "running", "restarting")  # states of one that is, or is about to be


class ChildStatus(msgspec.Struct, frozen=True):
    """A process as its supervisor sees it."""

    process: Name
    kind: str  # "engine", "gateway" or "placement"
    pid: Count | None
    state: str  # "starting", "running", "restarting", "leaving", "standby" or "stopped"
    num_restarts: Count
    last_exit: str | None = None
    ended_incarnation: Count = (
        0  # its incarnations up to this one are over, whatever is still heard of them; 0: none is
    )


class SupervisorStatus(msgspec.Struct, frozen=True, tag=True):
    """A supervisor's account of the processes of its host.

    ``away``: hosts for which nobody has room reserved; `SetRunning` of one of their engines, to this supervisor, asks
    for that. ``renewing``: processes that were to be renewed (`Renew`) and are not yet.
    """

    seq: Count
    host: Name
    pid: Count
    children: list[ChildStatus]
    stopping: bool = False
    away: Annotated[list[Name], Meta(max_length=MAX_HOSTS)] = []
    renewing: list[Name] = []
    not_renewed: list[NotRenewed] = []
