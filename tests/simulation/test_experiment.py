import gc
import tracemalloc

from simulation.cluster import Simulation
from simulation.experiment import Experiment
from simulation.loads.sources import ClosedLoad, TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.reports.summary import summarize
from tests.simulation.small import Profile, pair

SHORT = TraceRequest(0.0, 9, 2)  # its prompt fills no block, so that prefix caches keep nothing of it


def experiment(load):
    topology = pair()
    profiles = {engine.id: Profile() for engine in topology.engines}
    return Experiment(topology, profiles, "large", load, topology.policy)


def test_a_run_keeps_little_of_each_request(monkeypatch):
    """Its records alone would be 450 bytes each. Few runs are long enough for what the mesh learns to be all learnt."""
    kept_bytes = []

    def weigh(*arguments, **options):
        gc.collect()
        kept_bytes.append(tracemalloc.get_traced_memory()[0])
        return summarize(*arguments, **options)

    monkeypatch.setattr("simulation.experiment.summarize", weigh)
    for number in (10, 40, 120):  # the first makes what is made once
        tracemalloc.start()
        try:
            summary = experiment(ClosedLoad([SHORT], 8, 0.0, number)).run()
        finally:
            tracemalloc.stop()
        assert summary.num_requests == number
    assert kept_bytes[2] - kept_bytes[1] < 350 * 80


def test_the_mesh_is_gone_when_its_report_is_made(monkeypatch):
    """What a report takes for a moment finds its memory."""
    num_left = []

    def count(*arguments, **options):
        num_left.append(sum(type(one) is Simulation for one in gc.get_objects()))
        return summarize(*arguments, **options)

    monkeypatch.setattr("simulation.experiment.summarize", count)
    gc.collect()
    experiment(ClosedLoad([SHORT], 2, 0.0, 5)).run()
    assert num_left == [0]


def test_a_trace_knows_how_much_of_it_is_over():
    follow_up = TraceRequest(0.0, 9, 2, then=(SHORT, SHORT))
    load = TraceLoad([SHORT, follow_up])
    assert [load.share_done(0.0, number) for number in (0, 1, 4)] == [0.0, 0.25, 1.0]
