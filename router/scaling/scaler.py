"""Decides a few times a second how many engines run, and which. Sans-IO: it hears statuses and answers orders.

Engines are counted as their supervisors see them, and nothing else is remembered of what was ordered. So what a user
starts or stops by hand, what dies, and a scaler that begins anew are all the same case. Engines start as soon as they
are needed; fewer run when fewer were enough, by a margin, for long.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mesh.topology.schema import Topology
from mesh.wire.control import Role, SetRunning
from mesh.wire.frames import Sender
from mesh.wire.placement import PoolStatus
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from router.scaling.correction import Correction
from router.scaling.fleet import Fleet, ScaleOrder
from router.scaling.need import ImpossibleError, ServiceLoad, Work
from router.scaling.observed import NUM_DEVIATIONS, ObservedServices
from router.scaling.pools import EnginePhase, Pool, PoolView, pools_of
from router.scaling.rules import Need, make_rule, rounded

NOTHING = Need(0.0, 0.0)


@dataclass(slots=True)
class _Size:
    """Of one pool, over time. ``low_since``: from when on fewer engines would have been enough."""

    changed_at: float
    correction: Correction = field(default_factory=Correction)
    low_since: float | None = None
    need: Need = NOTHING
    num_wanted: int = 0
    problem: str = ""
    more: int = 0  # engines that requests waited for at the last look
    said: str = ""  # the last problem that was told, less its numbers


class ScalingDecided(NamedTuple):
    """The outcome of one decision. ``lines`` and ``problems`` say in words what is ordered, and what cannot be had."""

    orders: tuple[ScaleOrder, ...]
    lines: tuple[str, ...]
    problems: tuple[str, ...]


class Scaler:
    """Raise `ValueError` for a topology that is not to be scaled."""

    def __init__(self, topology: Topology, now: float) -> None:
        if topology.scaling is None:
            raise ValueError(f"{topology.name} has no table [scaling]")
        self._topology = topology
        self._spec = topology.scaling
        self._rule = make_rule(self._spec)
        self._pools = pools_of(topology)
        self._fleet = Fleet(topology)
        self._observed = ObservedServices(now)
        self._gateways: dict[str, tuple[GatewayStatus, float]] = {}  # with when it was heard
        self._sizes = {pool.name: _Size(now) for pool in self._pools}
        self._began_at = self._judged_at = self._looks_at = now

    def __repr__(self) -> str:
        return f"<Scaler { ({name: size.num_wanted for name, size in self._sizes.items()}) }>"

    @property
    def next_deadline(self) -> float:
        return self._looks_at

    def hear(self, sender: Sender, status: EngineStatus | GatewayStatus | SupervisorStatus, now: float) -> None:
        match status:
            case EngineStatus():
                self._fleet.hear_engine(sender.process, status, now)
            case GatewayStatus():
                self._observed.observe(sender, status, now)
                self._gateways[sender.process] = status, now
            case SupervisorStatus():
                self._fleet.hear_supervisor(sender, status, now)

    def decide(self, now: float, *, may_stop: bool = True) -> ScalingDecided:
        """Decide what to start and stop. Before `next_deadline` there is nothing to do."""
        if now < self._looks_at:
            return ScalingDecided((), (), ())
        self._looks_at = now + self._spec.interval_s
        self._observed.look(now)
        self._forget_silent_gateways(now)
        statuses = self._fleet.statuses(now)
        views = [self._view(pool, statuses, now) for pool in self._pools]
        self._reckon(views)
        self._judge(views, now)
        scaled = [view for view in views if view.pool.is_scaled]
        orders = [order for view in scaled for order in self._scaled(view, statuses, now, may_stop)]
        view_of = {engine: view for view in scaled for engine in view.phases}
        lines = [self._line(view_of[order.message.process], order.message) for order in orders]
        return ScalingDecided(tuple(orders), tuple(lines), tuple(self._new_problems()))

    def _forget_silent_gateways(self, now: float) -> None:
        """Nothing waits any more in those whose lease has ended."""
        heard_since = now - self._topology.timing.lease_s
        self._gateways = {name: heard for name, heard in self._gateways.items() if heard[1] >= heard_since}

    def _line(self, view: PoolView, message: SetRunning) -> str:
        """An order in words, for a log."""
        does, need = "starts" if message.running else "goes on standby", self._sizes[view.pool.name].need
        return f"{message.process} {does}: {view.pool.name} needs {need.least:.1f} engines, {view.num_running} run"

    def _new_problems(self) -> Iterator[str]:
        """Each is said once, until it is another one."""
        for name, size in self._sizes.items():
            kind = "".join(letter for letter in size.problem if not letter.isdigit())
            if size.problem and kind != size.said:
                yield f"{name}: {size.problem}"
            size.said = kind

    def pools(self) -> list[PoolStatus]:
        """The pools that are scaled."""
        sizes = [(pool, self._sizes[pool.name]) for pool in self._pools if pool.is_scaled]
        return [
            PoolStatus(pool.name, size.num_wanted, pool.least, pool.most, size.need.least, size.problem)
            for pool, size in sizes
        ]

    def _view(self, pool: Pool, statuses: Mapping[str, EngineStatus], now: float) -> PoolView:
        phases = {engine: self._fleet.phase(engine, now) for engine in pool.engines}
        return PoolView(pool, phases, {engine: statuses[engine] for engine in pool.engines if engine in statuses})

    # --- what is needed -----------------------------------------------------------------------------------------------

    def _reckon(self, views: list[PoolView]) -> None:
        """Prefill engines first: what is more than all of them can do falls to others."""
        for view in sorted(views, key=lambda view: view.pool.role is not Role.PREFILL):
            size = self._sizes[view.pool.name]
            size.problem = ""
            try:
                size.need = self._rule(view, self._demands(view, views), size.correction.factor)
            except ImpossibleError as error:
                size.problem, size.need = str(error), Need(view.num_running, view.num_running)

    def _demands(self, view: PoolView, views: list[PoolView]) -> list[tuple[ServiceLoad, Work]]:
        """What services are asked for, and which part of it falls to this pool."""
        costs = {service.name: service for status in view.statuses.values() for service in status.services}
        asked = {name: found for name in sorted(costs) if (found := self._observed.get(name)) and found.rate.rate}
        total = sum(found.rate.rate for found in asked.values())
        backlog = sum(status.num_waiting for status, _ in self._gateways.values()) / self._spec.clears_s
        demands = []
        for name, found in asked.items():
            rate = found.rate.above(NUM_DEVIATIONS) + backlog * found.rate.rate / total
            cost, lengths = costs[name], (found.inputs.moments, found.outputs.moments)
            kv_tokens = cost.num_blocks * cost.block_size
            slo = self._topology.service(name).slo  # shorter TTFTs are kept by who goes first, which no mean tells
            slo = replace(slo, ttft_s=max(slo.ttft_s, found.ttft.mean), tpot_s=found.tpot.mean)
            costs_of = cost.prefill_cost, cost.decode_cost
            demand = ServiceLoad(name, rate, *lengths, slo, *costs_of, kv_tokens, found.cached.mean)
            demands.append((demand, self._work(name, view, views)))
        return demands

    def _work(self, service: str, view: PoolView, views: list[PoolView]) -> Work:
        """Pools that do the same share it as their engines are many."""
        serving = [other for other in views if service in other.services]
        prefilling = [other for other in serving if other.pool.role is Role.PREFILL]
        decoding = [other for other in serving if other.pool.role is not Role.PREFILL]
        multiplexing = [other for other in decoding if other.pool.role is Role.MULTIPLEX]
        match view.pool.role:
            case Role.PREFILL:
                return Work(_share(view, prefilling), 0.0)
            case Role.DECODE:
                return Work(0.0, _share(view, decoding))
            case Role.MULTIPLEX:
                return Work(self._left_over(prefilling) * _share(view, multiplexing), _share(view, decoding))

    def _left_over(self, prefilling: list[PoolView]) -> float:
        """The share of prefills that prefill engines cannot do, be there as many as there can."""
        needed = sum(self._sizes[view.pool.name].need.least for view in prefilling)
        most = sum(view.pool.most for view in prefilling)
        return max(0.0, 1 - most / needed) if needed else float(not prefilling)

    def _judge(self, views: list[PoolView], now: float) -> None:
        """What came of the needs that were reckoned, of requests that came and ended in a time without changes."""
        if now - self._judged_at < self._spec.judge_s:
            return
        began_at, self._judged_at = self._judged_at, now
        for name, num_ended, num_late in list(self._observed.judge()):
            attainment = self._topology.service(name).slo.attainment
            for view in views:
                size = self._sizes[view.pool.name]
                is_steady = max(size.changed_at, self._observed.changed_at(name)) <= began_at - self._spec.judge_s
                if name in view.services and is_steady and size.need.least > 0 and not size.problem:
                    tried = view.num_running * size.correction.factor / size.need.least
                    size.correction.judge(num_ended, num_late, attainment, tried)

    # --- what is done -------------------------------------------------------------------------------------------------

    def _scaled(
        self, view: PoolView, statuses: Mapping[str, EngineStatus], now: float, may_stop: bool
    ) -> Iterator[ScaleOrder]:
        pool, size = view.pool, self._sizes[view.pool.name]
        if view.count(EnginePhase.UNKNOWN):
            is_late = now > self._began_at + 2 * self._topology.timing.lease_s
            size.problem = "not all of its supervisors were heard" if is_late else ""
            return
        least = max(pool.least, rounded(size.need.least), self._packed(view, size))
        enough = max(pool.least, rounded(size.need.enough))
        if least > pool.most:
            size.problem = f"{least} engines are needed, there are {pool.most}"
        size.num_wanted = max(min(least, pool.most), min(view.num_running, pool.most))
        if view.num_running <= enough or view.count(EnginePhase.STARTING, EnginePhase.LEAVING) or not may_stop:
            size.low_since = None
        elif size.low_since is None:
            size.low_since = now
        if view.num_running < size.num_wanted:
            yield from self._start(view, size.num_wanted - view.num_running, now)
        elif size.low_since is not None and now - size.low_since >= self._spec.down_after_s:
            size.low_since, size.num_wanted = None, max(enough, view.num_running // 2)
            yield from self._stop(view, statuses, view.num_running - size.num_wanted, now)

    def _packed(self, view: PoolView, size: _Size) -> int:
        """Engines, by gateways whose policy packs: those that serve, and as many more as requests wait for.

        As many as at the last look, too: an engine takes longer to start than requests that only wait their turn.
        """
        wanted = [one for status, _ in self._gateways.values() for one in status.wanted]
        more = sum(one.num_engines for one in wanted if one.role is view.pool.role and one.service in view.services)
        before, size.more = size.more, more
        return view.count(EnginePhase.SERVING) + min(before, more)

    def _start(self, view: PoolView, number: int, now: float) -> Iterator[ScaleOrder]:
        size = self._sizes[view.pool.name]
        able = [engine for engine in view.pool.engines if self._fleet.may_start(engine, now)]
        for engine in able[:number]:
            size.changed_at = now
            yield self._fleet.order(engine, True, now)
        failed = [engine for engine in view.pool.engines if self._fleet.failure(engine) is not None]
        if len(able) < number and failed:
            size.problem = f"{failed[0]} does not start: {self._fleet.failure(failed[0])}"

    def _stop(
        self, view: PoolView, statuses: Mapping[str, EngineStatus], number: int, now: float
    ) -> Iterator[ScaleOrder]:
        """Those that hold least go first; never the last one that serves a service."""
        held = {engine: {service.name for service in status.services} for engine, status in statuses.items()}
        for engine in sorted(view.statuses, key=lambda engine: (view.statuses[engine].num_tokens, engine)):
            others = set[str]().union(*(services for other, services in held.items() if other != engine))
            if number > 0 and held[engine] <= others:
                number -= 1
                del held[engine]
                self._sizes[view.pool.name].changed_at = now
                yield self._fleet.order(engine, False, now)


def _share(view: PoolView, sharing: list[PoolView]) -> float:
    """1 where no engine of any of them runs yet."""
    total = sum(other.num_running for other in sharing)
    return view.num_running / total if total else 1.0
