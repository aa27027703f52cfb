"""``mesh simulate``: what a topology would do under a load, without the hardware."""

import argparse
import importlib.util
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from bench.simulation.arguments import add_arguments
from mesh.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress

    from bench.simulation.experiment import Experiment, SyntheticLoad, TraceLoad
    from bench.simulation.summary import Summary
    from bench.simulation.trace_request import TraceRequest
    from bench.simulation.workload import SloRule
    from engines.profiles import EngineProfile
    from mesh.topology.schema import PolicySpec, Topology


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``simulate`` to the commands of ``mesh``."""
    parser = subparsers.add_parser("simulate", help="run a trace against a topology in virtual time")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate; print tables; write files where asked."""
    from rich.console import Console

    from bench.simulation.experiment import grid
    from bench.simulation.report import capacity_table, comparison_table, latency_table

    base = _experiment(options)
    rates = options.rates or [options.rate]
    experiments = grid(base, _policies(options, base.topology), rates)
    summaries = _run_all(experiments, options.jobs)
    attainment = base.topology.service(base.service).slo.attainment
    console = Console(width=None if sys.stdout.isatty() else 120)
    if len(summaries) == 1:
        console.print(latency_table(summaries[0]))
    else:
        console.print(comparison_table(summaries))
    if options.rates and options.compare:
        console.print(capacity_table(summaries, attainment))
    if options.out is not None:
        _write(options.out, base, summaries)
    return 0


# --- what is asked for ------------------------------------------------------------------------------------------------


def _experiment(options: argparse.Namespace) -> "Experiment":
    from bench.simulation.experiment import Experiment
    from bench.simulation.factory import Physics
    from bench.simulation.workload import SloRule
    from mesh.topology.parse import load

    topology = load(options.topology)
    profiles, load = _profiles(topology), _load(options, topology)
    service = load.pool[0].service or topology.services[0].name
    slo = SloRule(options.ttft_factor, keeps_traced=options.slo == "trace")
    _remark(load.pool, slo)
    _check_slo(topology, service, profiles, options.ttft_factor)
    return Experiment(
        topology,
        profiles,
        service,
        load,
        topology.policy,
        seed=options.seed,
        physics=Physics(options.latency_ms / 1e3, options.kv_gb_s * 1e9, noise=options.noise),
        slo=slo,
        coasts=options.coast,
        records=_records(options.out),
    )


def _profiles(topology: "Topology") -> "dict[str, EngineProfile]":
    from engines.profiles import load_profile

    for engine in topology.engines:
        if engine.profile is None:
            raise UserError(f'{topology.path}: engines.{engine.id}: no profile; name one, as in profile = "NAME"')
    names = {engine.id: engine.profile for engine in topology.engines if engine.profile is not None}
    loaded = {name: load_profile(name) for name in set(names.values())}
    return {engine: loaded[name] for engine, name in names.items()}


def _remark(pool: "Sequence[TraceRequest]", slo: "SloRule") -> None:
    """What somebody who plays a recording should know."""
    if slo.counts_traced(pool):
        sys.stderr.write("SLOs are those of the recorded requests; --slo topology uses the topology's\n")
    if num_unanswered := sum(not request.was_answered for request in pool):
        sys.stderr.write(
            f"{num_unanswered} of {len(pool)} requests were not answered when they were recorded; they arrive too, "
            "for as many tokens as they asked for, or had got when their client cancelled them\n"
        )


def _check_slo(
    topology: "Topology", service: str, profiles: "Mapping[str, EngineProfile]", ttft_factor: float | None
) -> None:
    """A promise that an idle engine could not keep is a mistake."""
    from engines.costs import decode_step_s, prefill_s

    if ttft_factor is not None and ttft_factor <= 1:
        raise UserError(f"--ttft-factor: {ttft_factor:g} times an unloaded prefill can never be met; use more than 1")
    costs = [profiles[engine.id] for engine in topology.engines if service in engine.services]
    slo = topology.service(service).slo
    least_s = {
        "ttft_ms": (slo.ttft_s, min(prefill_s(cost.prefill, 1) for cost in costs)),
        "tpot_ms": (slo.tpot_s, min(decode_step_s(cost.decode, 1, 1) for cost in costs)),
    }
    for key, (promised_s, needed_s) in least_s.items():
        if promised_s < needed_s and not (key == "ttft_ms" and ttft_factor):
            can = (
                f"can never be met: the fastest engine needs {needed_s * 1e3:.1f} ms for one token; use more than that"
            )
            raise UserError(f"{topology.path}: services.{service}.{key}: {promised_s * 1e3:g} {can}")


