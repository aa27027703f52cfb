"""The digital twin of a vLLM server beside the server itself: profiled for minutes, then loads that it has not seen.

    python -m bench.twin --vllm-python PATH [--minutes 5] [--seconds 60] [--core N] [--json FILE]
    python -m bench.twin --url URL ...              (a server that runs already)

The server has one core, and this program another one if there is one. `mesh profile --url` measures it; a simulation of
its profile says its capacity, the rate at which nine of ten requests are served within the promise. Then the server
gets Poisson arrivals at fractions of that rate, among them half, all and 1.3 times of it, and the twin the same
requests at the same times. A machine that is slower in one minute than in the next makes any prediction wrong: see what
others used. Linux only: cores are given by affinity.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import httpx

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.machine import watched
from bench.harness.tables import make_console, make_table
from bench.live.sending import send, shapes_of, token_prompts
from bench.live.servers import MODEL
from bench.load.client.http import Address
from bench.load.generator.wire import Pace
from bench.load.results.outcome import Outcome
from bench.peers.vllm_server import vllm_server
from bench.twin.predicting import (
    Lengths,
    Means,
    measured_means,
    median_error,
    predict,
    predicted_capacity,
    requests_of,
)
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from engines.models.store import prepared_dir
from mesh.errors import UserError
from mesh.show.progress import working
from mesh.topology.schema import Slo
from router.profiling.measuring import measure_server
from router.profiling.written import Stated, profile_of_server, show
from simulation.capacity import Trial, crossing
from simulation.loads.trace_request import TraceRequest

UNSEEN = {"half": 0.5, "full": 1.0, "1.3 x": 1.3}  # loads whose means are compared, by their share of capacity
BETWEEN = (0.8, 0.9, 1.1, 1.2)  # more rates, for the measured capacity
GOAL = 0.9
TTFT_OVER, TPOT_OVER = 8.0, 3.0  # the promise: times an idle server's, of mean lengths
FEWEST, ANSWER_S = 20, 600.0  # requests of a load; that a client waits for an answer


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. ``pids``: its processes, none if it is not ours."""

    url: str
    model: str
    pids: Sequence[int] = ()


@contextmanager
def server(options: argparse.Namespace) -> Iterator[Running]:
    """``vllm serve`` on one core, or a server that runs already."""
    if options.url is not None:
        models = httpx.get(f"{options.url}/v1/models").raise_for_status().json()["data"]
        yield Running(options.url, models[0]["id"])
        return
    folder, mode = prepared_dir(options.model), () if options.compiled else ("--enforce-eager",)
    with vllm_server(options.vllm_python, folder, [options.core], dict(options.vllm_env), *mode) as running:
        yield Running(running.url, MODEL, running.pids())


def profile(options: argparse.Namespace, running: Running) -> EngineProfile:
    """Measure it as `mesh profile --url` does."""
    seconds, url = 60 * options.minutes, running.url
    with watched([*running.pids, os.getpid()]) as conditions, working(f"measuring {url}", seconds) as shown:
        measured = asyncio.run(measure_server(url, None, {}, seconds, shown))
    found = profile_of_server(measured, Stated(options.chunk_tokens, options.max_running, None), url)
    show(found, measured)
    _say(f"others used {conditions.others:.2f} cores meanwhile")
    return found.profile()


def promise_of(twin: EngineProfile, lengths: Lengths) -> Slo:
    """Latencies that an idle server keeps easily, and a crowded one does not."""
    num_input, num_output = lengths.means
    request_s = 0.0 if twin.server is None else twin.server.request_s
    ttft_s = TTFT_OVER * (request_s + prefill_s(twin.prefill, round(num_input)))
    return Slo(ttft_s, TPOT_OVER * decode_step_s(twin.decode, 1, round(num_input + num_output / 2)), GOAL)


def load(running: Running, requests: Sequence[TraceRequest], seed: int) -> list[Outcome]:
    pace, shapes = Pace(tuple(one.at_s for one in requests)), shapes_of(requests, running.model)
    return send(Address.parse(running.url), token_prompts(seed), shapes, pace, answer_s=ANSWER_S)


