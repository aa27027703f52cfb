"""What goes wrong in a run and what people do, drawn from its seed by the rows of ``draws.toml``.

All faults end; engines and gateways that die come back.
"""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from mesh.wire.control import PolicyChoice, Role
from simulation.faults import faults
from simulation.faults.faults import Fault
from tests.tools.fault_runs.orders import Order

DURATION_S = 3.0  # of arrivals; faults begin then, too
LONG_S = 30.0  # that an engine or gateway is gone, and the others have to do
RETIREMENTS = 0.2  # of runs in which a gateway retires

Thing = Fault | Order
Row = Mapping[str, Any]
ROWS: Mapping[str, list[Row]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
KINDS = (*(row["kind"] for row in ROWS["faults"]), "fail_load", "daemon", *(row["kind"] for row in ROWS["steps"]))
ORDERS = (
    *("move", "drain", "role", "retire", "leave", "rescheduling", "late", "shed", "pause", "placement", "drafts"),
    *("policy", "behind", "retire_gateway", "pace", "adapters", "fillers", "disciplines", "slices", "flips", "tiers"),
    *("swaps", "spans", "scaling"),
)


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws from a stream, about these processes."""

    random: Random
    engines: Sequence[str]
    gateways: Sequence[str]
    services: Sequence[str]
    policies: Sequence[str] = ()
    daemon: str = ""

    def things(self, rows: Sequence[Row]) -> Iterator[tuple[str, Thing]]:
        """With their kinds."""
        for row in rows:
            for _ in range(self.random.choice(row["counts"])):
                yield row["kind"], self.thing(**row)

    def thing(self, kind: str, counts: object = None, of: str | None = None, **how: Any) -> Thing:
        drawn = {name: self._value(value) for name, value in how.items()}
        return Order(kind=kind, **drawn) if of is None else getattr(faults, of)(**drawn)

    def _value(self, how: Any) -> Any:
        if isinstance(how, list):
            return self.random.choice(how)
        return WORDS[how](self) if isinstance(how, str) else how


WORDS: Mapping[str, Callable[[Draw], Any]] = {
    "engine": lambda draw: draw.random.choice(draw.engines),
    "gateway": lambda draw: draw.random.choice(draw.gateways),
    "process": lambda draw: draw.random.choice([*draw.engines, *draw.gateways]),
    "some": lambda draw: tuple(draw.random.sample([*draw.engines, *draw.gateways], draw.random.randint(1, 2))),
    "everyone": lambda draw: (*draw.engines, *draw.gateways),
    "daemon": lambda draw: draw.daemon,
    "daemons": lambda draw: (draw.daemon,),
    "service": lambda draw: draw.random.choice(draw.services),
    "role": lambda draw: draw.random.choice(list(Role)),
    "policy": lambda draw: PolicyChoice(draw.random.choice(draw.policies), {}, draw.random.choice([1, 2, 3])),
    "moment": lambda draw: draw.random.uniform(0, DURATION_S),
    "late": lambda draw: draw.random.uniform(0, DURATION_S + 1),
    "part": lambda draw: draw.random.random(),
}


def draw_all(seed: int, main: Draw, kinds: Collection[str], plans: Random) -> list[Thing]:
    """All that goes wrong and is done, of these kinds. ``main`` is the stream of the scenario itself."""

    def stream(name: str) -> Draw:
        return replace(main, random=Random(f"{seed}/{name}"))

    gateways = stream("gateways")
    found = [*main.things(ROWS["faults"]), *main.things(ROWS["by_hand"])]
    found += stream("loads").things([row for row in ROWS["loads"] if row["kind"] in kinds])
    found += [*stream("steps").things(ROWS["steps"]), *gateways.things(ROWS["gateways"])]
    if gateways.random.random() < RETIREMENTS:
        found += [(row["kind"], gateways.thing(**row)) for row in ROWS["retirements"]]
    if main.daemon and "daemon" in kinds:
        found += replace(main, random=plans).things(ROWS["daemon"])
    return [thing for kind, thing in found if kind in kinds]
