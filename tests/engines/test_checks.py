"""What engines say of a topology before anything starts."""

import json
import shutil
from contextlib import nullcontext
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from engines.checks import check
from engines.models.files.model_config import ModelConfig
from mesh.added.tables import read_tables
from mesh.errors import UserError
from mesh.topology.further import CHECKS
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from tests.engines.adapters.writing import write_adapter
from tests.engines.contract.computers import FOLDER
from tests.models.tiny_llama import write_tiny_model

SERVICE = '[services.tiny]\nmodel = "pypi:a==1/b.gguf"\n'
KNOWN = 'backend = "simulated"\nprofile = "h100-llama2-70b-tp4"\n'


def topology(folder: Path, *engines: str, service: str = "") -> Topology:
    tables = [f"[engines.e{number}]\n{engine}\n" for number, engine in enumerate(engines)]
    (folder / "t.toml").write_text("".join([SERVICE, service, "\n", *tables]))
    return load(folder / "t.toml")


def test_it_is_among_the_checks_of_the_command():
    assert check in [entry.load() for entry in entry_points(group=CHECKS)]


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        (
            'backend = "simulated"',
            r't\.toml: engines\.e1: backend = "simulated" needs a profile, such as profile = "h100',
        ),
        ('profile = "h100-lama2-70b-tp4"', r"t\.toml: engines\.e1: .*did you mean 'h100-llama2-70b-tp4'\?"),
        ('profile = "none.toml"', r"t\.toml: engines\.e1: profile .*none\.toml: No such file"),
    ],
)
def test_a_profile_that_is_not_there(tmp_path: Path, engine: str, fault: str):
    with pytest.raises(UserError, match=fault):
        check(topology(tmp_path, KNOWN, engine))


def test_promises_that_not_even_an_idle_engine_keeps(tmp_path: Path):
    [remark] = check(topology(tmp_path, KNOWN, service="ttft_ms = 1"))
    assert remark.startswith("services.tiny.ttft_ms: 1 can never be met: one token takes ")


@pytest.mark.parametrize("engines", [(KNOWN,), (KNOWN, ""), ("",)])
def test_nothing_to_remark(tmp_path: Path, engines: tuple[str, ...]):
    """Promises that can be kept, or that engines may keep that nobody has measured."""
    service = "" if engines == (KNOWN,) else "ttft_ms = 1"
    assert check(topology(tmp_path, *engines, service=service)) == []


HERE = '[services.tiny]\nmodel = "{model}"\n[engines.e]\n'
ELSEWHERE = '[hosts.far]\naddress = "10.0.0.5"\n'


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("none", "model .*/none: no such folder; a model is "),
        ("none.gguf", "model .*/none.gguf: No such file or directory"),
        ("", ".*/config.json"),
    ],
)
def test_a_model_that_is_named_by_its_path_is_there(tmp_path: Path, model: str, fault: str):
    """Unless it may be on another host."""
    path = tmp_path / "t.toml"
    path.write_text(HERE.format(model=tmp_path / model))
    with pytest.raises(UserError, match=rf"t\.toml: services\.tiny\.model: {fault}"):
        check(load(path))
    added = read_tables(tmp_path / "a.toml", f'[services.more]\nmodel = "{tmp_path / model}"\nengines = ["e"]\n')
    path.write_text(HERE.format(model="hf:a/b"))
    with pytest.raises(UserError, match=rf"^services\.more\.model: {fault}"):
        check(load(path, added=added))
    path.write_text(HERE.format(model=tmp_path / model) + ELSEWHERE)
    [remark] = check(load(path))
    assert remark.startswith("services.tiny.model: ")
    assert remark.endswith("hosts that serve it must have it)")


ADAPTER = """
[services.chat]
model = "model"
[services.sql]
base = "chat"
adapter = "sql"
[engines.one]
adapter_memory = "{memory}"
"""


@pytest.mark.parametrize(
    ("memory", "changes", "words"),
    [
        ("64MiB", {}, ""),
        ("1KiB", {}, "takes 0.03 MiB, and adapter_memory of engines.one is 0.00 MiB; give it more"),
        ("64MiB", {"use_dora": True}, "DoRA adapters are not served"),
        ("64MiB", {"layers": [7]}, "has a layer 7, and chat has 2 layers"),
    ],
)
def test_adapters_are_read_before_anything_starts(tmp_path: Path, memory: str, changes: dict[str, Any], words: str):
    config = ModelConfig.load(write_tiny_model(tmp_path / "model"))
    write_adapter(tmp_path / "sql", config, **changes)
    (tmp_path / "mesh.toml").write_text(ADAPTER.replace("{memory}", memory))
    topology = load(tmp_path / "mesh.toml")
    with nullcontext() if not words else pytest.raises(UserError) as refused:
        check(topology)
    if refused is not None:
        assert str(refused.value).startswith(f"{tmp_path}/mesh.toml: services.sql.adapter: ")
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"vocab_size": 300}, "it has 300 tokens, and not 258"),
        ({}, "token '<none>' is 257 there, and none here"),
    ],
)
def test_a_draft_model_has_the_tokens_of_what_it_drafts_for(tmp_path: Path, change: dict[str, int], fault: str):
    other = tmp_path / "other"
    shutil.copytree(FOLDER, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | change))
    text = (other / "tokenizer.json").read_text()
    services = f"""[services.a]
model = "{FOLDER}"
speculation = "draft_model"
draft = "b"
[services.b]
model = "{other}"
[engines.e]
"""
    (tmp_path / "t.toml").write_text(services)
    found = load(tmp_path / "t.toml")
    if not change:
        assert check(found) == []
        (other / "tokenizer.json").write_text(text.replace("<|end|>", "<none>"))
    with pytest.raises(UserError, match=rf"t\.toml: services\.a\.draft: {fault}: b cannot write drafts for a; take a "):
        check(found)


def test_a_transport_that_is_not_installed_here_is_remarked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "t.toml"
    path.write_text('[services.s]\nmodel = "hf:org/name"\n[engines.e]\n[transfer]\ntransport = "nixl"\n')
    monkeypatch.setattr("engines.checks.missing_transport", lambda setting: f"{setting} is missing")
    assert check(load(path)) == ["nixl is missing"]