def _load(options: argparse.Namespace, topology: "Topology") -> "TraceLoad | SyntheticLoad":
    from bench.simulation.arrivals import Arrivals, Process
    from bench.simulation.experiment import SyntheticLoad, TraceLoad
    from bench.simulation.services import assign_services
    from bench.simulation.traces import load_lengths, load_trace, scaled

    if options.trace is not None:
        requests = load_trace(options.trace, Random(f"{options.seed}/spread"))
        requests = assign_services(requests, topology, options.service)
        return TraceLoad(scaled(requests[: options.limit], options.scale))
    rate = options.rate or (options.rates[0] if options.rates else None)
    if rate is None:
        raise UserError("--lengths: has no arrivals of its own; say how many requests a second with --rate or --rates")
    arrivals = Arrivals(rate, Process(options.arrivals), options.cv)
    lengths = assign_services(load_lengths(options.lengths), topology, options.service)
    return SyntheticLoad(lengths, arrivals, options.duration, options.limit)


def _policies(options: argparse.Namespace, topology: "Topology") -> "list[PolicySpec]":
    """Checked before anything runs. The topology's parameters are for the topology's own policy."""
    from mesh.topology.schema import PolicySpec
    from router.policies.registry import make_policy

    names = options.compare or [topology.policy.name]
    policies = [topology.policy if name == topology.policy.name else PolicySpec(name) for name in names]
    for policy in policies:
        make_policy(policy, Random(0))
    return policies


def _records(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be made: {error}") from None
    return folder / "records.jsonl"


# --- runs -------------------------------------------------------------------------------------------------------------


def _run_all(experiments: "Sequence[Experiment]", jobs: int) -> "list[Summary]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        return _run_one(experiments[0], progress) if len(experiments) == 1 else _run_many(experiments, jobs, progress)


def _run_one(experiment: "Experiment", progress: "Progress") -> "list[Summary]":
    task = progress.add_task(f"simulating {experiment.policy.name}", total=experiment.load.span_s)
    return [experiment.run(lambda at_s: progress.update(task, completed=at_s))]


def _run_many(experiments: "Sequence[Experiment]", jobs: int, progress: "Progress") -> "list[Summary]":
    from bench.simulation.experiment import run_experiment

    task = progress.add_task(f"simulating {len(experiments)} runs", total=len(experiments))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(experiments)), mp_context=context) as pool:
        futures = [pool.submit(run_experiment, experiment) for experiment in experiments]
        for _ in as_completed(futures):
            progress.advance(task)
        return [future.result() for future in futures]


# --- what comes of it -------------------------------------------------------------------------------------------------


def _write(folder: Path, base: "Experiment", summaries: "Sequence[Summary]") -> None:
    from bench.simulation.report import write_summaries

    write_summaries(folder / "summaries.json", summaries)
    if importlib.util.find_spec("matplotlib") is None:
        sys.stderr.write("no plots: matplotlib is not installed; pip install 'meshserve[bench]' brings it\n")
        return
    from bench.simulation.plots import plot_distributions, plot_rates

    slo = base.topology.service(base.service).slo
    rate = _telling_rate(summaries, slo.attainment)
    at_rate = [summary for summary in summaries if summary.rate == rate]
    plot_distributions(folder / "latencies.png", at_rate, *base.slo.common(base.topology.services, base.load.pool))
    if len({summary.rate for summary in summaries}) > 1:
        plot_rates(folder / "rates.png", summaries, slo)
    sys.stdout.write(f"written to {folder}\n")


def _telling_rate(summaries: "Sequence[Summary]", attainment: float) -> float:
    """The highest rate at which some policy keeps the promise, or else the lowest."""
    kept = [summary.rate for summary in summaries if summary.attainment >= attainment]
    return max(kept) if kept else min(summary.rate for summary in summaries)
