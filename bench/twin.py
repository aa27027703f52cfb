"""The digital twin of a server beside the server itself: profiled for minutes, then loads that it has not seen.

    python -m bench.twin --url URL [--minutes 5] [--seconds 60] [--between] [--json FILE]
    python -m bench.twin --vllm-python PATH ...     (starts `vllm serve` on one core, which does not compile)

What `mesh profile --url`, `mesh simulate` and `mesh bench` do, in one run. A simulation of the profile tells the
capacity: the rate at which nine of ten requests are served within the promise. The server then gets Poisson arrivals at
half, all and 1.3 times of that rate, and the twin the same requests at the same times. A machine that is slower in one
minute than in the next makes any prediction wrong: see what others used, a server of ``--url`` among them.
"""

import argparse
import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import ceil
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import NamedTuple

from bench.harness.arguments import DEFAULT_MODEL, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.machine import watched
from bench.harness.tables import print_table
from bench.live.servers import MODEL
from bench.live.vllm import last_core, vllm_server
from bench.load.arguments import add_generator, add_prompts, add_server
from bench.load.simulated_sweep import lengths_of
from bench.load.sweep_cli import RATES_ARE_FOUND, measured_run
from bench.simulated import arriving, make_fleet
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from mesh.cli.api_key import bearer
from mesh.cli.numbers import positive
from mesh.errors import UserError
from mesh.show.progress import working
from mesh.topology.schema import EngineSpec, PolicySpec, ServiceSpec, Slo
from mesh.wire.control import Role
from router.profiling.measuring import measure_server
from router.profiling.written import Stated, profile_of_server, show
from router.servers.backend_rules import OPENAI
from simulation.capacity import Trial, crossing, find_capacity
from simulation.command.server_profiles import server_url
from simulation.engines.physics import Physics
from simulation.experiment import Experiment
from simulation.loads.sources import TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import at_rate

UNSEEN, BETWEEN = (0.5, 1.0, 1.3), (0.8, 0.9, 1.1, 1.2)  # of the capacity; errors of means are of the former
TTFT_OVER, TPOT_OVER, GOAL = 8.0, 3.0, 0.9  # the promise: times an idle server's, of mean lengths, for so many
FEWEST, NUM_SIMULATED = 20, 400  # requests of a load, and of a simulation that looks for the capacity
PHYSICS = Physics(latency_s=1e-6)  # of a message: what a request's way takes is in the profile


class Means(NamedTuple):
    """Mean latencies, and the share of the requests that met both promises."""

    ttft_ms: float
    tpot_ms: float
    attainment: float


