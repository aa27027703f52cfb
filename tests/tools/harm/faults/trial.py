"""One fault under way: the load beside it, what is done to the mesh, and what came of both."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import cycle
from random import Random
from typing import Any

from mesh.wire.control import Migrate
from tests.tools.harm.clients import Ask, Client
from tests.tools.harm.meshes import MODEL
from tests.tools.harm.relay import Rule
from tests.tools.harm.running import RunningMesh, WaitedInVainError, until
from tests.tools.harm.testimony import Accounts, account_of
from tests.tools.harm.verdict import KILL_GAP_S

LOAD_S = 120.0  # for all answers to end
PROBE_EVERY_S = 0.1
PROBE_HEADERS = {"x-slo-ttft-ms": "2000"}
VOCABULARY = range(256)  # bytes: what the tiny model's tokenizer knows
GREEDY_EVERY, TOKENWISE_EVERY = 3, 2
SHORT_PROMPT, LONG_PROMPT = (16, 400), (1000, 1600)  # tokens: bounds of lengths


class Reference:
    """What answers should be: those of a healthy mesh at that port, which is asked once for each question."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answers: dict[Ask, list[str]] = {}

    async def answer(self, ask: Ask) -> Sequence[str]:
        """Its pieces, as `Client` has them. Raise `RuntimeError` if the healthy mesh does not answer."""
        if ask not in self._answers:
            async with asyncio.timeout(LOAD_S):
                client = await Client("reference", self._port, replace(ask, stream=False)).run()
            if not client.is_whole:
                raise RuntimeError(f"the healthy mesh answered {client.status}: {client.problem}")
            self._answers[ask] = client.pieces
        return self._answers[ask]


