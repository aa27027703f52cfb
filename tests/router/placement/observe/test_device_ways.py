"""Plans use devices in another way only if somebody knows what that costs, and nobody saw it fail lately."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from mesh.topology.parse import load
from mesh.wire.control import Role
from router.placement.change.obstacles import Obstacles
from router.placement.observe.device_ways import DeviceWays
from router.placement.observe.devices import Devices
from router.placement.observe.running_mesh import catalogue_of, present_plan
from router.placement.search.span import regrouped
from tests.router.cluster import M0, make_status

PROFILE = 'profile = "a100-llama3-8b-tp2"\n'
TEXT = """\
[services.a]
model = "m"
[engines.n]
count = 2
backend = "simulated"
profile = "a100-llama3-8b-tp1"
[engines.w]
spans = ["n"]
backend = "simulated"
"""
STATUS = replace(make_status(M0, services=("a",)), num_devices=1)
MESH = {"n-0": STATUS, "n-1": STATUS}
LONGEST = {"a": 100}


def ways_of(tmp_path: Path, text: str) -> tuple[DeviceWays, Devices]:
    path = tmp_path / "t.toml"
    path.write_text(text)
    topology = load(path)
    return DeviceWays.of(topology), Devices(topology)


def test_a_profile_tells_what_an_engine_costs_that_never_ran(tmp_path: Path):
    ways, devices = ways_of(tmp_path, TEXT + PROFILE)
    known = ways.complete(catalogue_of(MESH.values(), LONGEST, 2), LONGEST)
    assert known.profile("a", 1).decode == STATUS.services[0].decode_cost, "what runs knows better"
    assert known.profile("a", 2).name == "a100-llama3-8b-tp2"
    assert known.footprints["a"][2].kv_bytes == 100 * known.profile("a", 2).kv_bytes_per_token
    [usable] = ways.usable(present_plan(MESH), known)
    assert usable.names == {"n-0", "n-1", "w"}
    assert usable.spanning.kv_bytes == pytest.approx(known.profile("a", 2).kv_memory_bytes, rel=0.04)
    assert devices.not_known(MESH.values()) == []


def test_without_a_profile_no_plan_uses_it_which_is_said_once(tmp_path: Path):
    text = TEXT.replace('backend = "simulated"\nprofile = "a100-llama3-8b-tp1"', "").replace('"simulated"', '"vllm"')
    text = text.replace("[engines.n]\n", '[engines.n]\nbackend = "vllm"\nblock_size = 32\n')
    ways, devices = ways_of(tmp_path, text + "block_size = 32\noptions = { tensor_parallel_size = 2 }\n")
    assert ways.usable(present_plan(MESH), ways.complete(catalogue_of(MESH.values(), LONGEST, 2), LONGEST)) == ()
    [line] = devices.not_known(MESH.values())
    assert line.startswith("no plan uses w: nobody knows what an engine of its size costs")
    assert devices.not_known(MESH.values()) == []
    ran = replace(STATUS, num_devices=2)
    assert ways.usable(present_plan(MESH), catalogue_of([STATUS, ran], LONGEST, 2)) != ()


def test_an_engine_that_does_not_run_keeps_the_role_that_its_batches_need(tmp_path: Path):
    ways, _ = ways_of(tmp_path, TEXT + PROFILE + 'scheduling = "static"\n')
    present = present_plan(MESH)
    [span] = ways.spans
    obstacles = ways.obstacles(Obstacles.of(MESH), present, ways.spans)
    wide = dataclasses.replace(span.spanning, role=Role.DECODE)
    wanted = regrouped(present, span.spanned, [wide])
    assert "w runs static batches" in (obstacles.against(present, wanted) or "")
    assert obstacles.against(present, regrouped(present, span.spanned, [span.spanning])) is None


def test_engines_that_did_not_start_are_left_out_for_some_intervals(tmp_path: Path):
    _, devices = ways_of(tmp_path, TEXT + PROFILE)
    devices.did_not_begin(["w"], 3)
    here = present_plan(MESH)

    def usable(interval: int) -> bool:
        ways = devices.ways(interval)
        return bool(ways.usable(here, ways.complete(catalogue_of(MESH.values(), LONGEST, 2), LONGEST)))

    assert [usable(interval) for interval in (4, 8, 9)] == [False, False, True]
