"""Kernels, torch, GPUs and models are judged by plain rules; torch itself is asked in a process of its own."""

import pytest

from engines.doctor import gpus, kernels, models
from engines.doctor.examiner import examine, glance
from engines.doctor.torch_report import TorchReport, ask_torch
from engines.models.cache import Cache
from mesh.doctor.findings import Health, Patient
from mesh.topology.parse import load
from mesh.topology.schema import ServiceSpec, Slo
from tests.engines.torch_engine.compiled import compiled

AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl"}
CPU_BUILD, CUDA_BUILD = TorchReport("2.13.0+cpu"), TorchReport("2.13.0", "12.8", ("H100",))


@pytest.mark.parametrize(
    ("flags", "sets"),
    [
        (AVX512 | {"avx512_vnni", "avx2", "fma"}, ["avx512_vnni", "avx512", "avx2"]),
        ({"avx2", "fma"}, ["avx2"]),
        ({"asimd", "asimddp"}, ["neon_dot", "neon"]),
        ({"sse2"}, []),
    ],
)
def test_processors_run_the_kernels_of_their_instruction_sets(flags, sets):
    assert kernels.sets_of(frozenset(flags)) == sets


def test_kernels_that_are_not_compiled_are_slow_and_say_why(monkeypatch):
    monkeypatch.setattr(kernels, "MODULE", "engines.torch_engine._no_such_kernels")
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    found = kernels.from_outside()
    assert found.health is Health.SLOW
    assert "this machine lacks a C compiler" in found.text
    assert found.mend.startswith("install a C compiler (gcc)")
    assert kernels.from_inside(CPU_BUILD) == found


def test_a_processor_without_the_instructions_is_slow(monkeypatch):
    monkeypatch.setattr(kernels, "MODULE", "engines.torch_engine.layers")  # some module that is there
    monkeypatch.setattr(kernels, "cpu_flags", lambda: frozenset({"sse2"}))
    assert kernels.from_outside().health is Health.SLOW


@compiled
def test_torch_is_asked_beside_and_names_the_kernels():
    report = ask_torch()
    assert (report.problem, list(report.kernels)) == ("", [*kernels.sets_of(kernels.cpu_flags()), "plain"])
    assert report.version


@pytest.mark.parametrize(
    ("known", "torch", "devices", "health"),
    [
        ([], CPU_BUILD, ["cpu"], Health.OK),
        ([], CPU_BUILD, ["cuda"], Health.BROKEN),
        (["H100"], CPU_BUILD, ["cpu"], Health.SLOW),
        (["H100"], CPU_BUILD, ["cuda:0"], Health.BROKEN),
    ],
)
def test_gpus_are_compared_with_what_is_wanted(known, torch, devices, health):
    assert gpus.examine(known, torch, devices).health is health


def test_a_gpu_that_all_can_use_is_well(monkeypatch):
    monkeypatch.setattr(gpus, "missing_extra", lambda *words: "")
    assert gpus.examine(["H100"], CUDA_BUILD, ["cuda"]).health is Health.OK


def test_models_that_are_not_there_are_broken(tmp_path):
    missing = models.model(ServiceSpec("s", str(tmp_path / "m.gguf"), Slo(1, 1)))
    later = models.model(ServiceSpec("s", "hf:org/name", Slo(1, 1)))
    assert (missing.health, later.health) == (Health.BROKEN, Health.OK)
    assert "first start" in later.text


def test_the_cache_is_where_it_would_be_made(tmp_path):
    found = models.cache(Cache(tmp_path / "a/b"))
    assert found.health in (Health.OK, Health.SLOW)
    assert str(tmp_path / "a/b") in found.text


def test_a_mesh_without_torch_engines_needs_no_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "MODULE", "engines.torch_engine._no_such_kernels")
    path = tmp_path / "t.toml"
    text = '[services.s]\nmodel = "hf:org/name"\n[engines.e]\n'
    path.write_text(text)
    assert [one.about for one in glance(Patient(load(path), "local"))] == ["kernels"]
    path.write_text(f'{text}backend = "simulated"\nprofile = "h100-llama2-70b-tp4"\n')
    assert list(glance(Patient(load(path), "local"))) == []


def test_a_transport_that_is_wanted_is_looked_for(tmp_path, monkeypatch):
    path = tmp_path / "t.toml"
    path.write_text('[services.s]\nmodel = "hf:org/name"\n[engines.e]\n[transfer]\ntransport = "nixl"\n')
    monkeypatch.setattr("engines.doctor.examiner.ask_torch", lambda: CPU_BUILD)
    for problem, health in (("it needs nixl: pip install 'x[nixl]'", Health.BROKEN), ("", Health.OK)):
        monkeypatch.setattr("engines.doctor.examiner.missing_transport", lambda _, problem=problem: problem)
        found = {one.about: one for one in examine(Patient(load(path), "local"))}
        assert found["nixl"].health is health
        assert found["nixl"].mend == problem[len("it needs nixl: ") :]


def test_without_torch_its_engines_are_broken(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "engines.doctor.examiner.missing_extra", lambda *words: "it needs torch: pip install 'x[torch]'"
    )
    path = tmp_path / "t.toml"
    path.write_text('[services.s]\nmodel = "hf:org/name"\n[engines.e]\n')
    found = {one.about: one for one in examine(Patient(load(path), "local"))}
    assert (found["torch"].health, found["torch"].mend) == (Health.BROKEN, "pip install 'x[torch]'")
    assert "cache" in found
