"""Simulates a measured closed loop: an engine with a preset's costs that imitates a serving system."""

from dataclasses import dataclass
from random import Random
from statistics import fmean

from bench.fidelity.silicon.runs import SiliconRun
from bench.simulated import make_fleet, modelled_engine
from engines.costs.profiles import load_profile
from engines.costs.serving_systems import ServingSystem
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from simulation.engines.direct import DirectEngines
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.quiet import quiet_engines

SERVICE = "model"
LONG = Slo(1e6, 1e6)
ROUNDS = 10  # requests, in terms of the concurrency: what such measurements usually send


@dataclass(frozen=True, slots=True)
class Latencies:
    """Means over the requests of a run, in seconds."""

    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Loop:
    """A run to be simulated."""

    run: SiliconRun
    system: ServingSystem
    seed: int = 0

    def requests(self) -> list[TraceRequest]:
        run, random = self.run, Random(f"{self.seed}/{self.run.preset}/{self.run.concurrency}")
        lengths = (run.lengths.draw(random, run.num_input, run.num_output) for _ in range(run.concurrency * ROUNDS))
        return [TraceRequest(0.0, prompt, answer, service=SERVICE) for prompt, answer in lengths]


def simulate(loop: Loop) -> Latencies:
    """Return the latencies of a closed loop, from its first request to its last."""
    profile = loop.system.on(load_profile(loop.run.preset))
    engine = modelled_engine("engine", SERVICE, loop.run.preset, imitates=loop.run.system, **loop.system.settings)
    topology = make_fleet("silicon", ServiceSpec(SERVICE, "", LONG), [engine], PolicySpec("join_shortest_queue"))
    engines = DirectEngines(topology, {"engine": profile}, seed=loop.seed, physics=Physics(latency_s=0.0))
    with quiet_engines():
        records = engines.run_closed(loop.requests(), loop.run.concurrency)
    ttft_s = [record.ttft_s for record in records if record.ttft_s is not None]
    tpot_s = [record.tpot_s for record in records if record.tpot_s is not None]
    return Latencies(fmean(ttft_s), fmean(tpot_s))