@dataclass
class Trial:
    """What a fault works with. ``testimony`` is complete after `finish`; ``broken`` is what did not come true."""

    mesh: RunningMesh
    reference: Reference
    random: Random
    churn_s: float
    is_short: bool = False
    limit_s: float = KILL_GAP_S
    testimony: Accounts = field(default_factory=Accounts)
    broken: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    excused_ports: set[int] = field(default_factory=set)  # of gateways that were killed
    clients: list[Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_streams, self._num_tokens = (6, 150) if self.is_short else (10, 300)  # answers last some seconds
        self._tasks: list[asyncio.Task[Client]] = []
        self._probes: list[Client] = []
        self._probing: list[asyncio.Task[None]] = []
        self._num_asked = 0

    # --- load ---------------------------------------------------------------------------------------------------------

    def asks(
        self, count: int, tokens: int | None = None, prompt: tuple[int, int] = SHORT_PROMPT, *, stream: bool = True
    ) -> list[Ask]:
        """Prompts that share no beginning. Every third is greedy; every second tells its tokens one by one."""
        return [self._ask(tokens or self._num_tokens, prompt, stream=stream) for _ in range(count)]

    def _ask(self, tokens: int, prompt: tuple[int, int], *, stream: bool) -> Ask:
        number = self._num_asked = self._num_asked + 1
        return Ask(
            prompt=tuple(self.random.choices(VOCABULARY, k=self.random.randint(*prompt))),
            max_tokens=tokens,
            seed=self.random.randrange(2**31),
            temperature=0.0 if number % GREEDY_EVERY == 0 else 1.0,
            stream=stream,
            tokenwise=number % TOKENWISE_EVERY == 0,
        )

    def start(
        self,
        asks: Iterable[Ask],
        *,
        headers: Mapping[str, str] | None = None,
        model: str = MODEL,
        is_slow: bool = False,
    ) -> list[Client]:
        """Send them, to all gateways in turn."""
        ports = self.mesh.deployment.ports
        started = [
            Client(f"r{number}", ports[number % len(ports)], ask, model, headers or {}, is_slow)
            for number, ask in enumerate(asks, len(self.clients))
        ]
        self.clients += started
        self._tasks += [asyncio.create_task(client.run()) for client in started]
        return started

    async def background(self, count: int | None = None, *, at_least: int = 8) -> list[Client]:
        """Streams, and some answers that are not streamed, all of them under way."""
        count = count or self.num_streams
        streams = self.start(self.asks(count))
        self.start(self.asks(max(1, count // 4), stream=False))
        await self.decoding(streams, at_least)
        return streams

    async def decoding(self, clients: Sequence[Client], at_least: int = 8) -> None:
        """Until each has so many tokens."""
        await until(
            lambda: all(len(client.pieces) >= at_least or client.is_over for client in clients),
            f"{len(clients)} streams have begun",
        )

    def probe(self) -> None:
        """From now on, a short request every moment through each gateway."""
        asks = self.asks(8, tokens=4, prompt=(4, 8))
        self._probing = [asyncio.create_task(self._probe(port, asks)) for port in self.mesh.deployment.ports]

    async def _probe(self, port: int, asks: Sequence[Ask]) -> None:
        for ask in cycle(asks):
            probe = Client(f"p{len(self._probes)}", port, ask, extra=PROBE_HEADERS)
            self._probes.append(probe)
            await probe.run()
            await asyncio.sleep(PROBE_EVERY_S)

    async def stop_probing(self) -> None:
        for task in self._probing:
            task.cancel()
        await asyncio.gather(*self._probing, return_exceptions=True)
        self._probing = []

    # --- what is done -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def rule(self, rule: Rule) -> AsyncIterator[None]:
        """The relay obeys it meanwhile."""
        assert self.mesh.relay is not None, "this fault needs a mesh with a relay"
        self.mesh.relay.rules.append(rule)
        try:
            yield
        finally:
            self.mesh.relay.rules.remove(rule)
            self.note(**rule.counts)

    def note(self, **counts: int) -> None:
        """Added up over a trial."""
        for name, count in counts.items():
            self.notes[name] = self.notes.get(name, 0) + count

    def expect(self, condition: object, problem: str) -> None:
        if not condition:
            self.broken.append(problem)

    def decoders(self) -> list[str]:
        return [engine for engine in self.mesh.deployment.engines if engine.startswith("decode")]

    def busiest(self) -> str:
        """The decode engine that runs most requests."""
        running = {name: status.num_running for name, status in self.mesh.observer.engines().items()}
        return max(self.decoders(), key=lambda engine: running.get(engine, -1))

    def migrate(self, clients: Iterable[Client]) -> None:
        """Each moves to the other decode engine. Both are told: the one that does not have it does nothing."""
        one, other = self.decoders()
        for client in clients:
            for source, to in ((one, other), (other, one)):
                self.mesh.observer.order(source, Migrate(client.request, to, "chaos"))

    def leave(self, leavers: Sequence[Client], note: str) -> None:
        """These clients go away."""
        for leaver in leavers:
            leaver.leave()
        self.note(**{note: len(leavers)})

    # --- end ----------------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """All answers end, the mesh comes to rest, and everything is compared with the reference."""
        await self.all_over()
        for wait in (self._recovered, self.stop_probing, self.mesh.rest):
            try:
                await wait()
            except WaitedInVainError as error:
                self.broken.append(str(error))
        for client in (*self.clients, *(one for one in self._probes if one.is_over and not one.was_given_up)):
            await self.judge(client)

    async def all_over(self) -> None:
        """Until every client is gone. Those that would stay longer are late, which is a failure."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._tasks, return_exceptions=True), LOAD_S)

    async def _recovered(self) -> None:
        since, ports = time.monotonic(), set(self.mesh.deployment.ports if self._probing else ())
        await until(
            lambda: {one.port for one in self._probes if one.is_whole and one.sent_at >= since} >= ports,
            "a new request is answered through each gateway",
        )

    async def judge(self, client: Client) -> None:
        """Hold what came against what a healthy mesh says."""
        expected = await self.reference.answer(client.ask) if client.pieces else ()
        is_excused, is_timed = client.port in self.excused_ports, not client.is_slow
        self.testimony.hear(account_of(client, expected, is_excused=is_excused, is_timed=is_timed))


Run = Callable[[Trial], Awaitable[None]]
