"""Serving systems that modelled engines imitate."""

import pytest

from engines.costs.presets import load_preset
from engines.costs.profiles import ProfileError, ProfileFile
from engines.costs.serving_systems import imitating, serving_system, serving_system_names
from engines.costs.step_cost import StepLoad
from mesh.topology.schema import EngineSpec, Scheduling
from mesh.wire.control import Role

ENGINE = EngineSpec("e", Role.MULTIPLEX, ("chat",), backend="simulated", imitates="vllm-0.12")


def test_an_engine_that_imitates_nobody_keeps_its_profile():
    profile = load_preset("h100-qwen3-32b-tp2")
    assert imitating(EngineSpec("e", Role.MULTIPLEX, ("chat",)), profile) is profile


def test_kernels_get_the_systems_host_and_less_memory():
    kernels = load_preset("h100-qwen3-32b-tp2")
    hosted, system = imitating(ENGINE, kernels), serving_system("vllm-0.12")
    load = StepLoad((), 8, 8000)
    more_s = (system.per_step_ms + 8 * system.per_request_ms) / 1e3
    assert sum(hosted.cost.parts(load)) == pytest.approx(sum(kernels.cost.parts(load)) + more_s)
    assert hosted.kv_memory_bytes == int(system.kv_part * kernels.kv_memory_bytes)


def test_what_was_measured_as_a_whole_has_its_host_already():
    measured = load_preset("h100-llama2-70b-tp4-splitwise")
    as_system = imitating(ENGINE, measured)
    assert (as_system.cost, as_system.kv_memory_bytes) == (measured.cost, measured.kv_memory_bytes)
    assert as_system.server is not None
    assert as_system.server.request_s == pytest.approx(serving_system("vllm-0.12").request_ms / 1e3)


def test_a_kept_profile_has_its_host(tmp_path):
    hosted = imitating(ENGINE, load_preset("h100-qwen3-32b-tp2"))
    assert ProfileFile.of(hosted).profile().host_request_s == hosted.host_request_s > 0


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ProfileError, match=r"unknown serving system 'vlm-0.12'; did you mean 'vllm-0.12'\?"):
        serving_system("vlm-0.12")


@pytest.mark.parametrize("name", ["vllm-0.19", "vllm-1.0", "vllm"])
def test_a_version_that_was_not_measured_is_answered_with_those_that_were(name):
    with pytest.raises(ProfileError, match=rf"^'{name}' was not measured; of vllm, use vllm-0.12 or vllm-0.18$"):
        serving_system(name)


@pytest.mark.parametrize("name", serving_system_names())
def test_every_system_is_named_for_its_kind_and_version(name):
    system = serving_system(name)
    assert name == f"{system.kind}-{system.version}"
    assert system.settings["scheduling"] in Scheduling
    assert system.source
