"""Meshes that are up and measured, ready for policies to take turns on them, and rates that tell policies apart."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from statistics import fmean

from bench.fidelity.predicting import physics_of
from bench.live.http_load import Sending
from bench.live.mesh import LiveMesh, live_mesh, measure_profile
from bench.live.overheads import Overheads, copy_bytes_per_s, measure_overheads
from bench.live.sharing import TOKEN_IDS, Sharing, measure_sharing
from bench.papers.tropical.live.fleets import Fleet, profiles_of, to_measure
from bench.papers.tropical.live.report import PROMISE
from bench.papers.tropical.live.runs import Contender, Model, attained
from bench.papers.tropical.live.workload import make_trace
from mesh.topology.schema import Topology
from simulation.capacity import FoundCapacity, find_capacity
from simulation.loads.trace_request import TraceRequest

WARM_UP_REQUESTS, WARM_UP_PROMPT, WARM_UP_ANSWER = 4, 256, 16
SEARCH_REQUESTS, SEARCH_RUNS, SEARCH_PRECISION = 100, 8, 0.2
FIRST_RATE, BELOW, BEYOND = 0.5, 0.8, 1.1  # where searches begin; rates go that far past what they find


@dataclass(frozen=True, slots=True)
class Stage:
    meshes: Mapping[Fleet, LiveMesh]
    models: Mapping[Fleet, Model]
    pids: Mapping[Fleet, Sequence[int]]


@contextmanager
def stage(topologies: Mapping[Fleet, Topology], *, is_quick: bool, keeps: bool, random: Random) -> Iterator[Stage]:
    """Profiles, overheads and sharing are measured, one after the other; quick runs leave out the last two.

    With ``keeps``, engines that were ever profiled are not profiled again. Raise `UserError` if anything cannot be
    measured or started.
    """
    for path in to_measure(topologies.values(), keeps=keeps):
        say(f"measuring what engines cost: {path.stem}")
        measure_profile(path)
    first = next(iter(topologies))
    overheads, sharing = Overheads(0.0, 0.0, copy_bytes_per_s()), Sharing()
    if not is_quick:
        say("measuring HTTP and what surrounds computation")
        overheads = measure_overheads(topologies[first])
    with ExitStack() as stack:
        say(f"starting {len(topologies)} meshes of two engines")
        meshes = {fleet: stack.enter_context(live_mesh(one.path)) for fleet, one in topologies.items()}
        for mesh in meshes.values():
            _warm_up(mesh, random)
        if not is_quick:
            say("measuring how much two engines slow each other")
            sharing = measure_sharing(meshes[first], random)
        physics = physics_of(overheads, sharing)
        models = {fleet: Model(one, profiles_of(one), physics, overheads) for fleet, one in topologies.items()}
        yield Stage(meshes, models, {fleet: mesh.pids() for fleet, mesh in meshes.items()})


def _warm_up(mesh: LiveMesh, random: Random) -> None:
    """Memory that was never written and code that never ran are slower."""
    prompts = (random.choices(TOKEN_IDS, k=WARM_UP_PROMPT) for _ in range(WARM_UP_REQUESTS))
    mesh.answers([Sending(0.0, prompt, WARM_UP_ANSWER) for prompt in prompts])


def choose_rates(
    contenders: Sequence[Contender], models: Mapping[Fleet, Model], pool: Sequence[TraceRequest], number: int
) -> list[float]:
    """Spread over where the simulator says that policies stop to keep the promise."""
    say("choosing rates by simulation")
    found = [_predicted_capacity(one, models[one.fleet], pool).rate for one in contenders]
    low, high = min(filter(None, found), default=FIRST_RATE) * BELOW, (max(found) or FIRST_RATE) * BEYOND
    if number == 1:
        return [float(f"{fmean((low, high)):.2g}")]
    return [float(f"{low + (high - low) * step / (number - 1):.2g}") for step in range(number)]


def _predicted_capacity(one: Contender, model: Model, pool: Sequence[TraceRequest]) -> FoundCapacity:
    def attainment_at(rate: float) -> float:
        trace = make_trace(pool, rate, SEARCH_REQUESTS, seed=0)
        return attained([(trace, model.predict(one.policy, trace))]).both

    return find_capacity(attainment_at, PROMISE, FIRST_RATE, SEARCH_PRECISION, SEARCH_RUNS)


def say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
