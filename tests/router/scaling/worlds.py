"""A fleet whose engines start and end as they are told, and services that are asked for at some rate."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random

from mesh.topology.parse import load
from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.status import (
    ChildStatus,
    DecodeCost,
    EngineStatus,
    GatewayStatus,
    PrefillCost,
    ServiceStatus,
    ServiceTally,
    SupervisorStatus,
    Wanted,
)
from router.placement.observe.traffic import Moments
from router.scaling.need import ServiceLoad, Work, engines_needed
from router.scaling.scaler import Scaler

TICK_S = 0.5
START_S, LEAVE_S = 10.0, 5.0
PREFILL = PrefillCost(fixed_s=0.01, per_token_s=0.0001)
DECODE = DecodeCost(fixed_s=0.01, per_request_s=0.001)
NUM_INPUT, NUM_OUTPUT = 500, 101
BLOCKS = 4000
TOPOLOGY = """
[services.chat]
model = "m"
ttft_ms = 1000
tpot_ms = 50
[engines.all]
count = {count}
standby = {standby}
at_least = 1
[placement]
mode = "off"
[scaling]
interval_ms = 1000
{scaling}
"""


def write(folder: Path, count: int = 12, standby: int = 11, scaling: str = "", text: str = TOPOLOGY) -> Path:
    path = folder / "t.toml"
    path.write_text(text.format(count=count, standby=standby, scaling=scaling))
    return path


class World:
    """``truth``: engines that are really needed, in engines that are reckoned. Broken engines never start."""

    def __init__(self, path: Path, seed: int = 0, truth: float = 1.0) -> None:
        self.topology = load(path)
        self.now = 0.0
        self.truth = truth
        self.rate = 0.0
        self.broken: set[str] = set()
        self.services = {spec.id: list(spec.services) for spec in self.topology.engines}
        self.waiting = 0
        self.wanted = 0  # engines that a policy that packs asks for
        self.used = 0.0  # of KV memory
        self.promised_tpot_s = self.topology.service("chat").slo.tpot_s
        self.num_cached = 0  # tokens of a prompt
        self.scaler = Scaler(self.topology, self.now)
        self.children = {spec.id: "standby" if spec.is_standby else "running" for spec in self.topology.engines}
        self.due: dict[str, float] = {}  # when an engine that starts or leaves is there
        self.orders: list[tuple[float, str, bool]] = []
        self.is_heard = True
        self.gateway_is_alive = True
        self._random = Random(seed)
        self._tally = ServiceTally("chat")
        self._started: list[str] = []

    @property
    def running(self) -> list[str]:
        return [engine for engine, state in self.children.items() if state == "running"]

    @property
    def num_changes(self) -> int:
        return len(self.orders)

    def need(self) -> float:
        """Engines."""
        slo = replace(self.topology.service("chat").slo, tpot_s=self.promised_tpot_s)
        lengths = Moments(NUM_INPUT, 0.0), Moments(NUM_OUTPUT, 0.0)
        demand = ServiceLoad("chat", self.rate, *lengths, slo, PREFILL, DECODE, BLOCKS * 16, self.num_cached)
        return self.truth * engines_needed([(demand, Work())])

    def run(self, seconds: float, rate: Callable[[float], float] | float | None = None) -> None:
        """``rate``: of now, requests a second, or by seconds from now on."""
        began = self.now
        while self.now < began + seconds:
            if rate is not None:
                self.rate = rate(self.now - began) if callable(rate) else rate
            self._tick()

    def _tick(self) -> None:
        self.now += TICK_S
        for engine, due in list(self.due.items()):
            if self.now >= due:
                del self.due[engine]
                is_up = self.children[engine] == "starting" and engine not in self.broken
                self.children[engine] = "running" if is_up else "standby"
        self._serve()
        for sender, status in self._statuses():
            self.scaler.hear(sender, status, self.now)
        for order in self.scaler.decide(self.now).orders:
            engine, running = order.message.process, order.message.running
            assert order.supervisor == "supervisor-local"
            self.orders.append((self.now, engine, running))
            self.ask(engine, running)

    def ask(self, engine: str, running: bool) -> None:
        """As a supervisor does."""
        self.children[engine] = "starting" if running else "leaving"
        self.due[engine] = self.now + (START_S if running else LEAVE_S)

    def _serve(self) -> None:
        came = self._poisson(self.rate * TICK_S)
        late = came if len(self.running) < self.need() else self._poisson(0.01 * came)
        before = self._tally
        self._tally = ServiceTally(
            "chat", before.arrived + came, before.input_tokens + came * NUM_INPUT,
            before.input_squares + came * NUM_INPUT**2, before.ended + came, before.late + min(came, late),
            before.answered + came, before.output_tokens + came * NUM_OUTPUT,
            before.output_squares + came * NUM_OUTPUT**2,
            promised_ttft_s=before.promised_ttft_s + came * self.topology.service("chat").slo.ttft_s,
            promised_tpot_s=before.promised_tpot_s + came * self.promised_tpot_s,
            cached_tokens=before.cached_tokens + came * self.num_cached,
        )  # fmt: skip

    def _poisson(self, mean: float) -> int:
        limit, product, number = exp(-mean), self._random.random(), 0
        while product > limit:
            product *= self._random.random()
            number += 1
        return number

    def _statuses(self) -> Iterator[tuple[Sender, EngineStatus | GatewayStatus | SupervisorStatus]]:
        if self.is_heard:
            children = [
                ChildStatus(engine, "engine", 1, state, 0, "no model" if engine in self.broken else None)
                for engine, state in self.children.items()
            ]
            yield Sender("supervisor-local", 1), SupervisorStatus(1, "local", 1, children)
        for engine in self.running:
            yield Sender(engine, 1), self._engine(engine)
        if not self.gateway_is_alive:
            return
        services = [self._tally] if self._tally.arrived else []
        wanted = [Wanted("chat", Role.MULTIPLEX, 3, self.wanted)] if self.wanted else []
        gateway = GatewayStatus(
            1, ProcessState.READY, "local", 1, "", 0, self.waiting, services=services, wanted=wanted
        )
        yield Sender("gateway", 1), gateway

    def _engine(self, engine: str) -> EngineStatus:
        num_free = round(BLOCKS * (1 - self.used / len(self.running)))
        services = [
            ServiceStatus(name, BLOCKS, num_free, 16, PREFILL, DECODE, freeness=num_free * 16.0)
            for name in self.services[engine]
        ]
        return EngineStatus(
            seq=1, state=ProcessState.READY, role=self.topology.engine(engine).role, host="local", pid=1,
            services=services, num_running=0, num_waiting=0, num_tokens=(BLOCKS - num_free) * 16,
            prefill_remaining_s=0.0, prefill_waiting_s=0.0, decode_step_s=0.0, min_slack_s=None,
        )  # fmt: skip
