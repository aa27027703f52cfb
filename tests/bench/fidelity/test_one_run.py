"""What one run of a topology is compared by."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from bench.fidelity.agreement import Latency, errors
from bench.fidelity.one_run import LEARNT, PROFILE, Found, Load, learnt_profiles
from bench.fidelity.overheads import Overheads, Sharing
from bench.harness.machine import Conditions
from bench.live.mesh import LiveMesh
from bench.load.results.outcome import Outcome
from engines.costs.named_profiles import load_profile
from mesh.topology.parse import load
from simulation.engines.shared_profiles import SharedProfile

FLAT = load_profile("bench/fidelity/flat.toml")
OUTCOME = Outcome(0, "a", 0.0, 0.0, 0.0, 5.0, 8, 5, first_s=1.0, last_s=5.0)


def found(slowness: float) -> Found:
    return Found(Path("a"), [OUTCOME], [], {}, {}, Overheads(0.0, 0.0, 1.0), Sharing(), Conditions(), slowness)


def test_what_was_measured_on_a_slow_machine_is_divided_for_the_profile_alone():
    slow = found(2.0)
    assert slow.measured["r0"] == slow.measured_at_the_speed_of(LEARNT)["r0"] == Latency(1.0, 1.0, 5.0)
    assert slow.measured_at_the_speed_of(PROFILE)["r0"] == Latency(0.5, 0.5, 2.5)


def test_errors_are_named_and_signed():
    said = errors({"r0": Latency(1.0, None, 2.0)}, {"r0": Latency(1.1, None, 1.5)})
    assert {name: pytest.approx(value) for name, value in said.items()} == {
        **{f"TTFT {statistic}": 0.1 for statistic in ("mean", "p50", "p90", "p99")},
        **{f"end to end {statistic}": -0.25 for statistic in ("mean", "p50", "p90", "p99")},
    }


def test_a_load_asks_for_every_service_within_its_bounds():
    topology = load(Path("deploy/shared.toml"))
    drawn = Load(200, 2.0, (4, 9), (1, 3)).draw(topology, Random(0))
    assert {one.service for one in drawn} == {service.name for service in topology.services}
    assert all(4 <= one.num_input <= 9 and 1 <= one.num_output <= 3 for one in drawn)
    assert drawn[-1].at_s == pytest.approx(100.0, rel=0.3)


class Mesh:
    """Says what its engines learnt."""

    def __init__(self, *services: Mapping[str, Any]) -> None:
        self._services = services

    def status(self) -> dict[str, Any]:
        return {"engines": [{"id": "engine", "services": self._services}]}


def test_each_service_of_an_engine_gets_what_was_learnt_of_it():
    slow, fast = ({"name": name, **costs(step_s)} for name, step_s in (("slow", 0.4), ("fast", 0.1)))
    shared = SharedProfile({"slow": FLAT, "fast": FLAT}, FLAT.kv_memory_bytes, 1)
    mesh = cast(LiveMesh, Mesh(fast, slow))
    learnt = cast(SharedProfile, learnt_profiles(mesh, {"engine": shared})["engine"])
    assert {name: one.decode.fixed_s for name, one in learnt.services.items()} == {"slow": 0.4, "fast": 0.1}
    alone = learnt_profiles(cast(LiveMesh, Mesh(slow)), {"engine": FLAT})["engine"]
    assert alone == replace(FLAT, prefill=alone.prefill, decode=alone.decode)  # type: ignore[union-attr]


def costs(step_s: float) -> dict[str, Any]:
    return {
        "prefill_cost": {"fixed_s": 0.0, "per_token_s": 0.001},
        "decode_cost": {"fixed_s": step_s, "per_request_s": 0.0},
    }
