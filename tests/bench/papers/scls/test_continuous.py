"""The bench of slices with continuous batching, in simulation and live: its cases are what it says they are."""

import pytest

from bench.models.references import DEFAULT_MODEL
from bench.papers.scls.continuous import SLICES, Case, Contender, _contenders, run_case
from bench.papers.scls.live import TOPOLOGY, contenders, draw
from mesh.topology.parse import load


def case(memory, contender, rate=12.0):
    return Case(memory, contender, rate, 6.0, 0)


def test_where_memory_is_scarce_slices_replace_preemptions():
    plain, sliced = (run_case(case("40 GB", one, 25.0)) for one in (Contender("plain"), Contender("sliced", 64)))
    assert plain.preempted > 0
    assert plain.offloaded == plain.kept == 0
    assert sliced.preempted == 0
    assert sliced.offloaded > 0
    assert sliced.running > 0


def test_where_there_is_memory_for_all_slices_change_nothing():
    plain, sliced = (run_case(case("80 GB", one, 6.0)) for one in (Contender("plain"), Contender("sliced", 64)))
    assert sliced.offloaded == 0
    assert sliced.kept > 0
    assert (sliced.mean_s, sliced.ttft_p99_s) == pytest.approx((plain.mean_s, plain.ttft_p99_s))


def test_contenders_differ_by_their_slices_only():
    topologies = [case("40 GB", one).topology() for one in _contenders(SLICES)]
    assert len({one.engines[0].slice_tokens for one in topologies}) == len(SLICES) + 2
    assert {one.policy.name for one in topologies} == {"least_loaded"}
    scarce, rich = (case(memory, Contender("")).profile().kv_memory_bytes for memory in ("40 GB", "80 GB"))
    assert scarce < rich / 4


def test_live_contenders_are_topologies_that_load(tmp_path):
    made = contenders(16, ["torch", "transformers"])
    assert [one.name for one in made if "transformers" in one.engine] == ["SLS, transformers", "SCLS, transformers"]
    for one in made:
        path = tmp_path / "mesh.toml"
        fields = {"ttft_ms": one.ttft_ms, "engine": one.engine, "policy": one.policy}
        path.write_text(TOPOLOGY.format(model=DEFAULT_MODEL, memory="32MiB", port=8000, **fields))
        assert len(load(path).engines) == 2
    assert draw(9, 2.0, 1) == draw(9, 2.0, 1) != draw(9, 2.0, 2)
