"""Manifests for KubeRay: equal to those that are kept; what is Kubernetes' own in them is right by the schemas."""

import kubernetes_validate
import pytest
import yaml

from mesh.errors import UserError
from mesh.topology.parse import load
from tests.mesh.deploy.conftest import CHAT, check_golden
from tests.mesh.deploy.test_kubernetes import OWN, VERSIONS, objects


def test_manifests_are_those_that_are_kept(render):
    check_golden("ray", render("ray"))


def test_what_is_of_kubernetes_is_right_by_the_schemas(render):
    made = objects(render("ray"))
    for one in made.values():
        for version in VERSIONS if one["apiVersion"] in (*OWN, "batch/v1") else ():
            kubernetes_validate.validate(one, version, strict=True)
    spec = made["RayCluster", "chat"]["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": group["template"]["spec"]}
        around = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pods"}, "spec": around}
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_ray_places_the_hosts(render, tmp_path):
    text = CHAT.replace('[cluster]\non = "kubernetes"\n', "").replace(
        "[hosts.front]\n", '[hosts.front]\naddress = "10.0.0.1"\n'
    )
    text = text.replace("count = 3\ncpus = 8\ngpus = 1\n", 'address = "10.0.0.2"\n', 1)
    text = (
        text.replace('labels = { zone = "a" }\n', "").replace('memory = "2GiB"\n', "").replace('memory = "64GiB"\n', "")
    )
    with pytest.raises(UserError, match=r"hosts\.front\.memory: missing"):
        render("ray", text)
    data = objects(render("ray"))["ConfigMap", "chat-topology"]["data"]["chat.toml"]
    (tmp_path / "pod.toml").write_text(data)
    topology = load(tmp_path / "pod.toml")
    assert str(topology.cluster.on) == "ray"
    assert [host.name for host in topology.hosts] == ["front", "worker-0", "worker-1", "worker-2"]


def test_a_worker_has_room_for_one_host(render):
    _, workers = objects(render("ray"))["RayCluster", "chat"]["spec"]["workerGroupSpecs"]
    assert (workers["groupName"], workers["replicas"]) == ("worker", 3)
    assert workers["rayStartParams"] == {"num-cpus": "8", "memory": str(64 * 2**30), "labels": "zone=a"}
    [container] = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_another_topology_is_another_job(render):
    names = [
        next(name for kind, name in objects(render("ray", text)) if kind == "Job")
        for text in (CHAT, CHAT.replace("count = 3\ncpus", "count = 4\ncpus"))
    ]
    assert names[0] != names[1]
    assert yaml.safe_load(render("ray").files[0].text.split("---")[-1])["kind"] == "Job"
