import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engines.costs.step_cost import StepCost
from engines.profiling.store import ProfileStore, profile_key, profile_of
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import KVShape

ENGINE = EngineSpec("main", Role.MULTIPLEX, ("tiny",), threads=2)
SERVICE = ServiceSpec("tiny", "/model", Slo(1.0, 0.1))
SHAPE = KVShape(2, 2, 16, 8, "float32")
COSTS = StepCost(PrefillCost(0.1, 0.01), DecodeCost(0.2, 0.02))


def test_what_was_saved_is_found_under_its_key(tmp_path: Path):
    store, profile = ProfileStore(tmp_path / "profiles"), profile_of(ENGINE, SERVICE, SHAPE, COSTS, "measured", {})
    store.save("key", profile)
    assert store.load("key") == profile
    assert profile.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert profile.kv_bytes_per_request == profile.kv_bytes_per_token * 7 // 2
    assert profile.profile().kv_bytes(10) == 10 * profile.kv_bytes_per_token + profile.kv_bytes_per_request
    assert [file.name for file in store.folder.iterdir()] == ["key.toml"]


def test_of_those_that_need_a_profile_at_once_one_measures_and_the_others_wait(tmp_path: Path):
    profile, num_measured = profile_of(ENGINE, SERVICE, SHAPE, COSTS, "measured", {}), 0
    begin = threading.Barrier(4)

    def start() -> None:
        nonlocal num_measured
        store = ProfileStore(tmp_path / "profiles")
        begin.wait(10)
        with store.measuring("key") as known:
            if known is None:
                num_measured += 1
                time.sleep(0.1)
                store.save("key", profile)
            else:
                assert known == profile

    with ThreadPoolExecutor(4) as engines:
        for started in [engines.submit(start) for _ in range(4)]:
            started.result()
    assert num_measured == 1


def test_who_failed_to_measure_leaves_it_to_the_next(tmp_path: Path):
    store = ProfileStore(tmp_path)

    def fail() -> None:
        with store.measuring("key"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with store.measuring("key") as known:
        assert known is None


def test_nothing_usable_is_none(tmp_path: Path):
    store = ProfileStore(tmp_path)
    store.path("bad").write_text("prefill = 3")
    assert store.load("bad") is None
    assert store.load("missing") is None


def test_every_part_is_of_the_key():
    assert profile_key(model="a", threads=1) == profile_key(threads=1, model="a")
    assert len({profile_key(model="a", threads=1), profile_key(model="a", threads=2), profile_key(model="b")}) == 3
