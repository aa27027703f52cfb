"""The bench of slices with continuous batching, in simulation and live: its cases are what it says they are."""

from dataclasses import replace

import pytest

from bench.papers.scls.continuous import NUM_WORKERS, SLICES, Case, make_contenders
from bench.papers.scls.live import contenders, draw, topology_text
from bench.papers.scls.run import run_case
from bench.papers.scls.setting import Kind
from mesh.topology.parse import load

PLAIN, *_ = make_contenders(SLICES)
SLICED = replace(PLAIN, name="sliced", slice_tokens=64)


def case(memory, contender, rate=12.0):
    return Case(Kind.DS, contender, rate, 6.0, 0, NUM_WORKERS, memory)


def test_where_memory_is_scarce_slices_replace_preemptions():
    plain, sliced = (run_case(case("40 GB", one, 25.0)) for one in (PLAIN, SLICED))
    assert plain.preempted > 0
    assert plain.offloaded == plain.kept == 0
    assert sliced.preempted == 0
    assert sliced.offloaded > 0
    assert sliced.running > 0


def test_where_there_is_memory_for_all_slices_change_nothing():
    plain, sliced = (run_case(case("80 GB", one, 6.0)) for one in (PLAIN, SLICED))
    assert sliced.offloaded == 0
    assert sliced.kept > 0
    assert (sliced.mean_s, sliced.ttft_p99_s) == pytest.approx((plain.mean_s, plain.ttft_p99_s))


def test_contenders_differ_by_their_slices_only():
    topologies = [case("40 GB", one).topology() for one in make_contenders(SLICES)]
    assert len({one.engines[0].slice_tokens for one in topologies}) == len(SLICES) + 2
    assert {one.policy.name for one in topologies} == {"least_loaded"}
    scarce, rich = (case(memory, PLAIN).profile().kv_memory_bytes for memory in ("40 GB", "80 GB"))
    assert scarce < rich / 4


def test_live_contenders_are_topologies_that_load(tmp_path):
    made = contenders(16, ["torch", "transformers"])
    assert [one.name for one in made if "transformers" in one.engine] == ["SLS, transformers", "SCLS, transformers"]
    for one in made:
        path = tmp_path / "mesh.toml"
        path.write_text(topology_text(one, "32MiB"))
        assert len(load(path).engines) == 2
    assert draw(9, 2.0, 1) == draw(9, 2.0, 1) != draw(9, 2.0, 2)
