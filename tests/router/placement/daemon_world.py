"""A mesh that a placement daemon watches: engines that load and unload, gateways that count, statuses that get lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean

from msgspec.structs import replace

from mesh.rules import PlacementMode
from mesh.topology.schema import EngineSpec, GatewaySpec, PlacementSpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Announce, EnginePlace, LoadService, ProcessState, Role, SetRole, UnloadService
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import FailedLoad, GatewayStatus, ServiceTally
from router.history.marks import MarkKeeper
from router.placement.change.changeover import Order
from router.placement.daemon import Doing, PlacementDaemon
from router.placement.effects import Abandon, Ask, Effect, Note, Tell
from router.placement.observe.requirements import PlacementError
from router.placement.search.question import Question, SearchFailed, answer
from tests.router.cluster import M0, make_status
from tests.router.placement.worlds import Fluid

STEP_S = 0.2
LOAD_S = 2.0
SEARCH_S = 3.0
DAEMON = "placement"
LENGTH = 10
MOST_AT_ONCE = 3  # times that the daemon may want its turn again at once


class FluidEvaluators:
    def __init__(self, capacity: float) -> None:
        self._capacity = capacity

    def evaluator(self, catalogue, traffic, slos, conduct):
        return Fluid(traffic, self._capacity)

    def close(self) -> None:
        pass


@dataclass
class Engine:
    """As its statuses show it. What is ordered is done at once, but for loading."""

    id: str
    own: tuple[str, ...]
    incarnation: int = 1
    services: list[str] = field(default_factory=list)
    loading: dict[str, float] = field(default_factory=dict)  # until when
    role: Role = Role.MULTIPLEX
    num_role_changes: int = 0
    place: EnginePlace | None = None
    failed: list[FailedLoad] = field(default_factory=list)
    num_failed: int = 0
    is_broken: bool = False  # it cannot load anything
    fails_after_s: float = 0.0  # if it is
    weight_memory: int | None = None  # bytes; each service takes one
    drains_s: float = 0.0  # what a service that leaves takes to end what it has
    leaving: dict[str, float] = field(default_factory=dict)  # until when
    dead_until: float | None = None
    seq: int = 0

    def __post_init__(self) -> None:
        self.services = list(self.own)

    def status(self, now: float):
        for name, until in list(self.loading.items()):
            if now >= until:
                del self.loading[name]
                if self.is_broken:
                    self.fail(name)
                else:
                    self.services.append(name)
                    self.failed = [one for one in self.failed if one.service != name]
        self.leaving = {name: until for name, until in self.leaving.items() if now < until}
        self.seq += 1
        status = make_status(M0, self.seq, services=sorted({*self.services, *self.leaving}))
        return replace(
            status,
            services=[
                replace(service, weight_bytes=1, is_leaving=service.name in self.leaving) for service in status.services
            ],
            weight_memory=self.weight_memory,
            role=self.role,
            num_role_changes=self.num_role_changes,
            place=self.place,
            loading=list(self.loading),
            failed_loads=list(self.failed),
        )

    def obey(self, order: Order, now: float) -> None:
        match order:
            case Announce(place) if self.place is None or place.number >= self.place.number:
                self.place = place
            case LoadService(name) if self.is_broken and not self.fails_after_s:
                self.fail(name)
            case LoadService(name) if name in self.leaving:
                del self.leaving[name]
                self.services.append(name)
            case LoadService(name) if name not in self.services and name not in self.loading:
                self.loading[name] = now + (self.fails_after_s if self.is_broken else LOAD_S)
            case UnloadService(name) if name in self.services:
                self.services.remove(name)
                self.leaving.update({name: now + self.drains_s} if self.drains_s else {})
            case SetRole(role, number) if number == self.num_role_changes:
                self.role, self.num_role_changes = role, number + 1

    def fail(self, name: str) -> None:
        self.num_failed += 1
        self.failed = [one for one in self.failed if one.service != name]
        self.failed.append(FailedLoad(name, "its weights are corrupt", self.num_failed))

    def restart(self) -> None:
        self.incarnation += 1
        self.services, self.loading, self.place, self.role = list(self.own), {}, None, Role.MULTIPLEX
        self.leaving = {}
        self.failed, self.num_failed, self.num_role_changes, self.seq, self.dead_until = [], 0, 0, 0, None


class Gateway:
    """Requests of each service come evenly."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.incarnation = 1
        self.marks = MarkKeeper()
        self.waiting: dict[str, int] = {}  # requests of each service that came and do not end
        self._counts: dict[str, float] = {}
        self._late: dict[str, float] = {}

    def serve(self, rates: dict[str, float], served: dict[str, float], seconds: float) -> None:
        for name, rate in rates.items():
            self._counts[name] = self._counts.get(name, 0.0) + rate * seconds
            self._late[name] = self._late.get(name, 0.0) + rate * seconds * (1 - served[name])

    def tallies(self) -> list[ServiceTally]:
        return [self._tally(name, int(count)) for name, count in self._counts.items()]

    def _tally(self, name: str, count: int) -> ServiceTally:
        tokens, squares, late = count * LENGTH, count * LENGTH**2, int(self._late[name])
        arrived = count + self.waiting.get(name, 0)
        return ServiceTally(name, arrived, tokens, squares, count, late, count, tokens, squares, 0.2 * count)

    def status(self, now: float) -> GatewayStatus:
        state, mark = ProcessState.READY, self.marks.mark(now)
        return GatewayStatus(1, state, "local", 1, "", 0, 0, services=self.tallies(), mark=mark)


