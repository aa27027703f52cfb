"""What goes wrong in a run and what people do, drawn from its seed: some of some kinds.

Each table has a row for each kind: how many of it there may be, and how one is drawn. All faults end; engines and
gateways that die come back.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from bench.fault_runs.orders import Order
from mesh.wire.control import PolicyChoice, Role
from simulation.faults.faults import (
    Delay,
    Duplicate,
    FailLoad,
    FailSteps,
    Fault,
    Hang,
    Kill,
    Loss,
    Partition,
    Reorder,
    Skew,
    Slow,
    Stall,
)

DURATION_S = 3.0  # of arrivals; faults begin then, too
LONG_S = 30.0  # that an engine or gateway is gone, and the others have to do
MANY, ONCE = (0, 0, 0, 1, 2, 4), (0, 0, 0, 1)


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws from a stream, about these processes."""

    random: Random
    engines: Sequence[str]
    gateways: Sequence[str]
    services: Sequence[str]
    policies: Sequence[str] = ()

    def of(self, *values: float) -> float:
        return self.random.choice(values)

    def moment(self, later_s: float = 0.0) -> float:
        return self.random.uniform(0, DURATION_S + later_s)

    def when(self) -> tuple[float, float]:
        return self.moment(), self.of(0.1, 1.0, 3.0)

    def engine(self) -> str:
        return self.random.choice(self.engines)

    def gateway(self) -> str:
        return self.random.choice(self.gateways)

    def service(self) -> str:
        return self.random.choice(self.services)

    def some(self) -> tuple[str, ...]:
        return tuple(self.random.sample([*self.engines, *self.gateways], self.random.randint(1, 2)))


Thing = Fault | Order
Row = tuple[str, Sequence[int], Callable[[Draw], Thing]]


def drawn(draw: Draw, rows: Sequence[Row]) -> Iterator[tuple[str, Thing]]:
    for kind, counts, make in rows:
        for _ in range(draw.random.choice(counts)):
            yield kind, make(draw)


def _fail_steps(draw: Draw) -> FailSteps:
    probability, for_s = draw.of(0.05, 0.3, 1.0), draw.of(0.5, 2.0)
    return FailSteps(draw.engine(), probability, draw.moment(), for_s)


def _switch(draw: Draw) -> Order:
    choice = PolicyChoice(draw.random.choice(draw.policies), {}, draw.random.choice([1, 2, 3]))
    return Order(draw.moment(1), "policy", draw.gateway(), choice)


FAULTS: Sequence[Row] = (
    ("kill", MANY, lambda d: Kill(d.engine(), d.moment(), d.of(0.001, 0.05, 0.5, 1.5, 3.0))),
    ("death", ONCE, lambda d: Kill(d.engine(), d.moment(), LONG_S)),
    ("hang", MANY, lambda d: Hang(d.random.choice([*d.engines, *d.gateways]), d.moment(), d.of(0.05, 0.5, 1.5, 3.0))),
    ("slow", MANY, lambda d: Slow(d.engine(), d.of(3.0, 20.0), *d.when())),
    ("partition", MANY, lambda d: Partition(d.some(), d.some(), d.moment(), d.of(0.1, 0.9, 1.1, 3.0))),
    ("loss", MANY, lambda d: Loss(d.of(0.01, 0.1, 1.0), d.some(), d.some(), *d.when())),
    ("delay", MANY, lambda d: Delay(d.of(0.03, 0.3, 1.5), d.some(), d.some(), *d.when())),
    ("duplicate", MANY, lambda d: Duplicate(d.of(0.05, 0.5), d.some(), d.some(), *d.when(), d.of(0.05, 1.0, 4.0))),
    ("reorder", MANY, lambda d: Reorder(d.of(0.05, 0.3), d.some(), d.some(), *d.when(), d.of(0.05, 0.5, 2.0))),
    ("skew", MANY, lambda d: Skew(d.engine(), d.of(0.7, 1000.0))),
    ("gateway", ONCE, lambda d: Kill(d.gateway(), d.moment(), d.of(0.001, 0.5, 2.0, LONG_S))),
)
BY_HAND: Sequence[Row] = (
    ("move", (0, 10, 100), lambda d: Order(d.moment(1), "move", d.engine(), pick=d.random.random(), what=d.engine())),
    ("drain", (0, 0, 1, 2), lambda d: Order(d.moment(1), "drain", d.engine(), for_s=d.of(0.2, 1.0, 3.0))),
    ("role", (0, 0, 1, 3), lambda d: Order(d.moment(1), "role", d.engine(), d.random.choice(list(Role)))),
    ("retire", ONCE, lambda d: Order(d.moment(1), "retire", d.engine(), for_s=d.of(0.05, 1.0))),
    ("leave", (0, 0, 2, 8), lambda d: Order(d.moment(1), "leave", pick=d.random.random())),
)
LOADS: Sequence[Row] = (
    (
        "shed",
        (0, 0, 1, 3, 6),
        lambda d: Order(d.moment(), "shed", d.engine(), d.service(), for_s=d.of(0.1, 0.6, 3.0)),
    ),
    ("fail_load", (0, 0, 1), lambda d: FailLoad(d.engine(), d.of(0.3, 1.0), d.moment(), 2.0)),
)
STEPS: Sequence[Row] = (
    ("stall", ONCE, lambda d: Stall(d.engine(), d.moment(), d.of(2.0, 4.0))),
    ("fail_steps", ONCE, _fail_steps),
)
GATEWAYS: Sequence[Row] = (
    ("policy", (0, 0, 1, 4), _switch),
    ("behind", (0, 0, 1, 3), lambda d: Order(d.moment(1), "behind", pick=d.random.random())),
)
DAEMON: Sequence[Row] = (  # its name stands for the engines, and all others for the gateways
    ("daemon", (0, 0, 1, 3), lambda d: Kill(d.engines[0], d.moment(1), d.of(0.001, 0.3, 1.5))),
    ("daemon", (0, 0, 1), lambda d: Hang(d.engines[0], d.moment(), d.of(0.5, 3.0))),
    ("daemon", (0, 0, 1), lambda d: Loss(d.of(0.1, 0.5), tuple(d.engines), tuple(d.gateways), d.moment(), 2.0)),
)
KINDS = (*(row[0] for row in FAULTS), "fail_load", "daemon", *(row[0] for row in STEPS))
ORDERS = (
    *("move", "drain", "role", "retire", "leave", "rescheduling", "shed", "placement"),
    *("policy", "behind", "retire_gateway", "pace"),
)


def draw_all(seed: int, main: Draw, kinds: Collection[str], daemon: str | None, plans: Random) -> list[Thing]:
    """All that goes wrong and is done, of these kinds. ``main`` is the stream of the scenario itself."""

    def stream(name: str) -> Draw:
        return replace(main, random=Random(f"{seed}/{name}"))

    gateways = stream("gateways")
    found = [*drawn(main, FAULTS), *drawn(main, BY_HAND)]
    found += drawn(stream("loads"), [row for row in LOADS if row[0] in kinds])
    found += [*drawn(stream("steps"), STEPS), *drawn(gateways, GATEWAYS)]
    if gateways.random.random() < 0.2:
        order = Order(gateways.moment(1), "retire_gateway", gateways.gateway(), for_s=gateways.of(0.05, 1.0))
        found.append((order.kind, order))
    if daemon is not None and "daemon" in kinds:
        found += drawn(Draw(plans, [daemon], [*main.engines, *main.gateways], ()), DAEMON)
    return [thing for kind, thing in found if kind in kinds]
