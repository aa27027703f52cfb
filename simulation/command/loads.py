"""Turns the arguments of ``mesh simulate`` into its load. What does not fit together is a `UserError`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from mesh.errors import UserError
from mesh.topology.schema import Topology
from simulation.capacity_search import FIRST_REQUESTS
from simulation.loads.arrival_processes import Arrivals, Process
from simulation.loads.closed_loop import POOL
from simulation.loads.described.description import MOST_REQUESTS, read_description
from simulation.loads.mix import Mix
from simulation.loads.services import assign_services
from simulation.loads.sources import ClosedLoad, DescribedLoad, LoadLevel, LoadSource, SyntheticLoad, TraceLoad
from simulation.loads.trace_request import LONGEST_S, TraceRequest
from simulation.loads.traces import load_lengths, load_trace, mean_rate, scaled, structured

DURATION_S = 600.0
ALL_IN_FILE = ("limit", "structured", "think")
ONLY_WITH = {
    "trace": ("scale",),
    "lengths": ("arrivals", "cv", "duration"),
    "concurrency": ("think",),
}


def check_load(options: argparse.Namespace) -> None:
    if options.load is not None:
        _check_described(options)
    elif options.concurrency is not None and options.lengths is None:
        raise UserError("--concurrency: is for --lengths or --load; leave it out")
    for source, dependent in ONLY_WITH.items():
        for name in dependent:
            if getattr(options, name) is not None and getattr(options, source) is None:
                raise UserError(f"--{name}: is for --{source}; leave it out")
    if options.cv is not None and options.arrivals != "gamma":
        raise UserError("--cv: is of gamma's gaps; give --arrivals gamma, too")
    if options.rate is not None and options.rates is not None:
        raise UserError("--rate and --rates: give one of them")
    if options.scale is not None and (options.rate or options.rates):
        raise UserError("--scale: multiplies the trace's own rate; leave it out, or the rate")
    if options.attainment is not None:
        _check_search(options)
    if options.concurrency is not None:
        _check_closed(options)
    elif options.lengths is not None and not (options.rate or options.rates):
        raise UserError(
            "--lengths: has no arrivals of its own; say how many requests a second with --rate or --rates, or how many "
            "at a time with --concurrency"
        )


def _check_described(options: argparse.Namespace) -> None:
    """A search says how many requests a run has."""
    for name in ALL_IN_FILE:
        if getattr(options, name) is not None and not (name == "limit" and options.attainment):
            raise UserError(f"--{name} and --load: the file says it all; leave the option out")


def _check_search(options: argparse.Namespace) -> None:
    if options.attainment == 1.0:
        raise UserError("--attainment: must be below 1; no number of requests tells more")
    is_made = options.lengths is not None or options.load is not None
    if not is_made or options.rates is None or len(options.rates) < 2:
        raise UserError(
            "--attainment: searches between two rates; give --lengths or --load and the rates, as in --rates 1:40"
        )
    if (options.limit or FIRST_REQUESTS) / options.rates[0] > LONGEST_S:
        raise UserError(
            f"--rates: at {options.rates[0]:g} a second a run would take years, and one is the most; give more"
        )
    if options.duration is not None:
        raise UserError("--attainment: makes runs as long as they need to be; leave --duration out")


def _check_closed(options: argparse.Namespace) -> None:
    for name in ("rate", "rates", "arrivals"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} and --concurrency: requests come by themselves or after answers; give one")
    if options.limit is not None and options.duration is not None:
        raise UserError("--limit and --duration: a closed loop ends by one of them; give one")
    for name, most in (("concurrency", max(options.concurrency)), ("limit", options.limit or 0)):
        if most > MOST_REQUESTS:
            raise UserError(f"--{name}: {most} is too many; a closed loop has {MOST_REQUESTS:,} at most")


def levels_of(options: argparse.Namespace) -> list[LoadLevel]:
    """How much of the load comes in each run, one at least."""
    if options.concurrency is not None:
        return [LoadLevel(num_clients=number) for number in options.concurrency]
    rates = options.rates or [options.rate]
    return [LoadLevel(rate) for rate in (rates[:1] if options.attainment else rates)]


def load_of(options: argparse.Namespace, topology: Topology, mix: Mix | None) -> LoadSource:
    """Return the load of all runs."""
    wanted = options.service[0] if options.service and mix is None else None
    masks, share = Random(f"{options.seed}/structured"), options.structured or 0.0
    if options.load is not None:
        service = _with_services([TraceRequest(0.0, 1, 1)], topology, wanted, mix)[0].service
        first = service or (mix.services[0] if mix else topology.services[0].name)
        return _described(options, first)
    if options.trace is not None:
        requests = load_trace(options.trace, Random(f"{options.seed}/spread"))
        requests = structured(_with_services(requests[: options.limit], topology, wanted, mix), share, masks)
        return TraceLoad(_within_a_year(scaled(requests, options.scale or 1.0), options))
    lengths = structured(_with_services(load_lengths(options.lengths), topology, wanted, mix), share, masks)
    if options.concurrency is not None:
        duration_s = options.duration or (DURATION_S if options.limit is None else None)
        return ClosedLoad(lengths, options.concurrency[0], options.think or 0.0, options.limit or POOL, duration_s)
    arrivals = Arrivals(options.rate or options.rates[0], Process(options.arrivals or "poisson"), options.cv or 2.0)
    return SyntheticLoad(lengths, arrivals, options.duration or DURATION_S, options.limit)


def _within_a_year(requests: Sequence[TraceRequest], options: argparse.Namespace) -> Sequence[TraceRequest]:
    slowest = min((level.rate for level in levels_of(options) if level.rate is not None), default=None)
    span_s = requests[-1].at_s if slowest is None else requests[-1].at_s * mean_rate(requests) / slowest
    if span_s > LONGEST_S:
        option = "--scale" if slowest is None else "--rate" if options.rates is None else "--rates"
        raise UserError(
            f"{option}: the trace would take {span_s / LONGEST_S:.3g} years, and one is the most; give more"
        )
    return requests


def _described(options: argparse.Namespace, service: str) -> DescribedLoad:
    """Whether it can be had at all levels is found out here, before anything runs."""
    levels, written = levels_of(options), DescribedLoad(read_description(options.load), service, options.seed)
    first, *_ = [written.at_level(level) for level in levels]
    load = replace(written, description=first)
    if not load.pool:
        raise UserError(f"--load: {options.load}: no request comes; give a longer duration_s or higher rates")
    if options.attainment is not None and not load.is_stationary:
        problem = "has phases, of which a run cannot have more or fewer"
        raise UserError(f"--attainment: {options.load} {problem}; describe [arrivals], or give --rates alone")
    return load


def _with_services(
    requests: Sequence[TraceRequest], topology: Topology, wanted: str | None, mix: Mix | None
) -> list[TraceRequest]:
    if mix is None:
        return assign_services(requests, topology, wanted)
    traced = sorted({request.service for request in requests if request.service is not None})
    if len(traced) > 1:
        raise UserError(f"--mix: the trace has several services, {', '.join(traced)}; leave the option out")
    return [request.asking(None) for request in requests]
