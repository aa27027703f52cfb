"""What is compiled, and what that means for what holds it."""

import pickle
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path

from engines.costs.named_profiles import load_profile
from simulation.command.outputs import Outputs
from simulation.compiled.modules import COMPILED
from simulation.experiment import Experiment
from simulation.loads.sources import TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.reports.packed import PackedRecords
from simulation.split.split_run import StretchJob, StretchRecords
from simulation.split.stretches import Stretch
from tests.simulation.small import SERVICE, pair


class Seeing(pickle.Unpickler):
    """Remembers the classes of what it reads."""

    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data))
        self.classes: set[type] = set()

    def find_class(self, module: str, name: str) -> object:
        found = super().find_class(module, name)
        if isinstance(found, type):
            self.classes.add(found)
        return found


def test_what_goes_to_processes_and_comes_back_can_do_so_where_it_is_compiled():
    """Pickle sets the fields of what does not say how it is made. Those of frozen dataclasses cannot be set there."""
    topology, profile = pair(), load_profile("a100-llama2-70b-tp4")
    profiles = {engine.id: profile for engine in topology.engines}
    load = TraceLoad([TraceRequest(0.0, 9, 2)])
    run = Experiment(topology, profiles, SERVICE, load, topology.policy, outputs=Outputs(Path("there")))
    job = StretchJob(run, Stretch(0, 0.0, 0.0, 9.0, 0, 1))
    seeing = Seeing(pickle.dumps((job, StretchRecords(PackedRecords()))))
    read, _ = seeing.load()
    assert read.run.slo == run.slo
    assert len(seeing.classes) > 10
    assert {one.__name__ for one in seeing.classes if _is_set_by_pickle(one)} == set()


def _is_set_by_pickle(one: type) -> bool:
    is_compiled = one.__module__ in COMPILED and is_dataclass(one) and bool(fields(one))
    return is_compiled and one.__reduce__ is object.__reduce__
