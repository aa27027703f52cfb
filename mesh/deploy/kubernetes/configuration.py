"""Objects that pods read: the topology, its profiles, and the key of the mesh where it is to be among the manifests."""

from pathlib import Path

from mesh.deploy.containers import CURVE_FILE, profile_files, topology_file
from mesh.deploy.deployment import Deployment
from mesh.deploy.kubernetes.naming import config_name, curve_secret, manifest
from mesh.deploy.serialised import Object


def configuration(deployment: Deployment, text: str) -> list[Object]:
    """``text``: the topology as pods read it."""
    topology = deployment.topology
    data = {Path(topology_file(topology)).name: text, **profile_files(deployment)}
    objects = [manifest("v1", "ConfigMap", topology, config_name(topology), data=data)]
    if deployment.curve_key is not None:
        secret = {CURVE_FILE: deployment.curve_key}
        objects.append(manifest("v1", "Secret", topology, curve_secret(topology), type="Opaque", stringData=secret))
    return objects
