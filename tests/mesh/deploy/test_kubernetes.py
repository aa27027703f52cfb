"""Manifests: equal to those that are kept, right by the schemas of Kubernetes, and refused in one line each."""

import kubernetes_validate
import pytest
import yaml

from mesh.deploy.kubernetes.naming import host_address
from mesh.errors import UserError
from mesh.topology.parse import load
from tests.mesh.deploy.conftest import CHAT, check_golden

VERSIONS = ("1.31", "1.37")
OWN = ("v1", "apps/v1", "policy/v1", "networking.k8s.io/v1")  # the others are custom resources
ALL = {"keda_secret": "operator", "storage": "50Gi", "endpoint_picker": "picker"}


def objects(rendering):
    found = [made for file in rendering.files for made in yaml.safe_load_all(file.text)]
    return {(made["kind"], made.get("metadata", {}).get("name")): made for made in found}


def container(made):
    [one] = made["spec"]["template"]["spec"]["containers"]
    return one


def faults(render, text, **settings):
    with pytest.raises(UserError) as found:
        render("kubernetes", text, **settings)
    return str(found.value)


def test_manifests_are_those_that_are_kept(render):
    check_golden("kubernetes", render("kubernetes", **ALL))


@pytest.mark.parametrize("settings", [{}, ALL, {"with_secret": True}], ids=["plain", "all", "secret"])
def test_manifests_are_right_by_the_schemas(render, settings):
    found = [made for made in objects(render("kubernetes", **settings)).values() if made["apiVersion"] in OWN]
    assert {made["kind"] for made in found} >= {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy"}
    for made in found:
        for version in VERSIONS:
            kubernetes_validate.validate(made, version, strict=True)


def test_pods_read_a_topology_that_knows_their_names(render, tmp_path):
    made = objects(render("kubernetes"))
    data = made["ConfigMap", "chat-topology"]["data"]
    assert data["chat.toml"].count("[cluster]") == 0
    (tmp_path / "pod.toml").write_text(data["chat.toml"])
    topology = load(tmp_path / "pod.toml")
    addresses = {host.name: host.address for host in topology.hosts}
    assert addresses["front"] == "chat-front-0.chat-front"
    assert addresses["worker-2"] == "chat-worker-2.chat-worker"
    assert {host.bind for host in topology.hosts} == {"*"}
    assert made["StatefulSet", "chat-worker"]["spec"]["serviceName"] == "chat-worker"
    assert container(made["StatefulSet", "chat-worker"])["args"][3] == "worker-$(POD_INDEX)"
    assert container(made["StatefulSet", "chat-front"])["args"][3] == "front"


def test_paths_are_those_of_the_container(render):
    data = objects(render("kubernetes"))["ConfigMap", "chat-topology"]["data"]
    assert data.keys() == {"chat.toml", "h100.toml"}
    assert 'profile = "h100.toml"' in data["chat.toml"]
    assert 'curve_key = "/etc/meshserve-curve/mesh.key"' in data["chat.toml"]
    assert 'keys = "/etc/meshserve-access/keys.json"' in data["chat.toml"]


def test_the_key_is_a_secret_by_name_unless_it_is_to_be_put_in(render):
    assert ("Secret", "chat-curve-key") not in objects(render("kubernetes"))
    assert any("chat-curve-key" in note for note in render("kubernetes").notes)


def test_the_key_is_put_in_when_asked_for(render):
    rendering = render("kubernetes", with_secret=True)
    assert "secret" in objects(rendering)["Secret", "chat-curve-key"]["stringData"]["mesh.key"]
    assert not any("chat-curve-key" in note for note in rendering.notes)


def test_a_mesh_of_one_host_has_one_pod_and_no_key(render):
    text = '[access]\nopen = true\n[services.chat]\nmodel = "hf:org/chat"\n[engines.main]\n'
    made = objects(render("kubernetes", text))
    [name] = [name for kind, name in made if kind == "StatefulSet"]
    assert (name, made["StatefulSet", name]["spec"]["replicas"]) == ("chat-local", 1)
    volumes = made["StatefulSet", name]["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes if "secret" in volume] == []


def test_pods_have_a_key_where_ray_would_have_handed_it_over(render):
    text = CHAT.replace('curve_key = "mesh.key"', "").replace('on = "kubernetes"', 'on = "ray"')
    volumes = objects(render("kubernetes", text))["StatefulSet", "chat-front"]["spec"]["template"]["spec"]["volumes"]
    assert "chat-curve-key" in str(volumes)


def test_a_pod_has_time_to_drain(render):
    spec = objects(render("kubernetes", CHAT.replace("[mesh]", "[mesh]\ndrain_s = 100")))["StatefulSet", "chat-worker"]
    assert spec["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 300
    assert "mesh drain" in str(container(spec)["lifecycle"])


def test_a_gateway_that_answers_to_some_names_is_asked_by_one(render):
    text = CHAT.replace('host = "front"\n\n[engines', 'host = "front"\nallowed_hosts = ["llm.example"]\n\n[engines')
    probe = container(objects(render("kubernetes", text))["StatefulSet", "chat-front"])["readinessProbe"]["httpGet"]
    assert probe["httpHeaders"] == [{"name": "Host", "value": "llm.example"}]


def test_pods_that_keda_counts_are_not_counted_by_the_manifest(render):
    made = objects(render("kubernetes", keda_secret="operator"))
    assert "replicas" not in made["StatefulSet", "chat-worker"]["spec"]
    scaler = made["ScaledObject", "chat-worker"]["spec"]
    assert (scaler["minReplicaCount"], scaler["maxReplicaCount"]) == (1, 3)
    assert "standby" not in made["ConfigMap", "chat-topology"]["data"]["chat.toml"]
    assert objects(render("kubernetes"))["StatefulSet", "chat-worker"]["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('[access]\nkeys = "keys.json"\n', "", "access: missing"),
        (
            'model = "hf:org/chat"',
            'model = "models/chat"',
            "services.chat.model: models/chat is a path of this machine",
        ),
        ("[hosts.front]", f"[hosts.{'x' * 60}]\n[hosts.front]", "a name has 52 letters at most"),
        ("[hosts.front]", "[hosts.Front]\n[hosts.front]", "hosts.front: would be called chat-front, as hosts.Front"),
        ('[gateways.gateway]\nhost = "front"', '[gateways.gateway]\nhost = "worker"', "1 gateways on 3 hosts"),
        ("costs/h100.toml", "costs/chat.toml", "two files would be /etc/meshserve/chat.toml"),
        ('backend = "simulated"', 'backend = "simulated"\npython = "venv/bin/python"', "engines.chat.python"),
    ],
)
def test_what_pods_cannot_have_is_one_clear_line(render, old, new, fault):
    text = faults(render, CHAT.replace(old, new))
    assert fault in text
    assert "Traceback" not in text
    assert text.startswith("/")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("[scaling]", "", "scaling: missing"),
        ('keys = "keys.json"', "open = true", "access.keys: missing"),
        ('[engines.chat]\nhost = "worker"', '[engines.chat]\nhost = "front"', "hosts.front: its hosts come and go"),
    ],
)
def test_what_keda_cannot_scale_is_one_clear_line(render, old, new, fault):
    assert fault in faults(render, CHAT.replace(old, new), keda_secret="operator")


def test_a_secret_needs_a_key_file(render):
    assert "mesh.curve_key" in faults(
        render, '[access]\nopen = true\n[services.a]\nmodel = "hf:a/b"\n[engines.main]\n', with_secret=True
    )


def test_names_of_hosts_are_those_of_pods(read):
    from mesh.deploy.host_pools import host_pools

    topology = read().topology
    _, workers = host_pools(topology)
    assert host_address(topology, workers, "1") == "chat-worker-1.chat-worker"