def compare(options: argparse.Namespace, running: Running, twin: EngineProfile) -> dict[str, Any]:
    """Load server and twin alike, and say how far they are from each other."""
    lengths = Lengths(tuple(options.input_tokens), tuple(options.output_tokens))
    promise = promise_of(twin, lengths)
    mean_s = prefill_s(twin.prefill, round(lengths.means[0]))
    found = predicted_capacity(twin, promise, lengths, 0.5 / mean_s)
    if not found.rate:
        raise UserError(f"the twin keeps no promise: {found.words(GOAL)}; give it longer --minutes")
    _say(
        f"the twin keeps its promises for 90 % up to {found.rate:.3g}/s; loads take about {options.seconds:.0f} s each"
    )
    shares = sorted({*UNSEEN.values(), *(BETWEEN if options.between else ())})
    pairs: dict[float, tuple[Means, Means]] = {}
    others: dict[float, float] = {}
    for number, share in enumerate(shares):
        rate = share * found.rate
        requests = lengths.requests(rate, max(FEWEST, ceil(rate * options.seconds)), seed=number)
        with watched(running.pids) as conditions:
            outcomes = load(running, requests, seed=number)
        pairs[share] = measured_means(outcomes, promise), predict(twin, promise, requests_of(outcomes))
        others[share] = conditions.others
        _say(f"{share:g} of capacity: {_words(*pairs[share])}; others and the client used {others[share]:.2f} cores")
    measured, predicted = (
        crossing([Trial(share * found.rate, pair[which].attainment) for share, pair in pairs.items()], GOAL)
        for which in (0, 1)
    )
    unseen = {name: pairs[share] for name, share in UNSEEN.items()}
    return {
        "promise_s": [promise.ttft_s, promise.tpot_s],
        "capacity": {"measured": measured.words(GOAL), "predicted": predicted.words(GOAL), "simulated": found.rate},
        "capacity_error": predicted.rate / measured.rate - 1 if measured.rate else None,
        "median_error_of_means": median_error(unseen),
        "loads": {name: {"measured": pair[0], "predicted": pair[1]} for name, pair in unseen.items()},
        "others_cores": {f"{share:g}": cores for share, cores in others.items()},
        "attainment": {f"{share:g}": [pair[0].attainment, pair[1].attainment] for share, pair in pairs.items()},
    }


# --- what comes of it -------------------------------------------------------------------------------------------------


def print_all(figures: Mapping[str, Any]) -> None:
    console = make_console()
    heads = ("TTFT, ms", "predicted", "error", "TPOT, ms", "predicted", "error", "within promise", "predicted")
    table = make_table("means of loads that the profile has not seen", ("load",), heads)
    for name, pair in figures["loads"].items():
        measured, predicted = pair["measured"], pair["predicted"]
        cells = []
        for field in ("ttft_s", "tpot_s"):
            one, other = getattr(measured, field), getattr(predicted, field)
            cells += [f"{1e3 * one:.1f}", f"{1e3 * other:.1f}", f"{other / one - 1:+.1%}"]
        table.add_row(name, *cells, f"{measured.attainment:.0%}", f"{predicted.attainment:.0%}")
    console.print(table)
    console.print(f"median error of means: {figures['median_error_of_means']:.1%} (goal: 10 %)")
    error, capacity = figures["capacity_error"], figures["capacity"]
    said = "not measured: no load kept the promise" if error is None else f"{error:+.1%} (goal: within 10 %)"
    console.print(f"capacity: measured {capacity['measured']}/s, predicted {capacity['predicted']}/s, {said}")


def _words(measured: Means, predicted: Means) -> str:
    return (
        f"TTFT {1e3 * measured.ttft_s:.0f} ms, predicted {1e3 * predicted.ttft_s:.0f}; "
        f"TPOT {1e3 * measured.tpot_s:.1f} ms, predicted {1e3 * predicted.tpot_s:.1f}; "
        f"{measured.attainment:.0%} within the promise, predicted {predicted.attainment:.0%}"
    )


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    options = _parse()
    others = [core for core in os.sched_getaffinity(0) if core != options.core]
    if options.url is None and others:
        os.sched_setaffinity(0, others)
    with errors_in_a_line(), server(options) as running:
        figures = compare(options, running, profile(options, running))
    print_all(figures)
    write_json(options.json, figures)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.twin", __doc__, model=True, vllm=True, json=True)
    parser.add_argument("--url", help="a server that runs already, with one model")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), metavar="N", help="of the server")
    parser.add_argument(
        "--compiled", action="store_true", help="let vLLM compile, which takes minutes (default: eager)"
    )
    parser.add_argument("--minutes", type=float, default=5.0, metavar="M", help="of profiling, at most (default: 5)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of arrivals of a load (default: 60)")
    parser.add_argument("--input-tokens", type=int, nargs=2, default=[32, 256], metavar="N", help="(default: 32 256)")
    parser.add_argument("--output-tokens", type=int, nargs=2, default=[16, 48], metavar="N", help="(default: 16 48)")
    parser.add_argument("--chunk-tokens", type=int, metavar="N", help="as the server was told, if it was")
    parser.add_argument("--max-running", type=int, metavar="N", help="likewise")
    parser.add_argument("--between", action="store_true", help="four more loads, for a closer measured capacity")
    return parser.parse_args()


if __name__ == "__main__":
    main()
