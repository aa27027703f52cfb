"""What can be said of a transformers engine before it computes."""

import importlib.metadata
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engines.backend import Backend
from engines.loading import load
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, Draw
from engines.torch_engine.backend import open_memory as torch_memory
from engines.torch_engine.shape import kv_shape
from engines.transformers_engine.versions import installed_transformers
from kvtransfer.layout import KVLayout
from kvtransfer.peer_memories import PeerMemories
from mesh.errors import UserError
from mesh.topology.parse import load as load_topology
from mesh.topology.schema import EngineSpec, Scheduling, ServiceSpec
from mesh.wire.requests import Sampling
from tests.engines.contract.computers import FOLDER

VERSION = installed_transformers()
DTYPES = "float32", "bfloat16"  # of a and b
TOPOLOGY = f"""
[services.a]
model = "{FOLDER}"
[services.b]
model = "{FOLDER}"
dtype = "bfloat16"
[engines.e]
backend = "transformers"
services = ["a"]
block_size = 24
kv_memory = "KV"
[engines.f]
services = ["b"]
"""


@pytest.fixture
def topology(tmp_path):
    def make(kv="8MiB"):
        path = tmp_path / "t.toml"
        path.write_text(TOPOLOGY.replace("KV", kv))
        return load_topology(path)

    return make


@pytest.fixture
def installed(monkeypatch):
    real = importlib.metadata.version

    def pretend(found):
        def version(name):
            if name != "transformers":
                return real(name)
            if found is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return found

        monkeypatch.setattr(importlib.metadata, "version", version)

    return pretend


def test_it_batches_statically_unless_told_otherwise(topology):
    assert topology().engine("e").scheduling is Scheduling.PADDED


def test_without_transformers_an_engine_says_what_to_do(topology, installed, monkeypatch):
    installed(None)
    for name in [name for name in sys.modules if name.startswith(("transformers", "engines.transformers_engine."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)  # to import it fails
    made = topology()
    with pytest.raises(UserError, match=r"not installed .* extra: pip install 'meshserve\[transformers\]'") as error:
        load(made, made.engines[0], PeerMemories())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", ["4.57.1", "6.0.0"])
def test_another_transformers_is_refused(installed, version):
    installed(version)
    with pytest.raises(UserError, match=rf"transformers {version} is installed, .* made for transformers 5; .*extra"):
        installed_transformers()


def transformers_backend(
    engine: EngineSpec, services: Sequence[ServiceSpec], later: Sequence[ServiceSpec] = ()
) -> Backend:
    """It takes seconds to import, and those only here: all workers collect this file."""
    from engines.transformers_engine.backend import transformers_backend as make

    return make(engine, services, later, VERSION)


def test_memory_for_no_block_is_refused(topology):
    made = topology(kv="1KiB")
    with pytest.raises(UserError, match=r"engines\.e: kv_memory: 1024 bytes .* hold no block"):
        transformers_backend(made.engine("e"), [made.service("a")])


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_one_line(topology, device):
    made = topology()
    with pytest.raises(UserError, match=rf"^engines\.e: device {device}: [^\n]+$"):
        transformers_backend(replace(made.engine("e"), device=device), [made.service("a")])


def test_weights_beyond_their_limit_are_refused(topology):
    made = topology()
    engine = replace(made.engine("e"), weight_memory_bytes=1000)
    with pytest.raises(UserError, match=r"engines\.e: weights of a take .* more than its weight_memory"):
        transformers_backend(engine, [made.service("a")])


def test_blocks_count_what_a_torch_engine_would_hold_and_take_next_to_nothing(topology, tmp_path, monkeypatch):
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path))
    made = topology()
    engine, spec = made.engine("e"), made.service("a")
    backend = transformers_backend(engine, [spec])
    there = torch_memory(engine, [spec])
    assert len(backend.models["a"].memory) == there.layout.num_pages
    assert backend.memory.layout.num_pages * backend.memory.layout.page_bytes < engine.kv_memory_bytes / 2
    backend.memory.close()
    there.close()


@pytest.fixture
def shared(topology, tmp_path, monkeypatch) -> Backend:
    """An engine with one service, made for another one, whose blocks are half as large."""
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path))
    made = topology()
    return transformers_backend(made.engine("e"), [made.service("a")], [made.service("b")])


def test_services_share_pages_as_on_a_torch_engine(topology, shared):
    made = topology()
    a, b = shared.models["a"].memory, shared.add(made.service("b")).memory
    there = torch_memory(made.engine("e"), [made.service("a"), made.service("b")])
    theirs = [KVLayout(kv_shape(ModelConfig.load(Path(FOLDER)), dtype, 24), there.layout) for dtype in DTYPES]
    assert [(one.layout.slots, len(one)) for one in (a, b)] == [(one.slots, one.num_blocks) for one in theirs]
    assert (a.layout.slots, b.layout.slots) == (1, 2)
    there.close()


def test_services_come_and_go_while_others_compute(topology, shared):
    def draw(service: str, request: str) -> int | None:
        chunk = Chunk(request, [1, 2, 3], 0, (), Draw(Sampling(max_tokens=4, seed=0, temperature=0.0), [1, 2, 3], 3, 3))
        return shared.executor.execute(Batch(service, [chunk])).chunks[0].token

    shared.add(topology().service("b"))
    first = draw("a", "one")
    assert draw("b", "two") is not None
    shared.remove("b")
    assert draw("a", "three") == first
    with pytest.raises(KeyError):
        shared.executor.shape("b")
    shared.add(topology().service("b"))
    assert draw("b", "four") is not None


def test_a_service_that_the_pages_were_not_made_for_is_refused(topology):
    made = topology()
    backend = transformers_backend(made.engine("e"), [made.service("b")])
    with pytest.raises(UserError, match="not made for blocks of a; start the engine again with it among its services"):
        backend.add(made.service("a"))
