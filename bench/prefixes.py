"""A trace whose prompts share beginnings, on modelled engines with KV tiers and without: what is not computed again.

    python -m bench.prefixes TRACE [--hosts 3] [--engines 2] [--limit N] [--jobs 1] [--json FILE]

``--hosts`` hosts with ``--engines`` engines each serve a trace with hash ids, such as Mooncake's conversations. The
ideal is one cache of all prompts without a bound. Goodput is the rate of requests that meet both promises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import make_fleet, make_simulation, modelled_engine, run_cases, serve
from engines.costs.presets import load_preset
from engines.tiers.tiering import PEERS
from mesh.topology.schema import HostSpec, PolicySpec, ServiceSpec, Slo
from mesh.topology.stores import KVTiersSpec
from router.history.records import PROMPT_BLOCK
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace
from simulation.reports.summary import summarize

SERVICE, PROFILE, POLICY = "model", "h100-llama3-70b-tp4", PolicySpec("kv_aware")
SLO = Slo(5.0, 0.1)
BLOCK_SIZE = 64  # tokens; hash ids are of 512
HOST_BYTES, DISK_BYTES = 500 * 10**9, 4000 * 10**9  # of a host's tiers
TIERS: Final = {
    "off": None,
    "host": KVTiersSpec(HOST_BYTES),
    "host, disk": KVTiersSpec(HOST_BYTES, disk_bytes=DISK_BYTES),
    "host, peers": KVTiersSpec(HOST_BYTES, peers=True),
    "host, disk, peers": KVTiersSpec(HOST_BYTES, disk_bytes=DISK_BYTES, peers=True),
}
COLUMNS = ("hit ratio", "TTFT mean, s", "median", "p90", "goodput, 1/s", "pulled, GB", "attainment")


@dataclass(frozen=True, slots=True)
class PrefixCase:
    """One run, with `TIERS` of that name."""

    tiers: str
    trace: Path
    limit: int | None
    num_hosts: int
    num_engines: int

    def requests(self) -> Sequence[TraceRequest]:
        return load_trace(self.trace, Random(0))[: self.limit]


def ideal_hit_ratio(requests: Sequence[TraceRequest]) -> float:
    """Whole blocks of the trace that came before, over all prompt tokens."""
    seen, found = set[tuple[int, int]](), 0
    for request in requests:
        past = 0
        for number, block in enumerate(request.blocks[: request.num_input // PROMPT_BLOCK]):
            past = hash((past, block))
            found += PROMPT_BLOCK * ((number, past) in seen)
            seen.add((number, past))
    return found / sum(request.num_input for request in requests)


def measure(case: PrefixCase) -> Sequence[float]:
    """Return the figures of `COLUMNS`. The hit ratio is the share of prompt tokens that was not computed.
    What was pulled came from other engines.
    """
    hosts = [f"host-{number}" for number in range(case.num_hosts)]
    engines = [
        modelled_engine(f"{host}-{number}", SERVICE, PROFILE, host=host, block_size=BLOCK_SIZE, max_running=256)
        for host in hosts
        for number in range(case.num_engines)
    ]
    there = tuple(HostSpec(host, "10.0.0.1") for host in hosts)
    service = ServiceSpec(SERVICE, "model", SLO)
    topology = make_fleet("prefixes", service, engines, POLICY, hosts=there, kv_tiers=TIERS[case.tiers])
    simulation = make_simulation(topology, load_preset(PROFILE), 0)
    records = serve(simulation, SERVICE, case.requests())
    hit_ratio = sum(record.cached_tokens for record in records) / sum(record.input_tokens for record in records)
    summary = summarize(POLICY.name, records, None)
    assert summary.ttft is not None
    ttft_s = summary.ttft.mean, summary.ttft.percentile(50), summary.ttft.percentile(90)
    tiers = [tier for engine in simulation.engines.values() for tier in engine.core.status(0.0).tiers]
    pulled_gb = sum(tier.loaded_bytes for tier in tiers if tier.name == PEERS) / 1e9
    return hit_ratio, *ttft_s, summary.goodput, pulled_gb, summary.attainment


def main() -> None:
    parser = script_parser("bench.prefixes", __doc__, jobs=True, json=True)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("--hosts", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--engines", type=int, default=2, metavar="N", help="of a host (default: 2)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N requests (default: all)")
    options = parser.parse_args()
    fixed = options.trace, options.limit, options.hosts, options.engines
    with errors_in_a_line():
        cases = [PrefixCase(tiers, *fixed) for tiers in TIERS]
        ideal = ideal_hit_ratio(cases[0].requests())
        results = run_cases(measure, cases, options.jobs)
    rows = (
        [case.tiers, f"{hits / ideal:.2f}", f"{hits:.3f}", *(f"{one:.2f}" for one in others), f"{attained:.3f}"]
        for case, (hits, *others, attained) in results.items()
    )
    print_table(f"Prefixes: the ideal is {ideal:.3f}", ("tiers",), ("of the ideal", *COLUMNS), rows)
    figures = ({"tiers": case.tiers, **dict(zip(COLUMNS, found, strict=True))} for case, found in results.items())
    write_json(options.json, {"ideal": ideal, "figures": list(figures)})


if __name__ == "__main__":
    main()
