"""Disciplines of an engine that several services share, beside each other (SeaLLM's ablation, section 6.3).

    python -m bench.papers.seallm.disciplines --arxiv FILE [--seeds 2] [--seconds 45] [--only WORDS] [--jobs N]
        [--out DIR]

One simulated engine on A100s. Two services: chats with Llama-2-7B and summaries with 13B on one device. Three: short
requests with 7B, chats with 13B and summaries with 70B on four devices (tensor parallelism 4). Chats have ShareGPT's
lengths as Llumnix's paper describes them, summaries those of a file of arXiv's, short requests a power law with a mean
of 128 tokens (`simulation.loads.workload_lengths`). KV memory is what the weights leave, shared evenly.

Requests arrive for so many seconds, as a Poisson process or in bursts (a quarter of the time at three times the rate),
and all are served to their end. Normalised latency is the latency over the mean execution time of the service's
requests alone; the promise of a request is 5 times its own execution time, as in the paper. "strict" is the algorithm
to the letter: the request that ranks first names the phase, too (docs/concepts/sharing.md).
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from rich.table import Table

from bench.engine.one_engine import Done, Model, OneEngine
from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.runs import over_seeds, percentile, run_cases, write_results
from engines.costs.linear import serving_s
from engines.costs.profiles import EngineProfile, load_profile
from engines.scheduling.scheduler import Limits
from mesh.topology.schema import Scheduling
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths

PROMISE = 5.0  # times the execution time of the request
CHUNK_TOKENS, MAX_RUNNING = 2048, 256
SHORT, CHAT = "llumnix:S-S", "llumnix:sharegpt"


@dataclass(frozen=True, slots=True)
class Shared:
    """A service: its preset, the source of its lengths (None: the file of arXiv's), its share of the requests."""

    preset: str
    lengths: str | None
    share: float


@dataclass(frozen=True, slots=True)
class Setting:
    """``rates``: requests a second, of all services; bursts come at the middle one on average."""

    name: str
    device_bytes: int
    services: Mapping[str, Shared] = field(hash=False)
    rates: tuple[float, ...]


A100_BYTES = int(0.9 * 80 * 2**30)
SETTINGS = (
    Setting(
        "two services",
        A100_BYTES,
        {"chat": Shared("a100-llama2-7b-tp1", CHAT, 0.5), "summary": Shared("a100-llama2-13b-tp1", None, 0.5)},
        (0.5, 1.0, 1.5),
    ),
    Setting(
        "three services",
        4 * A100_BYTES,
        {
            "short": Shared("a100-llama2-7b-tp4", SHORT, 0.5),
            "chat": Shared("a100-llama2-13b-tp4", CHAT, 0.3),
            "summary": Shared("a100-llama2-70b-tp4", None, 0.2),
        },
        (1.5, 3.0, 4.5),
    ),
)


@dataclass(frozen=True, slots=True)
class Contender:
    scheduling: Scheduling
    is_strict: bool = False

    @property
    def name(self) -> str:
        return f"{self.scheduling}{', strict' * self.is_strict}"


STRICT = (Scheduling.DB, Scheduling.FCFS, Scheduling.MLFQ)
ITERATIONS = tuple(scheduling for scheduling in Scheduling if not scheduling.is_static)  # static batches serve slices
CONTENDERS = (*map(Contender, ITERATIONS), *(Contender(scheduling, is_strict=True) for scheduling in STRICT))


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what a worker process does."""

    setting: Setting
    process: Process
    rate: float
    contender: Contender
    seed: int
    arxiv: str
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.setting.name}, {self.process}, {self.rate:g}/s, {self.contender.name}"

    def lengths(self) -> dict[str, list[TraceRequest]]:
        """Return the pool of requests that each service draws from."""
        return {name: load_lengths(Path(one.lengths or self.arxiv)) for name, one in self.setting.services.items()}

    def requests(self, lengths: Mapping[str, Sequence[TraceRequest]]) -> Iterator[TraceRequest]:
        """Yield the requests, the same for all disciplines."""
        for name, shared in self.setting.services.items():
            arrivals, random = Arrivals(self.rate * shared.share, self.process), Random(f"{self.seed}/{name}")
            for request in synthesize(lengths[name], arrivals, self.seconds, random):
                yield replace(request, service=name)


class Result(msgspec.Struct, frozen=True):
    """``by_service``: mean normalised latency of each."""

    num_requests: int
    mean: float
    p99: float
    ttft_s: float
    tpot_s: float
    attainment: float
    by_service: dict[str, float]


def run_case(case: Case) -> Result:
    models, lengths = make_models(case.setting), case.lengths()
    limits = Limits(MAX_RUNNING, CHUNK_TOKENS)
    engine = OneEngine(models, limits, case.contender.scheduling, strict_phases=case.contender.is_strict)
    means = {name: fmean(_alone_s(models[name], each) for each in pool) for name, pool in lengths.items()}
    return _result(engine.run(list(case.requests(lengths))), models, means)


def make_models(setting: Setting) -> dict[str, Model]:
    profiles = {name: load_profile(shared.preset) for name, shared in setting.services.items()}
    kv_bytes = setting.device_bytes - sum(_weight_bytes(setting, profile) for profile in profiles.values())
    share = kv_bytes // len(profiles)
    return {name: Model(profile.cost, share // profile.kv_bytes_per_token) for name, profile in profiles.items()}


def _weight_bytes(setting: Setting, profile: EngineProfile) -> int:
    """Return what a preset's KV memory leaves of the device: its weights."""
    return setting.device_bytes - profile.kv_memory_bytes


def _alone_s(model: Model, request: TraceRequest) -> float:
    """Return the execution time of a request that is alone."""
    return serving_s(model.cost.prefill, model.cost.decode, 1, request.num_input, request.num_output - 1)


def _result(done: Sequence[Done], models: Mapping[str, Model], means: Mapping[str, float]) -> Result:
    by_service: dict[str, list[float]] = defaultdict(list)
    num_kept = 0
    for each in done:
        service = each.request.service or ""
        by_service[service].append(each.last_s / means[service])
        num_kept += each.last_s <= PROMISE * _alone_s(models[service], each.request)
    latencies = [latency for of_service in by_service.values() for latency in of_service]
    return Result(
        num_requests=len(done),
        mean=fmean(latencies),
        p99=percentile(latencies, 99),
        ttft_s=fmean(each.first_s for each in done),
        tpot_s=fmean(each.tpot_s for each in done if each.tpot_s is not None),
        attainment=num_kept / len(done),
        by_service={name: fmean(of_service) for name, of_service in by_service.items()},
    )


def main() -> None:
    options = _parse()
    cases = [case for case in _cases(options) if all(word in case.name for word in options.only.split())]
    results = over_seeds(run_cases(run_case, cases, options.jobs))
    make_console().print(_table(results))
    write_results(options.out / "disciplines.json", results)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm.disciplines", __doc__)
    parser.add_argument("--arxiv", required=True, metavar="FILE", help="input_tokens, output_tokens")
    add_seeds(parser, 2)
    parser.add_argument("--seconds", type=float, default=45.0, metavar="S", help="of arrivals (default: 45)")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases whose names have all of these words")
    add_jobs(parser)
    add_out(parser, "disciplines")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for setting in SETTINGS:
        loads = [*product([Process.POISSON], setting.rates), (Process.BURST, setting.rates[1])]
        for (process, rate), contender, seed in product(loads, CONTENDERS, range(options.seeds)):
            yield Case(setting, process, rate, contender, seed, options.arxiv, options.seconds)


def _table(results: Mapping[Case, Result]) -> Table:
    table = make_table(
        "means over the seeds; latencies normalised",
        ("services", "arrivals", "discipline"),
        ("mean", "P99", "TTFT, s", "TPOT, ms", "kept, %", "mean of each service"),
    )
    for case, result in results.items():
        table.add_row(
            case.setting.name,
            f"{case.process} {case.rate:g}/s",
            case.contender.name,
            f"{result.mean:.2f}",
            f"{result.p99:.1f}",
            f"{result.ttft_s:.2f}",
            f"{1e3 * result.tpot_s:.0f}",
            f"{100 * result.attainment:.0f}",
            ", ".join(f"{name} {mean:.1f}" for name, mean in result.by_service.items()),
        )
    return table


if __name__ == "__main__":
    main()
