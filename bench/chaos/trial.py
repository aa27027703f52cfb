"""One scenario under way: its load, its fault, and what came of both."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import Any

from bench.chaos.client import Ask, Client, Visit, fetch
from bench.chaos.deployment import MAX_CONTEXT, MODEL, Backend
from bench.chaos.reference import Reference
from bench.chaos.rules import Rule
from bench.chaos.running import POLL_S, RunningMesh, WaitedInVainError, until
from bench.chaos.verdict import GAP_LIMIT_S, Tally, recovery_s
from mesh.wire.control import Migrate
from router.api.http.server import ADMIN_PORT_OFFSET

LOAD_S = 120.0  # for all answers to end
PROBE_EVERY_S = 0.1
PROBE_TTFT_MS = 2000
VOCABULARY = range(256)  # bytes: what the tiny model's tokenizer knows
GREEDY_EVERY, TOKENWISE_EVERY = 3, 2


@dataclass(frozen=True, slots=True)
class Effort:
    """How much load: streams at once, tokens of an answer. ``is_quick``: the short form.

    ``only_greedy``: nothing is sampled. In torch, a batch of another size rounds otherwise, and one sampled token in
    some ten thousands is another one then; modelled engines are exact.
    """

    streams: int
    tokens: int
    is_quick: bool
    only_greedy: bool

    @classmethod
    def of(cls, backend: Backend, *, is_quick: bool) -> "Effort":
        """Answers that last some seconds: a modelled step takes 15 ms, one of the tiny model some 5."""
        tokens, only_greedy = (300, False) if backend is Backend.SIMULATED else (800, True)
        streams = 6 if is_quick else 10
        return cls(streams, tokens // 2 if is_quick else tokens, is_quick, only_greedy)


@dataclass
class Trial:
    """What a scenario works with. ``tally`` is complete after `finish`."""

    mesh: RunningMesh
    reference: Reference
    random: Random
    effort: Effort
    churn_s: float
    gap_limit_s: float = GAP_LIMIT_S
    tally: Tally = field(default_factory=Tally)
    notes: dict[str, Any] = field(default_factory=dict)
    stories: list[dict[str, Any]] = field(default_factory=list)
    excused_ports: set[int] = field(default_factory=set)  # of gateways that were killed
    fault_at: float | None = None
    ready_at: float | None = None
    recovery_s: float | None = None

    def __post_init__(self) -> None:
        self.clients: list[Client] = []
        self._tasks: dict[str, asyncio.Task[Visit]] = {}
        self._probes: list[Visit] = []
        self._untimed: set[str] = set()
        self._probing: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._num_asked = 0
        self._is_finished = False

    # --- load ---------------------------------------------------------------------------------------------------------

    def asks(
        self, count: int, *, tokens: int | None = None, prompt: tuple[int, int] = (16, 400), stream: bool = True
    ) -> list[Ask]:
        """Prompts that share no beginning. Every third is greedy; every second tells its tokens one by one."""
        asks = []
        for _ in range(count):
            number = self._num_asked = self._num_asked + 1
            length = self.random.randint(*prompt)
            asks.append(
                Ask(
                    prompt=tuple(self.random.choices(VOCABULARY, k=length)),
                    max_tokens=tokens or self.effort.tokens,
                    seed=self.random.randrange(2**31),
                    temperature=0.0 if self.effort.only_greedy or number % GREEDY_EVERY == 0 else 1.0,
                    stream=stream,
                    tokenwise=number % TOKENWISE_EVERY == 0,
                )
            )
        return asks

    def start(
        self,
        asks: Iterable[Ask],
        *,
        headers: Mapping[str, str] | None = None,
        model: str = MODEL,
        is_slow: bool = False,
    ) -> list[Client]:
        """Send them, to all gateways in turn."""
        ports, started = self.mesh.deployment.ports, []
        for ask in asks:
            number = len(self.clients)
            client = Client(Visit(f"r{number}", ports[number % len(ports)], ask), model, headers, is_slow=is_slow)
            self.clients.append(client)
            started.append(client)
            self._tasks[client.visit.name] = asyncio.create_task(client.run())
        if is_slow:
            self._untimed |= {client.visit.name for client in started}
        return started

    async def background(self, count: int | None = None, *, at_least: int = 8) -> list[Client]:
        """Streams, and some answers that are not streamed, all of them under way."""
        count = count or self.effort.streams
        streams = self.start(self.asks(count))
        self.start(self.asks(max(1, count // 4), stream=False))
        await self.decoding(streams, at_least)
        return streams

    async def decoding(self, clients: Sequence[Client], at_least: int = 8) -> None:
        """Until each has so many tokens."""
        await until(
            lambda: all(len(client.visit.pieces) >= at_least or client.visit.is_over for client in clients),
            f"{len(clients)} streams have begun",
        )

    def probe(self) -> None:
        """From now on, a short request every moment through each gateway."""
        asks = self.asks(8, tokens=4, prompt=(4, 8))
        self._probing = [asyncio.create_task(self._probe(port, asks)) for port in self.mesh.deployment.ports]

    async def _probe(self, port: int, asks: Sequence[Ask]) -> None:
        headers = {"x-slo-ttft-ms": str(PROBE_TTFT_MS)}
        for ask in cycle(asks):
            visit = Visit(f"p{len(self._probes)}", port, ask)
            self._probes.append(visit)
            await Client(visit, MODEL, headers).run()
            await asyncio.sleep(PROBE_EVERY_S)

    async def stop_probing(self) -> None:
        for task in self._probing:
            task.cancel()
        await asyncio.gather(*self._probing, return_exceptions=True)
        self._probing = []

    # --- fault --------------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        """It happens now."""
        self.fault_at = self.ready_at = time.monotonic()
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Note when a process was last seen not to be ready."""
        observer, deployment = self.mesh.observer, self.mesh.deployment
        while True:
            if not all(map(observer.is_ready, deployment.supervised)):
                self.ready_at = time.monotonic()
            await asyncio.sleep(POLL_S)

    @asynccontextmanager
    async def rule(self, rule: Rule) -> AsyncIterator[None]:
        """The relay obeys it meanwhile."""
        assert self.mesh.relay is not None, "this scenario needs a mesh with a relay"
        self.mesh.relay.rules.append(rule)
        try:
            yield
        finally:
            self.mesh.relay.rules.remove(rule)
            self.note(**rule.counts)

    def note(self, **counts: int) -> None:
        """Added up over a scenario."""
        for name, count in counts.items():
            self.notes[name] = self.notes.get(name, 0) + count

    def expect(self, condition: object, problem: str) -> None:
        if not condition:
            self.tally.complain(problem)

    def decoders(self) -> list[str]:
        return [engine for engine in self.mesh.deployment.engines if engine.startswith("decode")]

    def busiest(self, engines: Collection[str]) -> str:
        """The one that runs most requests."""

        def load(engine: str) -> int:
            status = self.mesh.observer.engine(engine)
            return status.num_running if status else -1

        return max(engines, key=load)

    def migrate(self, clients: Iterable[Client]) -> None:
        """Each moves to the other decode engine. Both are told: the one that does not have it does nothing."""
        one, other = self.decoders()
        for client in clients:
            for source, to in ((one, other), (other, one)):
                self.mesh.observer.order(source, Migrate(client.visit.request, to, "chaos"))

    # --- end ----------------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """All answers end, the mesh comes to rest, and everything is compared with the reference."""
        if self._is_finished:
            return
        self._is_finished = True
        await self.all_over()
        await self._recovered()
        await self.stop_probing()
        await self._tell_stories()
        try:
            await self.mesh.rest()
        except WaitedInVainError as error:
            self.tally.complain(str(error))
        if self._watching is not None:
            self._watching.cancel()
        await self.count()

    async def all_over(self, limit_s: float = LOAD_S) -> None:
        """Until every client is gone. Those that would stay longer are late, which is a failure."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=limit_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _recovered(self) -> None:
        """Wait for the probes that recovery is measured by."""
        if self.fault_at is None or not self._probing:
            return
        fault_at = self.fault_at

        def measured() -> bool:
            visits = [client.visit for client in self.clients if self._is_measured(client.visit)]
            self.recovery_s = recovery_s(fault_at, visits, self._probes, self.mesh.deployment.ports)
            return self.recovery_s is not None

        try:
            await until(measured, "a new request is answered through each gateway")
        except WaitedInVainError as error:
            self.tally.complain(str(error))

    def _is_measured(self, visit: Visit) -> bool:
        """Neither of a gateway that was killed, nor of a client that did not read."""
        return visit.port not in self.excused_ports and visit.name not in self._untimed

    async def _tell_stories(self) -> None:
        """What the gateways know of requests that stood still for too long."""
        for visit in [client.visit for client in self.clients]:
            longest = max(visit.gaps(), key=lambda gap: gap[1], default=(0.0, 0.0))
            if longest[1] >= self.gap_limit_s and self._is_measured(visit):
                story = await fetch(visit.port + ADMIN_PORT_OFFSET, f"/mesh/requests/{visit.request}")
                self.stories.append(
                    {"request": visit.request, "gap": [longest[0] - visit.sent_at, longest[1]], "story": story}
                )

    async def count(self) -> None:
        """Hold all that came against what a healthy mesh says, and forget it."""
        visits = [client.visit for client in self.clients]
        probes = [probe for probe in self._probes if probe.is_over and not self._was_cut(probe)]
        for visit in (*visits, *probes):
            expected = await self.reference.answer(visit.ask) if visit.pieces else ()
            is_excused = visit.port in self.excused_ports
            self.tally.take(visit, expected, is_excused=is_excused, is_timed=visit.name not in self._untimed)
        self.clients.clear()
        self._probes.clear()
        self._tasks.clear()
        self.reference.forget()

    @staticmethod
    def _was_cut(probe: Visit) -> bool:
        """Given up by its own client when the scenario ended."""
        return not probe.is_whole and probe.problem is None and probe.status in (None, 200)

    def too_long(self, count: int) -> list[Ask]:
        """Prompts of twice the limit."""
        return self.asks(count, tokens=8, prompt=(2 * MAX_CONTEXT, 2 * MAX_CONTEXT))

    async def ask_once(self, ask: Ask) -> Visit:
        """Apart from the load: its answer is the scenario's to judge."""
        return await Client(Visit("apart", self.mesh.deployment.ports[0], ask), MODEL).run()
