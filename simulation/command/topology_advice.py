"""``mesh advise --simulate``: the cheapest topology that keeps a recording's promises, by successive halving."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from random import Random
from typing import Final

from engines.costs.advice import LatencyPromise, Lengths, advise
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile, ProfileError
from mesh.errors import CommandError, UserError
from mesh.show.output import Showing
from mesh.show.progress import working
from simulation.command.deployments import PromisedS, promised_now, promises_of
from simulation.command.policy_names import parse_policies
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace, mean_rate
from simulation.reports.search import SearchReport
from simulation.search.candidates import EngineOffer, SearchCandidate, SearchSpace
from simulation.search.documents import write_document
from simulation.search.halving import SearchEffort
from simulation.search.sample_runs import SampleRunner
from simulation.search.search import search_topologies

POLICIES: Final = "chunked,elastic,foresight,least_loaded,tropical,tropical:watermark=0.8"
CHUNKS: Final = (512, 2048)
MOST_ENGINES: Final = 32
CONFIDENCE: Final = 0.95
LIVES: Final = 1.5  # of a request that takes as long as it may: as long is a sample at least
LEAST: Final = 10  # requests of a sample


def run_search(options: argparse.Namespace, presets: Mapping[str, EngineProfile], attainment: float) -> int:
    """Search; print the front; write the topology and the picture where asked. ``presets`` cost a unit a device."""
    if options.trace is None:
        raise UserError("--trace: what is to be served? Give a recording, or any other trace")
    showing = Showing.of(options, is_for_programs=options.json)
    _check_out(options.out)
    offers = _offers(options.engine, presets)
    policies = parse_policies(options.compare or POLICIES)
    promised = PromisedS(options.ttft, options.tpot)
    requests = promised_now(load_trace(options.trace, Random("spread")), promised)
    promises = promises_of(options.trace, requests, promised)
    loosest = LatencyPromise(max(one.ttft_s for one in promises.values()), max(one.tpot_s for one in promises.values()))
    space = SearchSpace(offers, policies, options.chunks or CHUNKS, options.most or MOST_ENGINES)
    candidates = _candidates(space, requests, loosest)
    goal = options.attainment or attainment
    if goal == 1.0:
        raise UserError("--attainment: must be below 1; no number of requests tells more")
    effort = SearchEffort(goal, options.confidence or CONFIDENCE, len(requests), _least(requests, loosest))
    _remark(effort, len(requests))
    services = {
        name: {"ttft_ms": 1e3 * one.ttft_s, "tpot_ms": 1e3 * one.tpot_s, "attainment": goal}
        for name, one in promises.items()
    }
    with working("searching", has_lines=not options.json) as shown:
        halving = search_topologies(candidates, effort, SampleRunner(requests, services, goal), options.jobs, shown)
    report = SearchReport(candidates, halving, effort)
    _tell(options, report, showing)
    if report.best is None:
        instead = (
            "a longer recording, or a lower --attainment or --confidence"
            if report.is_open
            else ("--most with more engines, --compare, or other promises")
        )
        raise CommandError(f"{next(report.sentences())}; try {instead}")
    if options.out is not None:
        about = [f"Found by `mesh advise --simulate` for {options.trace.name}.", *report.sentences()]
        options.out.write_text(write_document(report.best, services, about), encoding="utf-8")
        sys.stderr.write(f"written to {options.out}\n")
    return 0


def _tell(options: argparse.Namespace, report: SearchReport, showing: Showing) -> None:
    if options.json:
        sys.stdout.write(f"{json.dumps(report.for_programs(), indent=2)}\n")
    else:
        from rich.console import Console

        console = Console(highlight=False)
        console.print(report.table())
        for sentence in report.sentences():
            console.print(sentence, markup=False, soft_wrap=True)
    showing.put(lambda: report.page(f"Topologies for {options.trace.name}"))


# --- what is asked for ------------------------------------------------------------------------------------------------


def _check_out(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix != ".toml":
        raise UserError(f"--out: {path}: call it .toml; it is a topology")
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"--out: {path} cannot be written; name a file in a folder that is there")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--out: {path} cannot be written; name another file")


def _offers(texts: Sequence[str], presets: Mapping[str, EngineProfile]) -> list[EngineOffer]:
    offers = {name: EngineOffer(profile, name, profile.num_devices) for name, profile in presets.items()}
    for text in texts:
        offer = _offer(text)
        offers[offer.name] = offer
    if not offers:
        raise UserError("which engines can be had? Name MODEL and DEVICE of presets, or --engine PROFILE=PRICE")
    return list(offers.values())


def _offer(text: str) -> EngineOffer:
    """Parse ``PROFILE=PRICE``, or ``PROFILE``: then each of its devices costs 1."""
    name, equals, price_text = text.rpartition("=") if "=" in text else (text, "", "")
    try:
        profile = load_profile(name)
    except ProfileError as error:
        raise UserError(f"--engine: {error}") from None
    if profile.server is not None:
        raise UserError(f"--engine: {name} is of a server that is not ours; leave out --simulate, and give --profile")
    try:
        price = float(price_text) if equals else float(profile.num_devices)
    except ValueError:
        price = 0.0
    if not 0 < price < float("inf"):
        raise UserError(f"--engine: {text!r} does not fit; write it like h100-llama2-70b-tp4=12.5")
    return EngineOffer(profile, name, price)


def _candidates(space: SearchSpace, requests: Sequence[TraceRequest], promise: LatencyPromise) -> list[SearchCandidate]:
    lengths = Lengths.of((one.num_input, one.num_output) for one in requests)
    candidates = space.candidates(lengths, promise, mean_rate(requests))
    if candidates:
        return candidates
    broken = [(offer.name, advise(offer.profile, lengths, promise).broken) for offer in space.offers]
    if all(why is not None for _, why in broken):
        raise CommandError(f"no engine can keep this promise: {'; '.join(f'{name}: {why}' for name, why in broken)}")
    raise CommandError(f"more than {space.most_engines} engines would be needed; allow more with --most")


def _least(requests: Sequence[TraceRequest], promise: LatencyPromise) -> int:
    """Requests that arrive while `LIVES` requests are served."""
    mean = sum(request.num_output for request in requests) / len(requests)
    return max(LEAST, ceil(LIVES * (promise.ttft_s + mean * promise.tpot_s) * mean_rate(requests)))


def _remark(effort: SearchEffort, num_requests: int) -> None:
    least = effort.least_requests * effort.num_samples
    if num_requests < least:
        are_few = "1 request is few" if num_requests == 1 else f"{num_requests} requests are few"
        sys.stderr.write(
            f"{are_few}: samples end before the mesh is as full as it will be; a recording of {least} would show more\n"
        )