class World:
    """``loss``: of statuses and orders. Late ones are heard up to a second later, some of them twice."""

    def __init__(
        self,
        held: dict[str, Sequence[str]],
        seed: int = 0,
        *,
        loss: float = 0.0,
        mode: PlacementMode = PlacementMode.APPLY,
        num_gateways: int = 2,
        capacity: float = 5.0,
        **spec: float,
    ) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.loss = loss
        self.capacity = capacity
        self.engines = {name: Engine(name, tuple(services)) for name, services in held.items()}
        self.gateways = [Gateway(f"g{number}") for number in range(num_gateways)]
        names = sorted({name for services in held.values() for name in services})
        self.topology = Topology(
            "world",
            Path("world.toml"),
            tuple(ServiceSpec(name, "m", Slo(1.0, 0.1)) for name in names),
            tuple(EngineSpec(name, Role.MULTIPLEX, tuple(services)) for name, services in held.items()),
            tuple(GatewaySpec(one.id) for one in self.gateways),
            placement=PlacementSpec(mode=mode, **{"interval_s": 20.0, "shortest_s": 10.0, "longest_s": 80.0, **spec}),  # type: ignore[arg-type]
        )
        self.rates: dict[str, float] = {}
        self.notes: list[str] = []
        self.told: list[tuple[str, Order]] = []
        self.asked: list[Question] = []
        self.searches_fail = False
        self.nobody_answers = False
        self.incarnation = 0
        self.daemon = self.new_daemon()
        self._searches: list[tuple[float, int, Question]] = []
        self._late: list[tuple[float, Sender, BroadcastMessage]] = []

    def new_daemon(self) -> PlacementDaemon:
        """Its predecessor, if there was one, is dead."""
        self.incarnation += 1
        self._searches: list[tuple[float, int, Question]] = []
        self.daemon = PlacementDaemon(self.topology, self.now)
        return self.daemon

    # --- what happens -------------------------------------------------------------------------------------------------

    def ask_for(self, **rates: float) -> None:
        """Requests a second of each service, from now on."""
        self.rates = rates

    def kill(self, engine: str, for_s: float) -> None:
        self.engines[engine].dead_until = self.now + for_s

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()

    def until(self, condition, limit_s: float = 300.0) -> None:
        deadline = self.now + limit_s
        while not condition():
            assert self.now < deadline, f"did not come true: {self.daemon}, {self.notes[-5:]}"
            self.step()

    def step(self) -> None:
        self.now += STEP_S
        self._serve()
        for engine in self.engines.values():
            if engine.dead_until is not None and self.now >= engine.dead_until:
                engine.restart()
            if engine.dead_until is None:
                self._say(Sender(engine.id, engine.incarnation), engine.status(self.now))
        for gateway in self.gateways:
            self._say(Sender(gateway.id, gateway.incarnation), gateway.status(self.now))
        self._hear_late()
        for at, number, question in [one for one in self._searches if one[0] <= self.now]:
            self._searches.remove((at, number, question))
            self.perform(self.daemon.answered(number, self._answer(question), self.now))
        for _ in range(MOST_AT_ONCE):
            if self.now >= self.daemon.next_deadline():
                self.perform(self.daemon.expire(self.now))
        assert self.now < self.daemon.next_deadline(), "it would call itself without end"
        self._tell_gateways(self.daemon.status(self.now))

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Ask(question):
                    self.asked.append(question)
                    if not self.nobody_answers:
                        self._searches.append((self.now + SEARCH_S, question.number, question))
                case Abandon(number):
                    self._searches = [one for one in self._searches if one[1] != number]
                case Tell(engine, order):
                    self.told.append((engine, order))
                    if not self._is_lost() and self.engines[engine].dead_until is None:
                        self.engines[engine].obey(order, self.now)
                case Note(line):
                    self.notes.append(line)

    def _answer(self, question: Question):
        if self.searches_fail:
            return SearchFailed("no such weather")
        try:
            return answer(question, FluidEvaluators(self.capacity), lambda done: done >= 4)
        except PlacementError as error:
            return SearchFailed(str(error))

    def _serve(self) -> None:
        """Requests of a service are divided among its engines; an engine is late with what is more than it can do."""
        holding = {name: [one for one in self.engines.values() if name in one.services] for name in self.rates}
        alive = {name: [one for one in those if one.dead_until is None] for name, those in holding.items()}
        load = dict.fromkeys(self.engines, 0.0)
        for name, engines in alive.items():
            for engine in engines:
                load[engine.id] += self.rates[name] / len(engines) / self.capacity
        served = {
            name: fmean([1 / max(1.0, load[engine.id]) for engine in engines]) if engines else 0.0
            for name, engines in alive.items()
        }
        for gateway in self.gateways:
            gateway.serve({name: rate / len(self.gateways) for name, rate in self.rates.items()}, served, STEP_S)

    def _is_lost(self) -> bool:
        return self.random.random() < self.loss

    def _say(self, sender: Sender, status: BroadcastMessage) -> None:
        if self._is_lost():
            return
        self.daemon.hear(sender, status, self.now)
        if self.loss and self.random.random() < 0.1:
            self._late.append((self.now + self.random.random(), sender, status))

    def _hear_late(self) -> None:
        for one in [one for one in self._late if one[0] <= self.now]:
            self._late.remove(one)
            self.daemon.hear(*one[1:], self.now)

    def _tell_gateways(self, status: PlacementStatus) -> None:
        for gateway in self.gateways:
            if not self._is_lost():
                gateway.marks.hear(status, gateway.tallies(), self.now)

    # --- what is so ---------------------------------------------------------------------------------------------------

    def held(self) -> dict[str, list[str]]:
        return {name: sorted(engine.services) for name, engine in self.engines.items()}

    def served(self) -> set[str]:
        return {name for engine in self.engines.values() if engine.dead_until is None for name in engine.services}

    def status(self) -> PlacementStatus:
        return self.daemon.status(self.now)

    @property
    def is_at_rest(self) -> bool:
        return self.daemon.doing in (Doing.LISTENING, Doing.SEARCHING)
