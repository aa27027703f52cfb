"""The wheel holds all that a mesh needs: in an empty environment with nothing but it, the byte model is served.

What it depends on is that of the environment of the tests, which a path file names; nothing is fetched.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from email.parser import Parser
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from mesh.process.fork_server import SHARED
from tests.end_to_end.conftest import free_port

ROOT = Path(__file__).parents[2]
BYTE_MODEL = ROOT / "deploy/models/byte-llama"
DEADLINE_S = 100
Mesh = Callable[..., "subprocess.CompletedProcess[str]"]
EXTRAS = {"torch", "vllm", "ray", "gpu", "bench"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(_sources(folder))]
    environment = {**os.environ, "CC": "false"}  # kernels take long to compile, and the wheel is whole without them
    command = [sys.executable, "-m", "pip", *build]
    subprocess.run(command, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL, env=environment)
    [found] = folder.glob("meshserve-*.whl")
    return found


def _sources(folder: Path) -> Path:
    """The files that belong to the project, without what earlier builds left beside them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    copy = folder / "sources"
    for name in filter(None, listed.stdout.split("\0")):
        if name.startswith(("tests/", "docs/")) or not (ROOT / name).is_file():
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of an environment in which the wheel is installed, and nothing else."""
    environment = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=DEADLINE_S)
    python = environment / "bin/python"
    install = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-compile", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=DEADLINE_S)
    [packages] = (environment / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


@pytest.fixture
def mesh(python, tmp_path, monkeypatch) -> Iterator[Mesh]:
    """Run a command of the installed program, away from the sources."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv(SHARED, raising=False)

    def mesh(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(python.parent / "mesh"), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    with TemporaryDirectory(prefix="mesh") as runtime:  # names of sockets are short
        monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", runtime)
        yield mesh


def test_it_says_what_each_extra_brings(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
        names = set(archive.namelist())
    requirements = metadata.get_all("Requires-Dist") or []
    heavy = [line for line in requirements if line.startswith(("torch", "transformers", "gguf", "vllm", "ray"))]
    assert set(metadata.get_all("Provides-Extra") or []) >= EXTRAS
    assert heavy
    assert all("extra ==" in line for line in heavy)
    assert {"engines/costs/presets.toml", "mesh/py.typed", "bench/fidelity/flat.toml"} <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_it_serves_the_byte_model(mesh, python, tmp_path):
    port = str(free_port())
    serve = ["serve", str(BYTE_MODEL), "--port", port, "--engines", "1", "--threads", "1", "--kv-memory", "64MiB"]
    ready = mesh(*serve, "--detach")
    try:
        assert f"ready: http://127.0.0.1:{port}" in ready.stdout, ready.stderr
        [engine] = json.loads(mesh("status", "--json").stdout)["engines"]
        assert (engine["state"], engine["services"][0]["name"]) == ("ready", "byte-llama")
        assert "\nslow: kernels: not compiled" in ready.stdout
        asked = {"model": "byte-llama", "prompt": "hello", "max_tokens": 8}
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=asked, timeout=DEADLINE_S)
        assert answer.json()["usage"]["completion_tokens"] == 8
        where = mesh("doctor", "--json")
        assert json.loads(where.stdout)["health"] in ("ok", "slow")
        assert str(python) in where.stdout
    finally:
        assert mesh("down").stdout == "mesh 'byte-llama' is stopped\n"


def test_without_torch_a_missing_extra_is_one_line(mesh, python, tmp_path, monkeypatch):
    """A module that cannot be found, as in an environment without the extra."""
    (tmp_path / "hidden").mkdir()
    names = "('torch', 'safetensors', 'transformers', 'gguf')"
    (tmp_path / "hidden/sitecustomize.py").write_text(
        "import importlib.util, importlib.machinery as m, sys\n"
        "found = m.PathFinder.find_spec\n"
        f"def find(name, *rest):\n    return None if name.partition('.')[0] in {names} else found(name, *rest)\n"
        "m.PathFinder.find_spec = find\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
    refused = mesh("serve", str(BYTE_MODEL), "--port", str(free_port()), "--engines", "1")
    assert (refused.returncode, refused.stderr) == (
        2,
        'engine: backend = "torch" needs torch and safetensors, not installed for this interpreter: '
        "pip install 'meshserve[torch]'\n",
    )
    simulated = ROOT / "deploy/simulated.toml"
    assert mesh("check", str(simulated)).returncode == 0
    (tmp_path / "lengths.csv").write_text("input_tokens,output_tokens\n300,150\n")
    assert mesh("simulate", str(simulated), "--lengths", "lengths.csv", "--rate", "4", "--limit", "5").returncode == 0
    assert mesh("doctor").returncode == 1
