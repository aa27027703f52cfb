"""The whole of ``mesh profile`` on a tiny model."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from engines.costs.named_profiles import load_profile
from engines.models.cache import Cache
from engines.profiling.command import register
from engines.profiling.store import ProfileStore
from engines.torch_engine.backend import key_of, torch_backend
from mesh.errors import UserError
from mesh.topology.parse import load
from tests.mesh.show.looking import look_at_page, words_in_drawing
from tests.models.tiny_llama import write_tiny_model

TOPOLOGY = """
[services.tiny]
model = "{model}"
[engines.main]
backend = "{backend}"
count = 2
kv_memory = "{memory}"
chunk_tokens = 16
max_running = 4
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")


def write(folder: Path, backend: str = "torch", memory: str = "2MiB") -> Path:
    file = folder / "topology.toml"
    file.write_text(TOPOLOGY.format(model=write_tiny_model(folder / "model"), backend=backend, memory=memory))
    return file


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["profile", *arguments])
    return int(options.run(options))


def test_a_profile_is_shown_drawn_and_found_by_the_next_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    topology = load(write(tmp_path))
    files = ("--plot", str(tmp_path / "a.svg"), "--html", str(tmp_path / "a.html"))
    assert run(str(topology.path), "--repeats", "1", *files) == 0
    assert {"Decode step", "as fitted", "held out"} <= set(words_in_drawing(tmp_path / "a.svg"))
    assert "points held out of the fit" in look_at_page(tmp_path / "a.html").text
    out = capsys.readouterr().out
    assert "decode step" in out
    assert "b: requests that decode" in out
    engine, service = topology.engines[0], topology.services[0]
    path = ProfileStore.of(Cache.of_user()).path(key_of(engine, service))
    assert out.count("saved") == 1  # two engines alike
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    profile = load_profile(str(path))
    assert profile.kv_memory_bytes == 2 * 2**20
    model = torch_backend(engine, topology.services, ()).models["tiny"]
    assert model.cost == profile.cost


@pytest.mark.parametrize(
    ("backend", "memory", "fault"),
    [("simulated", "2MiB", "there is nothing to measure here"), ("torch", "16KiB", "main-0: too small to profile")],
)
def test_what_cannot_be_measured_is_said(tmp_path: Path, backend: str, memory: str, fault: str):
    file = write(tmp_path, backend, memory)
    with pytest.raises(UserError, match=fault):
        run(str(file))


def test_no_round_is_no_measurement(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run("--repeats", "0")
    assert "at least 1" in capsys.readouterr().err
