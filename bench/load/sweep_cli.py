"""``mesh bench sweep``: how much a server, or each of several topologies, takes."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from bench.load.arguments import (
    SEEDS_APART,
    add_arrivals,
    add_generator,
    add_promises,
    add_prompts,
    add_server,
    share,
)
from mesh.cli.numbers import count, positive
from mesh.show.output import Showing, add_show

if TYPE_CHECKING:
    from bench.load.results.result import Result
    from bench.load.sweep import Goal, Sweep, Trial
    from mesh.show.pages import Page
    from mesh.topology.schema import Topology

DESCRIPTION = """\
Find the highest rate at which a share of the requests meets its SLO, by bisection. A rate at which
the requests sent so far leave it open gets more of them. With topologies, each mesh is started,
measured and stopped in turn; promises are then those of its services.
"""
EPILOG = """\
examples:
  mesh bench sweep --goodput ttft:500 tpot:50 --attainment 90% --requests 300
  mesh bench sweep --topology one.toml two.toml --lengths llumnix:sharegpt
"""
FEELERS = 3  # requests that tell where to begin
RATES_ARE_FOUND: Mapping[str, None] = dict.fromkeys(
    ("rate", "concurrency", "think", "trace", "load", "speed", "duration", "skip")
)  # what `mesh bench` asks for, and who looks for a rate does not


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("sweep", help="the highest rate at which a share of requests meets its SLO")
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.usage = "mesh bench sweep [--url URL | --topology FILE [FILE ...]] [options]"
    server = parser.add_argument_group("server")
    add_server(server)
    server.add_argument("--topology", type=Path, nargs="+", metavar="FILE", help="start these meshes, one by one")
    server.add_argument(
        "--simulated", action="store_true", help="measure in simulated time: nothing is started or asked"
    )
    server.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="[POOL=]NAME",
        help="with --simulated: what engines cost; without --topology, of one server",
    )
    group = parser.add_argument_group("search")
    group.add_argument(
        "--attainment", type=share, metavar="X", help="the share, as 0.9 or 90%% (default: the topology's, or 0.9)"
    )
    group.add_argument(
        "--requests", type=count, default=200, metavar="N", help="the least requests of one trial (default: 200)"
    )
    group.add_argument(
        "--least-s", type=positive, default=10.0, metavar="S", help="a trial's least length (default: 10)"
    )
    group.add_argument("--trials", type=count, default=3, metavar="N", help="the most trials at one rate (default: 3)")
    group.add_argument(
        "--confidence", type=share, default=0.95, metavar="X", help="how sure a verdict is (default: 0.95)"
    )
    group.add_argument(
        "--precision", type=share, default=0.1, metavar="X", help="the precision of the rate (default: 0.1)"
    )
    group.add_argument(
        "--first-rate",
        type=positive,
        metavar="R",
        help="the rate to try first (default: what one request at a time makes)",
    )
    group.add_argument("--most-rates", type=count, default=16, metavar="N", help="the most rates to try (default: 16)")
    add_arrivals(group)
    add_prompts(parser.add_argument_group("requests"))
    add_promises(parser.add_argument_group("promises"))
    add_generator(parser.add_argument_group("the generator itself"))
    results = parser.add_argument_group("results")
    results.add_argument("--out", type=Path, metavar="DIR", help="write sweep.json and sweep.html there")
    add_show(results, "attainment and goodput against rate, and what was found")
    parser.set_defaults(run=run, **RATES_ARE_FOUND)


def run(options: argparse.Namespace) -> int:
    from bench.load.sweep import Goal
    from mesh.errors import EXIT_INTERRUPTED, UserError

    if options.profile and not options.simulated:
        raise UserError("--profile: is of servers in simulated time; add --simulated")
    if options.topology is None and not options.goodput:
        raise UserError("--goodput: is needed to know what is kept; give it, such as ttft:500 tpot:50")
    if options.attainment == 1.0 or options.confidence == 1.0:
        raise UserError("--attainment and --confidence: must be below 1; no number of requests tells more")
    showing = Showing.of(options)
    goal = Goal(options.attainment or 0.9, options.confidence, options.precision, options.trials, options.most_rates)
    sweeps: dict[str, Sweep] = {}
    try:
        if options.simulated:
            from bench.load.simulated_sweep import sweep_simulated

            sweep_simulated(options, goal, sweeps, _say)
        elif options.topology is None:
            _one(options, goal, options.url, sweeps)
        else:
            _topologies(options, goal, sweeps)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:  # what was measured took minutes: it is not lost if the next mesh does not start
        if sweeps:
            _print(sweeps)
            if options.out is not None:
                _write(options.out, sweeps)
            showing.put(lambda: _page(sweeps))
    return 0


def _topologies(options: argparse.Namespace, goal: "Goal", sweeps: "dict[str, Sweep]") -> None:
    from dataclasses import replace

    from bench.live.mesh import live_mesh
    from bench.load.results.report import names_of
    from mesh.topology.parse import load

    topologies = [load(path) for path in options.topology]  # all are checked before one is started
    for name, topology in zip(names_of(options.topology), topologies, strict=True):
        _say(f"{name}: starting")
        own = max(service.slo.attainment for service in topology.services)
        with live_mesh(topology.path) as mesh:
            here = argparse.Namespace(**{**vars(options), "url": f"http://127.0.0.1:{mesh.port}"})
            here.goodput = options.goodput or _promised(topology)
            _one(here, replace(goal, attainment=options.attainment or own), name, sweeps)


def _promised(topology: "Topology") -> list[str]:
    """What the services promise, as ``--goodput`` has it."""
    by_service = {
        service.name: {"ttft": service.slo.ttft_s, "tpot": service.slo.tpot_s} for service in topology.services
    }
    is_alone = len(by_service) == 1
    return [
        f"{'' if is_alone else name + '/'}{metric}:{1e3 * limit_s:g}"
        for name, limits in by_service.items()
        for metric, limit_s in limits.items()
    ]


def _one(options: argparse.Namespace, goal: "Goal", name: str, sweeps: "dict[str, Sweep]") -> None:
    from bench.load.sweep import Sweep

    sweep = sweeps[name] = Sweep(goal, _measure(options), say=lambda words: _say(f"{name}: {words}"))
    sweep.run(options.first_rate or _first_rate(options))


def _measure(options: argparse.Namespace) -> "Callable[[float, int], Trial]":
    def measure(rate: float, number: int) -> "Trial":
        requests = max(options.requests, ceil(rate * options.least_s))
        return _trial(options, {"rate": rate, "requests": requests, "seed": options.seed + SEEDS_APART * (number + 1)})

    return measure


def _first_rate(options: argparse.Namespace) -> float:
    """Requests one by one."""
    alone = {"rate": None, "arrivals": None, "cv": None, "concurrency": 1, "requests": FEELERS}
    figures = _trial(options, alone).figures
    mean_ms = figures.get("mean_e2el_ms")
    return float(f"{1e3 / mean_ms:.2g}") if mean_ms else 1.0


def _trial(options: argparse.Namespace, changes: Mapping[str, object]) -> "Trial":
    from bench.load.sweep import Trial

    result = measured_run(options, changes)
    for warning in result.warnings:
        _say(f"note: {warning}")
    return Trial(round((result.attainment or 0.0) * len(result.counted)), len(result.counted), result.json)


def measured_run(options: argparse.Namespace, changes: Mapping[str, object]) -> "Result":
    """Run `mesh bench` with some options changed. Raise `KeyboardInterrupt` if it was interrupted: a cut run would
    mislead.
    """
    from bench.load.asked import asked
    from bench.load.generator.running import Ended
    from bench.load.generator.running import run as measure

    here = argparse.Namespace(**{**vars(options), **changes})

    async def whole() -> Ended:
        ready = await asked(here)
        return await measure(ready, "", num_warmups=here.warmup, skip_s=0.0, rate=here.rate, is_shown=not here.quiet)

    ended = asyncio.run(whole())
    if ended.was_interrupted:
        raise KeyboardInterrupt
    return ended.result


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


# --- what comes of it -------------------------------------------------------------------------------------------------


def _print(sweeps: "Mapping[str, Sweep]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="requests that met their SLO, by rate", title_justify="left")
    for column in ("", "requests/s", "met", "between", "of", "P99 TTFT, ms", "P99 TPOT, ms"):
        table.add_column(column, justify="left" if not column else "right")
    for name, sweep in sweeps.items():
        for index, point in enumerate(sweep.json()["points"]):
            cells = [f"{point['rate']:.3g}", f"{point['attainment']:.1%}", f"{point['low']:.1%} - {point['high']:.1%}"]
            late = [point[key] for key in ("p99_ttft_ms", "p99_tpot_ms")]
            cells += [str(point["requests"]), *("-" if value is None else f"{value:.1f}" for value in late)]
            table.add_row("" if index else name, *cells)
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(table)
    for name, sweep in sweeps.items():
        sys.stdout.write(f"{name}: {_told(sweep, ' of the requests meet their SLO')}\n")


def _told(sweep: "Sweep", what: str) -> str:
    return sweep.words() if sweep.found is None else f"{sweep.goal.attainment:.0%}{what} up to {sweep.words()}"


def _page(sweeps: "Mapping[str, Sweep]") -> "Page":
    from bench.load.results.report import sweep_page

    return sweep_page(sweeps, {name: _told(sweep, ":") for name, sweep in sweeps.items()})


def _write(folder: Path, sweeps: "Mapping[str, Sweep]") -> None:
    from bench.load.results.report import write
    from bench.load.results.result import write_result

    first = next(iter(sweeps.values()))
    json_of = {name: {"attainment_goal": sweep.goal.attainment, **sweep.json()} for name, sweep in sweeps.items()}
    write_result(folder / "sweep.json", {"confidence": first.goal.confidence, "runs": json_of})
    write(folder / "sweep.html", _page(sweeps))
    sys.stdout.write(f"written to {folder}\n")
