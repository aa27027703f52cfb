"""Tropical's figure on this machine, smaller: real processes and a real model.

    python -m bench.papers.tropical.live [--requests N] [--rounds N] [--rates R ...] [--out DIR]

Serves the service of `deploy/topology.toml` on two engines of one thread each: a prefill and a multiplexing one, or two
multiplexing ones for policies that do not split. Each policy gets the same requests at several rates over HTTP (open
loop, Poisson, long inputs, short outputs). The TTFT SLO is 5 times the request's own prefill, and the TPOT SLO is 3
decode steps of an idle engine, as `mesh profile` measured them. Each policy has a mesh of its own, one after the other,
in each round. Run it alone: it says what others, the client among them, used of the machine.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import turned
from bench.harness.machine import watched
from bench.harness.tables import print_table
from bench.live.mesh import LiveMesh, warm_mesh
from bench.live.ports import free_port
from bench.live.sending import Bounds
from bench.load.results.goodput import Promises
from bench.papers.tropical.setting import PROMISE, UNSPLIT
from bench.simulated import arriving
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from mesh.show.progress import working
from mesh.topology.parse import load
from mesh.topology.schema import ServiceSpec, Topology
from simulation.capacity import Trial, crossing
from simulation.command.profiles import profiles_of
from simulation.engines.shared_profiles import profile_of
from simulation.loads.trace_request import TraceRequest

POLICIES = ("colocated", "chunked", "disaggregated", "disaggregated_sjf", "tropical", "elastic")
CHUNK_TOKENS = {"chunked": 64}  # chunked prefill has a budget of its own; the others compute prompts in large steps:
LARGE_STEP = 256
TOPOLOGY = Path("deploy/topology.toml")  # whose service is served
POOL = 2000  # requests that lengths are sampled from
INPUT, OUTPUT = Bounds(64, 128, 1024, 0.9), Bounds(8, 16, 64, 0.7)
TTFT_FACTOR, TPOT_FACTOR = 5.0, 3.0  # times what an idle engine takes


def topology_text(policy: str, service: ServiceSpec) -> str:
    """A prefill and a multiplexing engine if the policy splits, else two multiplexing ones; one thread each.

    They refuse nobody, as the systems that baselines stand for would not.
    """
    lines = [f"[services.{json.dumps(service.name)}]\nmodel = {json.dumps(service.model)}"]
    lines += [f'dtype = "{service.dtype}"\nmin_ttft_ms = 1\nmin_tpot_ms = 1']
    lines += [f'[gateways.gateway]\nport = {free_port()}\n[policy]\nname = "{policy}"']
    for engine, role in (("first", "multiplex" if policy in UNSPLIT else "prefill"), ("second", "multiplex")):
        lines += [f'[engines.{engine}]\nrole = "{role}"\nchunk_tokens = {CHUNK_TOKENS.get(policy, LARGE_STEP)}']
        lines += ['threads = 1\nkv_memory = "256MiB"\nmax_running = 32\nmax_waiting = 100000']
    return "\n".join([*lines, ""])


# --- requests ---------------------------------------------------------------------------------------------------------


def made_up_lengths() -> list[TraceRequest]:
    """Draw long inputs and short outputs, the same each time."""
    random = Random(0)
    return [TraceRequest(0.0, INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]


def promised(lengths: Sequence[TraceRequest], profile: EngineProfile) -> list[TraceRequest]:
    """Promise a TTFT of 5 times the own prefill on an idle engine, and a TPOT of 3 lonely decode steps."""
    context = round(fmean(request.num_input + request.num_output / 2 for request in lengths))
    tpot_s = TPOT_FACTOR * decode_step_s(profile.decode, 1, context)
    return [
        replace(request, slo_ttft_s=TTFT_FACTOR * prefill_s(profile.prefill, request.num_input), slo_tpot_s=tpot_s)
        for request in lengths
    ]


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """Says of each request whether both SLOs were kept; a refusal keeps none.

    Requests were sent ``late_s`` too late at most. ``others`` used so many cores, the client's among them.
    """

    policy: str
    rate: float
    kept: Sequence[bool]
    others: float
    late_s: float


def serve(mesh: LiveMesh, policy: str, rate: float, trace: Sequence[TraceRequest], seed: int) -> Run:
    with watched(mesh.pids()) as conditions:
        outcomes = mesh.answers(trace, seed)
    late_s = max(one.sent_s - one.due_s for one in outcomes)
    return Run(policy, rate, [Promises().is_kept(one) for one in outcomes], conditions.others, late_s)


def _profile(topology: Topology) -> EngineProfile:
    """Of its engines, which are alike, as measured here. Raise `UserError` if they were not."""
    return profile_of(profiles_of(topology, {})[topology.engines[0].id], topology.services[0].name)


def run_all(options: argparse.Namespace) -> list[Run]:
    """Serve all rates with one policy after the other, each round another one first."""
    service, runs = load(TOPOLOGY).services[0], list[Run]()
    with working("rates", options.rounds * len(POLICIES) * len(options.rates)) as shown:
        for number in range(options.rounds):
            for policy in turned(POLICIES, number):
                with warm_mesh(topology_text(policy, service)) as mesh:
                    pool = promised(made_up_lengths(), _profile(mesh.topology))
                    for index, rate in enumerate(options.rates):
                        trace = arriving(pool, rate, options.requests, Random(number))
                        runs.append(serve(mesh, policy, rate, trace, seed=index))
                        shown.advance()
    return runs


def trials(runs: Sequence[Run]) -> list[Trial]:
    """Return attainment by rate; requests of all runs at a rate count alike."""
    rates = sorted({run.rate for run in runs})
    return [Trial(rate, fmean(kept for run in runs if run.rate == rate for kept in run.kept)) for rate in rates]


def cells(runs: Sequence[Run], policy: str) -> list[str]:
    found = trials([run for run in runs if run.policy == policy])
    return [policy, *(f"{one.attainment:.0%}" for one in found), crossing(found, PROMISE).words(PROMISE)]


def main() -> None:
    parser = script_parser("bench.papers.tropical.live", __doc__, rounds=1, out="live_figure")
    parser.add_argument("--requests", type=int, default=24, metavar="N", help="of each policy and rate (default: 24)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1.2, 1.9], metavar="R", help="a second")
    options = parser.parse_args()
    with errors_in_a_line():
        runs = run_all(options)
    numbers = (*(f"{rate:g}/s" for rate in sorted(set(options.rates))), f"req/s at {PROMISE:.0%}")
    print_table("requests that met both SLOs", ("policy",), numbers, (cells(runs, policy) for policy in POLICIES))
    others, late_ms = fmean(run.others for run in runs), 1e3 * max(run.late_s for run in runs)
    print(f"others used {others:.2f} cores; requests were sent at most {late_ms:.0f} ms late")
    write_json(options.out / "live_figure.json", runs)


if __name__ == "__main__":
    main()