@contextmanager
def vllm_on_one_core(python: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Serve the default model with vLLM, and leave the other cores to this process. The value is its address."""
    core = last_core()
    pinned, options = ("taskset", "-c", str(core)), ("--dtype", "float32", "--enforce-eager")
    with vllm_server(python, DEFAULT_MODEL, environment, options, before=pinned) as server:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {core} or {core})
        yield server.url


def profile(options: argparse.Namespace) -> EngineProfile:
    """Measure the server as `mesh profile --url` does."""
    url, seconds, headers = server_url(options.url), 60 * options.minutes, bearer(options.api_key_file)
    with working(f"measuring {url}", seconds) as shown:
        server = asyncio.run(measure_server(url, options.model, headers | dict(options.header), seconds, shown))
    found = profile_of_server(server, Stated(), url)
    show(found, server)
    return found.profile()


def predict(twin: EngineProfile, promise: Slo, requests: Sequence[TraceRequest]) -> Means:
    """Let these requests arrive at the twin."""
    engine, service = EngineSpec(MODEL, Role.MULTIPLEX, (MODEL,), backend=OPENAI), ServiceSpec(MODEL, "", promise)
    fleet = make_fleet("twin", service, [engine], PolicySpec("round_robin"))
    summary = Experiment(fleet, {MODEL: twin}, MODEL, TraceLoad(requests), fleet.policy, physics=PHYSICS).run()
    ttft_s, tpot_s = (0.0 if one is None else one.mean for one in (summary.ttft, summary.tpot))
    return Means(1e3 * ttft_s, 1e3 * tpot_s, summary.attainment)


def compare(options: argparse.Namespace, twin: EngineProfile) -> dict[float, tuple[Means, Means]]:
    """Load server and twin alike. Return what was measured and what was predicted by rate, in requests a second: first
    at the shares of `UNSEEN`. The promise is one that an idle server keeps easily, and a crowded one does not.
    """
    pool = lengths_of(options)
    num_input, num_output = (round(fmean(getattr(one, name) for one in pool)) for name in ("num_input", "num_output"))
    prompt_s, step_s = prefill_s(twin.prefill, num_input), decode_step_s(twin.decode, 1, num_input + num_output // 2)
    request_s = 0.0 if twin.server is None else twin.server.request_s
    promise = Slo(TTFT_OVER * (request_s + prompt_s), TPOT_OVER * step_s, GOAL)
    trace = arriving(pool, 1.0, NUM_SIMULATED, Random(options.seed))

    def attainment_at(rate: float) -> float:
        return predict(twin, promise, at_rate(trace, rate)).attainment

    found = find_capacity(attainment_at, GOAL, 0.5 / prompt_s, precision=0.05)
    if not found.rate:
        raise UserError("the twin keeps its promises at no rate; give it longer --minutes")
    goodput = [f"ttft:{1e3 * promise.ttft_s:g}", f"tpot:{1e3 * promise.tpot_s:g}"]
    print(f"the twin keeps {' '.join(goodput)} for nine of ten up to {found.rate:.3g} requests a second")
    loads: dict[float, tuple[Means, Means]] = {}
    for seed, share in enumerate(UNSEEN + BETWEEN if options.between else UNSEEN, options.seed):
        rate = share * found.rate
        number = max(FEWEST, ceil(rate * options.seconds))
        with watched() as conditions:
            result = measured_run(options, {"rate": rate, "requests": number, "seed": seed, "goodput": goodput})
        print(f"{share:g} of that: others used {conditions.others:.2f} cores")
        done = [one for one in result.counted if one.is_finished and one.tpot_s is not None]
        if not done:
            raise UserError(f"no answer had two tokens; the first request that failed: {result.first_reason}")
        means = Means(result.json["mean_ttft_ms"], result.json["mean_tpot_ms"], result.attainment or 0.0)
        requests = [TraceRequest(one.due_s - done[0].due_s, one.input_tokens, one.output_tokens) for one in done]
        loads[rate] = means, predict(twin, promise, requests)
    return loads


def errors(pairs: Iterable[tuple[Means, Means]]) -> list[float]:
    """Return the relative errors of mean TTFTs and TPOTs, one after the other."""
    return [said / seen - 1 for one, other in pairs for seen, said in zip(one[:2], other[:2], strict=True)]


def print_all(loads: Mapping[float, tuple[Means, Means]]) -> None:
    rows = []
    for rate, (seen, said) in loads.items():
        cells = [f"{rate:.3g}"]
        for one, other, error in zip(seen, said, errors([(seen, said)]), strict=False):
            cells += [f"{one:.1f}", f"{other:.1f}", f"{error:+.1%}"]
        rows.append([*cells, f"{seen.attainment:.0%}", f"{said.attainment:.0%}"])
    numbers = ("rate", "TTFT, ms", "predicted", "error", "TPOT, ms", "predicted", "error", "kept", "predicted")
    print_table("loads that the profile has not seen", (), numbers, rows)
    unseen = list(loads.values())[: len(UNSEEN)]
    print(f"half, full and 1.3: median error of means {median(map(abs, errors(unseen))):.1%} (goal: 10 %)")
    measured, predicted = (
        crossing([Trial(rate, pair[which].attainment) for rate, pair in loads.items()], GOAL) for which in (0, 1)
    )
    is_met = all(one.rate and not one.is_beyond(GOAL) for one in (measured, predicted))
    told = f"{predicted.rate / measured.rate - 1:+.1%} (goal: within 10 %)" if is_met else "these loads tell no more"
    print(f"capacity: measured {measured.words(GOAL)}/s, predicted {predicted.words(GOAL)}/s: {told}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = script_parser("bench.twin", __doc__, vllm=True, json=True)
    group = parser.add_argument_group("server and loads")
    add_server(group)
    parser.add_argument("--minutes", type=positive, default=5.0, metavar="M", help="of profiling, at most (default: 5)")
    parser.add_argument("--seconds", type=positive, default=60.0, metavar="S", help="of a load (default: 60)")
    parser.add_argument("--between", action="store_true", help="four more loads, for a closer measured capacity")
    add_prompts(group)
    add_generator(group)
    parser.set_defaults(arrivals=None, cv=None, send_slo=False, **RATES_ARE_FOUND)
    options = parser.parse_args(arguments)
    with errors_in_a_line(), ExitStack() as stack:
        if options.vllm_python is not None:
            options.url = stack.enter_context(vllm_on_one_core(options.vllm_python, dict(options.vllm_env)))
        loads = compare(options, profile(options))
    print_all(loads)
    write_json(options.json, [{"rate": rate, "measured": a, "predicted": b} for rate, (a, b) in loads.items()])


if __name__ == "__main__":
    main()
