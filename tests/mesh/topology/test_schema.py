import pytest

from mesh.topology.parse import load
from mesh.topology.timing import HEARD_PER_S, SMALL_MESH, Timing


@pytest.mark.parametrize("num_processes", [2, SMALL_MESH])
def test_small_meshes_tell_news_at_once(num_processes):
    assert Timing.of(num_processes, {}) == Timing()


@pytest.mark.parametrize("num_processes", [SMALL_MESH + 1, 200, 201, 1000, 2000])
def test_nobody_hears_more_than_so_many_statuses(num_processes):
    timing = Timing.of(num_processes, {})
    assert num_processes / timing.status_gap_s == pytest.approx(HEARD_PER_S)
    assert num_processes / timing.heartbeat_s <= HEARD_PER_S * 1.000001
    assert timing.lease_s >= 5 * timing.heartbeat_s


def test_what_the_file_says_is_kept(tmp_path):
    path = tmp_path / "mesh.toml"
    path.write_text(
        "[mesh]\nheartbeat_ms = 300\nstatus_gap_ms = 0\n[services.a]\nmodel = 'm'\n"
        "[engines.e]\ncount = 600\nbackend = 'simulated'\nprofile = 'h100-llama2-70b-tp4'\n[gateways.g]\ncount = 40\n"
    )
    timing = load(path).timing
    assert timing.heartbeat_s == 0.3
    assert timing.status_gap_s == 0.0
    assert timing.lease_s == pytest.approx(5 * 0.641), "of all processes: engines, gateways and one supervisor"
