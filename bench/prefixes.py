"""A trace whose prompts share beginnings, on modelled engines with KV tiers and without: what is not computed again.

    python -m bench.prefixes TRACE [--profile h100-llama3-70b-tp4] [--hosts 3] [--engines 2] [--policy kv_aware]
        [--limit N] [--scale 1.0] [--host 500GB] [--disk 4000GB] [--jobs 1] [--json FILE]

``--hosts`` hosts with ``--engines`` engines each serve a trace with hash ids, such as Mooncake's conversations. The
ideal is one cache of all prompts without a bound. Goodput is the rate of requests that meet both promises.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import make_fleet, make_simulation, modelled_engine, run_cases, serve
from engines.costs.presets import load_preset
from mesh.topology.schema import HostSpec, PolicySpec, ServiceSpec, Slo
from mesh.topology.stores import KVTiersSpec
from mesh.topology.values import size
from router.history.records import PROMPT_BLOCK
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace, scaled
from simulation.reports.summary import summarize

SERVICE = "model"
SLO = Slo(5.0, 0.1)
BLOCK_SIZE = 64  # tokens; hash ids are of 512


@dataclass(frozen=True, slots=True)
class PrefixCase:
    """One run. ``host_bytes`` and ``disk_bytes`` of each host; 0: no tier. ``has_peers``: engines pull prefixes."""

    trace: Path
    profile: str
    policy: str
    num_hosts: int
    num_engines: int
    limit: int | None
    scale: float
    host_bytes: int
    disk_bytes: int
    has_peers: bool

    @property
    def name(self) -> str:
        if not self.host_bytes:
            return "off"
        return "host" + ", disk" * bool(self.disk_bytes) + ", peers" * self.has_peers

    def requests(self) -> list[TraceRequest]:
        return scaled(load_trace(self.trace, Random(0))[: self.limit], self.scale)


@dataclass(frozen=True, slots=True)
class PrefixResult:
    """``hit_ratio``: of prompt tokens, the share that was not computed."""

    hit_ratio: float
    ttft_mean_s: float
    ttft_median_s: float
    ttft_p90_s: float
    goodput: float
    attainment: float
    loaded_gb: dict[str, float]  # by tier


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


def measure(case: PrefixCase) -> PrefixResult:
    hosts = [f"host-{number}" for number in range(case.num_hosts)]
    engines = [
        modelled_engine(f"{host}-{number}", SERVICE, case.profile, host=host, block_size=BLOCK_SIZE, max_running=256)
        for host in hosts
        for number in range(case.num_engines)
    ]
    topology = make_fleet(
        "prefixes",
        ServiceSpec(SERVICE, "model", SLO),
        engines,
        PolicySpec(case.policy),
        hosts=tuple(HostSpec(host, "10.0.0.1") for host in hosts),
        kv_tiers=KVTiersSpec(case.host_bytes, disk_bytes=case.disk_bytes, peers=case.has_peers)
        if case.host_bytes
        else None,
    )
    simulation = make_simulation(topology, load_preset(case.profile), 0)
    records = serve(simulation, SERVICE, case.requests())
    summary, loaded = summarize(case.policy, records, None), dict[str, float]()
    for engine in simulation.engines.values():
        for tier in engine.core.status(0.0).tiers:
            loaded[tier.name] = loaded.get(tier.name, 0.0) + tier.loaded_bytes / 1e9
    assert summary.ttft is not None
    return PrefixResult(
        sum(record.cached_tokens for record in records) / sum(record.input_tokens for record in records),
        summary.ttft.mean,
        summary.ttft.percentile(50),
        summary.ttft.percentile(90),
        summary.goodput,
        summary.attainment,
        loaded,
    )


def cases_of(options: argparse.Namespace) -> list[PrefixCase]:
    host, disk = size(options.host), size(options.disk)
    fixed = options.trace, options.profile, options.policy, options.hosts, options.engines, options.limit, options.scale
    tiers = (0, 0, False), (host, 0, False), (host, disk, False), (host, 0, True), (host, disk, True)
    return [PrefixCase(*fixed, *one) for one in tiers]


def main() -> None:
    parser = script_parser("bench.prefixes", __doc__, jobs=True, json=True)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("--profile", default="h100-llama3-70b-tp4", help="(default: h100-llama3-70b-tp4)")
    parser.add_argument("--policy", default="kv_aware", help="(default: kv_aware)")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--engines", type=int, default=2, help="of a host (default: 2)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N requests (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the trace's rate (default: 1)")
    parser.add_argument("--host", default="500GB", help="the host's tier (default: 500GB)")
    parser.add_argument("--disk", default="4000GB", help="the disk's tier (default: 4000GB)")
    options = parser.parse_args()
    with errors_in_a_line():
        cases = cases_of(options)
        ideal = ideal_hit_ratio(cases[0].requests())
        results = run_cases(measure, cases, options.jobs)
    rows = [
        (
            case.name,
            f"{result.hit_ratio:.3f}",
            f"{result.hit_ratio / ideal:.2f}",
            f"{result.ttft_mean_s:.2f}",
            f"{result.ttft_median_s:.2f}",
            f"{result.ttft_p90_s:.2f}",
            f"{result.goodput:.2f}",
            f"{result.attainment:.3f}",
        )
        for case, result in results.items()
    ]
    columns = ["hit ratio", "of the ideal", "TTFT mean, s", "median", "p90", "goodput, 1/s", "attainment"]
    print_table(f"Prefixes: the ideal is {ideal:.3f}", ["tiers"], columns, rows)
    write_json(options.json, [{"tiers": case.name, "ideal": ideal, **asdict(it)} for case, it in results.items()])


if __name__ == "__main__":
    main()
