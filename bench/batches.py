"""What batches gain, and what they cost requests with promises: tokens a second beside online load.

    python -m bench.batches [--loads 0.5 0.8] [--policies NAME ...] [--seeds 5] [--duration 60] [--jobs N] [--json F]

Two engines of an 8B model on an H100 serve online requests of chat-like lengths at a part of what they can serve with
99 % of the promises kept, which is found first. Each run is played twice with the same arrivals: alone, and with more
lines of a batch than there is room for. The product's own gateway and engines, simulated. Only lines and answers that
have ended by the time of the last online arrival count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile
from random import Random
from statistics import median

from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import MANY, attainment, make_fleet, make_simulation, modelled_engine, run_cases, serve
from engines.costs.presets import load_preset
from mesh.topology.schema import GatewaySpec, PolicySpec, ServiceSpec, Slo
from mesh.wire.requests import PRIORITY_BATCH
from router.history.records import Outcome, Record
from simulation.capacity import find_capacity
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest

PRESET, SLO, GOAL = "h100-llama3-8b-tp1", Slo(0.5, 0.03, 0.99), 0.99
WINDOW_S = 86400.0
PLACES = 1024  # of requests in the gateway; a quarter of them are for lines
LINES_PER_S = 150.0  # more than fit: what is refused counts as not there


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``lines``: whether a batch runs beside."""

    policy: str
    rate: float
    seed: int
    duration_s: float
    lines: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run came to. Tokens a second of answers, of online requests and of lines, and of lines' prompts."""

    attainment: float
    online: float
    lines: float
    prompts: float


def _lengths(random: Random) -> tuple[int, int]:
    """Of prompt and answer, log-normal as those of chats: medians of 500 and 150 tokens."""
    return min(6000, int(random.lognormvariate(6.2, 0.9)) + 8), min(1000, int(random.lognormvariate(5.0, 0.7)) + 2)


def _online(run: Run) -> Iterator[TraceRequest]:
    random = Random(f"{run.seed}/online")
    for at_s in takewhile(lambda at_s: at_s < run.duration_s, Arrivals(run.rate).times(random)):
        yield TraceRequest(at_s, *_lengths(random))


def _lines(run: Run) -> Iterator[TraceRequest]:
    random = Random(f"{run.seed}/lines")
    for number in range(int(run.duration_s * LINES_PER_S)):
        line = TraceRequest(number / LINES_PER_S, *_lengths(random), priority=PRIORITY_BATCH)
        yield replace(line, slo_ttft_s=WINDOW_S, slo_tpot_s=WINDOW_S)


def play(run: Run) -> Seen:
    """Play one run."""
    engines = [modelled_engine(name, "chat", PRESET) for name in ("e0", "e1")]
    topology = make_fleet("batches", ServiceSpec("chat", "model", SLO), engines, PolicySpec(run.policy))
    topology = replace(topology, gateways=(GatewaySpec("gateway", max_requests=PLACES, max_waiting=MANY),))
    requests = [*_online(run), *(_lines(run) if run.lines else ())]
    records = serve(
        make_simulation(topology, load_preset(PRESET), run.seed), "chat", sorted(requests, key=lambda one: one.at_s)
    )
    return _seen(records, run.duration_s)


def _seen(records: Sequence[Record], duration_s: float) -> Seen:
    online = [record for record in records if not record.is_filler]
    done = [one for one in records if one.outcome is Outcome.FINISHED and one.arrived_s + (one.e2e_s or 0) < duration_s]
    lines = [record for record in done if record.is_filler]
    return Seen(
        attainment(online),
        sum(record.output_tokens for record in done if not record.is_filler) / duration_s,
        sum(record.output_tokens for record in lines) / duration_s,
        sum(record.input_tokens for record in lines) / duration_s,
    )


def capacity(policy: str, duration_s: float) -> float:
    """Requests a second, of which `GOAL` keep both promises without batches."""

    def attained(rate: float) -> float:
        return play(Run(policy, rate, 0, duration_s, lines=False)).attainment

    return find_capacity(attained, GOAL, 32.0, 0.08, most_runs=8).rate


def main(arguments: Sequence[str] | None = None) -> None:
    parser = script_parser("bench.batches", __doc__, seeds=5, jobs=True, json=True)
    parser.add_argument("--loads", nargs="+", type=float, default=[0.5, 0.8], metavar="X", help="(default: 0.5 0.8)")
    parser.add_argument("--policies", nargs="+", default=["elastic"], metavar="NAME", help="(default: elastic)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="S", help="of each run (default: 60)")
    options = parser.parse_args(arguments)
    rates = {policy: capacity(policy, options.duration) for policy in options.policies}
    cases = [
        Run(policy, load * rates[policy], seed, options.duration, lines)
        for policy, load, seed, lines in product(rates, options.loads, range(options.seeds), (False, True))
    ]
    seen = run_cases(play, cases, options.jobs)
    kept, tokens = ("kept alone, %", "kept beside, %", "worst loss, points"), ("online tok/s", "lines tok/s", "prompts")
    rows = []
    for policy, load in product(rates, options.loads):
        rate = load * rates[policy]
        pairs = [
            [seen[Run(policy, rate, seed, options.duration, lines)] for lines in (False, True)]
            for seed in range(options.seeds)
        ]
        rows.append([f"{policy}, {load:.0%}", f"{rate:.1f}", *_cells(pairs)])
    print_table("batches beside online requests: medians of seeds", ["case"], ("req/s", *kept, *tokens), rows)
    write_json(options.json, [{"run": run, "seen": seen[run]} for run in cases])


def _cells(pairs: Sequence[Sequence[Seen]]) -> list[str]:
    """``pairs``: runs alone and with lines, of one seed each."""
    lost = [100 * (alone.attainment - beside.attainment) for alone, beside in pairs]
    return [
        f"{100 * median(alone.attainment for alone, _ in pairs):.2f}",
        f"{100 * median(beside.attainment for _, beside in pairs):.2f}",
        f"{max(lost):.2f}",
        f"{median(alone.online for alone, _ in pairs):.0f}",
        f"{median(beside.lines for _, beside in pairs):.0f}",
        f"{median(beside.prompts for _, beside in pairs):.0f}",
    ]


if __name__ == "__main__":
    main()
