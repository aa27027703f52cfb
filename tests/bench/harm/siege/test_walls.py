"""Topologies, limits and the watch over processes."""

import os
import resource
import subprocess
import sys
import time

import pytest

from bench.harm.harm import PLAIN
from bench.harm.siege.attack import KEYED, TWO_HOSTS
from bench.harm.siege.ground import EXPIRED, HONEST, key_path
from bench.harm.siege.walls import KEYS, deploy
from bench.harm.siege.watch import Watch, limit, own, resident
from mesh.access.key_file import read_keys


@pytest.mark.parametrize(("wall", "hosts"), [(PLAIN, 1), (TWO_HOSTS, 2), (KEYED, 1)])
def test_topologies_are_valid(tmp_path, wall, hosts):
    deployment = deploy(wall, tmp_path)
    topology = deployment.topology
    assert len(topology.hosts) == len(deployment.hosts) == hosts
    assert (topology.curve_key is not None) == (hosts > 1)
    assert topology.gateways[0].port == deployment.ports[0]
    assert {engine.id for engine in topology.engines} == set(deployment.engines)


def test_only_hashes_of_keys_are_where_the_mesh_is(tmp_path):
    deploy(KEYED, tmp_path)
    honest = key_path(tmp_path, HONEST).read_text()
    keys = {key.name: key for key in read_keys(tmp_path / KEYS)}
    assert keys[HONEST].matches(honest.partition("-")[2].partition("-")[2])
    assert keys[EXPIRED].has_expired(time.time())
    assert honest not in (tmp_path / KEYS).read_text()


def test_a_process_may_not_write_to_much_more_than_it_has_at_rest():
    script = "input(); print(len(bytes(2**20)), flush=True); bytes(5 * 2**30)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as child:
        limit(child.pid)
        allowed, _ = resource.prlimit(child.pid, resource.RLIMIT_DATA)
        limit(child.pid)
        assert resource.prlimit(child.pid, resource.RLIMIT_DATA)[0] == allowed
        said, complained = child.communicate("\n")
    assert said.strip() == str(2**20)
    assert "MemoryError" in complained


def test_growth_and_what_is_kept_are_those_of_a_process():
    script = "input(); x = b'1' * 2**26; print(flush=True); input(); del x; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def step():
            child.stdin.write("\n")
            child.stdin.flush()
            child.stdout.readline()

        with Watch({"it": child.pid}) as watch:
            step()
            assert watch.kept()["it"] >= 2**26
            step()
            assert watch.growth()["it"] >= 2**26
            assert watch.kept()["it"] < 2**25
            child.kill()
        child.wait()
        assert watch.kept() == {}


def test_helpers_count_with_those_who_started_them():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        alone, together = own(os.getpid()), resident(os.getpid())
        with Watch({"all": os.getpid(), "me": os.getpid()}, alone={"me"}) as watch:
            pass
        child.kill()
    assert together > alone
    assert watch.growth().keys() == {"all", "me"}
