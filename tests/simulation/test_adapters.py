"""Requests with LoRA adapters in virtual time: they share their base's engines, batches and tallies."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engines.adapters.folder import AdapterFolder
from engines.costs.step_cost import StepCost
from engines.models.files.model_config import ModelConfig
from mesh.topology.schema import Topology
from mesh.wire.control import Role
from simulation.loads.trace_request import TraceRequest
from tests.engines.adapters.writing import write_adapter
from tests.models.tiny_llama import write_tiny_model
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, pair, run, simulation, topology

WEIGHT_S = 1e-7


@dataclass(frozen=True, slots=True)
class AdapterProfile(Profile):
    @property
    def cost(self) -> StepCost:
        return StepCost(self.prefill, self.decode, adapter_weight_s=WEIGHT_S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    config = ModelConfig.load(write_tiny_model(folder / "model"))
    for seed, name in enumerate("ab"):
        write_adapter(folder / name, config, seed=seed)
    return folder


def with_adapters(what: Topology, folder: Path) -> Topology:
    [base] = what.services
    return replace(what, adapters=tuple(replace(base, name=n, base=SERVICE, adapter=folder / n) for n in "ab"))


def test_an_adapter_costs_its_base_and_a_term_a_step(folder: Path):
    what = with_adapters(topology({"only": Role.MULTIPLEX}, "colocated"), folder)
    plain, adapted = (
        run(what, [TraceRequest(0.0, 1000, 50, service=name)], profile=AdapterProfile())[0] for name in (SERVICE, "a")
    )
    term_s = WEIGHT_S * AdapterFolder.read(folder / "a").num_weights
    assert adapted.service == "a"
    assert adapted.tpot_s == pytest.approx(plain.tpot_s + term_s)
    assert adapted.ttft_s == pytest.approx(plain.ttft_s + term_s, rel=1e-2)  # and until it is loaded


def test_they_are_handed_over_with_their_adapters_and_counted_for_their_base(folder: Path):
    what = with_adapters(pair(), folder)
    trace = [TraceRequest(0.05 * i, 300 + 10 * i, 20, service=[SERVICE, "a", "b"][i % 3]) for i in range(30)]
    sim, records = simulation(what), list[object]()
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    assert {record.service for record in records} == {SERVICE, "a", "b"}
    tallies = [tally for gateway in sim.gateways.values() for tally in gateway.core.status(0.0).services]
    assert [(tally.name, tally.arrived, tally.ended) for tally in tallies] == [(SERVICE, 30, 30)]
