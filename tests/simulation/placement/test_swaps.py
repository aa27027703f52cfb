"""Engines that hold one of two services exchange them in a simulation, in the time of the device's link."""

from dataclasses import replace

from mesh.topology.schema import PlacementSpec
from router.history.records import Outcome
from router.placement.change.replacement import Proposal, Verdict
from router.placement.search.question import Answer
from router.placement.search.score import Score
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.placement.daemon import SearchResult
from tests.simulation.placement import mesh

WEIGHTS = mesh.PRESET.weight_bytes
SPEC = PlacementSpec(interval_s=20.0, shortest_s=20.0, longest_s=20.0)
NOTHING = Score({})


def exchange(question):
    """What the first engine holds, the second one is to hold, and the reverse; once."""
    first, second = question.present.groups
    plan = question.present.with_groups(first.holding(["s1"]), second.holding(["s0"]))
    verdict = Verdict.KEEP if plan == question.present else Verdict.REPLACE
    return SearchResult(Answer(Proposal(plan, verdict, NOTHING, NOTHING, 2), {}), 1.0)


def test_two_engines_exchange_their_services_and_lose_no_request():
    what = mesh.topology([("s0",), ("s1",)], SPEC)
    engines = [replace(one, weight_memory_bytes=WEIGHTS * 3 // 2, staging_memory_bytes=WEIGHTS) for one in what.engines]
    what = replace(what, engines=tuple(engines), services=what.services[:2])
    physics, notes, records = Physics(), [], []
    simulation = Simulation(
        what,
        dict.fromkeys([spec.id for spec in engines], mesh.PROFILE),
        seed=0,
        physics=physics,
        slo=SloRule(),
        coasts=True,
        search=exchange,
        on_note=lambda now, note: notes.append((now, note.line)),
    )
    trace = [TraceRequest(0.5 * number, 200, 400, service=f"s{number % 2}") for number in range(100)]
    simulation.run("s0", trace, records.append)
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    held = {name: set(engine.core._services) for name, engine in simulation.engines.items()}
    assert held == {"engine-0": {"s1"}, "engine-1": {"s0"}}
    swapping = [at for at, line in notes if ": swapping" in line]
    loading, over = (next(at for at, line in notes if words in line) for words in (": loading", "is carried out"))
    assert swapping[0] - loading >= WEIGHTS / mesh.PRESET.weight_bytes_per_s, "weights are read before anything leaves"
    link_s = WEIGHTS / physics.host_bytes_per_s
    assert over - swapping[0] >= 2 * link_s, "then they are copied, one engine after the other"
    assert len(swapping) >= 2
