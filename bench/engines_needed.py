"""How many engines keep the promise at a rate of requests: packing beside what does not pack (Aladdin, figures 11, 12).

    python -m bench.engines_needed [--models llama2-7b ...] [--device a100] [--split] [--rates 5 10 20] [--percent 99]

SLOs are Aladdin's (table 2): a promise counts as kept if so many percent of the requests get both their first token and
their tokens in time. Requests come at random (Poisson), with ShareGPT's lengths as Llumnix's table has them, and those
of the first ``--warm-up`` seconds are served, but not counted. Of each contender the fewest engines are searched for
that keep the promise, by doubling and halving. ``default``: what the paper calls default vLLM, the largest parallelism
and the fewest requests first; the others have the parallelism that equation 6 calls best (`mesh advise`). With
``--split``, prefill engines are so many that they are never short, and decode engines are counted, as in the paper.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from bench.simulation.arrivals import Arrivals, synthesize
from bench.simulation.cluster import Simulation
from bench.simulation.experiment import rare_collections
from bench.simulation.physics import Physics
from bench.simulation.quiet import quiet_engines
from bench.simulation.trace_request import TraceRequest
from bench.simulation.workload import SloRule
from bench.simulation.workload_lengths import PREFIX, described_lengths
from engines.costs import prefill_s
from engines.profiles import load_profile
from mesh.messages import Role
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Rescheduling, ServiceSpec, Slo, Topology, Trigger
from router.records import Record

SERVICE = "chat"
SLOS = {  # TTFT and TPOT by device and model: table 2
    ("a100", "llama2-7b"): Slo(0.4, 0.015),
    ("a100", "llama2-13b"): Slo(0.6, 0.030),
    ("a100", "llama2-70b"): Slo(1.6, 0.075),
    ("v100", "llama2-7b"): Slo(0.8, 0.030),
    ("v100", "llama2-13b"): Slo(0.8, 0.050),
}
BEST = {  # devices an engine: table 3
    ("a100", "llama2-7b"): 1,
    ("a100", "llama2-13b"): 1,
    ("a100", "llama2-70b"): 2,
    ("v100", "llama2-7b"): 1,
    ("v100", "llama2-13b"): 2,
}
CONTEXT = 4096  # tokens of a request at most: Llama 2's
LARGEST = 4  # devices of the paper's machines
MOST_ENGINES = 128
PREFILL_SHARE = 0.5  # of the time that a prefill engine may be busy, where they are not to be short
CHUNK_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Contender:
    """``is_default``: on engines of the largest parallelism."""

    name: str
    policy: PolicySpec
    is_default: bool = False
    reschedules: bool = False


CONTENDERS = (
    Contender("default", PolicySpec("join_shortest_queue"), is_default=True),
    Contender("JSQ", PolicySpec("join_shortest_queue")),
    Contender("power of two", PolicySpec("power_of_two")),
    Contender("packing", PolicySpec("packing")),
    Contender("packing, in slack", PolicySpec("packing", {"prefill": "slack"})),
    Contender("packing, moving", PolicySpec("packing"), reschedules=True),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """``percent`` of the requests after ``warm_up_s`` are to meet both promises."""

    device: str
    model: str
    rate: float
    is_split: bool
    percent: float
    warm_up_s: float
    duration_s: float
    seed: int

    @property
    def slo(self) -> Slo:
        return SLOS[self.device, self.model]

    def size(self, contender: Contender) -> int:
        """Devices of an engine."""
        return LARGEST if contender.is_default else BEST[self.device, self.model]

    def preset(self, contender: Contender) -> str:
        return f"{self.device}-{self.model}-tp{self.size(contender)}"

    @property
    def lengths(self) -> Sequence[TraceRequest]:
        pool = described_lengths(f"{PREFIX}sharegpt")
        return [one for one in pool if one.num_input + one.num_output <= CONTEXT]

    def trace(self) -> Sequence[TraceRequest]:
        span_s = self.warm_up_s + self.duration_s
        return list(synthesize(self.lengths, Arrivals(self.rate), span_s, Random(f"{self.seed}/trace")))


def topology(setting: Setting, contender: Contender, num_engines: int) -> Topology:
    preset = setting.preset(contender)
    role = Role.DECODE if setting.is_split else Role.MULTIPLEX
    roles = {f"engine-{number:03}": role for number in range(num_engines)}
    if setting.is_split:
        lengths, cost = setting.lengths, load_profile(preset).prefill
        busy = setting.rate * sum(prefill_s(cost, one.num_input) for one in lengths) / len(lengths)
        roles |= {f"prefill-{number:03}": Role.PREFILL for number in range(1 + ceil(busy / PREFILL_SHARE))}
    engines = [
        EngineSpec(
            name,
            role,
            (SERVICE,),
            backend="simulated",
            profile=preset,
            max_running=256,
            max_waiting=1_000_000,
            chunk_tokens=CHUNK_TOKENS,
        )
        for name, role in roles.items()
    ]
    return Topology(
        "engines-needed",
        Path(),
        (ServiceSpec(SERVICE, setting.model, setting.slo),),
        tuple(engines),
        (GatewaySpec("gateway", max_requests=1_000_000, max_waiting=1_000_000),),
        policy=contender.policy,
        rescheduling=Rescheduling(triggers=(Trigger.SLACK,)) if contender.reschedules else None,
    )


def attainment(setting: Setting, contender: Contender, num_engines: int) -> float:
    """The share of counted requests that met both promises."""
    what, records = topology(setting, contender, num_engines), list[Record]()
    profiles = {spec.id: load_profile(setting.preset(contender)) for spec in what.engines}
    simulation = Simulation(what, profiles, seed=setting.seed, physics=Physics(), slo=SloRule(), coasts=True)
    with rare_collections(), quiet_engines():
        simulation.run(SERVICE, setting.trace(), records.append)
    counted = [record for record in records if record.arrived_s >= setting.warm_up_s]
    return sum(record.meets_slo for record in counted) / len(counted)


def fewest(keeps: Callable[[int], bool], first: int) -> int | None:
    """The smallest number that keeps the promise, if more never break it; None: not even `MOST_ENGINES` do."""
    low, high = 0, first
    while not keeps(high):
        if high >= MOST_ENGINES:
            return None
        low, high = high, min(2 * high, MOST_ENGINES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def needed(setting: Setting, contender: Contender, first: int) -> int | None:
    return fewest(lambda count: attainment(setting, contender, count) >= setting.percent / 100, first)


def table_row(setting: Setting, contenders: Sequence[Contender]) -> list[str]:
    """Devices that each contender needs."""
    cells, first = list[str](), max(1, round(setting.rate / 3))
    for contender in contenders:
        size, count = setting.size(contender), needed(setting, contender, first)
        first = count or first
        cells.append(f">{MOST_ENGINES * size}" if count is None else f"{count * size} ({count})")
        print(f"{setting.model}, {setting.rate:g} requests/s, {contender.name}: {cells[-1]}", file=sys.stderr)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engines_needed", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=sorted({device for device, _ in SLOS}), default="a100")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="of llama2-7b, -13b, -70b (default: all)")
    parser.add_argument("--split", action="store_true", help="prefill and decode engines: count the latter")
    parser.add_argument("--rates", type=float, nargs="+", default=[5.0, 10.0, 20.0], metavar="R", help="requests/s")
    parser.add_argument("--percent", type=float, default=99.0, help="of requests that are to meet both (default: 99)")
    parser.add_argument("--warm-up", type=float, default=60.0, metavar="SECONDS", help="(default: 60)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS", help="after it (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--contenders", nargs="+", choices=[one.name for one in CONTENDERS], metavar="NAME")
    options = parser.parse_args()
    known = [model for device, model in SLOS if device == options.device]
    models = options.models or known
    if unknown := set(models) - set(known):
        parser.error(f"no SLO of {unknown.pop()} on {options.device}; there are {', '.join(known)}")
    chosen = [one for one in CONTENDERS if not options.contenders or one.name in options.contenders]
    table = Table("model", "rate", *(one.name for one in chosen), title="devices needed (engines)")
    for model in models:
        for rate in options.rates:
            spans = options.warm_up, options.duration
            setting = Setting(options.device, model, rate, options.split, options.percent, *spans, options.seed)
            table.add_row(model, f"{rate:g}", *table_row(setting, chosen))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
