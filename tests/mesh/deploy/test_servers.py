"""Gateways in front of servers, rendered: servers stay where they are, and their keys are the gateways'."""

import pytest
import yaml

from mesh.errors import UserError
from mesh.topology.parse import load

TEXT = """
[services.chat]
tokenizer = "hf:acme/tiny"
[services.sums]
[engines.gpu]
backend = "openai"
url = ["http://gpu-1:8000", "http://gpu-2:8000"]
services = { chat = "acme/chat", sums = "acme/sums" }
api_key_env = "ACME_KEY"
[gateways.gateway]
[cluster]
on = "kubernetes"
[hosts.front]
memory = "2GiB"
[access]
open = true
[batches]
folder = "batches"
"""
ONE_MACHINE = TEXT.replace('[cluster]\non = "kubernetes"\n[hosts.front]\nmemory = "2GiB"\n', "")


def documents(rendering):
    return [one for file in rendering.files for one in yaml.safe_load_all(file.text)]


def topology_in(rendering, folder):
    """As containers read it."""
    texts = [
        text
        for one in documents(rendering)
        for text in [*one.get("data", {}).values(), *(c["content"] for c in one.get("configs", {}).values())]
    ]
    (folder / "seen.toml").write_text(texts[0].replace("$$", "$"))
    return load(folder / "seen.toml")


@pytest.mark.parametrize("target", ["kubernetes", "ray", "compose"])
def test_servers_and_what_gateways_keep_are_as_the_file_says(render, tmp_path, target):
    topology = topology_in(render(target, TEXT), tmp_path)
    assert [server.url for server in topology.servers.values()] == ["http://gpu-1:8000", "http://gpu-2:8000"]
    assert [service.name for service in topology.services] == ["chat", "sums"]
    assert str(topology.batches.folder) == "/var/lib/meshserve/batches"


def test_gateways_get_the_keys_of_servers(render):
    rendering = render("kubernetes", TEXT)
    [pods] = [one for one in documents(rendering) if one["kind"] == "StatefulSet"]
    [container] = pods["spec"]["template"]["spec"]["containers"]
    reference = {"secretKeyRef": {"name": "chat-server-keys", "key": "ACME_KEY"}}
    assert {"name": "ACME_KEY", "valueFrom": reference} in container["env"]
    assert any("generic chat-server-keys --from-literal=ACME_KEY=KEY" in note for note in rendering.notes)
    [compose] = documents(render("compose", ONE_MACHINE))
    assert compose["services"]["local"]["environment"]["ACME_KEY"].startswith("${ACME_KEY:?")
    assert any("Environment=ACME_KEY=KEY" in note for note in render("systemd", ONE_MACHINE).notes)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("http://gpu-1:8000", "http://localhost:8000", r"engines\.gpu\.url: http://localhost:8000 is the container"),
        (
            'api_key_env = "ACME_KEY"',
            'api_key_file = "acme.key"',
            r"engines\.gpu\.api_key_file: acme\.key is a path of",
        ),
        ("hf:acme/tiny", "./tiny", r"services\.chat\.tokenizer: \./tiny is a path of this machine"),
    ],
)
def test_what_a_container_would_not_see_is_one_clear_line(render, old, new, fault):
    with pytest.raises(UserError, match=fault):
        render("kubernetes", TEXT.replace(old, new))


ADAPTER = """
[services.chat]
model = "pypi:models==1.0/chat.gguf"
[services.sql]
base = "chat"
adapter = "adapters/sql"
[engines.engine]
services = ["chat"]
[access]
open = true
"""


def test_adapters_are_in_the_image(render):
    with pytest.raises(UserError, match=r"services\.sql\.adapter: adapters/sql is a path of this machine"):
        render("compose", ADAPTER)
