"""``mesh bench sweep --simulated``: how much a topology takes, or servers of a profile, in simulated time."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.load.results.goodput import parse_promises
from bench.load.results.outcome import Promise
from bench.load.sweep import Goal, Sweep, Trial
from engines.costs.linear import prefill_s
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import Topology
from simulation.command.deployments import DeploymentSource, PromisedS, stand_in
from simulation.command.profiles import parse_named, profiles_of
from simulation.engines.shared_profiles import Profile, profile_of
from simulation.experiment import Experiment
from simulation.loads.arrival_processes import Arrivals, Process
from simulation.loads.services import assign_services
from simulation.loads.sources import LoadLevel, SyntheticLoad
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths
from simulation.reports.summary import Summary

NUM_LENGTHS: Final = 1000  # drawn where a range of lengths is given
LEAST_REQUESTS: Final = 400  # of a trial: simulated ones are cheap
NAME: Final = Path("servers")


def sweep_simulated(
    options: argparse.Namespace, goal: Goal, sweeps: dict[str, Sweep], say: Callable[[str], None]
) -> None:
    """Sweep each topology, or the servers of ``--profile``. Raise `UserError` for what does not fit together."""
    lengths = lengths_of(options)
    for name, source, own in _sources(options, lengths):
        experiment = _experiment(options, source, lengths)
        attainment = options.attainment or (
            max(one.slo.attainment for one in experiment.topology.services) if own else 0.9
        )
        sweep = Sweep(replace(goal, attainment=attainment), _measure(options, experiment), say=_prefixed(say, name))
        sweeps[name] = sweep
        sweep.run(options.first_rate or _first_rate(experiment, lengths))


def _prefixed(say: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda words: say(f"{name}: {words}")


def _sources(options: argparse.Namespace, lengths: Sequence[TraceRequest]) -> list[tuple[str, DeploymentSource, bool]]:
    """Names and deployments, and whether each says its own attainment."""
    if options.topology is not None:
        return [(path.stem, DeploymentSource(path), True) for path in options.topology]
    if not options.profile:
        raise UserError("--simulated: what is simulated? Name topologies with --topology, or servers with --profile")
    return [(NAME.name, stand_in(NAME, _named(options), lengths, _promised(options)), False)]


def _named(options: argparse.Namespace) -> dict[str, str]:
    try:
        return parse_named(options.profile)
    except ValueError as error:
        raise UserError(str(error)) from None


def _promised(options: argparse.Namespace) -> PromisedS:
    promise: Promise = parse_promises(options.goodput or []).common
    if promise.ttft_s is None or promise.tpot_s is None:
        raise UserError("--goodput: is needed to know what is kept; give it, such as ttft:500 tpot:50")
    return PromisedS(promise.ttft_s, promise.tpot_s)


def lengths_of(options: argparse.Namespace) -> list[TraceRequest]:
    """Return lengths to draw from, as the options of prompts say."""
    if options.lengths is not None:
        return load_lengths(options.lengths)
    draw = Random(f"{options.seed}/lengths")
    inputs, outputs = options.input_tokens or (256, 256), options.output_tokens or (64, 64)
    return [TraceRequest(0.0, draw.randint(*inputs), draw.randint(*outputs)) for _ in range(NUM_LENGTHS)]


def _experiment(options: argparse.Namespace, source: DeploymentSource, lengths: Sequence[TraceRequest]) -> Experiment:
    topology = source.topology()
    profiles = profiles_of(topology, _named(options))
    service = _service(options, topology)
    pool = assign_services(lengths, topology, service)
    arrivals = Arrivals(1.0, Process(options.arrivals or "poisson"), options.cv or 2.0)
    load = SyntheticLoad(pool, arrivals, options.least_s)
    return Experiment(topology, profiles, service, load, topology.policy, seed=options.seed)


def _service(options: argparse.Namespace, topology: Topology) -> str:
    """Return the one of a topology that is asked for: ``--model``, else the first. Servers of a profile have one."""
    if options.mix:
        raise UserError(
            "--mix: one model is simulated at a time; name it with --model, or give `mesh simulate` a trace"
        )
    names = [service.name for service in topology.services]
    if options.model is None or options.topology is None:
        return names[0]
    if options.model not in names:
        raise UserError(
            f"--model: {topology.path} has no service {options.model!r}; {suggestion(options.model, names)}"
        )
    return str(options.model)


def _first_rate(experiment: Experiment, lengths: Sequence[TraceRequest]) -> float:
    """Half of what an engine reads prompts at, if it did nothing else."""
    profile: Profile = next(iter(experiment.profiles.values()))
    cost = profile_of(profile, experiment.service).prefill
    mean = sum(one.num_input for one in lengths) / len(lengths)
    return 0.5 / max(1e-6, prefill_s(cost, max(1, round(mean))))


def _measure(options: argparse.Namespace, experiment: Experiment) -> Callable[[float, int], Trial]:
    load = experiment.load
    assert isinstance(load, SyntheticLoad)

    def measure(rate: float, number: int) -> Trial:
        num_requests = max(options.requests, LEAST_REQUESTS)
        span_s = max(options.least_s, num_requests / rate)
        run = replace(experiment, level=LoadLevel(rate), seed=options.seed + number, load=replace(load, span_s=span_s))
        summary = run.run()
        return Trial(round(summary.attainment * summary.num_requests), summary.num_requests, _figures(summary))

    return measure


def _figures(summary: Summary) -> Mapping[str, Any]:
    """Those of a sweep under the names of measured ones."""
    figures: dict[str, Any] = {
        "request_throughput": summary.rate * summary.num_finished / summary.num_requests,
        "output_throughput": summary.output_tokens_per_s,
    }
    for name, distribution in (("ttft", summary.ttft), ("tpot", summary.tpot)):
        for word, percent in (("median", 50), ("p99", 99)):
            figures[f"{word}_{name}_ms"] = None if distribution is None else 1e3 * distribution.percentile(percent)
    return figures
