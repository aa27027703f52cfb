"""A mesh beside one vLLM: goodput on the same cores under the same traffic.

    python -m bench.peers.meshes --vllm-python PATH [--vllm-env NAME=VALUE] [--only NAME ...] [--json FILE]

Each contestant is started, loaded at a few rates and stopped; then comes the next one. All serve the same model folder
in float32 (``mesh-int8`` aside) with one computing thread a core. Requests are `mesh bench`'s: the same prompts,
lengths and times of arrival for everybody, Poisson, open loop. A request is good if it is answered whole, with TTFT and
TPOT within the promise; promises are also tried half and twice as long, from the same requests.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.engine.under_test import add_model_argument
from bench.gateway.servers import MODEL
from bench.harness.arguments import add_json, name_and_value, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.contention import Contention, Watch
from bench.load.arguments import add_generator, add_load, add_promises, add_prompts, add_server
from bench.load.asked import asked
from bench.load.generator.running import Ended
from bench.load.generator.running import run as drive
from bench.load.results.confidence import Seen
from bench.load.results.outcome import Outcome, Promise
from bench.peers.contestants import CONTESTANTS, Running, Scene
from engines.models.store import prepared_dir
from mesh.errors import CommandError, UserError
from simulation.capacity import Trial, crossing

GOAL = 0.9
TTFT_MS, TPOT_MS = 1500, 100  # the promise
TIGHTNESS = (0.5, 1.0, 2.0)  # times the promise
INPUT_TOKENS, OUTPUT_TOKENS = "32:256", "16:48"  # evenly between
SEEDS_APART = 1000  # prompts of one rate are in nobody's cache at the next


@dataclass(frozen=True, slots=True)
class Run:
    """A contestant at a rate. ``figures`` are those of `mesh bench`."""

    contestant: str
    rate: float
    promise: Promise
    outcomes: Sequence[Outcome]
    figures: Mapping[str, Any]
    contention: Contention

    def seen(self, tightness: float) -> Seen:
        """Requests that kept the promise if it is so many times as long."""
        limits = (self.promise.ttft_s, self.promise.tpot_s)
        ttft_s, tpot_s = (limit and tightness * limit for limit in limits)
        num_good = sum(outcome.keeps(Promise(ttft_s, tpot_s)) for outcome in self.outcomes)
        return Seen(self.rate, num_good, len(self.outcomes))

    def json(self) -> dict[str, Any]:
        kept = {f"{factor:g}": self.seen(factor).attainment for factor in TIGHTNESS}
        shares = {"ours": self.contention.ours, "others": self.contention.others}
        return {
            "contestant": self.contestant,
            "rate": self.rate,
            "attainment_by_tightness": kept,
            "cores_used": shares,
            "figures": {key: value for key, value in self.figures.items() if key != "distributions_ms"},
        }


def load_of(options: argparse.Namespace, url: str, rate: float, seed: int) -> argparse.Namespace:
    """What `mesh bench` would be asked."""
    parser = argparse.ArgumentParser()
    for add in (add_server, add_load, add_prompts, add_promises, add_generator):
        add(parser.add_argument_group())
    words = ["--url", url, "--model", MODEL, "--tokenizer", str(options.folder), "--prompt-as", "text"]
    words += ["--rate", str(rate), "--requests", str(ceil(rate * options.seconds)), "--seed", str(seed)]
    words += ["--input-tokens", INPUT_TOKENS, "--output-tokens", OUTPUT_TOKENS]
    words += ["--goodput", f"ttft:{TTFT_MS}", f"tpot:{TPOT_MS}"]
    words += ["--warmup", "2", "--timeout", "120", "--quiet"]
    return parser.parse_args(words)


def measure(options: argparse.Namespace, name: str, running: Running) -> Iterable[Run]:
    promise = Promise(TTFT_MS / 1e3, TPOT_MS / 1e3)
    for index, rate in enumerate(options.rates):
        load = load_of(options, running.url, rate, SEEDS_APART * index)
        with Watch(running.pids) as watch:
            ended = asyncio.run(_driven(load))
        if ended.was_interrupted:
            raise KeyboardInterrupt
        for warning in ended.result.warnings:
            _say(f"{name} at {rate:g}/s: {warning}")
        run = Run(name, rate, promise, ended.result.counted, ended.result.json, watch.contention)
        cores = watch.contention
        used = f"{cores.ours:.2f} cores used, {cores.others:.2f} by others"
        _say(f"{name} at {rate:g}/s: {run.seen(1.0).attainment:.1%} met their promise; {used}")
        yield run


async def _driven(load: argparse.Namespace) -> Ended:
    return await drive(await asked(load), "", num_warmups=load.warmup, skip_s=0.0, rate=load.rate, is_shown=False)


def compare(options: argparse.Namespace, scene: Scene) -> list[Run]:
    """Contestants that cannot be started are left out, and said."""
    runs: list[Run] = []
    for name in options.only:
        _say(f"starting {name}")
        try:
            with CONTESTANTS[name](scene) as running:
                runs += measure(options, name, running)
        except (CommandError, UserError) as error:
            _say(f"without {name}: {error}")
    return runs


# --- what comes of it -------------------------------------------------------------------------------------------------

COLUMNS = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "output_throughput")


def capacities(runs: Sequence[Run]) -> dict[str, dict[float, str]]:
    """By contestant and tightness: the rate up to which `GOAL` of the requests are good."""
    found: dict[str, dict[float, str]] = {}
    for name, group in groupby(runs, key=lambda run: run.contestant):
        of_name = list(group)
        for factor in TIGHTNESS:
            seen = [run.seen(factor) for run in of_name]
            capacity = crossing([Trial(one.rate, one.attainment) for one in seen], GOAL)
            found.setdefault(name, {})[factor] = capacity.words(GOAL)
    return found


def print_all(console: Console, runs: Sequence[Run]) -> None:
    heads = ("rate", "met", "good/s", "TTFT p50", "p99", "TPOT p50", "p99", "tokens/s", "cores", "others'")
    table = make_table(f"promise: TTFT {TTFT_MS} ms, TPOT {TPOT_MS} ms", ("",), heads)
    for name, group in groupby(runs, key=lambda run: run.contestant):
        for index, run in enumerate(group):
            figures = [run.figures[key] for key in COLUMNS]
            table.add_row(
                "" if index else name,
                f"{run.rate:g}",
                f"{run.seen(1.0).attainment:.0%}",
                f"{run.figures['request_goodput']:.2f}",
                *("-" if value is None else f"{value:.0f}" for value in figures),
                f"{run.contention.ours:.2f}",
                f"{run.contention.others:.2f}",
            )
        table.add_section()
    console.print(table)
    title = f"requests a second up to which {GOAL:.0%} keep the promise, times"
    summary = make_table(title, ("", *(f"{factor:g}" for factor in TIGHTNESS)))
    for name, by_factor in capacities(runs).items():
        summary.add_row(name, *(by_factor[factor] for factor in TIGHTNESS))
    console.print(summary)


def document(runs: Sequence[Run], options: argparse.Namespace) -> dict[str, Any]:
    """What is written as JSON."""
    asked = {key: getattr(options, key) for key in ("rates", "seconds", "model")}
    return {"asked": asked, "goal": GOAL, "capacities": capacities(runs), "runs": [run.json() for run in runs]}


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    options = _parse()
    os.sched_setaffinity(0, options.cores)  # the children inherit it
    with tempfile.TemporaryDirectory() as logs:
        try:
            options.folder = prepared_dir(options.model)
            python, more = options.vllm_python, dict(options.vllm_env)
            scene = Scene(options.folder, TTFT_MS, TPOT_MS, options.cores, python, more, Path(logs))
            runs = compare(options, scene)
        except UserError as error:
            _say(str(error))
            return 1
    if not runs:
        return 1
    print_all(make_console(), runs)
    if options.json is not None:
        write_json(options.json, document(runs, options))
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.peers.meshes", __doc__)
    add_model_argument(parser)
    parser.add_argument("--vllm-python", type=Path, metavar="PATH", help="interpreter of `make vllm-env`'s environment")
    parser.add_argument(
        "--vllm-env", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="such as LD_PRELOAD"
    )
    all_of_them = f"of {', '.join(CONTESTANTS)}"
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS], metavar="NAME", help=all_of_them
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0, 3.0, 4.0], metavar="R")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of arrivals at each rate")
    parser.add_argument("--cores", type=int, nargs="+", default=sorted(os.sched_getaffinity(0))[:2], metavar="N")
    add_json(parser)
    options = parser.parse_args()
    if len(options.cores) % 2:
        parser.error(f"--cores: {len(options.cores)} cannot be halved; name an even number of cores")
    return options


if __name__ == "__main__":
    sys.exit(main())
